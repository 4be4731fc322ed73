"""Work that the machine's memory cannot hold is refused before it begins.

Else the system would end the process, or torch would say how many bytes it could not get, and not what for.
"""

import os


def machine_memory() -> float:
    """Bytes of memory of this machine; infinite where the system does not tell."""
    try:
        found = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):  # such names are not known everywhere
        return float("inf")
    return found if found > 0 else float("inf")


def check_memory(n_bytes: int, what: str) -> None:
    """Raise a `MemoryError` if so many bytes, which `what` needs at least, are more than the machine has."""
    there = machine_memory()
    if n_bytes > there:
        raise MemoryError(
            f"{what} would need at least {n_bytes / 2**30:.0f} GiB of memory, and there are {_gib(there)}"
        )


def _gib(n_bytes: float) -> str:
    return f"{n_bytes / 2**30:.1f}".removesuffix(".0")
