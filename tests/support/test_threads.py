"""Work in threads: every row once, the same numbers for any number of threads, and errors are not lost."""

import numpy as np
import pytest
import torch

from smc_transformer.support.threads import in_threads


@pytest.fixture(params=[1, 2, 5])
def torch_threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("n_rows", [0, 1, 8, 9, 100, 1001])
def test_every_row_is_done_once(n_rows, torch_threads):
    times = np.zeros(n_rows, dtype=int)

    def work(chosen):
        times[chosen] += 1

    in_threads(work, n_rows)
    assert (times == 1).all()


def test_errors_are_raised(torch_threads):
    def work(chosen):
        if chosen.stop > 90:
            raise ValueError("row 90")

    with pytest.raises(ValueError, match="row 90"):
        in_threads(work, 100)
