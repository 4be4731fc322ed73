"""The SMC Transformer as a method of the experiments: its stages, its units, and what it says in them."""

import json
import math
import os
from dataclasses import replace

import pytest
import torch

from smc_transformer import SMCTransformer, SMCTransformerConfig
from smc_transformer.learning import ForecastScore, Likelihood, SquaredError, Stage, Trainer
from smc_transformer.nn.observation import GaussianMixture
from smct_paper.datasets import SYNTHETIC, Windows, load_windows
from smct_paper.experiments.smc_method import RescaledMixture, SMCMethod, SMCSettings
from smct_paper.experiments.smc_settings import _UNCHANGED, ABLATIONS, BEST, smc_method, smc_settings
from smct_paper.experiments.viewed_method import ViewedMethod

HISTORY, HORIZON = 3, 3
STAGE = Stage(4, validations=2, batch_size=16)
SMALL = SMCSettings(
    model={**BEST.model, "d_model": 4, "d_ff": 4, "n_particles": 3},
    squared_error=STAGE,
    likelihood=STAGE,
    forecast=STAGE,
    forecast_paths=3,
    widen_to=0.95,
    units_of_change=True,
    particles=6,
    test_particles=12,
)


def windows(n_windows=60, *, gaps=0.0, known=0, seed=0):
    """Two scored columns, one modelled but not scored, and columns that are known; of very different sizes."""
    n_columns = 3 + known
    parts = [SYNTHETIC["model1"].sample(n_windows, HISTORY + HORIZON, seed + column) for column in range(n_columns)]
    x = torch.cat(parts, dim=-1) * torch.tensor([1.0, 50.0, 0.02, 3.0, 7.0])[:n_columns]
    missing = torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) < gaps
    missing[:, 0] = missing[..., 3:] = False
    x = x.masked_fill(missing, math.nan)
    first, second = int(0.6 * n_windows), int(0.8 * n_windows)
    return Windows(
        name="own",
        split="paper",
        train=x[:first],
        validation=x[first:second],
        test=x[second:],
        n_targets=2,
        n_modelled=3,
        history=HISTORY,
        columns=tuple(f"column {number}" for number in range(n_columns)),
        mean=torch.zeros(n_columns),
        deviation=torch.ones(n_columns),
    )


@pytest.fixture
def trainers(monkeypatch):
    """The trainers of all stages, in their order."""
    made, honest = [], Trainer.fit

    def fit(self, *data):
        made.append((self, data))
        return honest(self, *data)

    monkeypatch.setattr(Trainer, "fit", fit)
    return made


@pytest.mark.parametrize("known", [0, 2])
@pytest.mark.parametrize("gaps", [0.0, 0.1])
def test_a_method_is_trained_in_stages_and_answers_what_is_asked(without_shape_checks, gaps, known):
    data = windows(gaps=gaps, known=known)
    method = SMCMethod(SMALL)
    facts = method.fit(data, seed=0)
    json.dumps(facts, allow_nan=False)
    assert len(facts["squared_error"]) == len(facts["likelihood"]) == len(facts["forecast"]) == 2
    assert facts["widening"].keys() == {"unistep", "multistep"}
    assert all(0.5 < factor <= 4.0 for factor in facts["widening"].values())
    assert 0 < facts["between_particles"] < 1
    assert facts["parameters"] == sum(parameter.numel() for parameter in method.model.parameters())
    x = data.test
    distribution = method.one_step(x, 0)
    shape = (len(x), HISTORY + HORIZON, 3)
    for part in (
        distribution.mean,
        *distribution.interval(0.9),
        distribution.cdf(x[:, 1:, :3].nan_to_num()),
        distribution.crps(x[:, 1:, :3].nan_to_num()),
    ):
        assert part.shape == shape
        assert part.isfinite().all()
    assert distribution.log_prob(x[:, 1:, :3]).isfinite().all()
    future = x[:, HISTORY + 1 :, 3:] if known else None
    paths = method.paths(x[:, : HISTORY + 1], HORIZON, 7, future, 0)
    assert paths.shape == (len(x), 7, HORIZON, 3)
    assert paths.isfinite().all()
    assert torch.equal(paths, method.paths(x[:, : HISTORY + 1], HORIZON, 7, future, 0))


def test_same_seed_same_method_and_another_seed_another():
    data = windows()
    paths = []
    for seed in (0, 0, 1):
        method = SMCMethod(SMALL)
        method.fit(data, seed=seed)
        paths.append(method.paths(data.test[:, : HISTORY + 1], HORIZON, 5, None, 0))
    assert torch.equal(paths[0], paths[1])
    assert not torch.equal(paths[0], paths[2])


def test_the_stages_are_trained_as_the_settings_say(trainers):
    data = windows()
    forecast = Stage(6, validations=3, batch_size=8, learning_rate=0.01, averaging=None, patience=2)
    method = SMCMethod(replace(SMALL, forecast=forecast, forecast_paths=5))
    method.fit(data, seed=4)
    (start, _), (first, _), (second, _) = trainers
    assert start.goal == SquaredError(second.goal.weights)
    assert isinstance(first.goal, Likelihood)
    assert isinstance(second.goal, ForecastScore)
    assert (first.epochs, first.steps_per_epoch, first.batch_size, first.averaging) == (2, 2, 16, 0.99)
    assert (second.epochs, second.steps_per_epoch, second.batch_size, second.averaging) == (3, 2, 8, None)
    assert (second.learning_rate, second.patience, second.seed) == (0.01, 2, 4)
    assert second.goal.history == HISTORY
    assert second.goal.weights == pytest.approx(method.units[:2].tolist())
    assert second.goal.n_paths == 5


def test_a_stage_takes_as_many_steps_as_it_says():
    """Up to those that do not fill an epoch; never more, as its schedule ends there."""
    model = SMCTransformer(SMCTransformerConfig(d_model=2))
    for steps, validations in ((4, 2), (12, 12), (400, 12), (3, 12)):
        trainer = Stage(steps, validations=validations).trainer(model, Likelihood(), 0)
        assert steps - validations < trainer.epochs * trainer.steps_per_epoch <= steps


def test_stages_and_widening_can_be_left_out(trainers):
    facts = SMCMethod(replace(SMALL, squared_error=None, forecast=None, widen_to=None)).fit(windows(), seed=0)
    assert len(trainers) == 1
    assert "squared_error" not in facts
    assert "forecast" not in facts
    assert "widening" not in facts


def test_nothing_looks_at_the_test_windows():
    data = windows()
    first, second = SMCMethod(SMALL), SMCMethod(SMALL)
    facts = first.fit(data, seed=0)
    assert second.fit(replace(data, test=torch.full_like(data.test, math.nan)), seed=0) == facts


def test_the_model_is_trained_in_units_of_typical_changes(trainers):
    data = windows()
    method = SMCMethod(SMALL)
    method.fit(data, seed=0)
    changes = data.train.diff(dim=1).flatten(0, 1)
    torch.testing.assert_close(method.units, changes.std(dim=0, correction=0))
    for _, (train, validation) in trainers:
        torch.testing.assert_close(train * method.units, data.train)
        torch.testing.assert_close(validation * method.units, data.validation)


def test_units_do_not_matter_to_a_method_that_has_its_own():
    """Data in thousands of what they were: forecasts a thousand times smaller, and densities larger by as much."""
    data = windows()
    factor = torch.tensor([1 / 1024, 16.0, 1.0])  # powers of two, so that there is no rounding
    other = replace(data, **{part: getattr(data, part) * factor for part in ("train", "validation", "test")})
    plain = replace(SMALL, squared_error=None, forecast=None)  # the weights of these scores know the units
    one, two = SMCMethod(plain), SMCMethod(plain)
    one.fit(data, seed=0)
    two.fit(other, seed=0)
    torch.testing.assert_close(two.units, one.units * factor)
    past = slice(None, HISTORY + 1)
    paths = one.paths(data.test[:, past], HORIZON, 5, None, 0)
    torch.testing.assert_close(two.paths(other.test[:, past], HORIZON, 5, None, 0), paths * factor)
    distribution, other_distribution = one.one_step(data.test, 0), two.one_step(other.test, 0)
    torch.testing.assert_close(other_distribution.mean, distribution.mean * factor)
    expected = distribution.log_prob(data.test[:, 1:]) - factor.log().sum()
    torch.testing.assert_close(other_distribution.log_prob(other.test[:, 1:]), expected, rtol=1e-4, atol=1e-4)


def fitted_to(train):
    """A method after one short stage on these windows, and the facts of its training."""
    method = SMCMethod(replace(SMALL, squared_error=None, forecast=None, widen_to=None))
    return method, method.fit(replace(windows(), train=train), seed=0)


def test_constant_columns_keep_their_units():
    x = windows().train
    x[..., 1] = 0.3
    units = fitted_to(x)[0].units
    assert units[1] == 1.0
    assert units.isfinite().all()


def test_missing_values_have_no_part_in_the_units():
    x = windows(gaps=0.3).train
    changes = x.diff(dim=1).flatten(0, 1)
    expected = [float(column[~column.isnan()].std(correction=0)) for column in changes.T]
    torch.testing.assert_close(fitted_to(x)[0].units, torch.tensor(expected))


@pytest.mark.parametrize(("n_with_gaps", "n_left"), [(0, 20), (2, 18), (3, 20), (20, 20)])
def test_windows_with_gaps_are_left_out_if_they_are_few(n_with_gaps, n_left):
    x = windows().train[:20].clone()
    x[:n_with_gaps, 2, 0] = math.nan
    assert fitted_to(x)[1]["training_windows"] == n_left


def test_validation_windows_are_not_too_many(trainers):
    SMCMethod(replace(SMALL, widen_to=None, validation_windows=5)).fit(windows(), seed=0)
    assert [len(validation) for _, (_, validation) in trainers] == [5, 5, 5]


def mixture():
    means = torch.randn(3, 4, 5, 2, generator=torch.Generator().manual_seed(0))
    root = torch.tensor([[0.5, 0.0], [0.3, 0.4]])
    return GaussianMixture(torch.full((3, 4, 5), 0.25).log(), means, root)


def test_a_mixture_in_other_units_has_the_density_and_the_moments_of_these_units():
    distribution, units = mixture(), torch.tensor([10.0, 0.5])
    rescaled = RescaledMixture(distribution, units, torch.Generator().manual_seed(1), n_draws=20_000)
    root = units.unsqueeze(-1) * distribution.components.root
    exact = GaussianMixture(distribution.log_weights, units * distribution.components.mean, root)
    x = units * torch.randn(3, 5, 2, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(rescaled.log_prob(x), exact.log_prob(x))
    x[0, 0, 0] = x[1, 1, 1] = x[2, 2] = math.nan
    torch.testing.assert_close(rescaled.log_prob(x), exact.log_prob(x), rtol=1e-5, atol=1e-5)
    error = exact.variance.sqrt() / 20_000**0.5
    assert ((rescaled.mean - exact.mean).abs() < 4.5 * error).all()
    for found, expected in zip(rescaled.interval(0.8), exact.interval(0.8), strict=True):
        assert ((found - expected).abs() < 10 * error).all()


def test_one_step_distributions_without_units_of_their_own_are_exact_mixtures():
    data = windows()
    method = SMCMethod(replace(SMALL, units_of_change=False, forecast=None, widen_to=None))
    method.fit(data, seed=0)
    distribution = method.one_step(data.test, 0)
    assert not isinstance(distribution, RescaledMixture)
    assert distribution.mean.shape == (12, 6, 3)
    assert (method.units == 1).all()


@pytest.mark.parametrize("units_of_change", [True, False])
def test_widening_reaches_one_step_intervals_and_paths(units_of_change):
    """The interval that is scored is the one that was widened, whatever the units."""
    data = windows()
    settings = replace(SMALL, units_of_change=units_of_change, forecast=None, widen_to=None)
    method = SMCMethod(settings)
    method.fit(data, seed=0)

    def widths():
        lower, upper = method.one_step(data.test, 0).interval(0.95)
        paths = method.paths(data.test[:, : HISTORY + 1], 1, 2000, None, 0)
        ends = paths.quantile(torch.tensor([0.025, 0.975]), dim=1)
        return float((upper - lower).mean()), float((ends[1] - ends[0]).mean())

    before = widths()
    method.model.observation.widen_(3.0)
    method.one_step_model.observation.widen_(3.0)
    for old, new in zip(before, widths(), strict=True):
        assert new > 2 * old


def still_windows(share):
    """Windows whose values stay as they are in about that share of the steps."""
    data, generator = windows(n_windows=300), torch.Generator().manual_seed(2)
    parts = {}
    for name in ("train", "validation", "test"):
        x = getattr(data, name).clone()
        stays = torch.rand(x.shape, generator=generator) < share
        for step in range(1, x.shape[1]):
            x[:, step] = torch.where(stays[:, step], x[:, step - 1], x[:, step])
        parts[name] = x
    return replace(data, **parts)


SPIKED = replace(SMALL, squared_error=None, model={**SMALL.model, "observation": "zero_inflated"})


def test_values_that_stay_are_equal_to_the_bit_in_the_units_of_the_windows():
    data = still_windows(0.8)
    method = SMCMethod(SPIKED)
    method.fit(data, seed=0)
    last = data.test[:, :-1, :3].unsqueeze(1)
    draws = method.one_step(data.test, 0).draws
    assert 0.1 < (draws == last).double().mean() < 0.95
    paths = method.paths(data.test[:, : HISTORY + 1], HORIZON, 100, None, 0)
    assert 0.1 < (paths[:, :, 0] == data.test[:, None, HISTORY, :3]).double().mean() < 0.95


@pytest.mark.parametrize("units_of_change", [True, False])
def test_a_spike_has_no_density_that_could_be_compared(units_of_change):
    data = still_windows(0.8)
    method = SMCMethod(replace(SPIKED, forecast=None, widen_to=None, units_of_change=units_of_change))
    method.fit(data, seed=0)
    distribution = method.one_step(data.test, 0)
    assert distribution.log_prob(data.test[:, 1:, :3]) is None
    assert distribution.crps(data.test[:, 1:, :3]).isfinite().all()


def test_a_spike_is_for_changes_that_are_mostly_zero():
    observations = {name: smc_settings("best", name, "quick").model["observation"] for name in _UNCHANGED}
    assert observations == {name: "zero_inflated" if name == "covid" else "student_t" for name in _UNCHANGED}
    assert "observation" not in smc_settings("paper", "covid", "quick").model
    for ablation, expected in (("heavy_tails", "heteroscedastic"), ("predicting_changes", "student_t")):
        assert smc_settings(f"best-without_{ablation}", "covid", "quick").model["observation"] == expected


@pytest.mark.skipif("SMC_TRANSFORMER_DATA" not in os.environ, reason="needs the real files in SMC_TRANSFORMER_DATA")
def test_the_shares_of_changes_that_are_zero_are_those_of_the_files():
    for name, share in _UNCHANGED.items():
        changes = load_windows(name).train.diff(dim=1)
        assert float((changes == 0).sum() / (~changes.isnan()).sum()) == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize("config", ["paper", "paper+view", "best", *ABLATIONS])
@pytest.mark.parametrize("profile", ["quick", "paper"])
def test_all_settings_can_be_written_down(config, profile):
    for dataset in ("covid", "air_quality", "weather", "energy", "stock"):
        settings = smc_method(config, dataset, profile).settings()
        assert json.loads(json.dumps(settings)) == settings
        assert "initial_observation_variance" in settings["model"]  # defaults are written too
        assert "n_inputs" not in settings["model"]  # but not what follows from the data
        assert settings["test_particles"] >= 256  # fewer would make likelihoods noisy


@pytest.mark.parametrize("config", ABLATIONS)
def test_an_ablation_leaves_one_thing_out_and_can_be_trained(config):
    full = smc_settings("best", "covid", "quick")
    ablated = smc_settings(config, "covid", "quick")
    assert ablated != full
    small = {**ablated.model, "d_model": 4, "d_ff": 4, "n_particles": 3}
    names = ("squared_error", "likelihood", "forecast")
    stages = {name: None if getattr(ablated, name) is None else STAGE for name in names}
    facts = SMCMethod(replace(ablated, model=small, particles=4, **stages)).fit(windows(), seed=0)
    for name in names:
        assert (name in facts) == (getattr(ablated, name) is not None)
    assert ("widening" in facts) == (ablated.widen_to is not None)


@pytest.mark.parametrize("known", [0, 2])
@pytest.mark.parametrize("gaps", [0.0, 0.1])
def test_the_viewed_method_answers_in_the_units_of_the_windows(without_shape_checks, gaps, known):
    data = windows(gaps=gaps, known=known)
    model = {"d_model": 4, "d_ff": 4, "n_particles": 3, "noise_learning": "em"}
    method = ViewedMethod(SMCSettings(model=model, likelihood=STAGE, particles=6, test_particles=12))
    facts = method.fit(data, seed=0)
    json.dumps(facts, allow_nan=False)
    assert method.model.config.n_targets == 3
    x = data.test
    distribution = method.one_step(x, 0)
    observed = x[:, 1:, :3]
    assert distribution.log_prob(observed).isfinite().all()
    lower, upper = distribution.interval(0.95)
    inside = ((observed >= lower) & (observed <= upper))[~observed.isnan()]
    assert 0.7 < inside.double().mean() < 1  # in the units of the columns, which differ by a factor of 2500
    paths = method.paths(x[:, : HISTORY + 1], HORIZON, 50, x[:, HISTORY + 1 :, 3:] if known else None, 0)
    assert paths.shape == (len(x), 50, HORIZON, 3)
    sizes = (paths - x[:, None, HISTORY, None, :3].nan_to_num()).abs().mean(dim=(0, 1, 2))
    assert (sizes / torch.tensor([1.0, 50.0, 0.02]) < 4).all()


def test_the_density_of_the_viewed_method_integrates_to_one():
    data = windows()
    model = {"d_model": 4, "d_ff": 4, "n_particles": 3}
    method = ViewedMethod(SMCSettings(model=model, likelihood=STAGE, particles=6, test_particles=6))
    method.fit(data, seed=0)
    x = data.test[:2]
    distribution = method.one_step(x, 0)
    grid = torch.linspace(-40.0, 40.0, 4001)
    alone = torch.full((2, HISTORY + HORIZON, 3), math.nan)  # the second column alone: the others are integrated out
    total = 0.0
    for point in grid:
        alone[..., 1] = distribution.anchor[..., 1] + point * distribution.unit[..., 1]
        total += distribution.log_prob(alone).exp() * distribution.unit[..., 1] * (grid[1] - grid[0])
    torch.testing.assert_close(total, torch.ones_like(total), atol=0.02, rtol=0)
