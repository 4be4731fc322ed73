"""Puts compiled kernels into the wheel, so that nobody needs a C compiler to use it.

On Linux with an x86-64 processor the wheel is one for this platform, with a library for each level of processors and
each type of numbers. Elsewhere, or without a compiler, it is one for all platforms, and kernels are compiled on first
use, as they are after an editable install.
"""

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

KERNELS = "smc_transformer/kernels"


class KernelHook(BuildHookInterface):
    """Called by hatchling before and after it writes a wheel."""

    folder: str | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or sys.platform != "linux" or platform.machine() != "x86_64":
            return
        building = self._module("building")
        compiler = building.c_compiler()
        if compiler is None:
            self.app.display_warning("no C compiler was found: the wheel has no kernels (compiled on first use)")
            return
        self.folder = tempfile.mkdtemp(prefix="smc-transformer-wheel-")
        try:
            libraries = self._build(building, compiler)
        except (subprocess.SubprocessError, OSError) as error:
            output = getattr(error, "stderr", None) or str(error)
            self.app.display_warning(f"the kernels could not be compiled, and are not in the wheel: {output.strip()}")
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag(libraries)}"
        build_data["force_include"].update({str(path): f"{KERNELS}/built/{path.name}" for path in libraries})

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _build(self, building: ModuleType, compiler: list[str]) -> list[Path]:
        made_from, levels = building.digest(), self._module("levels").LEVELS

        def build(number: str, level: str) -> Path:
            made = Path(str(self.folder), f"kernels-{number}-{level}-{made_from}.so")
            building.build(compiler, number, (f"-march={level}",), made)
            return made

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as workers:
            jobs = [workers.submit(build, number, level) for level in levels for number in building.NUMBERS]
            return [job.result() for job in jobs]

    def _module(self, name: str) -> ModuleType:
        """A file of the package by itself: the package imports torch, which the build does not need."""
        spec = importlib.util.spec_from_file_location(name, Path(self.root, "src", KERNELS, f"{name}.py"))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


def platform_tag(libraries: list[Path]) -> str:
    """The oldest glibc that has every symbol the libraries ask for (PEP 600); they need nothing but glibc.

    Symbols carry versions such as GLIBC_2.34. Other C libraries, such as musl, have none: what is built there is for
    machines like this one.
    """
    versions = {
        tuple(map(int, version.split(b".")[:2]))
        for path in libraries
        for version in re.findall(rb"\0GLIBC_([0-9.]+)(?=\0)", path.read_bytes())
    }
    if not versions:
        return "linux_x86_64"
    major, minor = max(versions)
    return f"manylinux_{major}_{minor}_x86_64"
