"""Spark on this machine, with two workers and without a page of its own."""

import os
import sys

OPTIONS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
}


def local_spark(*, partitions: int, memory: str):
    """A session of two workers; a task whose worker dies has four attempts."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2,4]").appName("smct")
    sizes = {"spark.sql.shuffle.partitions": str(partitions), "spark.driver.memory": memory}
    for key, value in (OPTIONS | sizes).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session
