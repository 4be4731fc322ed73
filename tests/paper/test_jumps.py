"""Which steps come right after a jump."""

import math

import torch

from smct_paper.jumps import AFTER, right_after_jumps

NAN = math.nan


def naive(x, train, after=AFTER):
    """One comparison at a time."""
    n_targets = x.shape[-1]
    found = torch.zeros(len(x), x.shape[1] - 1, n_targets, dtype=torch.bool)
    for target in range(n_targets):
        sizes = sorted(
            abs(float(w[t + 1, target] - w[t, target]))
            for w in train
            for t in range(len(w) - 1)
            if not (w[t + 1, target] - w[t, target]).isnan()
        )
        rare = sizes[int(0.99 * (len(sizes) - 1))]
        for place, window in enumerate(x):
            for step in range(1, len(window)):
                for before in range(max(1, step - after), step):
                    if abs(float(window[before, target] - window[before - 1, target])) > rare:
                        found[place, step - 1, target] = True
    return found


def test_as_a_naive_loop_finds_them():
    generator = torch.Generator().manual_seed(0)
    train = torch.randn(30, 9, 2, generator=generator).cumsum(dim=1)
    x = 2 * torch.randn(40, 12, 2, generator=generator).cumsum(dim=1)
    train[torch.rand(train.shape, generator=generator) < 0.1] = NAN
    x[torch.rand(x.shape, generator=generator) < 0.1] = NAN
    found = right_after_jumps(x, train)
    torch.testing.assert_close(found, naive(x, train))
    assert 0.05 < found.double().mean() < 0.95


def test_the_step_of_the_jump_is_not_after_it():
    train = torch.randn(50, 10, 1, generator=torch.Generator().manual_seed(1))
    x = torch.zeros(1, 9, 1)
    x[0, 3:] = 100.0  # between step 2 and step 3
    assert right_after_jumps(x, train)[0, :, 0].tolist() == [False] * 3 + [True] * AFTER + [False] * 2


def test_a_column_that_was_never_seen_has_no_jumps():
    x = torch.tensor([0.0, 1000.0, 0.0, 0.0]).view(1, 4, 1)
    assert not right_after_jumps(x, torch.full((3, 4, 1), NAN)).any()
