"""From a table of series to forecasts with intervals: the layer for people who have data and a question.

from smc_transformer import Forecaster

forecaster = Forecaster(horizon=24).fit(df)  # df: unique_id, ds, y
forecaster.predict(level=[80, 95])           # a table: unique_id, ds, y, y-lo-80, y-hi-80, ...
forecaster.update(new_rows)                  # a filter step for each new row, no new training
forecaster.save("model")                     # Forecaster.load("model") resumes in the same state

docs/forecaster.md tells what goes in, what comes out, and what is assumed.
"""

try:
    import pandas  # noqa: F401 (asked for here, where the answer can say what to install)
except ImportError:
    raise ImportError("the forecaster reads tables by pandas: pip install pandas") from None

from smc_transformer.forecaster.backtest import Backtest
from smc_transformer.forecaster.facade import Forecaster
from smc_transformer.forecaster.folder.files import SavedForecasterError
from smc_transformer.forecaster.forecast import Forecast
from smc_transformer.forecaster.table import TableError

__all__ = ["Backtest", "Forecast", "Forecaster", "SavedForecasterError", "TableError"]
