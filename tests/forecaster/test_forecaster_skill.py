"""What forecasts are worth: missing values, inputs of both kinds and calendars make the difference they should."""

import numpy as np
import pandas as pd
import pytest
import torch
from helpers.forecaster_tables import autoregression, head, series

from smc_transformer.empirical import Samples
from smc_transformer.forecaster import Forecaster

pytestmark = pytest.mark.slow

SMALL = {"d_model": 12, "d_ff": 12, "window": 8, "n_particles": 8}


def panel(n_series, n_rows, make_columns, seed=0):
    random = np.random.default_rng(seed)
    tables = []
    for number in range(n_series):
        columns = make_columns(random, n_rows)
        tables.append(series(f"series {number}", columns.pop("y"), **columns))
    return pd.concat(tables, ignore_index=True)


def learner(input_size=16, horizon=4, likelihood_steps=150, forecast_steps=60, config=None, **settings):
    training = {"likelihood_steps": likelihood_steps, "forecast_steps": forecast_steps, "validations": 3}
    training["learning_rate"] = 1e-2
    config = {**SMALL, **(config or {})}
    settings = {"scaling": "standard", **settings}  # what the network learns, without the help of a view
    return Forecaster(input_size, horizon, freq=settings.pop("freq", 1), config=config, training=training, **settings)


def mean_squared_error(forecaster, history, truth, **arguments):
    found = forecaster.predict(history, level=[], n_paths=400, **arguments)
    both = found.merge(truth, on=["unique_id", "ds"], suffixes=("", "-true"))
    assert len(both) == len(found)
    return float(((both["y"] - both["y-true"]) ** 2).mean())


def test_missing_values_leave_intervals_honest_and_beat_filling_in_the_mean():
    table = panel(60, 120, lambda random, n: {"y": autoregression(random, n)}, seed=1)
    complete = table.copy()
    random = np.random.default_rng(2)
    missing = (random.random(len(table)) < 0.2) & (table["ds"] > 0)
    table.loc[missing, "y"] = np.nan
    filled = table.assign(y=table.groupby("unique_id")["y"].transform(lambda y: y.fillna(y.mean())))
    test = table["ds"] >= 80
    crps, after_gaps, covered = {}, {}, {}
    for name, given in (("missing", table), ("filled", filled)):
        forecaster = learner().fit(given[~test], progress=False)
        scores = forecaster.score(given)
        seen = scores.merge(table[test].dropna(), on=["unique_id", "ds"])  # the values that were really observed
        covered[name] = 1 - seen["outside-95"].mean()
        scored, gaps = [], []
        for cutoff in range(80, 117, 8):
            forecast = forecaster.forecast(given[given["ds"] < cutoff], n_paths=200)
            truth = complete[(complete["ds"] >= cutoff) & (complete["ds"] < cutoff + 4)]["y"].to_numpy()
            scored.append(Samples(torch.from_numpy(forecast.paths)).crps(torch.tensor(truth.reshape(60, 4, 1))))
            gaps.append(torch.tensor(missing[table["ds"] == cutoff - 1].to_numpy()))
        crps[name] = float(torch.cat(scored).mean())
        after_gaps[name] = float(torch.cat(scored)[torch.cat(gaps), 0].mean())
    # 60 x 40 x 0.8 = 1920 values: a standard error of 0.005.
    assert abs(covered["missing"] - 0.95) < 0.02
    assert crps["missing"] < crps["filled"]
    # Forecasts that start from a value that was filled in start at the wrong place.
    assert after_gaps["missing"] < 0.92 * after_gaps["filled"]


def driven(random, n_rows):
    x = random.normal(size=n_rows)
    return {"y": 2 * x + 0.2 * random.normal(size=n_rows), "x": x}


def test_a_known_input_informs_the_prediction_of_its_own_time():
    table = panel(20, 100, driven)
    train, future = head(table, 96), table.drop(head(table, 96).index)
    with_input = learner(future_inputs=["x"]).fit(head(train, 95), progress=False)
    right = mean_squared_error(with_input, train, future, future=future)
    shifted = future.assign(x=future.groupby("unique_id")["x"].transform(lambda x: np.roll(x, 1)))
    wrong = mean_squared_error(with_input, train, future, future=shifted)
    without = mean_squared_error(learner().fit(train, progress=False), train, future)
    # The noise has variance 0.04, the driven part 4; an input one step off makes it twice that.
    assert right < 0.5
    assert without > 5 * right
    assert wrong > 5 * right
    # The same after an update, which brings the known input with the row.
    with_input.update(train.drop(head(train, 95).index))
    found = with_input.predict(future=future, level=[], n_paths=400).merge(future, on=["unique_id", "ds"])
    assert ((found["y_x"] - found["y_y"]) ** 2).mean() < 0.5


def led(random, n_rows):
    z = random.normal(size=n_rows)
    return {"y": np.concatenate(([0.0], 2 * z[:-1])) + 0.2 * random.normal(size=n_rows), "z": z}


def test_a_past_input_informs_the_next_step_and_is_itself_unknown_ahead():
    table = panel(20, 100, led)
    train, future = head(table, 99), table.drop(head(table, 99).index)
    with_input = learner(past_inputs=["z"], horizon=2).fit(train, progress=False)
    without = learner(horizon=2).fit(train, progress=False)
    assert mean_squared_error(with_input, train, future, h=1) < 0.5
    assert mean_squared_error(without, train, future, h=1) > 2.5
    # Two steps ahead z is not known, so the forecast must be as unsure as the distribution: deviation 2, not 0.2.
    deviation = with_input.forecast(train, h=2, n_paths=400).paths[..., 0].std(axis=1).mean(axis=0)
    assert deviation[0] < 0.8
    assert deviation[1] > 1.5


def test_a_calendar_feature_tells_the_time_of_day():
    hours = np.arange(24 * 12)
    start = pd.date_range("2024-01-01", periods=len(hours), freq="h")

    def columns(random, n_rows):
        return {"y": np.where(hours % 24 == 9, 5.0, 0.0) + 0.2 * random.normal(size=n_rows)}

    table = panel(6, len(hours), columns).assign(ds=np.tile(start, 6))
    cut = start[-24 - 1]
    train, future = table[table["ds"] <= cut], table[table["ds"] > cut]
    # A peak at nine that nothing but the clock announces: 8 rows of history do not reach back to the last one.
    errors = {}
    for calendar in ((), ("hour",)):
        forecaster = learner(8, 24, 120, 0, calendar=calendar, freq="h", config={"window": 8})
        errors[calendar] = mean_squared_error(forecaster.fit(train, progress=False), train, future)
    assert errors[("hour",)] < 0.4 * errors[()]


def test_counts_on_a_logarithm_are_forecast_with_honest_intervals():
    def counts(random, n_rows):
        return {"y": random.poisson(np.exp(1.5 + autoregression(random, n_rows, 0.95, 0.1))).astype(float)}

    table = panel(30, 120, counts, seed=3)
    forecaster = learner(scaling="log1p").fit(head(table, 100), progress=False)
    tested = forecaster.backtest(table, n_windows=5, n_paths=300, progress=False)
    # 600 values, correlated in fours: two standard errors are about 0.03.
    assert 0.91 < tested.metrics["picp"].item() <= 1
    constant = Samples(torch.tensor(head(table, 100)["y"].to_numpy()).view(1, -1, 1, 1))
    truth = torch.tensor(tested.forecasts["y-observed"].to_numpy()).view(1, -1, 1)
    climatology = Samples(constant.draws.expand(1, -1, truth.shape[1], 1)).crps(truth).mean()
    assert tested.metrics["crps"].item() < 0.9 * float(climatology)
