"""Spark: rows are shuffled so that a series is in one partition, sorted, and streamed through the worker's Python."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pandas as pd

from smc_transformer.engines.bucket import STATES, Call, Shipped, answers, shaped
from smc_transformer.engines.workers import one_thread

LOCAL = "local[*,4]"
"""All cores of this machine, and four attempts of each task: with local[*] a worker that dies ends all."""


class SparkEngine:
    """Tables of pyspark.sql."""

    def map_series(self, table: Any, shipped: Shipped, id_column: str, like: pd.DataFrame) -> Any:
        run = partial(_run, self._send(table, shipped.model), shipped.call, like.iloc[:0])
        # With a number given Spark does not make fewer and larger partitions: by bytes there is little, by work much.
        n_partitions = int(table.sparkSession.conf.get("spark.sql.shuffle.partitions"))
        sorted_rows = table.repartition(n_partitions, id_column).sortWithinPartitions(id_column)
        return sorted_rows.mapInPandas(run, self._schema(table, id_column, like))

    def where(self, table: Any, column: str, *, missing: bool) -> Any:
        return table.where(table[column].isNull() if missing else table[column].isNotNull())

    def select(self, table: Any, columns: list[str]) -> Any:
        return table.select(*[f"`{column}`" for column in columns])

    def kept(self, table: Any) -> Any:
        return table.persist()

    def to_pandas(self, table: Any) -> pd.DataFrame:
        return table.toPandas()

    def names_are_text(self, table: Any, id_column: str) -> bool:
        return table.schema[id_column].dataType.typeName() == "string"

    def columns(self, table: Any) -> list[str]:
        return list(table.columns)

    @contextmanager
    def connected(self, address: str | None) -> Iterator[None]:
        from pyspark.sql import SparkSession

        if SparkSession.getActiveSession() is not None:
            yield
            return
        if address is None:
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the workers' Python, else that of the path
        session = SparkSession.builder.appName("smct").master(address or LOCAL).getOrCreate()
        try:
            yield
        finally:
            session.stop()

    def read(self, path: str) -> Any:
        from pyspark.sql import SparkSession

        return SparkSession.active().read.parquet(path)

    def write(self, table: Any, path: str) -> None:
        table.write.parquet(path)

    @staticmethod
    def _send(table: Any, model: bytes) -> Any:
        """Bytes that each executor fetches once."""
        context = getattr(table.sparkSession, "sparkContext", None)
        return _Plain(model) if context is None else context.broadcast(model)

    @staticmethod
    def _schema(table: Any, id_column: str, like: pd.DataFrame) -> Any:
        """The columns of the answer; times and names have the types that they have in the table."""
        from pyspark.sql import types

        known = {field.name: field.dataType for field in table.schema.fields}
        time = next(column for column in like.columns if column != id_column and column in known)
        fields = []
        for column, kind in like.dtypes.items():
            if column == id_column:
                found = known[column]
            elif column == time or pd.api.types.is_datetime64_any_dtype(kind):
                found = known[time]
            elif column == STATES:
                found = types.BinaryType()
            elif pd.api.types.is_bool_dtype(kind):
                found = types.BooleanType()
            elif pd.api.types.is_integer_dtype(kind):
                found = types.LongType()
            elif pd.api.types.is_float_dtype(kind):
                found = types.DoubleType()
            else:
                found = types.StringType()
            fields.append(types.StructField(str(column), found, True))
        return types.StructType(fields)


class _Plain:
    """Bytes that go with the function, where there is no broadcast (Spark Connect)."""

    def __init__(self, value: bytes) -> None:
        self.value = value


def _run(sent: Any, call: Call, like: pd.DataFrame, tables: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """What a worker does with the rows of a partition; `sent` is what Spark has broadcast."""
    one_thread()
    for answer in answers(Shipped(sent.value, call), tables):
        found = shaped(answer, like)
        # Text of pandas 3 may be an Arrow array in pieces, which PySpark 4.3 does not take.
        texts = [column for column, kind in found.dtypes.items() if isinstance(kind, pd.StringDtype)]
        yield found.astype(dict.fromkeys(texts, object))


ENGINE = SparkEngine()
