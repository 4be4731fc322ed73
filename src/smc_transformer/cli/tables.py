"""Tables in files: CSV, TSV and Parquet, plain or compressed; the file name's endings say which.

pandas does the work; for Parquet it needs pyarrow (the extra `parquet`).
"""

import io
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from smc_transformer.cli.compression import compression_of, opened, unpacking
from smc_transformer.cli.errors import TableFileError
from smc_transformer.support.durable import whole

if TYPE_CHECKING:
    import pandas as pd

PARQUET = (".parquet", ".pq")
TEXT = (".csv", ".tsv", ".txt", "")
WORKBOOKS = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods")
MARK = "'"
"""Put before the cells of text columns, so that pandas does not read them as numbers or as missing."""
STANDARD = "-"
"""The file name that means standard input or output, as CSV."""


class Dialect(NamedTuple):
    """How a text file is to be read."""

    separator: str | None = None  # None: a comma, or a tab in files whose name ends with .tsv
    decimal: str = "."
    missing: tuple[float, ...] = ()  # numbers that stand for a missing value, such as -200
    time_format: str | None = None  # as for strptime; None: ISO 8601


def read_table(
    path: Path | str, dialect: Dialect | None = None, *, text_columns: Sequence[str] = (), time_column: str = ""
) -> "pd.DataFrame":
    """A table from a file; "-" is standard input.

    The text columns, if they are there, stay text even where they look like numbers ("007") or like nothing ("NA");
    only an empty cell is missing. In the time column no number stands for a missing value.
    """
    dialect = dialect or Dialect()
    if kind_of(path) in WORKBOOKS:
        raise TableFileError(f"tables are read from CSV, TSV or Parquet, not from {kind_of(path)!r}: save it as CSV")
    is_text = kind_of(path) not in PARQUET
    table = _read_text(path, dialect, text_columns) if is_text else _read_parquet(Path(path))
    if is_text and dialect.decimal != ".":
        _check_points(table.drop(columns=[*text_columns, time_column], errors="ignore"), dialect.decimal)
    if dialect.missing:
        numbers = table.select_dtypes("number").columns.difference([*text_columns, time_column], sort=False)
        table[numbers] = table[numbers].mask(table[numbers].isin(list(dialect.missing)))
    return table


def write_table(table: "pd.DataFrame", path: Path | str) -> None:
    """Write a table to a file, in the format that its name ends with; "-" is standard output."""
    if str(path) == STANDARD:
        table.to_csv(sys.stdout, index=False)
        return
    check_ending(path)
    if kind_of(path) in PARQUET:
        _write_parquet(table, Path(path))
        return
    try:
        with whole(Path(path)) as file:
            table.to_csv(file, index=False, sep="\t" if kind_of(path) == ".tsv" else ",")
    except ImportError as error:  # of a compression
        raise TableFileError(f"{path} cannot be written: {error}") from None


def check_ending(path: Path | str) -> None:
    """That a table can be written in the format that a file's name ends with."""
    if kind_of(path) not in (*TEXT, *PARQUET):
        raise TableFileError(f"{path}: tables are written as CSV, TSV or Parquet, not as {kind_of(path)!r}")


def kind_of(path: Path | str) -> str:
    """What a file's name ends with, apart from a compression: ".csv" of "data.csv.gz"."""
    path = Path(path)
    return (path.with_suffix("") if compression_of(path) else path).suffix.lower()


def _read_text(path: Path | str, dialect: Dialect, text_columns: Sequence[str]) -> "pd.DataFrame":
    import pandas as pd

    separator = dialect.separator or ("\t" if kind_of(path) == ".tsv" else ",")
    texts = {column: lambda cell: MARK + cell for column in text_columns}
    try:
        with unpacking():
            source = _readable_twice(path)
            _check_header(source, separator)
            engine = _engine(separator)
            table = pd.read_csv(source, sep=separator, decimal=dialect.decimal, converters=texts, engine=engine)
    except pd.errors.EmptyDataError:
        raise TableFileError("the file is empty") from None
    except UnicodeDecodeError as error:
        raise TableFileError(f"the file is not text in UTF-8: {error}") from None
    except TableFileError:
        raise
    except (ValueError, TypeError, OverflowError, RecursionError) as error:  # of pandas, such as cells without end
        raise TableFileError(f"the file cannot be read as a table: {' '.join(str(error).split())}") from None
    for column in table.columns.intersection(list(texts)):
        names = table[column].str.removeprefix(MARK)
        table[column] = names.where(names != "", None)
    return table


def _engine(separator: str) -> Literal["c", "python"]:
    """What of pandas reads such a file: its C code knows one byte and spaces, and would warn of all others."""
    return "c" if len(separator.encode()) == 1 or separator == r"\s+" else "python"


def _readable_twice(path: Path | str) -> Any:
    """A file whose header can be read before the rest: what comes through a pipe is read into memory."""
    if str(path) == STANDARD:
        return io.BytesIO(_standard_input().read())
    if Path(path).is_fifo():
        with opened(Path(path), "r") as file:
            return io.BytesIO(file.read())
    return path


def _check_header(source: Any, separator: str) -> None:
    """That no name stands twice in the first line: pandas would call the second `y` "y.1", and use the first."""
    import pandas as pd

    engine = _engine(separator)
    header = pd.read_csv(source, sep=separator, header=None, nrows=1, dtype=str, keep_default_na=False, engine=engine)
    if isinstance(source, io.BytesIO):
        source.seek(0)
    _check_names(header.iloc[0].tolist())


def _check_names(names: Sequence[str]) -> None:
    """That every column that has a name has one of its own."""
    from smc_transformer.support.checks import shown  # loads torch

    for name in names:
        if name and names.count(name) > 1:
            places = " and ".join(str(place) for place, other in enumerate(names, start=1) if other == name)
            raise TableFileError(
                f"{names.count(name)} columns are called {shown(name)} ({places}): which one is meant?"
            )


def _check_points(table: "pd.DataFrame", decimal: str) -> None:
    """That no column of text would be numbers only because "1.234" is one with another decimal point."""
    import pandas as pd

    from smc_transformer.support.checks import shown  # loads torch

    for name in table.columns:
        if pd.api.types.is_numeric_dtype(table[name]):
            continue
        cells = table[name].dropna().astype(str)
        pointed = cells[cells.str.contains(".", regex=False)]
        if len(pointed) and pd.to_numeric(cells, errors="coerce").notna().all():
            raise TableFileError(
                f"column {shown(name)} holds {shown(pointed.iloc[0])}, and the decimal point is {decimal!r}: "
                f"numbers are read without separators of thousands"
            )


def _standard_input() -> Any:
    if sys.stdin is None:
        raise TableFileError("standard input is closed")
    return sys.stdin.buffer


def _read_parquet(path: Path) -> "pd.DataFrame":
    import pandas as pd

    if not path.exists():
        raise FileNotFoundError(2, "No such file or directory", str(path))
    _check_parquet(path)
    source: Any = path
    if compression_of(path):
        with unpacking(), opened(path, "r") as file:
            source = io.BytesIO(file.read())
    try:
        _check_names(import_module("pyarrow.parquet").read_schema(source).names)
        table = pd.read_parquet(source)
    except TableFileError:
        raise
    except (ValueError, OSError) as error:  # pyarrow's own errors are of both kinds
        if isinstance(error, OSError) and error.errno is not None:
            raise
        said = " ".join(str(error).split())
        raise TableFileError(f"the file cannot be read as Parquet (truncated, or another format): {said}") from None
    # pandas may have written columns as an index: those with names belong to the table.
    named = [name for name in table.index.names if name is not None]
    return table.reset_index(level=named) if named else table


def _write_parquet(table: "pd.DataFrame", path: Path) -> None:
    _check_parquet(path)
    packed = io.BytesIO()
    try:
        table.to_parquet(packed, index=False)
    except (ValueError, TypeError) as error:  # such as a column of numbers and text
        raise TableFileError(f"{path} cannot be written as Parquet: {error}") from None
    with whole(path) as unfinished, opened(unfinished, "w") as file:
        file.write(packed.getvalue())


def _check_parquet(path: Path) -> None:
    try:
        import_module("pyarrow")
    except ImportError:
        need = "which needs pyarrow: pip install 'smc-transformer[parquet]', or use CSV"
        raise TableFileError(f"{path} is Parquet, {need}") from None
