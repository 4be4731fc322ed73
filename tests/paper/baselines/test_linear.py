"""The naive forecast and autoregression against answers by simple loops."""

import numpy as np
import pytest
import torch
from helpers.baselines import make_windows, synthetic_windows, vector_sequences, with_gaps

from smct_paper.baselines import Autoregression, NaiveForecast
from smct_paper.baselines.autoregression import ridge_regressions
from smct_paper.evaluation import evaluate


def fitted(method, data):
    method.fit(data, seed=0)
    return method


def test_naive_forecast_is_the_last_value_plus_seen_changes():
    x, _ = vector_sequences(n_sequences=50)
    data = make_windows(x, n_targets=2, n_modelled=3, history=4)
    distribution = fitted(NaiveForecast(), data).one_step(data.test)
    changes = data.train.diff(dim=1).flatten(0, 1)
    torch.testing.assert_close(distribution.mean, data.test[:, :-1] + changes.mean(dim=0), atol=0.05, rtol=0)
    lower, upper = distribution.interval(0.9)
    if len(set(map(id, distribution.residuals))) == 1:
        expected = np.quantile(changes.numpy(), [0.05, 0.95], axis=0)
        np.testing.assert_allclose((lower - data.test[:, :-1])[3, 2].numpy(), expected[0], atol=1e-5)
        np.testing.assert_allclose((upper - data.test[:, :-1])[3, 2].numpy(), expected[1], atol=1e-5)


def test_naive_forecast_paths_are_whole_changes_of_training_windows():
    x, _ = vector_sequences(n_sequences=20, n_steps=6)
    data = make_windows(x, n_targets=2, n_modelled=3, history=3)
    method = NaiveForecast()
    facts = method.fit(data, seed=0)
    history = data.test[:, :4]
    found = method.paths(history, 3, 50, None, 0) - history[:, None, -1:]
    position = 3 if facts["by_position"]["multistep"] else None
    seen = {
        tuple((window[s + 1 : s + 4] - window[s]).flatten().mul(1e3).round().int().tolist())
        for window in data.train
        for s in (range(4) if position is None else [position])
    }
    for change in found.flatten(0, 1):
        rounded = change.flatten().mul(1e3).round().int()
        nearest = min((rounded - torch.tensor(path)).abs().max().item() for path in seen)
        assert nearest <= 1


def test_naive_forecast_uses_the_position_where_it_matters():
    """Series that share a calendar: the change depends on the position alone."""
    noise = 0.1 * torch.randn(300, 9, 1, generator=torch.Generator().manual_seed(0))
    x = torch.tensor([0.0, 5, 1, 8, 2, 9, 0, 7, 3]).view(1, 9, 1) + noise
    data = make_windows(x, history=4)
    method = NaiveForecast()
    assert method.fit(data, seed=0)["by_position"] == {"unistep": True, "multistep": True}
    scores = evaluate(method, data, n_windows=None, seed=0)
    assert scores["unistep"].metrics["mse"] < 0.05
    assert scores["multistep"].metrics["mse"] < 0.05


def test_naive_forecast_of_a_random_walk_is_calibrated():
    noise = torch.randn(2000, 13, 2, generator=torch.Generator().manual_seed(0))
    data = make_windows(noise.cumsum(dim=1), history=6)
    scores = evaluate(fitted(NaiveForecast(), data), data, n_windows=None, seed=0)
    assert scores["unistep"].metrics["picp"] == pytest.approx(0.95, abs=0.01)
    assert scores["multistep"].metrics["picp"] == pytest.approx(0.95, abs=0.015)
    deviations = np.sqrt(np.arange(1, 7))
    np.testing.assert_allclose(scores["multistep"].per_step["mpiw"], 3.92 * deviations, rtol=0.08)


def naive_regression(x, order, ridge):
    """Least squares row by row, by numpy."""
    rows, changes = [], []
    for window in x.double().numpy():
        for t in range(order, len(window)):
            row = np.concatenate([[1.0], *(window[t - lag] for lag in range(1, order + 1))])
            change = window[t] - window[t - 1]
            if not (np.isnan(row).any() or np.isnan(change).any()):
                rows.append(row)
                changes.append(change)
    design, target = np.array(rows), np.array(changes)
    penalty = ridge * len(design) * np.eye(design.shape[1])
    penalty[0, 0] = 0.0
    return np.linalg.solve(design.T @ design + penalty, design.T @ target)


@pytest.mark.parametrize("gaps", [0.0, 0.05])
def test_the_regression_is_the_naive_one(gaps, monkeypatch):
    monkeypatch.setattr("smct_paper.baselines.autoregression.NUMBERS_AT_ONCE", 500)  # several chunks
    x = with_gaps(vector_sequences(n_sequences=40)[0], gaps)
    for ridge, found in zip((1e-6, 0.3), ridge_regressions(x, 3, 2, (1e-6, 0.3)), strict=True):
        expected = naive_regression(x, 2, ridge)
        np.testing.assert_allclose(found.intercept.numpy(), expected[0], atol=1e-5)
        np.testing.assert_allclose(found.slopes.flatten(0, 1).numpy(), expected[1:], atol=1e-5)


def test_the_regression_finds_the_truth():
    x, (first, second, _) = vector_sequences(n_sequences=3000)
    found = ridge_regressions(x, 3, 2, (1e-6,))[0]
    torch.testing.assert_close(found.slopes[0] + torch.eye(3), first.T, atol=0.03, rtol=0)
    torch.testing.assert_close(found.slopes[1], second.T, atol=0.03, rtol=0)


def test_autoregression_of_its_own_data_is_calibrated():
    x, (_, _, root) = vector_sequences(n_sequences=2500)
    data = make_windows(x, n_targets=2, n_modelled=3, history=4)
    method = Autoregression()
    facts = method.fit(data, seed=0)
    assert facts["order"] >= 2
    scores = evaluate(method, data, n_windows=None, seed=0)
    assert scores["unistep"].metrics["picp"] == pytest.approx(0.95, abs=0.01)
    assert scores["multistep"].metrics["picp"] == pytest.approx(0.95, abs=0.015)
    noise = (root @ root.T).diagonal()[:2].mean().item()
    assert np.mean(scores["unistep"].per_step["mse"][1:]) == pytest.approx(noise, rel=0.05)
    naive = evaluate(fitted(NaiveForecast(), data), data, n_windows=None, seed=0)
    for task in ("unistep", "multistep"):
        assert scores[task].metrics["crps"] < naive[task].metrics["crps"]
        assert scores[task].metrics["winkler"] < naive[task].metrics["winkler"]


def test_autoregression_paths_are_the_naive_recursion():
    """Each step of a path is the regression on what came before, the path's own draws too, plus a training residual."""
    x, _ = vector_sequences(n_sequences=60)
    data = make_windows(x, n_targets=2, history=4)  # the third column is a known input
    method = Autoregression(orders=(1, 3))
    facts = method.fit(data, seed=0)
    order = facts["order"]
    assert order > 1
    coefficients = naive_regression(data.train, order, facts["ridge"])[:, :2]

    def mean(past):
        return past[-1, :2] + np.concatenate([[1.0], *past[: -order - 1 : -1]]) @ coefficients

    windows = data.train.double().numpy()
    residuals = np.array([window[t, :2] - mean(window[:t]) for window in windows for t in range(order, len(window))])
    found = method.paths(data.test[:, :5], 6, 2, data.test[:, 5:, 2:], 0).double().numpy()
    drawn = []
    for window, samples in zip(data.test.double().numpy(), found, strict=True):
        for path in samples:
            values = window.copy()
            values[5:, :2] = path
            for t in range(5, 11):
                distances = np.abs(residuals - (values[t, :2] - mean(values[:t]))).max(axis=1)
                assert distances.min() < 1e-4
                drawn.append(int(distances.argmin()))
    assert len(set(drawn)) > len(drawn) // 2  # 144 of 288 rows: about 113 different ones


def test_autoregression_draws_whole_rows_of_residuals():
    x, (_, _, root) = vector_sequences(n_sequences=400)
    data = make_windows(x, history=4)
    method = fitted(Autoregression(), data)
    paths = method.paths(data.test[:1, :5], 1, 20_000, None, 0)[0, :, 0]
    covariance = root @ root.T
    scale = covariance.diagonal().sqrt()
    truth = covariance / scale / scale.unsqueeze(1)
    torch.testing.assert_close(torch.corrcoef(paths.T), truth, atol=0.06, rtol=0)


def test_the_first_step_of_autoregression_paths_has_the_one_step_mean():
    x, _ = vector_sequences(n_sequences=100)
    data = make_windows(with_gaps(x), history=4)
    method = fitted(Autoregression(), data)
    distribution = method.one_step(data.test)
    paths = method.paths(data.test[:, :5], 1, 4000, None, 0)
    torch.testing.assert_close(paths[:, :, 0].mean(dim=1), distribution.mean[:, 4], atol=0.06, rtol=0)


@pytest.mark.parametrize("make", [NaiveForecast, Autoregression])
def test_gaps_in_the_history_read_the_last_observed_value(make):
    x, _ = vector_sequences(n_sequences=60)
    data = make_windows(with_gaps(x), history=4)
    method = fitted(make(), data)
    history = data.test[:, :5].clone()
    history[:, 3] = history[:, 3].nan_to_num(1.0)
    copied, missing = history.clone(), history.clone()
    copied[:, 4], missing[:, 4] = history[:, 3], float("nan")
    assert torch.equal(method.paths(missing, 3, 10, None, 0), method.paths(copied, 3, 10, None, 0))
    assert evaluate(method, data, n_windows=None, n_samples=100, seed=0)["multistep"].metrics["crps"] > 0


def test_the_order_is_chosen_on_validation_windows():
    x, _ = vector_sequences(n_sequences=400)
    data = make_windows(x, history=4)
    assert Autoregression().fit(data, seed=0)["order"] >= 2
    one = synthetic_windows("model1", n_sequences=1500)
    method = Autoregression(orders=(1, 2))
    facts = method.fit(one, seed=0)
    assert facts["validation_mse"] == pytest.approx(0.5, rel=0.1)
