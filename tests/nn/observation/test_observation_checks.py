"""What distributions refuse, what they remember of training, and how they start."""

import math

import pytest
import torch

from smc_transformer import SMCTransformer, SMCTransformerConfig
from smc_transformer.learning import em_step, training_step
from smc_transformer.nn.observation import (
    GaussianObservation,
    HeteroscedasticObservation,
    NegativeBinomialObservation,
    StudentTObservation,
)
from smc_transformer.support.randomness import as_generator

COUNTS = torch.tensor([[[2.0], [0.0], [5.0], [1.0]], [[0.0], [3.0], [7.0], [2.0]]])
CLASSES = torch.tensor([[[2.0], [0.0], [1.0], [1.0]], [[0.0], [2.0], [2.0], [1.0]]])
X = {
    "gaussian": COUNTS - 1.5,
    "heteroscedastic": COUNTS - 1.5,
    "student_t": COUNTS - 1.5,
    "negative_binomial": COUNTS,
    "categorical": CLASSES,
}


def make_model(observation, **settings):
    if observation == "categorical":
        settings["n_classes"] = 3
    settings |= {"observation": observation, "d_model": 8, "d_ff": 8, "n_particles": 4}
    return SMCTransformer.from_settings(settings, generator=0)


def holding(x, value):
    x = x.clone()
    x[1, 2, 0] = value
    return x


# --- targets that an observation model cannot have -----------------------------------------------------------


@pytest.mark.parametrize("value", [-1.0, 2.5])
def test_what_is_not_a_count_is_refused(value):
    message = rf"^x holds {value:g} at \[1, 2, 0\] .*counts: whole numbers of at least 0$"
    with pytest.raises(ValueError, match=message):
        make_model("negative_binomial").filter(holding(COUNTS, value), generator=0)


@pytest.mark.parametrize("value", [-1.0, 3.0, 0.5])
def test_what_is_not_a_class_is_refused(value):
    message = rf"^x holds {value:g} at \[1, 2, 0\] .*class number: 0, \.\.\., 2$"
    with pytest.raises(ValueError, match=message):
        make_model("categorical").filter(holding(CLASSES, value), generator=0)


@pytest.mark.parametrize("observation", ["negative_binomial", "categorical"])
def test_forecast_and_training_refuse_bad_targets_too(observation):
    model, bad = make_model(observation), holding(X[observation], -1.0)
    with pytest.raises(ValueError, match=r"^history holds -1 at \[1, 2, 0\]"):
        model.forecast(bad, 2, n_samples=3, generator=0)
    with pytest.raises(ValueError, match=r"^x holds -1 at \[1, 2, 0\]"):
        training_step(model, bad, generator=0)


def test_inputs_that_are_not_targets_may_be_anything():
    x = torch.cat((COUNTS, torch.full_like(COUNTS, -1.5)), dim=-1)
    make_model("negative_binomial", n_inputs=2).filter(x, generator=0)
    x = torch.cat((CLASSES, torch.full_like(CLASSES, -1.5)), dim=-1)
    make_model("categorical", n_inputs=2).filter(x, generator=0)


@pytest.mark.parametrize("observation", X)
def test_missing_targets_are_allowed_and_completed_by_values_of_the_distribution(observation):
    model, x = make_model(observation), holding(X[observation], math.nan)
    result = model.filter(x, generator=0)
    assert result.log_increments.isfinite().all()
    assert result.log_increments[1, 1].item() == pytest.approx(0.0, abs=1e-8)
    drawn = result.completed[1, :, 1]
    assert drawn.isfinite().all()
    model.observation.check(drawn.unsqueeze(0))  # raises nothing
    assert torch.equal(result.completed[0], x[0, 1:].expand(4, -1, -1))


@pytest.mark.parametrize("observation", X)
def test_training_and_forecasts_bear_missing_targets(observation):
    model, x = make_model(observation), holding(X[observation], math.nan)
    step = training_step(model, x, generator=0)
    step.objective.sum().backward()
    for parameter in model.gradient_parameters().values():
        assert parameter.grad is None or parameter.grad.isfinite().all()
    em_step(model, step.statistics, 0.5)
    assert all(value.isfinite().all() for value in model.state_dict().values())
    paths = model.eval().forecast(x, 3, n_samples=5, generator=0)
    assert paths.shape == (2, 5, 3, 1)
    model.observation.check(paths.flatten(0, 1))


@pytest.mark.parametrize("observation", ["heteroscedastic", "student_t", "negative_binomial"])
def test_targets_missing_in_part_weight_by_the_others(observation):
    model = make_model(observation, n_inputs=2, n_targets=2)
    x = torch.cat((X[observation], X[observation].flip(1)), dim=-1)
    whole = model.filter(x, generator=0)
    x[1, 2, 0] = math.nan
    part = model.filter(x, generator=0)
    assert (part.completed[1, :, 1, 1] == x[1, 2, 1]).all()
    # The same particles (the same noise) until then, so that the increment is the marginal density.
    expected = part.predictive.log_prob(x[:, 1:])
    torch.testing.assert_close(part.log_increments, expected, rtol=1e-4, atol=1e-5)
    assert part.log_increments[1, 1] != whole.log_increments[1, 1]


# --- observation models of one's own -------------------------------------------------------------------------


def test_a_distribution_with_another_number_of_targets_is_refused():
    config = SMCTransformerConfig(n_inputs=3, n_targets=2)
    with pytest.raises(ValueError, match=r"^the observation model must have n_targets=2, got 3$"):
        SMCTransformer(config, observation=GaussianObservation(3))


def test_a_distribution_of_ones_own_replaces_the_one_of_the_settings():
    distribution = NegativeBinomialObservation(1)
    model = SMCTransformer(SMCTransformerConfig(d_model=8), generator=0, observation=distribution)
    assert model.observation is distribution
    assert model.readout.projection.out_features == 2


# --- how distributions start -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("distribution", [HeteroscedasticObservation, StudentTObservation])
def test_scales_start_at_the_variance_that_was_asked_for(distribution):
    start = distribution(2, variance=0.09)
    location, scale = start.location_and_scale(start.initial_parameters())
    torch.testing.assert_close(location, torch.zeros(2))
    torch.testing.assert_close(scale, torch.full((2,), 0.3))


@pytest.mark.parametrize("degrees", [2.5, 4.0, 30.0])
def test_degrees_of_freedom_start_where_they_were_asked_to(degrees):
    assert StudentTObservation(1, degrees=degrees).degrees.item() == pytest.approx(degrees, rel=1e-5)


def test_degrees_of_freedom_are_learned_by_gradient():
    model = make_model("student_t")
    assert "observation.raw_degrees" in model.gradient_parameters()
    training_step(model, X["student_t"], generator=0).objective.sum().backward()
    assert model.observation.raw_degrees.grad.item() != 0


# --- changes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("distribution", [GaussianObservation, HeteroscedasticObservation, StudentTObservation])
def test_predicting_the_change_moves_locations_and_leaves_scales(distribution):
    distribution = distribution(2)
    parameters = torch.randn(3, distribution.n_parameters, generator=as_generator(0))
    last = torch.tensor([[1.0, -2.0]])
    with torch.no_grad():
        before, after = (
            distribution.components(parameters),
            distribution.components(distribution.shift(parameters, last)),
        )
    torch.testing.assert_close(after.mean, before.mean + last)
    torch.testing.assert_close(after.variance, before.variance)


def test_predicting_the_change_of_counts_multiplies_the_mean():
    distribution = NegativeBinomialObservation(2)
    parameters = torch.randn(3, 4, generator=as_generator(0))
    last = torch.tensor([[0.0, 9.0]])
    before, after = distribution.components(parameters), distribution.components(distribution.shift(parameters, last))
    torch.testing.assert_close(after.mean, before.mean * torch.tensor([1.0, 10.0]))
    torch.testing.assert_close(after.dispersion, before.dispersion)


# --- the range of the scales --------------------------------------------------------------------------------

SCALED = ("heteroscedastic", "student_t")


def distribution_with_range(name):
    distribution = {"heteroscedastic": HeteroscedasticObservation, "student_t": StudentTObservation}[name](2)
    distribution.lowest.copy_(torch.tensor([-1.0, -2.0]))
    distribution.highest.copy_(torch.tensor([0.5, 1.0]))
    return distribution


def scales(distribution, log_scales):
    """Scales of both targets for raw log-scales."""
    rows = torch.tensor(log_scales).unsqueeze(-1).expand(-1, 2)
    return distribution.location_and_scale(torch.cat((torch.full_like(rows, 7.0), rows), dim=-1))


@pytest.mark.parametrize("name", SCALED)
def test_evaluation_keeps_scales_within_what_training_saw(name):
    location, scale = scales(distribution_with_range(name).eval(), [-9.0, -1.5, 0.0, 0.8, 9.0])
    expected = torch.tensor([[-1.0, -2.0], [-1.0, -1.5], [0.0, 0.0], [0.5, 0.8], [0.5, 1.0]]).exp()
    torch.testing.assert_close(scale, expected)
    assert (location == 7.0).all()


@pytest.mark.parametrize("name", SCALED)
def test_training_does_not_bound_scales(name):
    _, scale = scales(distribution_with_range(name).train(), [-9.0, 9.0])
    torch.testing.assert_close(scale, torch.tensor([[-9.0, -9.0], [9.0, 9.0]]).exp())


@pytest.mark.parametrize("name", SCALED)
def test_without_training_nothing_is_bounded(name):
    model = make_model(name).eval()
    _, scale = model.observation.location_and_scale(torch.tensor([[0.0, -30.0], [0.0, 30.0]]))
    torch.testing.assert_close(scale, torch.tensor([[-30.0], [30.0]]).exp())


@pytest.mark.parametrize("name", SCALED)
def test_em_remembers_the_range_of_the_scales_at_once_and_then_moves_it(name):
    model = make_model(name)
    distribution = model.observation
    step = training_step(model, X[name], generator=0)
    seen = step.statistics.observation
    assert (seen.lowest < seen.highest).all()
    em_step(model, step.statistics, 0.25)
    torch.testing.assert_close(distribution.lowest, seen.lowest)
    torch.testing.assert_close(distribution.highest, seen.highest)
    wider = seen._replace(lowest=seen.lowest - 1, highest=seen.highest + 2)
    distribution.em_step_(wider, 0.25)  # a new extreme counts at once ...
    torch.testing.assert_close(distribution.lowest, seen.lowest - 1)
    torch.testing.assert_close(distribution.highest, seen.highest + 2)
    distribution.em_step_(seen, 0.25)  # ... and fades slowly
    torch.testing.assert_close(distribution.lowest, seen.lowest - 0.75)
    torch.testing.assert_close(distribution.highest, seen.highest + 1.5)


@pytest.mark.parametrize("name", SCALED)
def test_what_em_learned_is_saved_with_the_model(name):
    model = make_model(name, n_inputs=2, n_targets=2)
    x = torch.cat((X[name], X[name].flip(1)), dim=-1)
    em_step(model, training_step(model, x, generator=0).statistics, 0.5)
    state = model.state_dict()
    assert {f"observation.{part}" for part in ("correlation", "lowest", "highest")} <= set(state)
    again = make_model(name, n_inputs=2, n_targets=2)
    again.load_state_dict(state)
    assert model.observation.correlation[0, 1].item() != 0
    for part in ("correlation", "lowest", "highest"):
        assert torch.equal(getattr(again.observation, part), getattr(model.observation, part))


@pytest.mark.parametrize("name", SCALED)
def test_em_moves_the_correlation_towards_that_of_the_residuals(name):
    # Residuals that all lie on one line: correlation 1, but for the floor on its smallest eigenvalue.
    distribution = {"heteroscedastic": HeteroscedasticObservation, "student_t": StudentTObservation}[name](2)
    trajectory = torch.randn(5, 1, 4, 1, generator=as_generator(0))
    targets, weights = torch.cat((trajectory, 3 * trajectory), dim=-1), torch.ones(5, 1)
    with torch.no_grad():
        statistics = distribution.statistics(targets, torch.zeros(5, 1, 4, 4), weights)
    distribution.em_step_(statistics, 1.0)
    correlation = distribution.correlation
    torch.testing.assert_close(correlation.diagonal(), torch.ones(2))
    assert 0.99 < correlation[0, 1].item() < 1.0
    assert torch.linalg.eigvalsh(correlation.double())[0].item() == pytest.approx(1e-3, rel=0.05)


def test_an_outlier_moves_the_correlation_of_a_t_distribution_less():
    targets = torch.randn(200, 1, 1, 2, generator=as_generator(0))
    targets[0, 0, 0] = torch.tensor([40.0, 40.0])
    found = {}
    for distribution in (
        HeteroscedasticObservation(2, variance=1.0),
        StudentTObservation(2, variance=1.0, degrees=4.0),
    ):
        with torch.no_grad():
            statistics = distribution.statistics(targets, torch.zeros(200, 1, 1, 4), torch.ones(200, 1))
        distribution.em_step_(statistics, 1.0)
        found[type(distribution)] = distribution.correlation[0, 1].item()
    # The squares of the outlier are 1600 of 1800 in all; with precision (nu + 2) / (nu + |r|^2) they count as 6 / 2.
    assert found[HeteroscedasticObservation] > 0.8
    assert abs(found[StudentTObservation]) < 4.5 / math.sqrt(200)


@pytest.mark.parametrize("name", SCALED)
def test_forecasts_of_a_trained_model_do_not_run_away(name):
    # A read-out that makes scales grow with the last value, as untrained nets may once they read their own samples.
    model = make_model(name)
    em_step(model, training_step(model, X[name], generator=0).statistics, 1.0)
    with torch.no_grad():
        model.readout.projection.bias[1] += 5.0
    paths = {}
    for training in (True, False):
        model.train(training)
        paths[training] = model.forecast(X[name], 5, n_samples=500, generator=0).abs().median().item()
    assert paths[True] > 20 * paths[False]


# --- results without gradients ------------------------------------------------------------------------------


@pytest.mark.parametrize("observation", X)
def test_samples_of_a_filter_need_no_gradient(observation):
    model = make_model(observation)
    predictive = model.filter(X[observation], generator=0).predictive
    assert not predictive.sample(3, generator=1).requires_grad
    assert not predictive.crps(X[observation][:, 1:]).requires_grad


@pytest.mark.parametrize("observation", X)
def test_the_distribution_of_a_particle_can_be_asked_outside_of_no_grad(observation):
    model = make_model(observation)
    parameters = torch.zeros(3, model.observation.n_parameters)
    components = model.observation.components(parameters)
    assert components.cdf(torch.ones(3, 1)).isfinite().all()  # without a warning


def test_one_batch_with_an_outlier_does_not_overwrite_the_correlation():
    from smc_transformer.nn.observation.heteroscedastic import HeteroscedasticObservation
    from smc_transformer.nn.observation.scaled import ScaleStatistics

    distribution = HeteroscedasticObservation(2)
    distribution.em_step_(ScaleStatistics(torch.full((2, 2), 1e6), torch.zeros(2), torch.zeros(2)), 0.02)
    assert 0.015 < distribution.correlation[0, 1] < 0.025


@pytest.mark.parametrize("degrees", [2.2, 8.0, 100.0, 1000.0])
def test_degrees_of_freedom_start_where_told(degrees):
    from smc_transformer.nn.observation import StudentTObservation

    assert StudentTObservation(1, degrees=degrees).degrees.item() == pytest.approx(degrees, rel=1e-5)


@pytest.mark.parametrize("degrees", [2.0, float("inf"), float("nan")])
def test_impossible_degrees_of_freedom_are_rejected(degrees):
    from smc_transformer.nn.observation import StudentTObservation

    with pytest.raises(ValueError, match=r"degrees must be above 2\.1 and finite"):
        StudentTObservation(1, degrees=degrees)


def test_a_distribution_that_cannot_shift_refuses_predict_change():
    from smc_transformer import SMCTransformer, SMCTransformerConfig
    from smc_transformer.nn.observation import CategoricalObservation

    with pytest.raises(ValueError, match="predict_change has no meaning for CategoricalObservation"):
        SMCTransformer(SMCTransformerConfig(predict_change=True), observation=CategoricalObservation(3))
