"""One factor on the noise: found where it is known, in both directions."""

import math

import pytest
import torch
from helpers.models import make_model
from torch.special import ndtr, ndtri

from smc_transformer.learning import fit
from smc_transformer.learning.calibration import (
    NARROWEST,
    WIDEST,
    share_covered,
    widen_to_cover,
)
from smc_transformer.scores import covered

PRECISION = (WIDEST / NARROWEST) ** (1 / 2**8)
"""Eight halvings of the logarithm: the factor found is at most this much above the one wanted."""

OBSERVATIONS = ("gaussian", "heteroscedastic", "student_t")


def constant_model(deviation, observation="gaussian"):
    """Predicts N(0, deviation^2), or another distribution of that scale, at every step."""
    model = make_model(d_model=2, initial_latent_variance=0.0, observation=observation, spread_covariances=False)
    with torch.no_grad():
        model.readout.projection.weight.zero_()
        model.readout.projection.bias.zero_()
        if observation == "gaussian":
            model.observation.covariance.assign_(deviation**2)
        else:
            model.readout.projection.bias[1:] = math.log(deviation)
    return model


def deviation_of(model):
    return model.filter(torch.zeros(1, 2, 1).double(), 1, generator=0).predictive.variance.sqrt().item()


def exact_coverage(true_deviation, level=0.95):
    """P(|X| < q deviation) for X ~ N(0, true_deviation^2), of the model's central interval."""
    quantile = ndtri(torch.tensor((1 + level) / 2, dtype=torch.float64))
    return lambda model: float(2 * ndtr(quantile * deviation_of(model) / true_deviation) - 1)


@pytest.mark.parametrize("observation", ["gaussian", "heteroscedastic"])
@pytest.mark.parametrize("factor", [0.51, 0.7, 1.0, 1.3, 2.0, 3.9])
def test_the_factor_is_the_one_that_is_known(observation, factor):
    """Gaussian data of deviation 1.5, a model of deviation 1.5 / factor."""
    model = constant_model(1.5 / factor, observation)
    found = widen_to_cover(model, exact_coverage(1.5), 0.95)
    assert factor * (1 - 1e-9) <= found <= factor * PRECISION * (1 + 1e-9)
    assert deviation_of(model) == pytest.approx(1.5 * found / factor)
    assert exact_coverage(1.5)(model) >= 0.95 - 1e-9


@pytest.mark.parametrize("level", [0.5, 0.8, 0.99])
def test_other_levels_ask_for_other_factors(level):
    """An interval of 95 % covers `level` of the data if it is as wide as theirs of that level."""
    model = constant_model(1.0)
    found = widen_to_cover(model, exact_coverage(1.0), level)
    quantiles = ndtri(torch.tensor([(1 + level) / 2, 0.975], dtype=torch.float64))
    expected = max(float(quantiles[0] / quantiles[1]), NARROWEST)
    assert expected * (1 - 1e-9) <= found <= expected * PRECISION * (1 + 1e-9)


@pytest.mark.parametrize("observation", OBSERVATIONS)
@pytest.mark.parametrize("deviation", [0.5, 2.0])
def test_intervals_of_the_filter_cover_what_they_should(observation, deviation):
    """On data: a model too narrow is widened, one too wide narrowed; the shares are those of counting."""
    x = 1.3 * torch.randn(60, 40, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def coverage(model):
        distribution = model.filter(x, 1, generator=0).predictive
        return float(covered(distribution.interval(0.95), x[:, 1:]).double().mean())

    model = constant_model(deviation, observation)
    before = coverage(model)
    assert abs(before - 0.95) > 0.03
    factor = widen_to_cover(model, coverage, 0.95)
    assert (factor > 1) == (before < 0.95)
    # The coverage of a factor that is too large by 0.8 % is too large by 0.2 % at most.
    assert 0.95 <= coverage(model) < 0.955


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_coverage_of_drawn_paths_can_be_widened_as_well(observation):
    x = 1.3 * torch.randn(200, 4, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def coverage(model):
        paths = model.forecast(x[:, :1], 3, 400, generator=0)
        return float(covered((paths.quantile(0.025, dim=1), paths.quantile(0.975, dim=1)), x[:, 1:]).double().mean())

    model = constant_model(0.5, observation)
    assert coverage(model) < 0.7
    widen_to_cover(model, coverage, 0.95)
    assert coverage(model) == pytest.approx(0.95, abs=0.01)


def test_factors_stay_within_their_bounds():
    narrow, wide = constant_model(0.01), constant_model(100.0)
    assert widen_to_cover(narrow, exact_coverage(1.0), 0.95) == WIDEST
    assert NARROWEST < widen_to_cover(wide, exact_coverage(1.0), 0.95) <= NARROWEST * PRECISION * (1 + 1e-9)


def test_only_the_noise_is_changed_and_candidates_are_copies():
    model = make_model(d_model=3, observation="student_t")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    candidates = []

    def coverage(candidate):
        candidates.append(candidate)
        for name, value in model.state_dict().items():
            assert torch.equal(value, before[name]), name
        return 0.0

    assert widen_to_cover(model, coverage, 0.9, n_halvings=5) == WIDEST
    assert len({id(candidate) for candidate in candidates}) == 5
    assert model not in candidates
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"observation.widening"}


def test_a_trained_model_can_be_widened():
    x = 1.3 * torch.randn(20, 6, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model = make_model(d_model=3, observation="heteroscedastic", n_particles=3)
    fit(model, x, epochs=1, progress=False)
    assert NARROWEST < widen_to_cover(model, exact_coverage(1.3), 0.95) <= WIDEST


@pytest.mark.parametrize("level", [0.0, -0.1, 1.5, math.nan])
def test_impossible_levels_are_rejected(level):
    with pytest.raises(ValueError, match="level must be"):
        widen_to_cover(constant_model(1.0), exact_coverage(1.0), level)


# --- coverage of a model's own intervals ---------------------------------------------------------------------------


def white_noise(n_sequences, n_steps, deviations=(1.0,)):
    """Sequences of independent values, each column with its deviation."""
    shape = (n_sequences, n_steps + 1, len(deviations))
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    return noise * torch.tensor(deviations, dtype=torch.float64)


@pytest.mark.parametrize("true_deviation", [1.0, 1.5])
def test_coverage_one_step_ahead_and_of_forecasts_is_that_of_the_closed_form(true_deviation):
    """A constant Gaussian: every interval is the same, whatever the past."""
    model, x = constant_model(1.0), white_noise(300, 6, (true_deviation,))
    expected = exact_coverage(true_deviation)(model)
    # Observations scatter, and so do interval ends from 200 draws: at the 2.5 % quantile by about 0.15 deviations,
    # which moves the coverage of one interval by about 0.016 and is averaged over all of them.
    error = ((expected * (1 - expected) + 0.016**2) / (300 * 3)) ** 0.5
    assert share_covered(model, x, 1) == pytest.approx(expected, abs=4 * error + 0.01)
    assert share_covered(model, x, 1, history=3) == pytest.approx(expected, abs=4 * error + 0.01)


def test_missing_values_are_neither_inside_nor_outside():
    model, x = constant_model(1.0), white_noise(200, 6)
    full = share_covered(model, x, 1)
    x[:, 2] = math.nan
    x[:100, 5] = math.nan
    assert share_covered(model, x, 1) == pytest.approx(full, abs=0.03)
    assert share_covered(model, x, 1, history=3) > 0.85


def test_the_median_of_blocks_is_not_moved_by_one_storm():
    model, x = constant_model(1.0), white_noise(200, 6)
    calm = share_covered(model, x, 1, n_blocks=5)
    x[40:80] *= 10
    assert share_covered(model, x, 1, n_blocks=5) == pytest.approx(calm, abs=0.02)
    assert share_covered(model, x, 1) < calm - 0.1
