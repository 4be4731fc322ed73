"""What comes out: tables, the forecast object, backtests."""

import itertools
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from helpers.forecaster_tables import SHORT, TINY, head, make, rows_between, series, walks

from smc_transformer import scores
from smc_transformer.empirical import Samples
from smc_transformer.forecaster import Forecaster, TableError
from smc_transformer.support.tensor_files import read_tensors, write_tensors


@pytest.fixture(scope="module")
def two_targets():
    table = walks(60, 50).assign(z=lambda df: df["y"] ** 2, w=lambda df: -df["y"])
    return make(targets=["y", "z"], past_inputs=["w"]).fit(table, progress=False)


def test_columns_of_predictions(two_targets):
    found = two_targets.predict(level=[80, 99.5], quantiles=[0.1])
    per_target = ["", "-lo-80", "-hi-80", "-lo-99.5", "-hi-99.5", "-q-10"]
    assert found.columns.tolist() == [
        "unique_id",
        "ds",
        *("y" + end for end in per_target),
        *("z" + e for e in per_target),
    ]
    assert found["unique_id"].tolist() == ["a"] * 4 + ["b"] * 4
    assert found["ds"].tolist() == [60, 61, 62, 63, 50, 51, 52, 53]
    for name in ("y", "z"):
        ends = [found[f"{name}-{end}"] for end in ("lo-99.5", "lo-80", "hi-80", "hi-99.5")]
        assert all((low <= high).all() for low, high in itertools.pairwise(ends))
    np.testing.assert_allclose(found["y-q-10"], found["y-lo-80"])
    assert len(two_targets.predict(h=9)) == 18


def test_the_forecast_object_agrees_with_its_paths(two_targets):
    forecast = two_targets.forecast(n_paths=300)
    assert forecast.paths.shape == (2, 300, 4, 2)
    np.testing.assert_allclose(forecast.mean["z"], forecast.paths.mean(axis=1)[..., 1].reshape(-1))
    found = forecast.quantile([0.25, 0.5])
    np.testing.assert_allclose(found["y-q-25"], np.quantile(forecast.paths[..., 0], 0.25, axis=1).reshape(-1))
    interval = forecast.interval(90)
    np.testing.assert_allclose(interval["z-hi-90"], np.quantile(forecast.paths[..., 1], 0.95, axis=1).reshape(-1))
    samples = forecast.sample()
    assert samples.columns.tolist() == ["unique_id", "sample_id", "ds", "y", "z"]
    one = samples[(samples["unique_id"] == "b") & (samples["sample_id"] == 17)]
    np.testing.assert_array_equal(one["ds"], [50, 51, 52, 53])
    np.testing.assert_array_equal(one[["y", "z"]], forecast.paths[1, 17])
    assert len(forecast.sample(5)) == 2 * 5 * 4
    pd.testing.assert_frame_equal(two_targets.simulate(n_paths=300), samples)


def test_probabilities_and_densities(two_targets):
    forecast = two_targets.forecast(n_paths=400)
    values = forecast.mean
    values.loc[3, "z"] = np.nan
    probabilities = forecast.cdf(values)
    below = (forecast.paths <= values[["y", "z"]].to_numpy().reshape(2, 1, 4, 2)).mean(axis=1).reshape(8, 2)
    below[3, 1] = np.nan
    np.testing.assert_allclose(probabilities[["y", "z"]], below, atol=0.005)
    # The density of y alone integrates to one, in the user's units.
    row = values.groupby("unique_id").head(1)
    grid = np.linspace(-80, 100, 401)
    densities = [np.exp(forecast.log_prob(row.assign(y=y, z=np.nan))["log_density"].to_numpy()) for y in grid]
    np.testing.assert_allclose(np.trapezoid(np.array(densities), grid, axis=0), 1.0, atol=0.02)


def test_variance_parts_add_up_to_the_variance():
    table = walks(60, 60)
    forecast = make(config={**TINY, "observation": "gaussian"}).fit(table, progress=False).forecast(n_paths=4000)
    parts = forecast.variance_parts()
    variance = forecast.paths.var(axis=1).reshape(-1)
    # The relative error of a variance from n draws is about sqrt(2 / n), here 0.022.
    np.testing.assert_allclose(parts["y-between"] + parts["y-within"], variance, rtol=0.11)
    assert (parts["y-between"] > 0).all()


def test_timestamps_come_out_as_they_went_in():
    times = pd.date_range("2024-03-30", periods=60, freq="h", tz="Europe/Berlin")  # over a change of clocks
    table = walks(60).assign(ds=times)
    forecaster = make(freq="h", calendar=["hour", "weekday"]).fit(table, progress=False)
    found = forecaster.predict(level=80)
    assert found["ds"].tolist() == pd.date_range(times[-1], periods=5, freq="h")[1:].tolist()
    assert forecaster.model.config.n_inputs == 5 + 4 + 1  # the view of one column with a season of 24 rows


def test_a_plot_shows_the_numbers(two_targets):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    forecast = two_targets.forecast(n_paths=50)
    ax = forecast.plot(series="b", target="z", history=walks(50, 50).assign(z=1.0))
    mean = next(line for line in ax.lines if line.get_label() == "mean")
    # As in the tables, after the last value before it.
    np.testing.assert_allclose(mean.get_ydata(), [1.0, *forecast.table()["z"][4:]])
    assert forecast.plot(ax) is ax
    with pytest.raises(ValueError, match=r"has no series 'c'; it has \['a', 'b'\]"):
        forecast.plot(series="c")
    with pytest.raises(ValueError, match="has no target 'x'"):
        forecast.plot(target="x")
    matplotlib.pyplot.close("all")


def test_a_plot_without_matplotlib_says_what_to_install(two_targets, monkeypatch):
    for name in ("matplotlib", "matplotlib.pyplot"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pictures need matplotlib: pip install 'smc-transformer\[plots\]'"):
        two_targets.forecast(n_paths=5).plot()


def test_backtests_forecast_what_came_from_what_was_known():
    table = walks(70, 64)
    table.loc[66, "y"] = np.nan
    backtest = make().backtest(table, n_windows=3, step_size=2, level=[95], n_paths=200, progress=False)
    found = backtest.forecasts
    assert len(found) == 2 * 3 * 4
    assert found.groupby("unique_id")["cutoff"].unique().map(list).to_dict() == {"a": [61, 63, 65], "b": [55, 57, 59]}
    assert (found["ds"] - found["cutoff"]).tolist() == [1, 2, 3, 4] * 6
    truth = found.merge(table, on=["unique_id", "ds"], suffixes=("", "-true"))
    observed = found["y-observed"]
    pd.testing.assert_series_equal(truth["y-observed"], truth["y-true"], check_names=False)
    inside = (found["y-lo-95"] <= observed) & (observed <= found["y-hi-95"])
    seen = observed.notna()
    row = backtest.metrics.iloc[0]
    assert row["target"] == "y"
    np.testing.assert_allclose(row["picp"], inside[seen].mean())
    np.testing.assert_allclose(row["mpiw"], (found["y-hi-95"] - found["y-lo-95"])[seen].mean())
    np.testing.assert_allclose(row["mse"], ((found["y"] - observed) ** 2)[seen].mean())
    np.testing.assert_allclose(row["crps"], found["y-crps"][seen].mean())
    assert row["winkler"] >= row["mpiw"]


def test_backtests_never_look_ahead():
    table = walks(64, 64)
    spoiled = table.copy()
    spoiled.loc[table["ds"] >= 60, "y"] = 1e6
    one, other = (make().backtest(df, n_windows=1, n_paths=50, progress=False).forecasts for df in (table, spoiled))
    columns = ["y", "y-lo-95", "y-hi-95"]
    pd.testing.assert_frame_equal(one[columns], other[columns])
    # One that has seen those rows does not use what it has learned from them.
    fitted = make().fit(spoiled, progress=False)
    again = fitted.backtest(spoiled, n_windows=1, n_paths=50, progress=False).forecasts
    pd.testing.assert_frame_equal(one[columns], again[columns])


def test_backtests_with_a_fitted_forecaster_and_with_refits():
    table = walks(72, 72)
    forecaster = make().fit(head(table, 60), progress=False)
    trained = []
    fit = Forecaster.fit

    def counted(self, df, *args, **settings):
        trained.append(df.groupby("unique_id").size().tolist())
        return fit(self, df, *args, **settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Forecaster, "fit", counted)
        forecaster.backtest(table, n_windows=3, n_paths=50, progress=False)
        assert trained == []  # fitted before the first cutoff: used as it is
        forecaster.backtest(table, n_windows=2, refit=True, n_paths=50, progress=False)
        assert trained == [[64, 64], [68, 68]]
        trained.clear()
        make().backtest(table, n_windows=2, refit=True, rolling=40, n_paths=50, progress=False)
        assert trained == [[40, 40], [40, 40]]


def test_energy_score_and_crps_are_the_librarys():
    table = walks(64)
    forecaster = make().fit(head(table, 60), progress=False)
    found = forecaster.backtest(table, n_paths=100, progress=False)
    forecast = forecaster.forecast(head(table, 60), n_paths=100)
    paths, truth = torch.from_numpy(forecast.paths), torch.tensor(table["y"].to_numpy()[None, 60:, None])
    np.testing.assert_allclose(found.metrics["energy_score"], scores.energy_score(paths, truth).item())
    np.testing.assert_allclose(found.metrics["crps"], Samples(paths).crps(truth).mean().item())


def test_a_backtest_takes_no_scale_from_rows_after_a_cutoff():
    table = walks(60, 60)
    known, new = table[table["unique_id"] == "a"], table[table["unique_id"] == "b"]
    forecaster = make().fit(known, progress=False)
    before = forecaster.backtest(new, n_windows=2, n_paths=20).forecasts
    forecaster.update(new)  # follows the whole series from now on, with a scale of all its rows
    pd.testing.assert_frame_equal(forecaster.backtest(new, n_windows=2, n_paths=20).forecasts, before)


def test_windows_of_a_backtest_do_not_overlap_whatever_the_horizon(two_targets):
    table = walks(80).assign(z=lambda df: df["y"] ** 2, w=lambda df: -df["y"], unique_id="new")
    found = two_targets.backtest(table, n_windows=3, h=7, n_paths=5).forecasts
    assert found["ds"].tolist() == list(range(59, 80))


def test_whole_number_distributions():
    random = np.random.default_rng(0)
    table = series("a", random.poisson(4, 80))
    forecaster = make(scaling="none", config={**TINY, "observation": "negative_binomial"}, training=SHORT)
    forecast = forecaster.fit(table, progress=False).forecast(n_paths=100)
    assert (forecast.paths == forecast.paths.round()).all()
    assert forecaster.score(table)["log_density"].max() <= 0  # probabilities, not densities
    before = forecaster.predict(n_paths=20)
    for value in (-1.0, 2.5):  # neither can be: the state must not see them
        with pytest.raises(
            TableError, match=rf"series 'a', column 'y' is {value:g} at 80 \(row 0\); .* whole numbers of at least 0"
        ):
            forecaster.update(series("a", [value], start=80))
    pd.testing.assert_frame_equal(forecaster.predict(n_paths=20), before)


def test_classes_beyond_the_last_are_named():
    settings = {"scaling": "none", "config": {**TINY, "observation": "categorical", "n_classes": 3}}
    table = series("a", np.arange(60) % 3)
    forecaster = make(**settings).fit(table, progress=False)
    with pytest.raises(TableError, match=r"column 'y' is 3 at 60 .* class number: 0, \.\.\., 2"):
        forecaster.update(series("a", [3.0], start=60))
    with pytest.raises(TableError, match="column 'y' is 4 at 30"):
        make(**settings).fit(table.assign(y=table["y"].where(table["ds"] != 30, 4.0)), progress=False)


def test_a_count_below_0_has_no_density():
    table = series("a", np.random.default_rng(0).poisson(4, 60))
    forecast = make(scaling="log1p").fit(table, progress=False).forecast(n_paths=5)
    found = [forecast.log_prob(series("a", [value]))["log_density"][0] for value in (-2.0, -0.5, 3.0, np.nan)]
    assert found[:2] == [-np.inf, -np.inf]
    assert np.isfinite(found[2])
    assert found[3] == 0.0


def test_numbers_of_numpy_are_as_good_as_others(tmp_path, without_shape_checks):
    training = {**SHORT, "batch_size": np.int64(8), "learning_rate": np.float64(1e-3)}
    forecaster = make(horizon=np.int64(4), freq=np.int64(1), training=training, seed=np.int32(1))
    forecaster.fit(walks(40), progress=False).save(tmp_path / "model")
    found = Forecaster.load(tmp_path / "model").predict(level=np.array([80, 95]), quantiles=np.array([0.1, 0.9]))
    assert {"y-lo-80", "y-hi-95", "y-q-10", "y-q-90"} <= set(found)


def test_a_plot_covers_nothing_and_its_legend_tells_the_bands_apart(two_targets):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    forecast = two_targets.forecast(n_paths=50)
    history = walks(60, 50).assign(z=lambda df: df["y"] ** 2)
    ax = forecast.plot(history=history, level=[80, 95, 50])
    ax.figure.canvas.draw()
    legend = ax.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["observed", "95 %", "80 %", "50 %", "mean"]
    shown = dict(zip(ax.get_legend_handles_labels()[1], legend.legend_handles, strict=True))
    shades = [matplotlib.colors.to_rgba(shown[f"{level} %"].get_facecolor()) for level in (95, 80, 50)]
    brightness = [sum(shade[:3]) for shade in shades]
    assert all(one - other > 0.2 for one, other in itertools.pairwise(brightness))  # narrower is clearly darker
    assert all(shade[3] == 1 for shade in shades)  # opaque: what the legend shows is what the chart shows
    drawn = [collection.get_facecolor()[0].tolist() for collection in ax.collections]
    np.testing.assert_allclose(drawn, shades)
    assert legend.get_window_extent().y0 >= ax.get_window_extent().y1 - 1  # above the chart, not over it
    assert ax.get_title(loc="left") == "a: y"
    one_step = replace(two_targets.forecast(h=1, n_paths=50), past=None).plot(level=[80])
    (bar,) = one_step.collections  # one step has no area: a bar instead
    (segment,) = bar.get_segments()
    lower, upper = two_targets.forecast(h=1, n_paths=50).interval(80).loc[0, ["y-lo-80", "y-hi-80"]]
    np.testing.assert_allclose(segment[:, 1], [lower, upper])
    matplotlib.pyplot.close("all")


def observed(ax):
    """Times and values of the line of what came before a forecast."""
    (line,) = [line for line in ax.lines if line.get_label() == "observed"]
    return line.get_xdata(), line.get_ydata()


def test_a_plot_shows_the_last_rows_that_the_model_keeps(tmp_path):
    pytest.importorskip("matplotlib").use("agg")
    table = walks(60, 12)
    forecaster = make(horizon=4).fit(head(table, 50), progress=False)
    for known in (50, 55, 60):
        rows = rows_between(table, 50, known)
        if len(rows):
            forecaster.update(rows_between(table, known - 5, known))
        forecaster.save(tmp_path / "model")
        for one in (forecaster, Forecaster.load(tmp_path / "model")):
            times, values = observed(one.forecast(n_paths=5).plot(series="a"))
            expected = table[(table["unique_id"] == "a") & (table["ds"] < known)].tail(20)  # five horizons
            np.testing.assert_array_equal(times, expected["ds"])
            np.testing.assert_array_equal(values, expected["y"])
        times, values = observed(forecaster.forecast(n_paths=5).plot(series="b"))
        np.testing.assert_array_equal(values, table[table["unique_id"] == "b"]["y"])


def test_a_folder_of_a_release_that_kept_no_rows_is_drawn_without(tmp_path):
    pytest.importorskip("matplotlib").use("agg")
    make().fit(walks(40), progress=False).save(tmp_path / "model")
    path = tmp_path / "model" / "states.safetensors"
    tensors, header = read_tensors(path, ValueError)
    older = {name: tensor for name, tensor in tensors.items() if name not in ("recent", "view/largest", "view/jump")}
    for one in header["series"]:
        del one["recent"]
    write_tensors(path, older, header)
    ax = Forecaster.load(tmp_path / "model").forecast(n_paths=5).plot()
    assert len(observed(ax)[0]) == 0
    assert len(ax.lines[-1].get_ydata()) == 4


def test_a_line_is_not_drawn_across_missing_values_and_the_fan_opens_from_the_last_value():
    pytest.importorskip("matplotlib").use("agg")
    table = walks(40)
    table.loc[30, "y"] = np.nan
    table = table.drop(index=[34, 36])  # 35 is alone
    forecaster = make().fit(table, progress=False)
    for history in (None, table):
        ax = forecaster.forecast(n_paths=5).plot(history=history)
        times, values = observed(ax)
        np.testing.assert_array_equal(times[np.isnan(values)], [30, 34, 36])
        (alone,) = [line for line in ax.lines if line.get_marker() == "."]
        np.testing.assert_array_equal(alone.get_xdata(), [35])
        (mean,) = [line for line in ax.lines if line.get_label() == "mean"]
        np.testing.assert_array_equal(mean.get_xdata(), range(39, 44))
        assert mean.get_ydata()[0] == table["y"].iloc[-1]
        (left, *_) = ax.collections[0].get_paths()[0].vertices
        np.testing.assert_allclose(left, [39, table["y"].iloc[-1]])
    earlier = forecaster.forecast(n_paths=5).plot(history=table[table["ds"] < 39])  # not the value before
    (mean,) = [line for line in earlier.lines if line.get_label() == "mean"]
    np.testing.assert_array_equal(mean.get_xdata(), range(40, 44))
