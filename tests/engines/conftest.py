"""Local clusters of two workers, each started once. `make test-engines` installs them; elsewhere they are skipped.

It runs pytest once for each engine, by its name in that of the test, and once for the rest: engines beside each
other share two cores, and to the test that kills a worker any process below its own that has loaded torch is one.
"""

import importlib.util
import os
import shutil
import signal
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers.engine_tables import ENGINES, in_order

from benchmarks.local_spark import local_spark

LIMIT = int(os.environ.get("SECONDS_A_TEST", "180"))
"""Seconds that a test may take, with the start of its engine: a cluster that hangs is a failure."""
FOLDER = Path(__file__).parent
PACKAGES = {"spark": "pyspark", "dask": "distributed", "ray": "ray"}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    if FOLDER not in item.path.parents:  # the hook is called for all tests
        return (yield)

    def too_long(number, frame):
        raise TimeoutError(f"the test was to take at most {LIMIT} s")

    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(LIMIT)
    try:
        return (yield)
    finally:
        signal.alarm(0)


class Cluster:
    """An engine that runs, and how a test puts tables in, in how many partitions, and gets them out."""

    def __init__(self, name, put, address=None):
        self.name, self.put, self.address = name, put, address

    def get(self, table):
        """A computed table, its rows in an order that does not depend on the engine."""
        found = {"spark": "toPandas", "dask": "compute", "ray": "to_pandas"}[self.name]
        return in_order(getattr(table, found)())


@contextmanager
def running_spark():
    session = local_spark(partitions=3, memory="1g")

    def put(table, n_partitions=3):
        session.conf.set("spark.sql.shuffle.partitions", n_partitions)
        return session.createDataFrame(table).repartition(n_partitions)

    yield Cluster("spark", put, "local[2,4]")
    session.stop()


@contextmanager
def running_dask():
    import dask.dataframe
    from distributed import Client, LocalCluster

    workers = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with LocalCluster(**workers) as cluster, Client(cluster):

        def put(table, n_partitions=4):
            return dask.dataframe.from_pandas(table, npartitions=n_partitions, sort=False)

        yield Cluster("dask", put, cluster.scheduler_address)


@contextmanager
def running_ray():
    import ray

    from smc_transformer.engines import ray_engine  # not above: the hook that checks shapes is not there yet

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    ray.data.DataContext.get_current().enable_progress_bars = False

    def put(table, n_partitions=4):
        ray_engine.BUCKETS_OF_A_CORE = -(-n_partitions // 2)  # tables are small, and a bucket costs a task
        return ray.data.from_pandas(table).repartition(n_partitions)

    yield Cluster("ray", put)
    ray.shutdown()


@contextmanager
def started(name):
    if importlib.util.find_spec(PACKAGES[name]) is None:
        pytest.skip(f"{name} is not installed")
    if name == "spark" and shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("spark is installed, but Java is not")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the engines
        with {"spark": running_spark, "dask": running_dask, "ray": running_ray}[name]() as found:
            yield found


@pytest.fixture(scope="session")
def spark():
    with started("spark") as found:
        yield found


@pytest.fixture(scope="session")
def dask():
    with started("dask") as found:
        yield found


@pytest.fixture(scope="session")
def ray():
    with started("ray") as found:
        yield found


@pytest.fixture(params=[*ENGINES, "dask threads", "dask single-threaded"])
def cluster(request):
    """Each engine, and Dask without a cluster."""
    name, _, scheduler = request.param.partition(" ")
    found = request.getfixturevalue(name)
    if not scheduler:
        yield found
        return
    import dask

    # As without a cluster, whose way to shuffle Dask would choose.
    with dask.config.set({"scheduler": scheduler, "dataframe.shuffle.method": "tasks"}):
        yield found
