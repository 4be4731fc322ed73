"""Ray: rows are shuffled so that a series is in one block; each block is a bucket."""

from typing import Any

import pandas as pd

from smc_transformer.engines.bucket import Shipped, answer
from smc_transformer.engines.workers import one_thread

FEWEST_BLOCKS = 8
"""Into which a table is shuffled: some for each core of a machine."""


class RayEngine:
    """Tables of ray.data."""

    def map_series(self, table: Any, shipped: Shipped, id_column: str, like: pd.DataFrame) -> Any:
        import ray

        sent, call, empty = ray.put(shipped.model), shipped.call, like.iloc[:0]

        def run(bucket: pd.DataFrame) -> pd.DataFrame:
            if len(bucket) == 0:
                return empty
            one_thread()
            return answer(Shipped(ray.get(sent), call), bucket).reindex(columns=empty.columns)

        cores = int(ray.cluster_resources().get("CPU", 1))
        whole = table.repartition(max(FEWEST_BLOCKS, 4 * cores), keys=[id_column])
        return whole.map_batches(run, batch_size=None, batch_format="pandas")

    def where(self, table: Any, column: str, *, missing: bool) -> Any:
        return table.map_batches(
            lambda rows: rows[rows[column].isna() if missing else ~rows[column].isna()],
            batch_size=None,
            batch_format="pandas",
        )

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

    def read(self, path: str, address: str | None) -> Any:
        import ray

        if not ray.is_initialized():
            ray.init(address=address, log_to_driver=False)
        return ray.data.read_parquet(path)

    def write(self, table: Any, path: str) -> None:
        table.write_parquet(path)


ENGINE = RayEngine()
