"""Reading tables of series for commands: the options of their format, and their match with a model's columns."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smc_transformer.cli.errors import CommandError, TableFileError, failing
from smc_transformer.cli.options import separator
from smc_transformer.cli.shards import read_shard
from smc_transformer.cli.tables import PARQUET, Dialect, kind_of, read_table

if TYPE_CHECKING:
    import pandas as pd

    from smc_transformer.forecaster import Forecaster

ID, TIME, TARGET = "unique_id", "ds", "y"
"""Default columns of series, times and values."""
ONLY_SERIES = "series"
"""Name of the series in a table without a column of names."""
DECIMALS = (".", ",")
FILES = "CSV, TSV or Parquet, plain or compressed; - is standard input"


def add_reading_options(parser: argparse.ArgumentParser) -> None:
    """Options on the format of tables."""
    group = parser.add_argument_group("format of the tables")
    text = "between cells of text files: a character or a regular expression (default: a comma; a tab in .tsv)"
    group.add_argument("--separator", type=separator, help=text)
    text = "decimal point of text files (default: .)"
    group.add_argument("--decimal", default=".", choices=DECIMALS, metavar="POINT", help=text)
    text = "numbers that stand for a missing value, such as -200; empty cells are always missing"
    group.add_argument("--missing", type=float, nargs="+", default=[], metavar="NUMBER", help=text)
    group.add_argument("--time-format", help="how times are written, such as %%d/%%m/%%Y (default: ISO 8601)")


def read_series_table(options: argparse.Namespace) -> "tuple[pd.DataFrame, str]":
    """The table of series that `smct fit` is given, with its times read, and its column of names.

    Without --id that is unique_id, and a table without it is one series.
    """
    id_column = options.id or ID
    with failing(options.data):
        if _in_several_processes():
            return _read_own_series(options, id_column), id_column
        from smc_transformer.forecaster.table import check_times

        table = read_table(options.data, dialect(options), text_columns=[id_column], time_column=options.time)
        check_times(table, options.time)
        if options.id is None and ID not in table.columns:
            table.insert(0, ID, ONLY_SERIES)
        read_times(table, options.time, options.time_format)
    return table, id_column


def _in_several_processes() -> bool:
    from smc_transformer.support import processes

    return processes.size() > 1


def _read_own_series(options: argparse.Namespace, id_column: str) -> "pd.DataFrame":
    """The series of this process in a Parquet file or folder."""
    path = Path(options.data)
    if not path.is_dir() and kind_of(path) not in PARQUET:
        raise TableFileError("several processes read Parquet, of which each can read a part: convert the table first")
    table = read_shard(path, id_column)
    read_times(table, options.time, options.time_format)
    return table


def read_for_model(path: Path | str | None, forecaster: "Forecaster", options: argparse.Namespace) -> Any:
    """A table in the columns of a fitted forecaster, or None without a file."""
    if path is None:
        return None
    settings = forecaster.settings
    with failing(path):
        table = read_table(path, dialect(options), text_columns=[settings.id_column], time_column=settings.time_column)
        if settings.id_column in table.columns:
            table[settings.id_column] = as_names(table[settings.id_column], forecaster)
        elif len(forecaster.series) == 1:
            table.insert(0, settings.id_column, forecaster.series[0])
        if isinstance(settings.freq, str):
            read_times(table, settings.time_column, options.time_format)
    return table


def dialect(options: argparse.Namespace) -> Dialect:
    """What the options say about the format."""
    return Dialect(options.separator, options.decimal, tuple(options.missing), options.time_format)


def read_times(table: "pd.DataFrame", column: str, time_format: str | None) -> None:
    """Turn a column of text into times, in place; an absent column is reported later, by the forecaster."""
    from pandas.api.types import infer_dtype, is_numeric_dtype, is_object_dtype, is_string_dtype

    from smc_transformer.forecaster.times import parse_times

    if column not in table.columns:
        return
    kind = table[column].dtype
    if infer_dtype(table[column]) in ("date", "datetime"):  # of Parquet: nothing to be read, whatever the format
        table[column] = parse_times(table[column], column, None, TableFileError)
    elif is_string_dtype(kind) or is_object_dtype(kind):
        hint = "; --time-format says how others are written"
        table[column] = parse_times(table[column], column, time_format, TableFileError, hint=hint)
    elif time_format is not None and is_numeric_dtype(kind):  # such as 20240131, which looks like a number
        table[column] = parse_times(table[column].astype("str"), column, time_format, TableFileError)


def as_names(names: "pd.Series[Any]", forecaster: "Forecaster") -> "pd.Series[Any]":
    """Names as the forecaster has them: whole numbers if all names of its series are, else text."""
    import pandas as pd

    if all(isinstance(name, int) for name in forecaster.series):
        numbers = pd.to_numeric(names, errors="coerce")
        return numbers.astype("int64") if (numbers.notna() & (numbers % 1 == 0)).all() else names
    return names if names.isna().any() else names.astype("str")


def check_series(names: list[str] | None, known: list[Any]) -> list[Any]:
    """The series that --series names, or all."""
    if names is None:
        return known
    by_text = {str(name): name for name in known}
    for name in names:
        if name not in by_text:
            few = ", ".join(list(by_text)[:10]) + (", ..." if len(by_text) > 10 else "")
            raise CommandError(f"there is no series {name!r}; there are {few}")
    return [by_text[name] for name in names]
