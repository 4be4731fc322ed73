"""Local clusters of two workers. An engine that is not installed is skipped: `make test-engines` installs all."""

import importlib
import os
import sys
import warnings
from contextlib import contextmanager

import pytest
from helpers.engine_tables import in_order

PACKAGES = {"spark": "pyspark", "dask": "distributed", "ray": "ray"}


class Cluster:
    """An engine that runs, and how a test puts tables in and gets them out."""

    def __init__(self, name, put):
        self.name, self.put = name, put

    def get(self, table):
        """A computed table, its rows in an order that does not depend on the engine."""
        found = {"spark": "toPandas", "dask": "compute", "ray": "to_pandas"}[self.name]
        return in_order(getattr(table, found)())


@contextmanager
def running_spark():
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2,4]").appName("tests")  # four attempts of each task
    options = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "4", "spark.driver.memory": "1g"}
    options |= {"spark.sql.adaptive.enabled": "false", "spark.driver.bindAddress": "127.0.0.1"}
    options |= {"spark.driver.host": "127.0.0.1", "spark.python.worker.reuse": "true"}
    for key, value in options.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield Cluster("spark", lambda table: session.createDataFrame(table).repartition(3))
    session.stop()


@contextmanager
def running_dask():
    import dask.dataframe
    from distributed import Client, LocalCluster

    workers = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with LocalCluster(**workers) as cluster, Client(cluster):
        yield Cluster("dask", lambda table: dask.dataframe.from_pandas(table, npartitions=4, sort=False))


@contextmanager
def running_ray():
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield Cluster("ray", lambda table: ray.data.from_pandas(table).repartition(4))
    ray.shutdown()


@pytest.fixture(scope="session", params=PACKAGES)
def cluster(request):
    name = request.param
    if importlib.util.find_spec(PACKAGES[name]) is None:
        pytest.skip(f"{name} is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the engines
        with {"spark": running_spark, "dask": running_dask, "ray": running_ray}[name]() as found:
            yield found
