import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from smc_transformer.smc import (
    WeightCollapseError,
    effective_sample_size,
    normalise,
    reweight,
    uniform_log_weights,
)

LOGS = np.array([[-1.0, 0.5, 2.0, -3.0], [0.0, 0.0, -7.0, 1.0]])
WEIGHTS = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]], dtype=torch.float64)
DENSITIES = torch.tensor([[0.5, 1.5, 0.1, 2.0], [0.01, 3.0, 0.2, 0.0]], dtype=torch.float64)
NOTHING = -math.inf

log_masses = st.lists(st.floats(-30.0, 30.0), min_size=1, max_size=20)


@pytest.mark.parametrize("shift", [0.0, -1e4, 1e4])
def test_normalise_agrees_with_the_naive_formula_at_any_scale(shift):
    # The naive formula cannot take logs of -10 000, but a shift of all logs only shifts the total.
    masses = np.exp(LOGS)
    weights, log_total = normalise(torch.tensor(LOGS + shift))
    np.testing.assert_allclose(weights.exp(), masses / masses.sum(axis=1, keepdims=True), rtol=1e-10)
    np.testing.assert_allclose(log_total, np.log(masses.sum(axis=1)) + shift, rtol=1e-12)


@pytest.mark.parametrize("shift", [-1e4, -1e6])
def test_float32_weights_sum_to_one_however_unlikely_the_observation(shift):
    # At -1e6 float32 steps by 1/16: the logs below are exact, their total is not.
    weights, _ = normalise(torch.tensor([0.0, -1.0, 0.5, -2.0]) + shift)
    assert weights.exp().sum().item() == pytest.approx(1.0, rel=1e-6)


def test_normalise_keeps_weights_that_are_too_small_for_their_exponential():
    weights, log_total = normalise(torch.tensor([0.0, -1e4]))
    assert weights.tolist() == [0.0, -1e4]
    assert log_total.item() == 0.0


def test_normalise_takes_any_leading_axes():
    log_weights = torch.tensor(LOGS).reshape(2, 2, 2)
    weights, log_total = normalise(log_weights)
    assert log_total.shape == (2, 2)
    torch.testing.assert_close(weights.exp().sum(dim=-1), torch.ones(2, 2, dtype=torch.float64))


def test_uniform_weights_are_equal_and_sum_to_one():
    weights = uniform_log_weights(torch.empty(3, 5, dtype=torch.float64)).exp()
    torch.testing.assert_close(weights, torch.full((3, 5), 0.2, dtype=torch.float64))


@pytest.mark.parametrize("n_particles", [1, 2, 1000])
def test_effective_sample_size_of_equal_weights_is_their_number(n_particles):
    log_weights = uniform_log_weights(torch.empty(1, n_particles, dtype=torch.float64))
    assert effective_sample_size(log_weights).item() == pytest.approx(n_particles, rel=1e-12)


def test_effective_sample_size_of_one_heavy_particle_is_one():
    assert effective_sample_size(torch.tensor([NOTHING, 0.0, NOTHING])).item() == 1.0


def test_effective_sample_size_agrees_with_its_formula():
    np.testing.assert_allclose(effective_sample_size(WEIGHTS.log()), 1 / (WEIGHTS.numpy() ** 2).sum(axis=1))


@settings(derandomize=True, deadline=None)
@given(log_masses)
def test_effective_sample_size_lies_between_one_and_the_number_of_particles(logs):
    log_weights, _ = normalise(torch.tensor(logs, dtype=torch.float64))
    assert 1 - 1e-9 <= effective_sample_size(log_weights).item() <= len(logs) * (1 + 1e-9)


def test_reweight_multiplies_weights_by_densities():
    products = WEIGHTS.numpy() * DENSITIES.numpy()
    updated, increment = reweight(WEIGHTS.log(), DENSITIES.log(), step=1)
    np.testing.assert_allclose(updated.exp(), products / products.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(increment, np.log(products.sum(axis=1)))


def test_increments_of_two_observations_add_up_to_those_of_both_together():
    once, first = reweight(WEIGHTS.log(), DENSITIES.log(), step=1)
    twice, second = reweight(once, DENSITIES.log(), step=2)
    together, both = reweight(WEIGHTS.log(), 2 * DENSITIES.log(), step=1)
    torch.testing.assert_close(twice, together)
    torch.testing.assert_close(first + second, both)


def test_increment_does_not_underflow():
    log_weights = uniform_log_weights(torch.empty(1, 4))
    _, increment = reweight(log_weights, torch.full((1, 4), -1e4), step=1)
    assert increment.item() == pytest.approx(-1e4)


def test_a_nan_density_counts_as_zero_density():
    with_nan, with_zero = DENSITIES.log(), DENSITIES.log()
    with_nan[0, 1], with_zero[0, 1] = math.nan, NOTHING
    for got, expected in zip(
        reweight(WEIGHTS.log(), with_nan, step=1), reweight(WEIGHTS.log(), with_zero, step=1), strict=True
    ):
        assert torch.equal(got, expected)
        assert not got.isnan().any()


@pytest.mark.parametrize("density", [NOTHING, math.nan])
def test_collapse_raises_an_error_that_names_sequence_and_step(density):
    log_density = DENSITIES.log()
    log_density[1] = density
    with pytest.raises(WeightCollapseError, match=r"weights of sequence 1 .* at step 17.*x\[1, 17\]") as caught:
        reweight(WEIGHTS.log(), log_density, step=17)
    assert (caught.value.sequence, caught.value.step) == (1, 17)


def test_collapse_error_names_the_first_of_several_sequences_and_the_way_out():
    with pytest.raises(WeightCollapseError, match='on_collapse="uniform"') as caught:
        reweight(WEIGHTS.log(), torch.full_like(WEIGHTS, NOTHING), step=2)
    assert caught.value.sequence == 0


def test_collapse_when_the_only_possible_particle_has_no_weight():
    log_weights = torch.tensor([[0.0, NOTHING]])
    with pytest.raises(WeightCollapseError):
        reweight(log_weights, torch.tensor([[NOTHING, 0.0]]), step=1)


def test_uniform_on_collapse_gives_equal_weights_and_an_impossible_observation():
    log_density = DENSITIES.log()
    log_density[1] = NOTHING
    updated, increment = reweight(WEIGHTS.log(), log_density, step=1, on_collapse="uniform")
    assert torch.equal(updated[1:], uniform_log_weights(updated[1:]))
    assert increment[1].item() == NOTHING


def test_uniform_on_collapse_leaves_other_sequences_alone():
    log_density = DENSITIES.log()
    log_density[1] = math.nan
    updated, increment = reweight(WEIGHTS.log(), log_density, step=1, on_collapse="uniform")
    alone, its_increment = reweight(WEIGHTS[:1].log(), log_density[:1], step=1)
    assert torch.equal(updated[:1], alone)
    assert torch.equal(increment[:1], its_increment)


def test_uniform_on_collapse_changes_nothing_without_a_collapse():
    expected = reweight(WEIGHTS.log(), DENSITIES.log(), step=1)
    got = reweight(WEIGHTS.log(), DENSITIES.log(), step=1, on_collapse="uniform")
    assert all(map(torch.equal, got, expected))
