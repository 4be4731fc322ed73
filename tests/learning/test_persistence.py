"""Draws are dealt out to paths anew: steps keep their distributions, sums get the width that held-out sums ask for."""

import numpy as np
import pytest

from smc_transformer.learning.persistence import persistence, persistent


def independent(n_sequences, n_paths, horizon, seed=0):
    return np.random.default_rng(seed).normal(size=(n_sequences, n_paths, horizon, 1))


def together(n_sequences, horizon, correlation, seed=1):
    """Steps of variance 1 with the same correlation between any two of them: (sequence, horizon, target)."""
    random = np.random.default_rng(seed)
    own, common = random.normal(size=(n_sequences, horizon, 1)), random.normal(size=(n_sequences, 1, 1))
    return np.sqrt(1 - correlation) * own + np.sqrt(correlation) * common


def coverage(paths, observed, level):
    sums = paths.sum(axis=2)
    lower, upper = np.quantile(sums, [(1 - level) / 2, (1 + level) / 2], axis=1)
    total = observed.sum(axis=1)
    return ((lower <= total) & (total <= upper)).mean()


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_distribution_of_every_step_stays_to_the_bit(share):
    paths = independent(3, 50, 6) ** 3
    dealt = persistent(paths, share)
    np.testing.assert_array_equal(np.sort(dealt, axis=1), np.sort(paths, axis=1))
    assert (dealt == paths).all() == (share == 0.0)


def test_with_a_share_of_one_paths_keep_their_order():
    dealt = persistent(independent(2, 40, 5), 1.0)[..., 0]
    order = dealt.argsort(axis=1)
    assert (order == order[:, :, :1]).all()


def test_targets_are_dealt_out_for_themselves():
    both = np.concatenate((independent(2, 30, 4, 0), independent(2, 30, 4, 1)), axis=-1)
    dealt = persistent(both, 0.5)
    for target in range(2):
        np.testing.assert_array_equal(dealt[..., target], persistent(both[..., target : target + 1], 0.5)[..., 0])


def test_sums_get_the_width_that_held_out_sums_ask_for():
    """Draws are independent, the truth has correlation 0.5: the deviation of a sum of 8 is 6 instead of 2.83."""
    paths, observed = independent(2000, 200, 8), together(2000, 8, 0.5)
    assert coverage(paths, observed, 0.8) < 0.5
    share = persistence(paths, observed)
    fresh = persistent(independent(2000, 200, 8, 5), share)
    # Four standard errors of 2000 sums are 0.036 and 0.019; the share is found from as many, and shrunk by a twentieth.
    assert coverage(fresh, together(2000, 8, 0.5, 6), 0.8) == pytest.approx(0.8, abs=0.05)
    assert coverage(fresh, together(2000, 8, 0.5, 6), 0.95) == pytest.approx(0.95, abs=0.03)


def test_nothing_is_changed_where_sums_are_as_wide_as_they_should_be():
    assert persistence(independent(2000, 200, 8), together(2000, 8, 0.0)) < 0.03
    assert persistence(independent(2000, 200, 8), 0.5 * together(2000, 8, 0.0)) == 0.0  # nor where they are too wide


def test_missing_steps_and_few_sums():
    paths, observed = independent(300, 100, 4), together(300, 4, 0.5)
    whole = persistence(paths[:150], observed[:150])
    observed[150:, 2] = np.nan  # sums that do not count
    assert persistence(paths, observed) == pytest.approx(whole, abs=0.02)
    assert persistence(paths[:99], observed[:99]) == 0.0
    one_step = independent(300, 100, 1)
    assert persistence(one_step, together(300, 1, 0.5)) == 0.0
