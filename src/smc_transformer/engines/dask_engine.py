"""Dask: rows are shuffled so that a series is in one partition; each partition is a bucket."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pandas as pd

from smc_transformer.engines.bucket import Call, Shipped, answer, shaped
from smc_transformer.engines.workers import one_thread


class DaskEngine:
    """Tables of dask.dataframe."""

    def map_series(self, table: Any, shipped: Shipped, id_column: str, like: pd.DataFrame) -> Any:
        import dask

        # One key of the graph, which every worker fetches once.
        model = dask.delayed(shipped.model, pure=True)
        empty = like.iloc[:0]
        run = partial(_run, call=shipped.call, like=empty)  # a table among the arguments would be taken for Dask's
        return table.shuffle(on=id_column).map_partitions(run, model, meta=empty, enforce_metadata=False)

    def where(self, table: Any, column: str, *, missing: bool) -> Any:
        return table[table[column].isna()] if missing else table[~table[column].isna()]

    def select(self, table: Any, columns: list[str]) -> Any:
        return table[columns]

    def kept(self, table: Any) -> Any:
        return table.persist()

    def to_pandas(self, table: Any) -> pd.DataFrame:
        return table.compute()

    def names_are_text(self, table: Any, id_column: str) -> bool:
        return not pd.api.types.is_integer_dtype(table.dtypes[id_column])

    def columns(self, table: Any) -> list[str]:
        return list(table.columns)

    @contextmanager
    def connected(self, address: str | None) -> Iterator[None]:
        from distributed import Client, LocalCluster

        if address is not None:
            with Client(address):
                yield
            return
        with LocalCluster(threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster):
            yield

    def read(self, path: str) -> Any:
        import dask.dataframe

        return dask.dataframe.read_parquet(path)

    def write(self, table: Any, path: str) -> None:
        table.to_parquet(path, write_index=False)


def _run(table: pd.DataFrame, model: bytes, call: Call, like: pd.DataFrame) -> pd.DataFrame:
    if len(table) == 0:
        return like
    if _on_worker():
        one_thread()
    found = shaped(answer(Shipped(model, call), table), like)
    kinds = {column: kind for column, kind in like.dtypes.items() if not found[column].isna().any()}
    return found.astype(kinds)


def _on_worker() -> bool:
    """Whether this is a process of a cluster, not the user's own."""
    try:
        from distributed import get_worker

        get_worker()
    except (ImportError, ValueError):
        return False
    return True


ENGINE = DaskEngine()
