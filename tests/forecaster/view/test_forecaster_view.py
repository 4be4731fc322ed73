"""Forecasts through the local view, in the table's own units."""

import numpy as np
import pandas as pd
import pytest
import torch
from helpers.forecaster_tables import SHORT, make, rows_between, series, walks

from smc_transformer import SMCTransformer, SMCTransformerConfig
from smc_transformer.forecaster import Forecaster
from smc_transformer.learning.step_widths import held_out_forecasts, step_widths


def positive(n_series=4, n=60, seed=0):
    rng = np.random.default_rng(seed)
    season = 1 + 0.3 * np.sin(np.arange(n) * np.pi / 3)
    rows = [series(f"s{k}", 10 ** (k + 1) * season * np.exp(0.1 * rng.normal(size=n))) for k in range(n_series)]
    return pd.concat(rows, ignore_index=True)


@pytest.fixture(scope="module")
def fitted():
    return make(seasons=6, n_particles=64).fit(positive(), progress=False)


def test_the_density_of_the_first_step_is_one_in_the_tables_units(fitted):
    forecast = fitted.forecast(n_paths=500)
    names, first = list(forecast.names), forecast.paths[:, :, 0, 0]
    grid = first.mean(axis=1) + np.linspace(-60, 60, 601)[:, None] * first.std(axis=1)  # (point, series)
    density = [forecast.log_prob(pd.DataFrame({"unique_id": names, "y": y}))["log_density"] for y in grid]
    np.testing.assert_allclose(np.trapezoid(np.exp(density), grid, axis=0), 1, atol=0.02)


def test_scores_of_new_rows_are_the_density_of_the_forecast(fitted):
    """What `update` says of a row is what `forecast` said before it."""
    forecaster = make(seasons=6, n_particles=64).fit(rows_between(positive(), 0, 59), progress=False)
    new = rows_between(positive(), 59, 60)
    mixture = forecaster.forecast(n_paths=20_000, seed=1)
    expected = mixture.log_prob(new.drop(columns="ds")).set_index("unique_id")["log_density"]
    found = forecaster.update(new).set_index("unique_id")["log_density"]
    # Both average over particles: 64 of the filter, and 20,000 paths that descend from them with fresh noise.
    np.testing.assert_allclose(found[expected.index], expected, atol=0.25)


def test_variance_parts_add_up_to_the_variance_of_paths(fitted):
    forecast = fitted.forecast(n_paths=20_000, seed=0)
    parts = forecast.variance_parts()
    total = (parts["y-between"] + parts["y-within"]).to_numpy().reshape(4, -1)
    trimmed = forecast.paths[..., 0].var(axis=1)
    ratio = trimmed / total
    assert (abs(np.log(ratio)) < 0.5).all()  # Student's t: the variance of 20,000 draws is itself very uncertain


def test_targets_that_were_never_negative_stay_so():
    table = positive()
    table["y"] = np.where(np.arange(len(table)) % 3 == 0, table["y"], 0.01 * table["y"])
    forecaster = make(seasons=6).fit(table, progress=False)
    assert forecaster.forecast(n_paths=2000).paths.min() >= 0
    moved = make(seasons=6).fit(table.assign(y=table["y"] - table["y"].max()), progress=False)
    assert moved.forecast(n_paths=200).paths.min() < 0


def test_forecasts_go_with_the_units_of_a_series(fitted):
    y = positive(1, 50, seed=3)["y"].to_numpy()
    one, other = (
        fitted.predict(series("new", values), seed=0)[["y", "y-lo-80", "y-hi-80"]].to_numpy() for values in (y, 100 * y)
    )
    np.testing.assert_allclose(other, 100 * one, rtol=1e-3)


def test_rows_that_come_later_change_nothing_before_them():
    table, spoiled = positive(), positive()
    held_out = spoiled.groupby("unique_id").cumcount() >= 52
    spoiled.loc[held_out, "y"] *= 50
    one, other = (make(seasons=6).fit(df, val_size=8, progress=False) for df in (table, spoiled))
    assert one.fitted.panel.to_dict()["view"] == other.fitted.panel.to_dict()["view"]
    cut = rows_between(table, 0, 52)
    views = [f.fitted.panel.begin(f.read(cut))[0] for f in (one, other)]
    for mine, theirs in zip(*views, strict=True):
        np.testing.assert_array_equal(mine.scaler.shift, theirs.scaler.shift)


def test_saved_and_loaded_with_its_view(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    loaded = Forecaster.load(tmp_path / "model")
    pd.testing.assert_frame_equal(loaded.predict(), fitted.predict())
    assert loaded.fitted.chosen == fitted.report.chosen
    new = pd.concat([series(f"s{k}", [10.0 ** (k + 1)], start=60) for k in range(4)])
    again = Forecaster.load(tmp_path / "model")
    pd.testing.assert_frame_equal(loaded.update(new), again.update(new))
    pd.testing.assert_frame_equal(loaded.predict(), again.predict())


def test_gaps_several_targets_and_past_inputs():
    table = walks(60, 45).assign(z=lambda df: 3 * df["y"].to_numpy() + 7, w=lambda df: df["y"] ** 2)
    table.loc[table["ds"] % 7 == 3, "y"] = np.nan
    table.loc[table["ds"] % 11 == 4, ["z", "w"]] = np.nan
    forecaster = make(targets=["y", "z"], past_inputs=["w"]).fit(table, progress=False)
    found = forecaster.predict(level=[80])
    assert np.isfinite(found[["y", "z", "y-lo-80", "z-hi-80"]]).all(axis=None)
    assert len(forecaster.score(table)) == int(
        table.groupby("unique_id")[["y", "z"]].apply(lambda g: g.iloc[1:].notna().sum().sum()).sum()
    )


def test_counts_are_counts():
    rng = np.random.default_rng(0)
    table = pd.concat([series(f"s{k}", rng.poisson(0.3 + 0.2 * k, size=50)) for k in range(5)], ignore_index=True)
    forecaster = make(training={**SHORT, "likelihood_steps": 30}).fit(table, progress=False)
    assert "negative binomial" in forecaster.report.chosen["observation"]
    paths = forecaster.forecast(n_paths=2000).paths
    np.testing.assert_array_equal(paths, np.floor(paths))
    assert paths.min() == 0
    assert paths.mean() == pytest.approx(table["y"].mean(), rel=0.5)


class _Drawn(SMCTransformer):
    """A model whose forecasts are normal, with known deviations by step."""

    def __init__(self, deviations):
        super().__init__(SMCTransformerConfig(), 0)
        self.deviations = torch.tensor(deviations)

    def forecast(self, history, horizon, n_samples=1000, future_inputs=None, generator=None, **options):
        draws = torch.randn(len(history), n_samples, horizon, 1, generator=generator)
        return draws * self.deviations[:, None]


def test_each_step_gets_the_width_that_held_out_rows_ask_for():
    """Truth has deviation 1 at all steps; the model says 1, 0.8 and 1.25: factors 1, 1.25 and 0.8."""
    truth = torch.randn(3000, 3, 1, generator=torch.Generator().manual_seed(0))
    x = torch.cat((torch.zeros(3000, 2, 1), truth), dim=1)
    widths = step_widths(held_out_forecasts(_Drawn([1.0, 0.8, 1.25]), x, horizon=3, n_scored=1))
    share = 3000 / 3300  # belief in the 3000 rows of each step beside 300 of the common factor, which is near 1
    # Quantiles of 3000 distances: 3 % with four deviations; those of 200 draws are a little narrow.
    np.testing.assert_allclose(widths, [1.0, 1.25**share, 0.8**share], rtol=0.06)


def test_a_step_that_is_five_times_too_narrow_is_widened_as_much():
    """As the 25th step of a random walk would be, of a model without memory of its errors."""
    truth = torch.randn(3000, 2, 1, generator=torch.Generator().manual_seed(0))
    x = torch.cat((torch.zeros(3000, 2, 1), truth), dim=1)
    widths = step_widths(held_out_forecasts(_Drawn([1.0, 0.2]), x, horizon=2, n_scored=1))
    np.testing.assert_allclose(widths[1], 5.0, rtol=0.06)  # the common factor is that of the only later step


def test_few_observations_of_each_step_get_the_width_that_all_of_them_ask_for():
    """Each of 40 steps is told by 400 observations, which the 300 of no change would keep at 2^(4/7) = 1.5."""
    truth = torch.randn(400, 41, 1, generator=torch.Generator().manual_seed(0))
    x = torch.cat((torch.zeros(400, 2, 1), truth), dim=1)
    widths = step_widths(held_out_forecasts(_Drawn([1.0] + [0.5] * 40), x, horizon=41, n_scored=1))
    # 16,000 distances give the common factor to 2 %, 400 of them a step's own to 10 % in log, of which 4 / 7 count.
    assert widths[0] == 1.0
    np.testing.assert_allclose(np.log(widths[2:-1]).mean(), np.log(2.0), atol=0.06)
    np.testing.assert_allclose(widths[2:-1], 2.0, rtol=0.3)


def test_too_little_held_out_changes_nothing():
    x = torch.randn(20, 6, 1, generator=torch.Generator().manual_seed(0))
    np.testing.assert_array_equal(step_widths(held_out_forecasts(_Drawn([0.1] * 4), x, horizon=4, n_scored=1)), 1.0)
