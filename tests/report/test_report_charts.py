"""Charts of forecasts, surprises and backtests: what they show is what the tables say."""

import numpy as np
import pandas as pd
import pytest
from helpers.command_tables import waves
from matplotlib.figure import Figure

from smc_transformer.charts.style import quiet_frame
from smc_transformer.forecaster import Backtest, Forecaster
from smc_transformer.forecaster.settings import Settings
from smc_transformer.report.backtest_chart import backtest_chart
from smc_transformer.report.series_charts import fan_charts, surprise_charts

SETTINGS = Settings(freq="h", targets=("y",))


def labelled(axes, label):
    return next(line for line in axes.lines if line.get_label() == label)


def fabricated_backtest(step=4, n_windows=3, horizon=4):
    """Two series whose intervals hold the values at all steps but the last."""
    table = waves(60, 60)
    parts = []
    for name, rows in table.groupby("unique_id"):
        for number in range(n_windows):
            end = 60 - step * (n_windows - 1 - number)
            window = rows.iloc[end - horizon : end].reset_index(drop=True)
            part = window.assign(cutoff=rows["ds"].iloc[end - horizon - 1], unique_id=name)
            off = np.where(np.arange(horizon) == horizon - 1, 5.0, 0.0)
            part["y-observed"], part["y"] = part["y"], part["y"] + off
            for level, width in ((80, 1.0), (95, 2.0)):
                part[f"y-lo-{level}"], part[f"y-hi-{level}"] = part["y"] - width, part["y"] + width
            part["y-crps"], part["y-pit"] = 0.1, 0.5 + 0.4999 * (off > 0)
            parts.append(part)
    metrics = pd.DataFrame({"target": ["y"], "mse": [6.25], "crps": [0.1], "energy_score": [1.0]})
    return Backtest(pd.concat(parts, ignore_index=True), metrics), table


def test_the_picture_of_a_backtest_shows_its_numbers():
    backtest, table = fabricated_backtest()
    *forecasts, calibration, by_step = backtest_chart(backtest, table, SETTINGS, ["a", "b"]).axes
    assert [axes.get_title(loc="left") for axes in forecasts] == ["a: y", "b: y"]
    means = [line for line in forecasts[1].lines if line.get_color() == "#2166ac"]
    rows = backtest.forecasts[backtest.forecasts["unique_id"] == "b"]
    np.testing.assert_allclose(np.concatenate([line.get_ydata() for line in means]), rows["y"])
    observed = labelled(forecasts[1], "observed")
    np.testing.assert_allclose(observed.get_ydata(), table[table["unique_id"] == "b"]["y"].tail(3 * 4 + 2 * 4))
    np.testing.assert_allclose(labelled(by_step, "95 %").get_ydata(), [100, 100, 100, 0])
    np.testing.assert_allclose(labelled(by_step, "95 %").get_xdata(), [1, 2, 3, 4])
    np.testing.assert_allclose(labelled(calibration, "y").get_ydata(), 75.0)  # three of four steps, at every level


def test_windows_that_overlap_are_left_out_of_the_picture():
    backtest, table = fabricated_backtest(step=1, n_windows=9)
    axes = backtest_chart(backtest, table, SETTINGS, ["a"]).axes[0]
    ends = [line.get_xdata()[-1] for line in axes.lines if line.get_color() == "#2166ac"]
    assert pd.DatetimeIndex(ends).tolist() == table["ds"].iloc[[51, 55, 59]].tolist()
    assert axes.get_title(loc="right") == "3 of 9 forecasts"


def test_a_picture_says_what_it_leaves_out(capsys):
    backtest, table = fabricated_backtest()
    names = ["a", "b"] * 3
    assert len(backtest_chart(backtest, table, SETTINGS, names).axes) == 4 + 2
    assert "4 of 6" in capsys.readouterr().err


@pytest.mark.parametrize("names", [["a"], ["a", "b"]])
def test_fan_charts_have_one_legend_above_all_panels(trained, names):
    forecast = Forecaster.load(trained / "model").forecast(n_paths=20)
    figure = fan_charts(forecast, waves(80, 60), names, [80, 95])
    figure.canvas.draw()
    assert [axes.get_title(loc="left") for axes in figure.axes] == [f"{name}: y" for name in names]
    assert all(axes.get_legend() is None for axes in figure.axes)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["observed", "95 %", "80 %", "mean"]
    assert legend.get_window_extent().y0 >= max(axes.get_window_extent().y1 for axes in figure.axes)


def test_surprises_are_marked(trained):
    table = waves(80, 60)
    table.loc[40, "y"] = 1000.0
    surprise = Forecaster.load(trained / "model").score(table, level=[99.9])
    axes = surprise_charts(surprise, SETTINGS, ["a"], 99.9).axes[0]
    found = surprise[surprise["outside-99.9"] & (surprise["unique_id"] == "a")]
    marks = labelled(axes, "outside its 99.9 % interval")
    np.testing.assert_allclose(marks.get_ydata(), found["value"])
    assert 1000.0 in marks.get_ydata()
    assert axes.get_title(loc="right") == f"{len(found)} of 79 values marked"


def test_surprises_have_no_line_across_missing_values(trained):
    table = waves(80, 60)
    table.loc[[40, 41], "y"] = np.nan
    surprise = Forecaster.load(trained / "model").score(table)
    line = labelled(surprise_charts(surprise, SETTINGS, ["a"], 99).axes[0], "observed")
    assert len(line.get_ydata()) == 79
    assert np.isnan(line.get_ydata()).sum() == 2


@pytest.mark.parametrize("start", ["2024-01-20", "2023-11-02 05:00"])
def test_the_first_date_of_an_axis_tells_its_month_and_year(start):
    axes = Figure().subplots()
    times = pd.date_range(start, periods=30, freq="h" if ":" in start else "D")
    axes.plot(times, np.arange(30.0))
    quiet_frame(axes, times)
    axes.figure.canvas.draw()
    labels = [label.get_text() for label in axes.get_xticklabels() if label.get_text()]
    assert times[0].strftime("%b") in labels[0]
    assert times[0].strftime("%Y") in labels[0]
    assert axes.xaxis.get_offset_text().get_text() == ""
