"""The evaluator: known truths get known scores, and mistakes do not go unnoticed."""

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
import scoringrules
import torch
from helpers.baselines import make_windows, synthetic_windows, with_gaps
from scipy.stats import norm

from smc_transformer.empirical import Point, Samples
from smc_transformer.nn.observation import GaussianMixture
from smc_transformer.scores import central_coverage, energy_score, interval_score, pit_histogram
from smct_paper import evaluation
from smct_paper.baselines import BayesOptimal, Method, NaiveForecast
from smct_paper.evaluation import evaluate
from smct_paper.jumps import right_after_jumps

DEVIATION = 0.5


class Truth(Method):
    """Knows X_t = 0.9 X_{t-1} + N(0, 0.25) for every column, with variants that are wrong in one way each."""

    def __init__(self, *, late=False, drop_first=False, point=False, n_modelled=None):
        self.late, self.drop_first, self.n_modelled = late, drop_first, n_modelled
        self.is_point = point
        self.seen_windows = 0

    def settings(self):
        return {}

    def fit(self, data, *, seed, progress=False):
        return {}

    def one_step(self, x, generator=None):
        self.seen_windows += len(x)
        columns = x.shape[-1] if self.n_modelled is None else self.n_modelled
        mean = 0.9 * x[:, :-1, :columns].nan_to_num(0.0)
        if self.late:  # the distribution of X_{t+1} in the place of that of X_t
            mean = torch.cat((mean[:, 1:], mean[:, -1:]), dim=1)
        if self.is_point:
            return Point(mean)
        return GaussianMixture(
            torch.zeros(len(x), 1, x.shape[1] - 1), mean.unsqueeze(1), DEVIATION * torch.eye(columns)
        )

    def paths(self, history, horizon, n_samples, future_inputs=None, generator=None):
        columns = history.shape[-1] if self.n_modelled is None else self.n_modelled
        steps = horizon + self.drop_first
        paths = torch.empty(len(history), n_samples, steps, columns)
        last = history[:, None, -1, :columns].nan_to_num(0.0)
        for ahead in range(steps):
            noise = torch.randn(len(history), n_samples, columns, generator=generator)
            last = 0.9 * last + (0.0 if self.is_point else DEVIATION) * noise
            paths[:, :, ahead] = last
        return paths[:, :, int(self.drop_first) :]


def truth_windows(n=600, n_steps=8, n_columns=1, seed=0, **settings):
    noise = torch.randn(n, n_steps + 1, n_columns, generator=torch.Generator().manual_seed(seed))
    x = noise.clone()
    for t in range(n_steps):
        x[:, t + 1] = 0.9 * x[:, t] + DEVIATION * noise[:, t + 1]
    return make_windows(x, shares=(0.05, 0.05), **settings)


def step_deviation(ahead):
    return DEVIATION * math.sqrt(sum(0.81**k for k in range(ahead)))


def numbers(scores):
    """The metrics that there are."""
    return {name: value for name, value in scores.metrics.items() if value is not None}


def test_the_truth_has_the_scores_of_the_closed_forms():
    data = truth_windows(n=2000)
    scores = evaluate(Truth(), data, n_windows=None, n_samples=1000, seed=0)
    n_windows, n_values = len(data.test), len(data.test) * data.length
    found = scores["unistep"].metrics
    assert scores["unistep"].n_windows == n_windows == 1800
    assert found["picp"] == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / n_values))
    assert found["mpiw"] == pytest.approx(2 * norm.ppf(0.975) * DEVIATION, rel=1e-4)
    assert found["crps"] == pytest.approx(DEVIATION / math.sqrt(math.pi), rel=0.03)
    assert found["mse"] == pytest.approx(DEVIATION**2, rel=0.05)
    assert found["nll"] == pytest.approx(norm.entropy(scale=DEVIATION), abs=0.03)
    # E of the interval score of the true central interval of a Gaussian.
    assert found["winkler"] == pytest.approx(2 * DEVIATION * norm.pdf(norm.ppf(0.975)) / 0.025, rel=0.03)
    assert found["energy_score"] is None
    assert found["dist_mse"] is None

    multistep = scores["multistep"]
    deviations = np.array([step_deviation(ahead) for ahead in range(1, 5)])
    np.testing.assert_allclose(multistep.per_step["mse"], deviations**2, rtol=0.15)
    np.testing.assert_allclose(multistep.per_step["mpiw"], 2 * norm.ppf(0.975) * deviations, rtol=0.01)
    np.testing.assert_allclose(multistep.per_step["crps"], deviations / math.sqrt(math.pi), rtol=0.07)
    np.testing.assert_allclose(multistep.per_step["picp"], 0.95, atol=4 * math.sqrt(0.95 * 0.05 / n_windows))
    assert multistep.metrics["nll"] is None


def test_pit_and_coverage_of_the_truth_are_uniform():
    data = truth_windows(n=2000)
    for scores in evaluate(Truth(), data, n_windows=None, seed=0).values():
        counts = np.array(scores.pit)
        n_values = counts.sum()
        assert n_values == scores.n_windows * len(scores.per_step["mse"])
        assert abs(counts / n_values - 0.05).max() < 6 * math.sqrt(0.05 * 0.95 / n_values) * 2  # steps depend
        levels, shares = np.array(scores.coverage["levels"]), np.array(scores.coverage["shares"])
        np.testing.assert_allclose(levels, np.arange(1, 20) * 0.05)
        assert abs(shares - levels).max() < 0.03


def test_a_distribution_that_is_one_step_late_is_found_out():
    """Scoring X_{t+1} against X_t must not look the same as doing it right."""
    data = truth_windows()
    right = evaluate(Truth(), data, n_windows=None, n_samples=50, seed=0)["unistep"].metrics
    late = evaluate(Truth(late=True), data, n_windows=None, n_samples=50, seed=0)["unistep"].metrics
    assert late["nll"] < right["nll"] - 0.3  # it has seen what it predicts
    assert late["mse"] < 0.5 * right["mse"]


def test_a_copier_of_the_input_is_scored_against_the_next_value():
    x = torch.zeros(20, 5, 1)
    x[:, ::2] = 1.0  # 1, 0, 1, 0, 1: the last value is always wrong by one

    class Copier(Truth):
        def one_step(self, x, generator=None):
            return Samples(x[:, None, :-1].expand(-1, 100, -1, -1))

        def paths(self, history, horizon, n_samples, future_inputs=None, generator=None):
            return history[:, None, -1:].expand(-1, n_samples, horizon, -1)

    scores = evaluate(Copier(), make_windows(x, history=2), n_windows=None, n_samples=100, seed=0)
    assert scores["unistep"].metrics["mse"] == 1.0
    assert scores["unistep"].metrics["picp"] == 0.0
    assert scores["multistep"].per_step["mse"] == [1.0, 0.0]  # X_3 = 0 and X_4 = 1 after X_2 = 1


def test_paths_without_their_first_step_are_found_out():
    data = truth_windows()
    right = evaluate(Truth(), data, n_windows=None, n_samples=200, seed=0)["multistep"]
    shifted = evaluate(Truth(drop_first=True), data, n_windows=None, n_samples=200, seed=0)["multistep"]
    assert right.per_step["mpiw"][0] == pytest.approx(2 * norm.ppf(0.975) * step_deviation(1), rel=0.03)
    assert shifted.per_step["mpiw"][0] > 1.2 * right.per_step["mpiw"][0]

    class Short(Truth):
        def paths(self, history, horizon, n_samples, future_inputs=None, generator=None):
            return super().paths(history, horizon - 1, n_samples, future_inputs, generator)

    with pytest.raises(ValueError, match="paths must have shape"):
        evaluate(Short(), data, n_windows=10, n_samples=20, seed=0)


def test_no_window_is_dropped_whatever_the_chunks(monkeypatch):
    """Every window counts once, also when the last chunk is not full."""
    data = truth_windows(n=103)
    whole = Truth()
    expected = evaluate(whole, data, n_windows=None, n_samples=20, seed=0)["unistep"]
    monkeypatch.setattr(evaluation, "NUMBERS_AT_ONCE", 7 * 20 * data.length)
    pieces = Truth()
    found = evaluate(pieces, data, n_windows=None, n_samples=20, seed=0)
    assert pieces.seen_windows == whole.seen_windows == len(data.test) == found["unistep"].n_windows
    assert found["multistep"].n_windows == len(data.test)
    assert numbers(found["unistep"]) == pytest.approx(numbers(expected))
    assert found["unistep"].pit == expected.pit


def test_only_targets_are_scored():
    """A second modelled column that is predicted badly changes nothing."""
    data = truth_windows(n_columns=2, n_targets=1, n_modelled=2)
    spoilt = data.test.clone()
    spoilt[:, 1:, 1] += 100.0
    kept = make_windows(spoilt, shares=(0.05, 0.05), n_targets=1, n_modelled=2)
    right = evaluate(Truth(), make_windows(data.test, shares=(0.05, 0.05), n_targets=1, n_modelled=2), seed=0)
    found = evaluate(Truth(), kept, seed=0)
    for task in ("unistep", "multistep"):
        assert numbers(found[task]) == pytest.approx(numbers(right[task]), rel=1e-5)
        assert sum(found[task].pit) == sum(right[task].pit) == found[task].n_windows * len(found[task].per_step["mse"])


def test_side_inputs_of_the_horizon_are_those_of_the_horizon():
    data = truth_windows(n_columns=3, n_targets=2)

    class Checks(Truth):
        def paths(self, history, horizon, n_samples, future_inputs=None, generator=None):
            assert history.shape[1] == data.history + 1
            self.given = future_inputs
            return super().paths(history, horizon, n_samples, future_inputs, generator)

    method = Checks(n_modelled=2)
    evaluate(method, data, n_windows=None, n_samples=10, seed=0)
    assert torch.equal(method.given, data.test[:, data.history + 1 :, 2:])


def test_missing_values_are_not_scored():
    data = truth_windows(n=300)
    gappy = with_gaps(data.test, share=0.2)
    windows = make_windows(torch.cat((data.train, data.validation, gappy)), shares=(0.05, 0.05))

    class Complete(Truth):  # predicts from the complete windows, so that only the scoring differs
        def one_step(self, x, generator=None):
            return super().one_step(data.test, generator)

        def paths(self, history, horizon, n_samples, future_inputs=None, generator=None):
            return super().paths(data.test[:, : data.history + 1], horizon, n_samples, future_inputs, generator)

    found = evaluate(Complete(), windows, n_windows=None, n_samples=200, seed=0)
    seen = ~gappy[:, 1:].isnan()
    error = (data.test[:, 1:] - 0.9 * data.test[:, :-1])[seen]
    assert found["unistep"].metrics["mse"] == pytest.approx(error.square().mean().item(), rel=1e-5)
    expected = -norm.logpdf(error.numpy(), scale=DEVIATION).mean()
    assert found["unistep"].metrics["nll"] == pytest.approx(expected, rel=1e-4)
    assert sum(found["unistep"].pit) == int(seen.sum())
    assert sum(found["multistep"].pit) == int(seen[:, data.history :].sum())


def test_coverage_right_after_a_jump_is_that_of_the_steps_right_after_a_jump():
    """A method that trusts a level too much is found out there: it forecasts the level of before a jump."""
    data = truth_windows(n=2000)
    jump = torch.zeros(9, 1)
    jump[4:] = 100.0
    x = data.test + jump
    moved = replace(data, test=x)

    class Slow(Truth):
        def one_step(self, x, generator=None):
            mean = 0.9 * (x - jump)[:, :-1] + jump[1:]
            mean[:, 4:6] -= 100.0  # of the steps 5 and 6, right after step 4, where the jump is
            return GaussianMixture(torch.zeros(len(x), 1, x.shape[1] - 1), mean.unsqueeze(1), DEVIATION * torch.eye(1))

    found = evaluate(Slow(), moved, n_windows=None)["unistep"]
    after = right_after_jumps(x, data.train)
    assert after[:, 4:7].all()
    assert found.after_jumps["share"] == pytest.approx(float(after.double().mean()))
    missed = 2 / 8  # steps 5 and 6 of every window; step 7 and those after a chance jump are as usual
    expected = 1 - missed / found.after_jumps["share"]
    assert found.after_jumps["picp"] == pytest.approx(0.95 * expected, abs=0.05)
    assert found.after_jumps["nll"] > found.metrics["nll"] + 1000
    assert evaluate(Slow(), moved, n_windows=None)["multistep"].after_jumps is None


def test_point_forecasts_have_errors_only():
    scores = evaluate(Truth(point=True), truth_windows(), n_windows=100, n_samples=10, seed=0)
    for task in scores.values():
        assert task.metrics["picp"] is task.metrics["mpiw"] is task.metrics["winkler"] is task.metrics["nll"] is None
        assert task.pit is task.coverage is None
        assert set(task.per_step) == {"mse", "crps"}
    assert scores["multistep"].metrics["energy_score"] > scores["multistep"].metrics["crps"]


def test_scores_are_json_and_repeatable():
    data = truth_windows()
    first, second = (evaluate(Truth(), data, n_windows=50, n_samples=100, seed=3) for _ in range(2))
    assert first == second
    assert evaluate(Truth(), data, n_windows=50, n_samples=100, seed=4)["multistep"] != first["multistep"]
    assert json.loads(json.dumps(asdict(first["unistep"])))["n_windows"] == 50


@pytest.mark.parametrize(("name", "mse", "dist_mse"), [("model1", 0.5, 0.5), ("model2", 0.324, 0.347)])
def test_the_bayes_optimal_method_has_the_known_scores(name, mse, dist_mse):
    data = synthetic_windows(name, n_sequences=2500, n_steps=24, shares=(0.1, 0.1))
    method = BayesOptimal()
    method.fit(data, seed=0)
    scores = evaluate(method, data, n_windows=None, n_samples=300, seed=0)
    assert scores["unistep"].metrics["mse"] == pytest.approx(mse, rel=0.03)
    assert scores["unistep"].metrics["dist_mse"] == pytest.approx(dist_mse, rel=0.03)
    assert scores["unistep"].metrics["picp"] == pytest.approx(0.95, abs=0.005)
    assert scores["multistep"].metrics["picp"] == pytest.approx(0.95, abs=0.01)
    if name == "model1":
        assert scores["unistep"].metrics["nll"] == pytest.approx(1.0724, abs=0.02)


def test_the_bayes_optimal_paths_continue_the_series():
    """After one step, paths have the distribution of the one-step predictive; later ones that of the simulator."""
    method = BayesOptimal()
    method.fit(synthetic_windows("model3"), seed=0)
    history = torch.full((1, 1, 1), 2.0)
    paths = method.paths(history, 3, 40_000, None, 0)[0, :, :, 0]
    distribution = method.one_step(torch.cat((history, history), dim=1))
    for value in (-2.0, -1.6, 0.0, 1.9):
        share = (paths[:, 0] <= value).double().mean().item()
        assert share == pytest.approx(distribution.cdf(torch.full((1, 1, 1), value)).item(), abs=0.01)
    second_moment = 4.0
    for ahead in range(3):
        second_moment = 0.81 * second_moment + 0.05
        assert paths[:, ahead].square().mean().item() == pytest.approx(second_moment, rel=0.02)


def test_the_truth_is_not_known_for_real_data():
    with pytest.raises(ValueError, match="model1, model2, model3"):
        BayesOptimal().fit(truth_windows(), seed=0)


def test_dist_mse_of_the_naive_forecast_is_its_own():
    """Residual draws of Model I around X_t: E (X_t + R - 0.8 X_t)^2 = 0.04 E X^2 + E R^2."""
    data = synthetic_windows("model1", n_sequences=2000, n_steps=24)
    method = NaiveForecast()
    method.fit(data, seed=0)
    x = data.test
    expected = 0.04 * x[:, :-1].square().mean() + data.train.diff(dim=1).square().mean()
    found = evaluate(method, data, n_windows=None, n_samples=200, seed=0)["unistep"].metrics["dist_mse"]
    assert found == pytest.approx(expected.item(), rel=0.02)


def test_interval_score_is_that_of_scoringrules():
    generator = torch.Generator().manual_seed(0)
    lower, upper = -torch.rand(5, 4, 2, generator=generator), torch.rand(5, 4, 2, generator=generator)
    observed = torch.randn(5, 4, 2, generator=generator)
    expected = scoringrules.interval_score(observed.numpy(), lower.numpy(), upper.numpy(), 0.2)
    np.testing.assert_allclose(interval_score((lower, upper), observed, 0.8).numpy(), expected, rtol=1e-5)


def test_energy_score_is_that_of_scoringrules():
    generator = torch.Generator().manual_seed(0)
    paths = 5 + torch.randn(4, 100, 3, 2, generator=generator)
    observed = 5 + torch.randn(4, 3, 2, generator=generator)
    found = energy_score(paths, observed).numpy()
    expected = scoringrules.es_ensemble(observed.flatten(1).numpy(), paths.flatten(2).numpy())
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    observed[1, 2] = float("nan")
    observed[3] = float("nan")
    found = energy_score(paths, observed)
    expected = scoringrules.es_ensemble(observed[1, :2].flatten().numpy(), paths[1, :, :2].flatten(1).numpy())
    assert found[1].item() == pytest.approx(float(expected), rel=1e-4)
    assert found[3].isnan()


def test_energy_score_of_one_dimension_is_the_crps():
    generator = torch.Generator().manual_seed(1)
    paths, observed = torch.randn(6, 300, 1, 1, generator=generator), torch.randn(6, 1, 1, generator=generator)
    torch.testing.assert_close(
        energy_score(paths, observed), Samples(paths).crps(observed).flatten(), atol=1e-5, rtol=0
    )


def test_pit_histogram_and_coverage_of_known_values():
    pit = torch.tensor([0.0, 0.01, 0.049, 0.5, 0.97, 1.0])
    assert pit_histogram(pit) == [3, *[0] * 9, 1, *[0] * 8, 2]
    assert central_coverage(pit, [0.5, 0.95]) == pytest.approx([1 / 6, 3 / 6])
