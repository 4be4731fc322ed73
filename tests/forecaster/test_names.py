"""What series are called: tuples are names too, and a table without names is one series."""

import numpy as np
import pandas as pd
import pytest
from helpers.forecaster_tables import make, rows_between, series, walks

from smc_transformer.forecaster import Forecaster, TableError
from smc_transformer.forecaster.fitted import Fitted
from smc_transformer.forecaster.live import Service
from smc_transformer.forecaster.names import is_name, name_array

NAMES = {"a": ("north", 1), "b": ("north", 2)}


def draws_of(monkeypatch, names):
    """Let series draw the numbers of those that they are called after: a stream is told by its name."""
    streams = Fitted.streams

    def renamed(self, called, *arguments):
        return streams(self, [names.get(name, name) for name in called], *arguments)

    monkeypatch.setattr(Fitted, "streams", renamed)


def in_levels(table):
    return table.assign(unique_id=name_array([NAMES.get(name, name) for name in table["unique_id"]]))


@pytest.fixture(scope="module")
def table():
    return in_levels(walks(40, 36))


@pytest.fixture(scope="module")
def fitted(table):
    return make().fit(table, progress=False)


def test_tuples_give_the_numbers_of_other_names(table, monkeypatch):
    draws_of(monkeypatch, {name: letter for letter, name in NAMES.items()})
    fitted = make().fit(table, progress=False)
    expected = make().fit(walks(40, 36), progress=False)
    assert fitted.series == list(NAMES.values())
    for found, other in (
        (fitted.predict(), expected.predict()),
        (fitted.score(table), expected.score(walks(40, 36))),
        (fitted.simulate(n_paths=5), expected.simulate(n_paths=5)),
        (fitted.backtest(table, progress=False).forecasts, expected.backtest(walks(40, 36), progress=False).forecasts),
        (fitted.forecast().total(), expected.forecast().total()),
    ):
        pd.testing.assert_frame_equal(found, in_levels(other), check_dtype=False)
    density = fitted.forecast().log_prob(pd.concat((in_levels(series("b", [0.1])), in_levels(series("a", [0.2])))))
    assert density["unique_id"].tolist() == fitted.series


def test_a_tuple_is_one_name_or_several(fitted):
    assert set(fitted.predict(series=("north", 2))["unique_id"]) == {("north", 2)}
    assert set(fitted.predict(series=(("north", 2), ("north", 1)))["unique_id"]) == set(NAMES.values())
    with pytest.raises(ValueError, match="there is no series 'north'"):
        fitted.predict(series=("north", 3))


def test_tuples_are_saved_and_streamed(fitted, table, tmp_path):
    fitted.save(tmp_path / "model")
    loaded = Forecaster.load(tmp_path / "model")
    assert loaded.series == fitted.series
    pd.testing.assert_frame_equal(loaded.predict(), fitted.predict())
    service = Service(tmp_path / "model", horizon=2)
    line = b'{"unique_id": ["north", 1], "ds": 40, "y": 0.5}'
    ((answer,),) = service.answers([[line]])
    assert answer["unique_id"] == ("north", 1)
    service.close()
    assert Forecaster.load(tmp_path / "model").predict(series=("north", 1), level=[])["ds"].iloc[0] == 41


@pytest.mark.parametrize("name", [(), (1.5,), ("a", None), (True,), (("a",),), 1.5, None])
def test_not_everything_is_a_name(name):
    assert not is_name(name)
    with pytest.raises(TableError, match=r"must hold text or whole numbers|is empty"):
        make().fit(walks(20).assign(unique_id=name_array([name] * 20)), progress=False)


def test_a_table_without_names_is_one_series(monkeypatch):
    draws_of(monkeypatch, {"series": "a"})
    table = walks(40)
    plain = table.drop(columns="unique_id")
    known = plain.iloc[:36]
    found = make().fit(known, progress=False)
    expected = make().fit(rows_between(table, 0, 36), progress=False)
    assert found.series == ["series"]

    def same(one, other):
        pd.testing.assert_frame_equal(one, other.assign(unique_id="series"), check_dtype=False)

    same(found.predict(), expected.predict())
    same(found.predict(plain.iloc[:20]), expected.predict(rows_between(table, 0, 20)))
    same(found.backtest(known, progress=False).forecasts, expected.backtest(table.iloc[:36], progress=False).forecasts)
    ahead = plain.iloc[36:]
    same(found.forecast().cdf(ahead), expected.forecast().cdf(table.iloc[36:]))
    same(found.scenario(ahead.iloc[:1]).mean, expected.scenario(table.iloc[36:37]).mean)
    same(found.update(ahead), expected.update(table.iloc[36:]))


def test_without_names_several_series_are_not_guessed():
    with pytest.raises(TableError, match="has no column 'store'"):
        make(id_column="store").fit(walks(30).drop(columns="unique_id"), progress=False)
    with pytest.raises(TableError, match=r"has no column 'ds'; it has \['day', 'y'\]: say which one holds the times"):
        make().fit(walks(30).drop(columns="unique_id").rename(columns={"ds": "day"}), progress=False)
    with pytest.raises(TableError, match="two rows of the same time"):
        make().fit(walks(30, 30).sort_values("ds").drop(columns="unique_id"), progress=False)
    fitted = make().fit(walks(30, 30), progress=False)
    with pytest.raises(TableError, match="has no column 'unique_id'"):
        fitted.update(pd.DataFrame({"ds": [30], "y": np.zeros(1)}))
