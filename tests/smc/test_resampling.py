import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from smc_transformer.smc import RESAMPLERS
from smc_transformer.smc.resampling.base import invert_masses
from smc_transformer.support.randomness import as_generator

LIMIT = 3.0
"""Standard errors allowed between a mean and what it should be."""

REPEATABLE = settings(derandomize=True, deadline=None)

PEAKED = [0.97] + [0.03 / 9] * 9

WEIGHTS = {
    "unequal": [0.05, 0.4, 0.15, 0.3, 0.1],
    "whole multiples of 1/8": [0.5, 0.25, 0.125, 0.125],
    "equal": [0.2] * 5,
    "with zeros": [0.0, 0.35, 0.0, 0.65, 0.0],
    "peaked": PEAKED,
}


def repeated_log_weights(weights, n_rows, dtype=torch.float64):
    return torch.tensor(weights, dtype=dtype).log().repeat(n_rows, 1)


def offspring_counts(indices, n_particles):
    return torch.zeros(len(indices), n_particles).scatter_add(1, indices, torch.ones(indices.shape)).numpy()


def bias_in_standard_errors(resample, weights, n_samples, n_replicates=40_000, seed=0):
    """The largest |mean count - n W| over particles, in standard errors.

    Rows of the batch are the replicates, so the standard error of a mean count is the standard deviation over
    rows divided by sqrt(rows). Counts that never vary must be right exactly, or the answer is infinite.
    """
    indices = resample(repeated_log_weights(weights, n_replicates), n_samples, as_generator(seed))
    counts = offspring_counts(indices, len(weights))
    bias = np.abs(counts.mean(axis=0) - n_samples * np.array(weights))
    error = counts.std(axis=0, ddof=1) / math.sqrt(n_replicates)
    never_varies = error == 0
    exact = np.where(bias < 1e-9, 0.0, np.inf)
    return np.where(never_varies, exact, bias / np.where(never_varies, 1.0, error)).max()


def probabilities_taken_for_logits(log_weights, n_samples, generator=None):
    """The mistake to rule out: weights handed to a sampler that wants their logarithms."""
    wrong = log_weights.exp().softmax(dim=-1)
    return torch.multinomial(wrong, n_samples, replacement=True, generator=generator)


@pytest.fixture(params=sorted(RESAMPLERS))
def resample(request):
    return RESAMPLERS[request.param]


@pytest.mark.parametrize("n_samples", [3, 8])
@pytest.mark.parametrize("weights", WEIGHTS.values(), ids=WEIGHTS.keys())
def test_expected_offspring_is_proportional_to_the_weights(resample, weights, n_samples):
    assert bias_in_standard_errors(resample, weights, n_samples) < LIMIT


def test_peaked_weights_are_resampled_as_peaked(resample):
    assert bias_in_standard_errors(resample, PEAKED, n_samples=len(PEAKED), seed=1) < LIMIT


def test_the_check_of_peaked_weights_rejects_probabilities_taken_for_logits():
    assert bias_in_standard_errors(probabilities_taken_for_logits, PEAKED, n_samples=len(PEAKED)) > 100 * LIMIT


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "weights",
    [[0.1, 0.2, 0.3, 0.4, 0.0, 0.0], [0.0, 0.0, 1 / 3, 1 / 3, 1 / 3], [0.7, 0.0, 0.0, 0.3], [0.0, 1.0, 0.0]],
    ids=["trailing", "leading", "inner", "all but one"],
)
def test_particles_of_zero_weight_are_never_drawn(resample, weights, dtype):
    indices = resample(repeated_log_weights(weights, 20, dtype), 10_000, as_generator(0))
    assert set(indices.unique().tolist()) == set(np.flatnonzero(weights))


@pytest.mark.parametrize("uniform", [0.0, math.nextafter(1.0, 0.0)])
@pytest.mark.parametrize("n_samples", [1, 7, 10_000])
def test_the_most_extreme_uniforms_draw_no_particle_of_zero_weight(resample, monkeypatch, uniform, n_samples):
    def extreme(*shape, dtype, **_):
        return torch.full(torch.empty(*shape).shape, uniform, dtype=dtype)  # numbers, or a tuple of them

    monkeypatch.setattr(torch, "rand", extreme)
    weights = [0.0, 0.1, 0.2, 0.3, 0.4, 0.0]
    indices = resample(repeated_log_weights(weights, 1), n_samples)
    assert set(indices.unique().tolist()) <= {1, 2, 3, 4}


def test_a_uniform_on_a_boundary_belongs_to_the_next_particle_that_has_mass():
    """Masses of 1/8, 0, 1/4, 0, 5/8, 0: all sums are exact. The last stratum's uniform may round up to one."""
    masses = torch.tensor([[1.0, 0.0, 2.0, 0.0, 5.0, 0.0]], dtype=torch.float64)
    almost_one = math.nextafter(1.0, 0.0)
    uniforms = torch.tensor([[0.0, 0.124, 0.125, 0.374, 0.375, 0.376, almost_one, 1.0]], dtype=torch.float64)
    assert invert_masses(masses, uniforms).tolist() == [[0, 0, 2, 2, 4, 4, 4, 4]]
    assert invert_masses(masses / 1e300, uniforms).tolist() == [[0, 0, 2, 2, 4, 4, 4, 4]]


def test_many_particles_of_float32_weights_are_all_within_reach(resample):
    n_particles = 5000
    log_weights = torch.full((1, n_particles), -math.log(n_particles), dtype=torch.float32)
    indices = resample(log_weights, 20 * n_particles, as_generator(0))
    # A particle is missed by 20 n independent draws with probability exp(-20): 1e-5 for any of the 5000.
    assert len(indices.unique()) == n_particles


@pytest.mark.parametrize("n_samples", [1, 2, 5, 9])
def test_any_number_of_samples_can_be_drawn(resample, n_samples):
    indices = resample(repeated_log_weights([0.2, 0.3, 0.5], 4), n_samples, as_generator(0))
    assert indices.shape == (4, n_samples)
    assert set(indices.unique().tolist()) <= {0, 1, 2}


def test_one_particle_is_always_drawn(resample):
    assert resample(torch.zeros(2, 1), 3, as_generator(0)).tolist() == [[0, 0, 0], [0, 0, 0]]


positive_masses = st.lists(st.floats(1e-3, 1.0), min_size=1, max_size=8)


@REPEATABLE
@given(masses=positive_masses, n_samples=st.integers(1, 20), seed=st.integers(0, 1000))
def test_systematic_counts_are_the_floor_or_the_ceiling_of_their_mean(masses, n_samples, seed):
    weights = np.array(masses) / sum(masses)
    indices = RESAMPLERS["systematic"](repeated_log_weights(weights, 5), n_samples, as_generator(seed))
    counts = offspring_counts(indices, len(weights))
    # 1e-9 is for weights whose n W is a whole number but for rounding.
    assert (counts >= np.floor(n_samples * weights - 1e-9)).all()
    assert (counts <= np.ceil(n_samples * weights + 1e-9)).all()


@REPEATABLE
@given(masses=positive_masses, n_samples=st.integers(1, 20), seed=st.integers(0, 1000))
def test_residual_keeps_at_least_the_floor_of_the_mean_counts(masses, n_samples, seed):
    weights = np.array(masses) / sum(masses)
    indices = RESAMPLERS["residual"](repeated_log_weights(weights, 5), n_samples, as_generator(seed))
    counts = offspring_counts(indices, len(weights))
    assert (counts >= np.floor(n_samples * weights - 1e-9)).all()
    assert (counts.sum(axis=1) == n_samples).all()


@REPEATABLE
@given(masses=positive_masses, n_samples=st.integers(1, 20), seed=st.integers(0, 1000))
def test_stratified_counts_are_within_two_of_their_mean(masses, n_samples, seed):
    # A particle covers whole strata, plus a part of one stratum at each of its two ends.
    weights = np.array(masses) / sum(masses)
    indices = RESAMPLERS["stratified"](repeated_log_weights(weights, 5), n_samples, as_generator(seed))
    assert (np.abs(offspring_counts(indices, len(weights)) - n_samples * weights) < 2).all()


def test_the_generator_determines_the_draw(resample):
    log_weights = repeated_log_weights([0.1, 0.2, 0.3, 0.4], 50)
    first, again, other = (resample(log_weights, 6, as_generator(seed)) for seed in (7, 7, 8))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_without_a_generator_the_default_one_is_used(resample):
    log_weights = repeated_log_weights([0.1, 0.2, 0.3, 0.4], 50)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        drawn = resample(log_weights, 6)
    assert torch.equal(drawn, resample(log_weights, 6, as_generator(3)))


def test_the_weights_of_one_row_do_not_touch_another(resample):
    log_weights = repeated_log_weights([0.1, 0.2, 0.3, 0.4], 3)
    changed = log_weights.clone()
    changed[1] = torch.tensor([0.97, 0.01, 0.01, 0.01]).log()
    before, after = (resample(weights, 50, as_generator(0)) for weights in (log_weights, changed))
    assert torch.equal(before[[0, 2]], after[[0, 2]])
    assert not torch.equal(before[1], after[1])


def test_rows_draw_independently_of_each_other(resample):
    n_pairs = 4000
    indices = resample(repeated_log_weights([0.25, 0.35, 0.4], 2 * n_pairs), 5, as_generator(0))
    counts = offspring_counts(indices, 3)[:, 0]
    # The correlation of independent pairs has a standard error of 1 / sqrt(pairs).
    assert abs(np.corrcoef(counts[0::2], counts[1::2])[0, 1]) < LIMIT / math.sqrt(n_pairs)
