"""Saved states that are small: their size, and how far forecasts from them are from those of exact ones."""

import numpy as np
import pandas as pd
import pytest
from helpers.forecaster_tables import SHORT, head, make, rows_between, walks

from smc_transformer.forecaster import Forecaster, SavedForecasterError
from smc_transformer.forecaster.folder.files import SMALL_BYTES
from smc_transformer.forecaster.stepping import Stepper


def hourly(n_rows=400):
    hours = np.arange(n_rows)
    noise = np.random.default_rng(0).normal(size=(2, n_rows))
    values = 20 + 5 * np.sin(2 * np.pi * hours / 24) + 3 * (hours // 24 % 7 > 4) + noise
    times = pd.date_range("2024-01-01", periods=n_rows, freq="h")
    return pd.concat(
        pd.DataFrame({"unique_id": name, "ds": times, "y": y}) for name, y in zip("ab", values, strict=True)
    )


@pytest.fixture(scope="module")
def default():
    """A model of the default size, two seasons and a value that was missing: nothing is smaller than in earnest."""
    table = hourly()
    table.iloc[390, 2] = np.nan
    return Forecaster(horizon=24, training=SHORT).fit(table, progress=False)


@pytest.fixture(scope="module")
def folders(default, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved")
    for states in ("exact", "small"):
        default.save(path / states, states=states)
    return path


def test_a_small_state_takes_at_most_64_kb(default, folders):
    sizes = {name: (folders / name / "states.safetensors").stat().st_size / 2 for name in ("exact", "small")}
    assert default.settings.n_particles == 64
    assert sizes["small"] <= SMALL_BYTES
    assert sizes["exact"] > 3 * SMALL_BYTES
    assert len(Stepper(folders / "exact", states="small").begin("a")) <= SMALL_BYTES


def test_forecasts_are_nearly_the_same(default, folders):
    exact, small = (Forecaster.load(folders / name).predict(n_paths=2000) for name in ("exact", "small"))
    pd.testing.assert_frame_equal(exact, default.predict(n_paths=2000))
    width = exact["y-hi-80"] - exact["y-lo-80"]
    for column in ("y", "y-lo-80", "y-hi-80"):
        assert ((small[column] - exact[column]).abs() / width).mean() < 0.05
    assert not small.equals(exact)  # else nothing was left out


def test_a_small_state_goes_on(tmp_path):
    """With gaps, through rows and another save, which by default is exact again."""
    table = walks(80, 74)
    table.loc[table["ds"] == 55, "y"] = np.nan
    forecaster = make(scaling="local").fit(head(table, 60), progress=False)
    forecaster.save(tmp_path / "model", states="small")
    loaded = Forecaster.load(tmp_path / "model")
    loaded.update(rows_between(table, 60, 70))
    loaded.save(tmp_path / "model")
    pd.testing.assert_frame_equal(Forecaster.load(tmp_path / "model").predict(), loaded.predict())


def test_steps_are_pure(folders):
    stepper = Stepper(folders / "exact", states="small", n_paths=5)
    row = {"unique_id": "a", "ds": str(pd.Timestamp("2024-01-01") + pd.Timedelta(hours=400)), "y": 21.0}
    first, again = (stepper.step(stepper.begin("a"), [row]) for _ in range(2))
    assert first == again
    assert first[0] != stepper.begin("a")


def test_wrong_choices_and_files(default, folders, tmp_path):
    with pytest.raises(ValueError, match="states must be one of 'exact', 'small', got 'tiny'"):
        default.save(tmp_path / "model", states="tiny")
    with pytest.raises(ValueError, match="states must be one of"):
        Stepper(folders / "exact", states="tiny")
    state = bytearray(Stepper(folders / "exact", states="small").begin("a"))
    state[-100] ^= 1
    with pytest.raises(SavedForecasterError):
        Stepper(folders / "exact").step(bytes(state), [])
