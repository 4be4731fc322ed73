"""The levels of x86-64 processors that a wheel has kernels for, and those that this processor reaches.

The levels are those of the System V ABI for AMD64, which gcc and clang know as -march=x86-64-v3 and so on. Python's own
library only, as in building.py.
"""

import platform
from pathlib import Path

_V2 = frozenset({"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"})
_V3 = _V2 | {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"}
_V4 = _V3 | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}
LEVELS = {"x86-64-v4": _V4, "x86-64-v3": _V3, "x86-64-v2": _V2}
"""What each needs, best first, by the names of Linux (where pni is SSE3 and abm has LZCNT)."""


def reached() -> list[str]:
    """The levels of this processor, best first; none on another system than Linux, where it cannot be asked."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return []
    has = set(processor_flags().partition(":")[2].split())
    return [level for level, needs in LEVELS.items() if needs <= has]


def processor_flags() -> str:
    """The line of /proc/cpuinfo that says what the processor, and the system with it, can do, or ""."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
