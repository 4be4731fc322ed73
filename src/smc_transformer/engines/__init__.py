"""The forecaster on Spark, Dask and Ray: the same calls on tables that are larger than a machine.

    forecaster.predict(spark_table, level=[80])     # a Spark table, not computed yet
    forecaster.score(dask_table)                    # a Dask table, not computed yet

The engine hands out rows so that each series is whole, and one pure function from pandas to pandas (`bucket.py`) does
the work, with the model sent once to each worker. The numbers of a series depend on the model, its rows and the seed,
not on which others are computed beside it: they are those of pandas. docs/scale.md has what goes where, and how fast.
"""

from smc_transformer.engines.reasons import EngineError, told_in_a_line
from smc_transformer.engines.running import load, parted, run

__all__ = ["EngineError", "load", "parted", "run", "told_in_a_line"]
