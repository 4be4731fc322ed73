import os
from pathlib import Path

import numpy as np
import pytest

from smct_paper.datasets.covid import daily_counts, read_covid_deaths

INFORMATION = [
    "UID",
    "iso2",
    "iso3",
    "code3",
    "FIPS",
    "Admin2",
    "Province_State",
    "Country_Region",
    "Lat",
    "Long_",
    "Combined_Key",
    "Population",
]
DAYS = ["3/20/20", *(f"3/{day}/20" for day in range(21, 32)), *(f"4/{day}/20" for day in range(1, 31))]
DAYS += [f"5/{day}/20" for day in range(1, 22)]
REAL = Path(os.environ.get("SMC_TRANSFORMER_DATA", "nowhere")) / "covid_deaths_US.csv"


def write_excerpt(path, deaths):
    """A file in the publisher's layout, with one county for each list of cumulative deaths."""
    rows = [",".join([*INFORMATION, *DAYS])]
    for number, values in enumerate(deaths):
        row = ["1"] * 10 + [f'"County {number}, State, US"', "1000", *map(str, values)]
        rows.append(",".join(row))
    path.write_text("\r\n".join(rows) + "\r\n")
    return path


def test_counties_with_enough_deaths_on_the_days_of_the_paper(tmp_path):
    many, few = list(range(len(DAYS))), [1] * len(DAYS)
    data = read_covid_deaths(write_excerpt(tmp_path / "deaths.csv", [few, many]))
    assert data.counties == ["County 1, State, US"]
    assert (data.days[0], data.days[-1], len(data.days)) == ("3/21/20", "5/20/20", 61)
    assert data.cumulative.tolist() == [list(range(1, 62))]


def test_a_file_of_another_layout_is_rejected_by_what_it_lacks(tmp_path):
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"no column '3/21/20': expected the layout of JHU"):
        read_covid_deaths(path)


def test_corrections_downwards_are_missing():
    daily = daily_counts(np.array([[1.0, 3.0, 2.0, 2.0, 5.0]]))
    np.testing.assert_array_equal(daily, [[2.0, np.nan, 0.0, 3.0]])


@pytest.mark.skipif(not REAL.exists(), reason="needs the real file in SMC_TRANSFORMER_DATA")
def test_the_real_file_has_889_counties():
    data = read_covid_deaths(REAL)
    assert data.cumulative.shape == (889, 61)
    assert np.isnan(daily_counts(data.cumulative)).mean() < 0.02
