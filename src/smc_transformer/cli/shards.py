"""Parquet read by several processes: each reads its rows, and none reads all.

The rows of a file, or of all Parquet files of a folder in the order of their names, are shared evenly. Of a row group
that lies across a boundary each process keeps its rows. A series whose rows lie across one belongs to the process in
which it begins: the others hand these rows over. So the rows of a series must follow each other.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smc_transformer.cli.errors import TableFileError

if TYPE_CHECKING:
    import pandas as pd


def parquet_files(path: Path) -> list[Path]:
    """The Parquet files of a folder (those whose names do not begin with _ or .), or the one that is named."""
    if not path.is_dir():
        return [path]
    found = [
        file for file in sorted(path.rglob("*")) if file.suffix in (".parquet", ".pq") and file.name[0] not in "_."
    ]
    if not found:
        raise TableFileError(f"{path} is a folder without Parquet files")
    return found


def read_shard(path: Path, id_column: str) -> "pd.DataFrame":
    """The rows of this process: whole series."""
    from smc_transformer.support import processes

    table = processes.together(lambda: _read_rows(path))
    if id_column not in table.columns:
        raise TableFileError(f"the table has no column {id_column!r}; it has {list(table.columns)}")
    return _whole_series(table, id_column)


def _read_rows(path: Path) -> "pd.DataFrame":
    """An even share of all rows."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise TableFileError(f"{path} is read by pyarrow: pip install 'smc-transformer[parquet]'") from None
    from smc_transformer.support import processes

    files = parquet_files(path)
    try:
        opened = [pyarrow.parquet.ParquetFile(file) for file in files]
        own = processes.share(sum(file.metadata.num_rows for file in opened))
        parts = list(_parts(opened, own.start, own.stop))
        # pandas may have written columns as an index: those with names belong to the table.
        table = pyarrow.concat_tables(parts, promote_options="default").to_pandas(ignore_metadata=True)
    except (ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise TableFileError(f"{path} cannot be read as Parquet (truncated, or another format): {error}") from None
    return table[[name for name in table.columns if not str(name).startswith("__index_level_")]]


def _parts(files: list[Any], start: int, stop: int) -> Iterator[Any]:
    """Rows from `start` to `stop` of all files together; at least an empty part, which has their columns."""
    begin, any_read = 0, False
    for file in files:
        for number in range(file.num_row_groups):
            n_rows = file.metadata.row_group(number).num_rows
            first, last = max(start - begin, 0), min(stop - begin, n_rows)
            if first < last:
                any_read = True
                yield file.read_row_group(number).slice(first, last - first)
            begin += n_rows
    if not any_read:
        yield files[0].schema_arrow.empty_table()


def _whole_series(table: "pd.DataFrame", id_column: str) -> "pd.DataFrame":
    """The table without the rows at its beginning of a series that began elsewhere, with those of its last series."""
    import pandas as pd

    from smc_transformer.support import processes

    names = table[id_column]
    edges = processes.gather(
        (names.iloc[0], names.iloc[-1], bool((names == names.iloc[0]).all())) if len(table) else None
    )
    owners: list[int | None] = []  # of the series that each process begins with, if it began before
    last, owner = None, 0  # the series that ends the rows so far, and where it began
    for number, edge in enumerate(edges):
        if edge is None:
            owners.append(None)
            continue
        first_name, last_name, is_one = edge
        goes_on = number > 0 and last is not None and first_name == last
        owners.append(owner if goes_on else None)
        if not (goes_on and is_one):
            owner = number
        last = last_name
    own, handed = owners[processes.rank()], None
    if own is not None:
        n_handed = int((names != names.iloc[0]).to_numpy().argmax()) if names.nunique() > 1 else len(table)
        handed, table = table.iloc[:n_handed], table.iloc[n_handed:]
    for owner_of, part in zip(owners, processes.gather(handed), strict=True):
        if owner_of == processes.rank() and part is not None:
            table = pd.concat((table, part))
    if any(n == 0 for n in processes.gather(len(table))):
        raise TableFileError(f"there are fewer series than processes ({processes.size()}): use fewer")
    return table.reset_index(drop=True)
