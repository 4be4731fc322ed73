"""The publishers' own files, where SMC_TRANSFORMER_DATA names a folder that has them."""

import os

import numpy as np
import pytest
import torch

from smct_paper.datasets import DATASETS, load_windows
from smct_paper.datasets.files import find_file
from smct_paper.datasets.registry import READERS
from smct_paper.datasets.summary import summarise
from smct_paper.datasets.weather import read_weather

pytestmark = pytest.mark.skipif(
    "SMC_TRANSFORMER_DATA" not in os.environ, reason="needs the real files in SMC_TRANSFORMER_DATA"
)

# rows, gaps, windows of the chronological and of the paper's split
EXPECTED = {
    "covid": (889, 0, (622, 133, 134), (622, 133, 134)),
    "air_quality": (9357, 0, (6389, 1251, 1315), (6158, 1320, 1320)),
    "weather": (70038, 2, (49002, 10458, 10458), (48976, 10495, 10495)),
    "energy": (19735, 0, (13802, 2948, 2949), (13806, 2958, 2959)),
    "stock": (3020, 0, (2074, 413, 413), (2086, 447, 447)),
}


def read_real(name):
    info = DATASETS[name]
    path = find_file(info.file)
    if path is None:
        pytest.skip(f"no file of {name}")
    return READERS[info.name](path)


@pytest.mark.parametrize("name", list(EXPECTED))
def test_rows_gaps_and_windows(name):
    read_real(name)
    rows, gaps, *windows = EXPECTED[name]
    for split, counts in zip(("chronological", "paper"), windows, strict=True):
        summary = summarise(name, split)
        assert summary.tested
        assert (summary.rows, summary.gaps) == (rows, gaps)
        assert tuple(summary.windows.values()) == counts


def test_no_window_of_weather_crosses_a_gap():
    table = read_real("weather")
    windows = load_windows("weather")
    days = {str(day) for day in table.times[1:][np.diff(table.times) > np.timedelta64(90, "m")].astype("datetime64[D]")}
    assert days == {"2014-09-25", "2016-10-28"}  # the days on which the record goes on
    for part, (first, last) in ((windows.validation, (49026, 59532)), (windows.test, (59532, 70038))):
        resumed = np.flatnonzero(np.diff(table.times[first:last]) > np.timedelta64(90, "m")) + 1
        assert len(resumed) == 1
        scaled = (table.values[first:last] - windows.mean.numpy()) / windows.deviation.numpy()
        # The windows before the gap end with its last row, the next one starts with the first row after it.
        before = int(resumed[0]) - 25
        assert np.allclose(part[before, -1], scaled[resumed[0] - 1], atol=1e-3)
        assert np.allclose(part[before + 1, 0], scaled[resumed[0]], atol=1e-3)


def test_air_quality_misses_four_percent_of_all_columns():
    shares = np.isnan(read_real("air_quality").values).mean(axis=0)
    np.testing.assert_allclose(shares, 366 / 9357)


@pytest.mark.parametrize("name", [name for name in EXPECTED if name != "covid"])
def test_training_rows_are_scaled_to_mean_0_and_deviation_1(name):
    table, windows = read_real(name), load_windows(name)
    train = table.values[: int(0.7 * len(table.values))]
    np.testing.assert_allclose(np.nanmean(train, axis=0), windows.mean, rtol=1e-5)
    np.testing.assert_allclose(np.nanstd(train, axis=0), windows.deviation, rtol=1e-5)
    known = windows.train[:: windows.length + 1].flatten(0, 1)
    assert torch.nanmean(known, dim=0).abs().max() < 0.05


def test_the_first_rows_of_the_ten_minute_record_agree_with_the_hourly_extract():
    hourly = read_real("weather")
    original = find_file(DATASETS["weather"].file).with_name("jena_climate_first4000rows.csv")
    if not original.exists():
        pytest.skip("no excerpt of the 10-minute record")
    table = read_weather(original)
    n = len(table.times)
    assert n == 667
    assert (table.times == hourly.times[:n]).all()
    np.testing.assert_array_equal(table.values[:, :3], hourly.values[:n, :3])
    np.testing.assert_allclose(table.values[:, 3], hourly.values[:n, 3], atol=0.1)  # computed in the extract
