"""Ray: rows are grouped by buckets of series, by a hash of their names; each group is a bucket."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pandas as pd

from smc_transformer.engines.bucket import Call, Shipped, answer, shaped
from smc_transformer.engines.workers import one_thread

BUCKET = "smct_bucket"
"""The column by which rows are grouped."""
BUCKETS_OF_A_CORE = 16
"""So that cores which are done early find more to do."""


class RayEngine:
    """Tables of ray.data."""

    def map_series(self, table: Any, shipped: Shipped, id_column: str, like: pd.DataFrame) -> Any:
        import ray

        run = partial(_run, ray.put(shipped.model), shipped.call, like.iloc[:0])
        n_buckets = BUCKETS_OF_A_CORE * max(1, int(ray.cluster_resources().get("CPU", 1)))
        marked = table.map_batches(partial(_marked, id_column, n_buckets), batch_format="pandas")
        return marked.groupby(BUCKET, num_partitions=n_buckets).map_groups(run, batch_format="pandas")

    def where(self, table: Any, column: str, *, missing: bool) -> Any:
        return table.map_batches(partial(_where, column, missing), batch_size=None, batch_format="pandas")

    def select(self, table: Any, columns: list[str]) -> Any:
        return table.select_columns(columns)

    def kept(self, table: Any) -> Any:
        return table.materialize()

    def to_pandas(self, table: Any) -> pd.DataFrame:
        return table.to_pandas()

    def names_are_text(self, table: Any, id_column: str) -> bool:
        schema = table.schema()
        kind = dict(zip(schema.names, schema.types, strict=True))[id_column]
        return "int" not in str(kind)

    def columns(self, table: Any) -> list[str]:
        return list(table.columns())

    @contextmanager
    def connected(self, address: str | None) -> Iterator[None]:
        import ray

        if ray.is_initialized():
            yield
            return
        with ray.init(address=address, log_to_driver=False):
            yield

    def read(self, path: str) -> Any:
        import ray

        return ray.data.read_parquet(path)

    def write(self, table: Any, path: str) -> None:
        table.write_parquet(path)


def _run(sent: Any, call: Call, like: pd.DataFrame, bucket: pd.DataFrame) -> pd.DataFrame:
    """What a worker does with a bucket; `sent` is a reference to the model."""
    import ray

    one_thread()
    found = answer(Shipped(ray.get(sent), call), bucket.drop(columns=BUCKET))
    return shaped(found, like)


def _where(column: str, missing: bool, rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows[column].isna() == missing]


def _marked(id_column: str, n_buckets: int, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with the number of the bucket that their series belongs to: the same in every process."""
    hashes = pd.util.hash_array(rows[id_column].to_numpy(dtype=object), categorize=False)
    return rows.assign(**{BUCKET: (hashes % n_buckets).astype("int64")})


ENGINE = RayEngine()
