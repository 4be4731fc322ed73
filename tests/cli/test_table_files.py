"""Tables in files of many kinds."""

import gzip
import io
import os
import sys
import threading
from contextlib import nullcontext

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smc_transformer.cli.tables import Dialect, TableFileError, kind_of, read_table, write_table
from smc_transformer.forecaster.times import parse_times

TABLE = pd.DataFrame({"name": ["007", "8"], "x": [1.5, None], "n": [-200, 3]})


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".csv.gz", ".tsv.bz2", ".csv.xz", ".CSV.ZIP", ".txt", ""])
def test_what_is_written_is_read(ending, tmp_path):
    path = tmp_path / "deep" / f"table{ending}"
    write_table(TABLE, path)
    pd.testing.assert_frame_equal(read_table(path, text_columns=["name", "absent"]), TABLE)


TIMES = TABLE.assign(ds=pd.date_range("2024-03-30", periods=2, tz="Europe/Berlin"))
FIRST_BYTES = {
    "": b"PAR1",
    ".gz": b"\x1f\x8b",
    ".bz2": b"BZh",
    ".xz": b"\xfd7zXZ",
    ".zip": b"PK",
    ".zst": b"\x28\xb5\x2f\xfd",
}


@pytest.mark.parametrize("ending", FIRST_BYTES)
def test_parquet(ending, tmp_path):
    path = tmp_path / "deep" / f"table.parquet{ending}"
    write_table(TIMES, path)
    assert path.read_bytes().startswith(FIRST_BYTES[ending])  # the name does not lie
    pd.testing.assert_frame_equal(read_table(path), TIMES)
    assert read_table(path, Dialect(missing=(-200.0,)))["n"].isna().tolist() == [True, False]


@pytest.mark.parametrize("codec", [None, "snappy", "gzip", "zstd", "brotli"])
def test_parquet_of_others(codec, tmp_path):
    pl.from_pandas(TIMES).write_parquet(tmp_path / "polars.parquet", compression=codec or "uncompressed")
    pq.write_table(pa.Table.from_pandas(TIMES), tmp_path / "arrow.pq", compression=codec or "none")
    TIMES.set_index(["name", "ds"]).to_parquet(tmp_path / "index.parquet", compression=codec)
    for name in ("polars.parquet", "arrow.pq", "index.parquet"):
        pd.testing.assert_frame_equal(read_table(tmp_path / name)[TIMES.columns.tolist()], TIMES)


def test_what_is_no_parquet(tmp_path):
    path = tmp_path / "table.parquet"
    write_table(TABLE, path)
    whole = path.read_bytes()
    for content in (b"", b"name,x\n1,2\n", whole[:-40], whole[:20] + b"x" * 60 + whole[80:]):
        path.write_bytes(content)
        with pytest.raises(TableFileError, match="cannot be read as Parquet"):
            read_table(path)
    with pytest.raises(FileNotFoundError):
        read_table(tmp_path / "absent.parquet")
    with pytest.raises(TableFileError, match=r"table\.parquet cannot be written as Parquet"):
        write_table(pd.DataFrame({"name": ["a", 1]}), path)


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    path = tmp_path / "table.parquet"
    write_table(TABLE, path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for action in (lambda: read_table(path), lambda: write_table(TABLE, path)):
        with pytest.raises(TableFileError, match="needs pyarrow: pip install"):
            action()


def test_other_ways_to_write(tmp_path):
    (tmp_path / "table.csv").write_text("when;x\n31/01/2024 13.00;1,5\n31/01/2024 14.00;-200\n")
    dialect = Dialect(separator=";", decimal=",", missing=(-200.0,), time_format="%d/%m/%Y %H.%M")
    table = read_table(tmp_path / "table.csv", dialect)
    assert table["x"].isna().tolist() == [False, True]
    times = parse_times(table["when"], "when", dialect.time_format, TableFileError)
    assert times[1] == pd.Timestamp("2024-01-31 14:00")
    with pytest.raises(TableFileError, match=r"column 'when', row 0: '31/01/2024 13.00' is not a time as ISO 8601"):
        parse_times(table["when"], "when", None, TableFileError)
    with pytest.raises(TableFileError, match="mixes time zones"):
        parse_times(pd.Series(["2024-01-01T00:00+01:00", "2024-01-01T02:00+02:00"]), "when", None, TableFileError)


@pytest.mark.parametrize("separator", [r"\t", r"\s+", "::", "é", "\t"])
@pytest.mark.filterwarnings("error")
def test_separators_of_several_characters(tmp_path, separator):
    between = {r"\t": "\t", r"\s+": "  "}.get(separator, separator)
    (tmp_path / "table.csv").write_text(f"name{between}x\n7{between}1.5\n", encoding="utf-8")
    found = read_table(tmp_path / "table.csv", Dialect(separator=separator), text_columns=["name"])
    assert found.to_dict("list") == {"name": ["7"], "x": [1.5]}
    (tmp_path / "twice.csv").write_text(f"x{between}x\n7{between}1.5\n", encoding="utf-8")
    with pytest.raises(TableFileError, match="2 columns are called 'x'"):
        read_table(tmp_path / "twice.csv", Dialect(separator=separator))


def test_points_between_thousands_are_not_read_as_decimal_points(tmp_path):
    """ "1.234" is 1234 where people write a decimal comma."""
    path, dialect = tmp_path / "table.csv", Dialect(separator=";", decimal=",")
    path.write_text("when;name;y;note\n1.2;1.5;999;v1.2\n1.3;2.5;1.234;\n")
    with pytest.raises(TableFileError, match=r"column 'y' holds '1.234', and the decimal point is ','"):
        read_table(path, dialect, text_columns=["name"], time_column="when")
    path.write_text("when;name;y;note\n1.2;1.5;999;v1.2\n1.3;2.5;1,234;\n")
    assert read_table(path, dialect, text_columns=["name"], time_column="when")["y"].tolist() == [999, 1.234]


def test_kinds():
    assert [kind_of(name) for name in ("a.csv", "a.b.tsv.gz", "a.parquet", "a", ".gz")] == [
        ".csv",
        ".tsv",
        ".parquet",
        "",
        "",
    ]


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz", ".zip"])
def test_what_cannot_be_unpacked(ending, tmp_path):
    for kind in ("csv", "parquet"):
        path = tmp_path / f"table.{kind}{ending}"
        path.write_bytes(b"name,x\n1,2\n")
        with pytest.raises(TableFileError, match="cannot be unpacked"):
            read_table(path)


def test_names_are_text_whatever_they_look_like(tmp_path):
    (tmp_path / "table.csv").write_text("name,ds,x\nNA,0,0\nnull,1,5\n007,2,\n,3,1\n")
    found = read_table(tmp_path / "table.csv", Dialect(missing=(0.0,)), text_columns=["name"], time_column="ds")
    assert found["name"][:3].tolist() == ["NA", "null", "007"]
    assert found["name"].isna().tolist() == [False, False, False, True]
    assert found["ds"].tolist() == [0, 1, 2, 3]  # a time is never missing
    assert found["x"].isna().tolist() == [True, False, True, False]


TWICE = "ds,y,x,y\n1,2,3,4\n2,3,4,5\n"


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".tsv", ".txt", ""])
def test_two_columns_of_one_name_in_a_file_are_refused(ending, tmp_path):
    path = tmp_path / f"table{ending}"
    text = TWICE.replace(",", "\t") if ending == ".tsv" else TWICE
    path.write_bytes(gzip.compress(text.encode()) if ending == ".csv.gz" else text.encode())
    with pytest.raises(TableFileError, match=r"^2 columns are called 'y' \(2 and 4\): which one is meant\?$"):
        read_table(path)


def test_two_columns_of_one_name_in_a_pipe_are_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TWICE.encode())))
    with pytest.raises(TableFileError, match="2 columns are called 'y'"):
        read_table("-")
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    for text, outcome in ((TWICE, pytest.raises(TableFileError, match="called 'y'")), ("ds,y\n1,2\n", nullcontext())):
        writer = threading.Thread(target=fifo.write_text, args=(text,))
        writer.start()
        with outcome:
            assert read_table(fifo)["y"].tolist() == [2]
        writer.join()


def test_two_columns_of_one_name_in_parquet_are_refused(tmp_path):
    both = pa.Table.from_arrays([pa.array([1, 2]), pa.array([3, 4])], names=["y", "y"])
    pq.write_table(both, tmp_path / "table.parquet")
    with pytest.raises(TableFileError, match=r"^2 columns are called 'y' \(1 and 2\)"):
        read_table(tmp_path / "table.parquet")


def test_columns_without_a_name_may_be_many(tmp_path):
    (tmp_path / "table.csv").write_text("y,,\n1,2,3\n")  # as spreadsheets write empty columns
    assert read_table(tmp_path / "table.csv")["y"].tolist() == [1]
    (tmp_path / "table.csv").write_text("y,y.1\n1,2\n")  # names that pandas would give are names too
    assert read_table(tmp_path / "table.csv").columns.tolist() == ["y", "y.1"]


@pytest.mark.parametrize("ending", [".xlsx", ".ods", ".XLS"])
def test_workbooks_are_refused_by_their_name(ending, tmp_path):
    (tmp_path / f"table{ending}").write_bytes(b"PK\x03\x04")
    with pytest.raises(TableFileError, match=f"not from '{ending.lower()}': save it as CSV"):
        read_table(tmp_path / f"table{ending}")
