"""What the tests of the kernels share."""

import ctypes
import importlib
import subprocess
from collections import Counter

import pytest
import torch

from smc_transformer.kernels import building

loader = importlib.import_module("smc_transformer.kernels.library")  # the package has a function of that name

ENTRIES = (
    "particle_filter",
    "mutate_particles",
    "inherit_trajectories",
    "perturb_trajectories",
    "perturb_trajectories_backward",
    "attend_trajectories",
    "attend_trajectories_backward",
    "replay_forward",
    "replay_backward",
    "draw_paths",
    "encode_trees",
    "fill_normal",
    "fill_normal_rows",
    "invert_masses",
)


class Calls(Counter):
    """How often each C function was called, and with how many threads."""

    def __init__(self):
        super().__init__()
        self.threads = set()

    def counting(self, name, function):
        def counted(*arguments):
            self[name] += 1
            self.threads.add(arguments[-1])
            return function(*arguments)

        return counted


@pytest.fixture
def calls(monkeypatch):
    """The calls of C functions: proof that a comparison was not one of torch with torch."""
    counted = Calls()
    for dtype in (torch.float32, torch.float64):
        kernels = loader.find(torch.empty(0, dtype=dtype))
        if kernels in ("no C compiler was found", "kernels are switched off"):
            pytest.skip(kernels)
        assert not isinstance(kernels, str), kernels
        for name in ENTRIES:
            monkeypatch.setattr(kernels, name, counted.counting(name, getattr(kernels, name)))
    return counted


@pytest.fixture
def set_threads(monkeypatch):
    """Sets torch's number of threads, for this test only, and has the kernels use them for the smallest task."""
    before = torch.get_num_threads()
    monkeypatch.setattr(loader, "WORK_OF_A_THREAD", 1)
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Compiles C code that includes files of the kernels, to reach what is not a part of their face."""
    compiler = building.c_compiler()
    if compiler is None:
        pytest.skip("no C compiler on this machine")

    def compile_code(code):
        folder = tmp_path_factory.mktemp("compiled")
        (folder / "code.c").write_text(code)
        options = [*building.FLAGS, "-march=native", "-shared", f"-I{building.FOLDER}"]
        command = [
            *compiler,
            *options,
            str(folder / "code.c"),
            str(building.FOLDER / "pool.c"),
            "-o",
            str(folder / "code.so"),
            "-lm",
        ]
        subprocess.run(command, check=True, capture_output=True)
        return ctypes.CDLL(str(folder / "code.so"))

    return compile_code
