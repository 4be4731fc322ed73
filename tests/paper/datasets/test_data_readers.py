import gzip
from datetime import datetime, timedelta

import numpy as np
import pytest
from helpers.excerpts import (
    ENERGY_COLUMNS,
    covid_days,
    hourly_jena_text,
    hours,
    random_values,
    write_air_quality,
    write_covid,
    write_energy,
    write_jena,
    write_stock,
    zipped,
)

from smct_paper.datasets import DATASETS, DataFileError
from smct_paper.datasets.air_quality import read_air_quality
from smct_paper.datasets.covid import read_covid_deaths
from smct_paper.datasets.energy import read_energy
from smct_paper.datasets.stock import read_stock
from smct_paper.datasets.weather import read_weather


def test_air_quality_csv_and_zip_with_missing_values_and_blank_lines(tmp_path):
    values = random_values(30, 9)
    values[3, 1] = values[7] = np.nan
    csv = write_air_quality(tmp_path / "AirQualityUCI.csv", values)
    for path in (csv, zipped(tmp_path / "AirQualityUCI.zip", csv), zipped(tmp_path / "air+quality.zip", csv, "data/")):
        table = read_air_quality(path)
        np.testing.assert_array_equal(table.values, values)
        assert (table.times[0], table.times[-1]) == (np.datetime64("2004-03-10T18"), np.datetime64("2004-03-11T23"))
        assert table.columns == DATASETS["air_quality"].columns
        assert table.step == np.timedelta64(60, "m")


def test_the_ten_minute_record_gives_every_sixth_row_without_its_repetitions(tmp_path):
    values = random_values(60, 4)
    times = hours(60, datetime(2009, 1, 1, 0, 10), timedelta(minutes=10))
    repeated = [*range(20), *range(10, 20), *range(20, 60)]  # rows 10 to 19 come twice, word for word
    csv = write_jena(tmp_path / "jena_climate_2009_2016.csv", values[repeated], [times[row] for row in repeated])
    for path in (csv, zipped(tmp_path / "jena_climate_2009_2016.csv.zip", csv)):
        table = read_weather(path)
        np.testing.assert_array_equal(table.values, values[::6])
        assert table.times.tolist() == times[::6]
        assert table.columns == DATASETS["weather"].columns


def test_the_hourly_extract_gives_every_row(tmp_path):
    values = random_values(30, 4)
    values[4, 2] = -9999.0  # the station's sign of a missing value
    path = tmp_path / "jena_hourly_2009_2016_5col.csv.gz"
    path.write_bytes(gzip.compress(hourly_jena_text(values).encode()))
    table = read_weather(path)
    values[4, 2] = np.nan
    np.testing.assert_array_equal(table.values, values)
    assert table.times[1] == np.datetime64("2009-01-01T01:10")


def test_energy_csv_and_zip(tmp_path):
    values = random_values(20, 28)
    csv = write_energy(tmp_path / "energydata_complete.csv", values)
    for path in (csv, zipped(tmp_path / "energydata_complete.zip", csv)):
        table = read_energy(path)
        np.testing.assert_array_equal(table.values, values)
        assert list(table.columns) == ENERGY_COLUMNS
        assert table.times[1] - table.times[0] == table.step


def test_stock_has_no_gaps_at_weekends(tmp_path):
    values = random_values(12, 5)
    table = read_stock(write_stock(tmp_path / "GE_2006-01-01_to_2018-01-01.csv", values))
    np.testing.assert_array_equal(table.values, values)
    assert (table.step, table.columns) == (None, ("Open", "High", "Low", "Close", "Volume"))


def test_the_current_covid_file_has_more_days_of_which_61_are_read(tmp_path):
    deaths = np.arange(61) * np.array([[1], [0], [20]])
    path = write_covid(tmp_path / "time_series_covid19_deaths_US.csv", deaths, covid_days(last=datetime(2023, 3, 9)))
    data = read_covid_deaths(path)
    assert data.counties == ["County 0, State, US", "County 2, State, US"]
    np.testing.assert_array_equal(data.cumulative, deaths[[0, 2]])


def test_empty_cells_are_missing_and_the_end_of_a_short_row_too(tmp_path):
    path = tmp_path / "stock_GE.csv"
    path.write_text("Date,Open,High,Low,Close,Volume,Name\n2006-01-03,1,,3,4,5,GE\n2006-01-04,1,2,3\n")
    np.testing.assert_array_equal(read_stock(path).values, [[1, np.nan, 3, 4, 5], [1, 2, 3, np.nan, np.nan]])


STOCK = "Date,Open,High,Low,Close,Volume,Name\n2006-01-03,1,2,3,4,5,GE\n{}\n2006-01-05,1,2,3,4,5,GE\n"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("2006-01-04,1,two,3,4,5,GE", r"stock\.csv, line 3, column 'High': expected a finite number, got 'two'"),
        ("2006-01-04,1,2,3,inf,5,GE", r"line 3, column 'Close': expected a finite number, got 'inf'"),
        ("2006-01-04,1,2,3,4,nan,GE", r"line 3, column 'Volume': expected a finite number, got 'nan'"),
        ("04/01/2006,1,2,3,4,5,GE", r"line 3, column 'Date': expected a time such as '2016-12-31', got '04/01/2006'"),
        (",1,2,3,4,5,GE", r"line 3, column 'Date': expected a time such as '2016-12-31', got ''"),
        (
            "2006-01-03,1,2,3,4,6,GE",
            r"line 3, column 'Date': times must increase, got 2006-01-03T00:00:00 after 2006-01-03T00:00:00",
        ),
        (
            "2006-01-09,1,2,3,4,5,GE",
            r"line 4, column 'Date': times must increase, got 2006-01-05T00:00:00 after 2006-01-09T00:00:00",
        ),
        ("\n2006-01-04,x,2,3,4,5,GE", r"line 4, column 'Open': expected a finite number, got 'x'"),
    ],
)
def test_bad_cells_are_named_by_file_column_and_line(tmp_path, row, message):
    path = tmp_path / "stock.csv"
    path.write_text(STOCK.format(row))
    with pytest.raises(DataFileError, match=message):
        read_stock(path)


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (b"Date,Open,High,Low,Volume\n2006-01-03,1,2,3,4\n", "has no column 'Close'; its columns are Date, Open, High"),
        (b"Date,Open,High,Low,Close,Volume,Name\n", "has no rows"),
        (b"", "is not a table of text separated by ','"),
        (b"\xff\xfe\x00\x01,\n\x80,1\n", "is not a table of text"),
        (b"Date,Open\n2006-01-03,1\n2006-01-04,1,2,3\n", "is not a table of text|has no column"),
    ],
)
def test_other_files_are_rejected_by_what_they_lack(tmp_path, contents, message):
    path = tmp_path / "stock.csv"
    path.write_bytes(contents)
    with pytest.raises(DataFileError, match=message):
        read_stock(path)


def test_repeated_times_with_other_values_are_errors_in_the_ten_minute_record_too(tmp_path):
    times = hours(12, datetime(2009, 1, 1, 0, 10), timedelta(minutes=10))
    times[5] = times[4]
    with pytest.raises(DataFileError, match="line 7, column 'Date Time': times must increase"):
        read_weather(write_jena(tmp_path / "jena_climate_2009_2016.csv", random_values(12, 4), times))


def test_broken_archives_and_archives_of_something_else(tmp_path):
    broken = tmp_path / "energydata_complete.zip"
    broken.write_bytes(b"PK no archive")
    with pytest.raises(DataFileError, match=r"energydata_complete\.zip cannot be unpacked"):
        read_energy(broken)
    other = tmp_path / "other.csv"
    other.write_text("a,b\n")
    with pytest.raises(
        DataFileError, match=r"holds no energydata_complete\.csv, but __MACOSX/\._other\.csv, other\.csv"
    ):
        read_energy(zipped(broken, other))
    cut = tmp_path / "jena_hourly_2009_2016_5col.csv.gz"
    cut.write_bytes(gzip.compress(hourly_jena_text(random_values(99, 4)).encode())[:-40])
    with pytest.raises(DataFileError, match="cannot be unpacked"):
        read_weather(cut)


@pytest.mark.parametrize(("value", "got"), [("", "''"), ("-1", "'-1'"), ("inf", "'inf'"), ("many", "'many'")])
def test_bad_counts_of_deaths_are_named(tmp_path, value, got):
    path = write_covid(tmp_path / "deaths.csv", [[9] * 61, [9, 9, value]])
    with pytest.raises(DataFileError, match=rf"line 3, column '3/23/20': expected a number of deaths, got {got}"):
        read_covid_deaths(path)


def test_covid_files_must_have_all_days_and_whole_rows(tmp_path):
    days = covid_days()
    days.remove("4/1/20")
    with pytest.raises(DataFileError, match="expected 61 days from 3/21/20 to 5/20/20, got 60"):
        read_covid_deaths(write_covid(tmp_path / "deaths.csv", [[9] * 60], days))
    path = write_covid(tmp_path / "deaths.csv", [[9] * 61])
    path.write_text(path.read_text() + "1,US\n")
    with pytest.raises(DataFileError, match=r"line 3: expected \d+ cells, got 2"):
        read_covid_deaths(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(DataFileError, match="UTF-8"):
        read_covid_deaths(path)
