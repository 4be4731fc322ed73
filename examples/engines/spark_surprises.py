"""Spark's transformWithStateInPandas: the filter step as a pure function, the state in Spark's hands.

    spark-submit examples/engines/spark_surprises.py model rows/ checkpoint/

Reads JSON rows from a folder as they arrive and prints how surprising each was. Spark keeps the state of each series in
its state store, and commits it with the place in the input; a batch that is computed again after a failure begins with
the same states, and so gives the same answers to the bit. Needs Spark 4 (RocksDB state store) with pandas,
pyarrow and protobuf.
"""

import json
import sys

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

ANSWERS = StructType([StructField("series", StringType()), StructField("answer", StringType())])
STATE = StructType([StructField("state", BinaryType())])
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Following(StatefulProcessor):
    """Rows of one series in, answers out. An object is pickled to the workers, so the model is loaded there."""

    def __init__(self, model, **answering):
        self.model, self.answering = model, answering

    def init(self, handle):
        from smc_transformer.forecaster.stepping import Stepper

        self.stepper = Stepper(self.model, **self.answering)
        self.state = handle.getValueState("state", STATE)

    def handleInputRows(self, key, rows, timer_values):  # noqa: N802 (Spark's name)
        state = bytes(self.state.get()[0]) if self.state.exists() else None  # of the folder then, or new
        given = [json.loads(line) for table in rows for line in table["line"]]
        given.sort(key=lambda row: row[self.stepper.time_column])  # files of one batch come in any order
        state, answers = self.stepper.step(state, given)
        if state is not None:  # a row was taken
            self.state.update((state,))
        yield pd.DataFrame({"series": key[0], "answer": [json.dumps(answer) for answer in answers]})

    def close(self):
        pass


def follow(lines, model, id_column, **answering):
    """A stream of (series, answer) from one of JSON lines in the column `value`."""
    from pyspark.sql.functions import col, get_json_object

    keyed = lines.select(get_json_object(col("value"), f"$.{id_column}").alias("series"), col("value").alias("line"))
    return keyed.groupBy("series").transformWithStateInPandas(
        statefulProcessor=Following(model, **answering), outputStructType=ANSWERS, outputMode="Append", timeMode="None"
    )


def session():
    """A session with the state store that transformWithState needs."""
    return (
        SparkSession.builder.appName("surprises")
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )


if __name__ == "__main__":
    model, folder, checkpoint = sys.argv[1:]
    answers = follow(session().readStream.text(folder), model, "unique_id", n_paths=100)
    answers.writeStream.format("console").option("checkpointLocation", checkpoint).start().awaitTermination()
