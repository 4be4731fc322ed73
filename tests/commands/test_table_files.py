"""Tables in files of many kinds."""

import pandas as pd
import pytest

from smc_transformer.tables import Dialect, TableFileError, kind_of, parse_times, read_table, write_table

TABLE = pd.DataFrame({"name": ["007", "8"], "x": [1.5, None], "n": [-200, 3]})


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".csv.gz", ".tsv.bz2", ".csv.xz", ".CSV.ZIP", ".txt", ""])
def test_what_is_written_is_read(ending, tmp_path):
    path = tmp_path / "deep" / f"table{ending}"
    write_table(TABLE, path)
    pd.testing.assert_frame_equal(read_table(path, text_columns=["name", "absent"]), TABLE)


def test_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    write_table(TABLE, tmp_path / "table.parquet")
    pd.testing.assert_frame_equal(read_table(tmp_path / "table.parquet"), TABLE)


def test_other_ways_to_write(tmp_path):
    (tmp_path / "table.csv").write_text("when;x\n31/01/2024 13.00;1,5\n31/01/2024 14.00;-200\n")
    dialect = Dialect(separator=";", decimal=",", missing=(-200.0,), time_format="%d/%m/%Y %H.%M")
    table = read_table(tmp_path / "table.csv", dialect)
    assert table["x"].isna().tolist() == [False, True]
    times = parse_times(table["when"], "when", dialect.time_format)
    assert times[1] == pd.Timestamp("2024-01-31 14:00")
    with pytest.raises(TableFileError, match=r"column 'when', row 0: '31/01/2024 13.00' is not a time as ISO 8601"):
        parse_times(table["when"], "when")
    with pytest.raises(TableFileError, match="mixes time zones"):
        parse_times(pd.Series(["2024-01-01T00:00+01:00", "2024-01-01T02:00+02:00"]), "when")


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
    path = tmp_path / f"table.csv{ending}"
    path.write_bytes(b"name,x\n1,2\n")
    with pytest.raises(TableFileError, match="cannot be unpacked"):
        read_table(path)
