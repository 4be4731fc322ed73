"""What the tests of the kernels share."""

from collections import Counter

import pytest
import torch

from smc_transformer.kernels import library
from smc_transformer.kernels.library import _compiler

ENTRIES = (
    "particle_filter",
    "mutate_particles",
    "inherit_lines",
    "perturb_lines",
    "perturb_lines_backward",
    "fill_normal",
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
    if _compiler() is None:
        pytest.skip("no C compiler on this machine")
    counted = Calls()
    for dtype in (torch.float32, torch.float64):
        kernels = library(torch.empty(0, dtype=dtype))
        assert kernels is not None, "there is a compiler, but no kernels"
        for name in ENTRIES:
            monkeypatch.setattr(kernels, name, counted.counting(name, getattr(kernels, name)))
    return counted


@pytest.fixture
def set_threads():
    """Sets torch's number of threads, for this test only."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)
