"""Forecasts of some series alone."""

import numpy as np
import pandas as pd
import pytest
import torch
from helpers.forecaster_tables import make, series, walks
from helpers.models import mean_and_error

from smc_transformer.forecaster.choosing import chosen_names


@pytest.fixture(scope="module")
def fitted():
    return make().fit(walks(60, 60, 50), progress=False)


def test_only_these_are_forecast_in_the_order_asked_for(fitted):
    assert fitted.forecast(series="b", n_paths=5).names == ("b",)
    assert fitted.forecast(series=["c", "a", "c"], n_paths=5).names == ("c", "a")
    assert fitted.predict(series=["b"])["unique_id"].unique().tolist() == ["b"]
    assert fitted.simulate(series="c", n_paths=5)["ds"].tolist() == [50, 51, 52, 53] * 5
    assert fitted.predict(walks(30, 20), series="b")["ds"].tolist() == [20, 21, 22, 23]
    pd.testing.assert_frame_equal(fitted.predict(series=["a", "b", "c"]), fitted.predict())


@pytest.mark.parametrize("from_histories", [False, True])
def test_the_distribution_is_that_of_a_forecast_of_all(fitted, from_histories):
    # Under other seeds: the numbers differ, the distribution is the same. Copies of a series show how much the
    # particles (of which only histories draw new ones) and the paths vary.
    copies = pd.concat([walks(30, seed=4).assign(unique_id=f"copy {number}") for number in range(4)])
    table = copies if from_histories else None
    name = "copy 3" if from_histories else "b"
    options = {"n_paths": 200}
    alone = np.stack([fitted.forecast(table, series=name, seed=s, **options).paths[0] for s in range(12)])
    whole = [fitted.forecast(table, seed=100 + s, **options) for s in range(12)]
    among = np.stack([forecast.paths[forecast.names.index(name)] for forecast in whole])
    for statistic in (np.mean, np.std):
        one, one_error = mean_and_error(torch.from_numpy(statistic(alone, axis=1)))
        other, other_error = mean_and_error(torch.from_numpy(statistic(among, axis=1)))
        assert ((one - other).abs() < 5 * (one_error.square() + other_error.square()).sqrt()).all()


def test_the_others_cost_nothing(fitted, monkeypatch):
    attention, sizes = fitted.model.attention, []
    draw_noise = attention.draw_noise

    def noting(batch, *arguments):
        sizes.append(batch)
        return draw_noise(batch, *arguments)

    monkeypatch.setattr(attention, "draw_noise", noting)
    fitted.predict(walks(30, 30, 30), series=["b"])
    assert set(sizes) == {1}
    fitted.predict(walks(30, 30, 30))
    assert max(sizes) == 3


def test_future_inputs_are_needed_for_these_alone():
    forecaster = make(future_inputs=["x"]).fit(walks(60, 60).assign(x=1.0), progress=False)
    found = forecaster.predict(series="b", future=series("b", [0.0] * 4, start=60).assign(x=0.0))
    assert found["unique_id"].tolist() == ["b"] * 4


def test_unknown_names(fitted, without_shape_checks):
    with pytest.raises(ValueError, match=r"there is no series 'd'; there are 'a', 'b', 'c'$"):
        fitted.predict(series=["a", "d"])
    with pytest.raises(ValueError, match=r"there is no series 'b'; there are 'a'$"):
        fitted.predict(walks(30), series="b")
    with pytest.raises(ValueError, match=r"there is no series 'Berlinn'; close to it are 'Berlin'$"):
        chosen_names("Berlinn", ["Berlin", "Paris"])
    with pytest.raises(ValueError, match=r"there is no series '7'; close to it are 7$"):
        chosen_names(["7"], [7, 8])
    with pytest.raises(ValueError, match=r"there are 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, \.\.\.$"):
        chosen_names("x", range(100))
    with pytest.raises(ValueError, match="at least one series, got none"):
        fitted.predict(series=[])
