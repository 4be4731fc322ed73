"""How the columns of forecasts are called.

By their target, as in y, y-lo-80 and y-q-10; or by an alias, the name of the model, as tables of Nixtla's libraries
have it: SMC, SMC-lo-80. These libraries take every column that is not an end of an interval for another model. So under
an alias a quantile is the end of an interval: that of probability 0.1 is SMC-lo-80, and the median is SMC-lo-0.

The mean is the target or the alias itself, in every table. Beside it in a backtest, what was observed is y-observed, or
under an alias y, as these libraries have it.
"""

import re
from collections.abc import Sequence

from smc_transformer.support.checks import shown

OBSERVED = "-observed"
"""The end of the column of observed values, where the target itself is the mean."""
_OF_ROWS = ("sample_id", "cutoff")
"""Columns that paths and backtests have beside those of targets."""
_BESIDE_KEYS = (
    *("target", "value", "log_density", "pit", "distrusted"),  # of surprises
    *("step", "probability", "standard_error", "cumulative", "never"),  # of questions
)
"""Columns of answers that have none of targets, but those of names and times."""
_END = re.compile(r"-(lo|hi|q)-[\d.e+-]+|-(observed|crps|pit|between|within)")


def check_apart(id_column: str, time_column: str, targets: Sequence[str]) -> None:
    """That no answer would have two columns of one name, of which pandas keeps the last."""
    columns = (id_column, time_column, *targets)
    for place, column in enumerate(columns):
        of_target = any(column.startswith(target) and _END.fullmatch(column[len(target) :]) for target in targets)
        if of_target or column in _OF_ROWS or (place < 2 and column in _BESIDE_KEYS):
            raise ValueError(f"answers have a column {column!r} of their own: call that of the table otherwise")


def check_alias(alias: str | None, taken: Sequence[str]) -> None:
    """That a model can be called so, beside columns that are there."""
    if alias is None:
        return
    if not isinstance(alias, str) or not alias:
        raise TypeError(f"alias must be the name of a column, got {shown(alias)}")
    if alias in taken:
        raise ValueError(f"alias must not be the name of another column, got {alias!r}")


def column_stem(target: str, targets: Sequence[str], alias: str | None) -> str:
    """What the columns of a target begin with; under an alias, several targets are told apart by their names."""
    if alias is None:
        return target
    return alias if len(targets) == 1 else f"{target}-{alias}"


def quantile_end(probability: float, alias: str | None) -> str:
    """What the column of a quantile ends with."""
    if alias is None:
        return f"-q-{100 * probability:g}"
    return f"-{'lo' if probability <= 0.5 else 'hi'}-{round(abs(200 * probability - 100), 9):g}"
