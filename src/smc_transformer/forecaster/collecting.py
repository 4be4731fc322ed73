"""Tables in which some series cannot be used: the others are, and each of these is named with its reason."""

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pandas as pd

from smc_transformer.forecaster.settings import Settings
from smc_transformer.forecaster.table import as_pandas, check_columns, filled
from smc_transformer.support.checks import check_choice

ERRORS = ("raise", "collect")
"""What to do about a series that cannot be used."""


class Collected(NamedTuple):
    """What `errors="collect"` gives: the answer for series that can be used, and the reasons of the others.

    On an engine both are lazy; `both` is the table that they are parts of, with the reasons in the column error, for
    whoever wants to compute it once.
    """

    table: Any
    errors: Any  # the name of each series that was left out, and its reason in the column error
    both: Any


def check_errors(errors: str) -> bool:
    """Whether reasons are collected."""
    check_choice(errors, ERRORS, "errors")
    return errors == "collect"


def collect(run: Callable[[pd.DataFrame], pd.DataFrame], df: Any, settings: Settings) -> Collected:
    """The answer of `run` for the series of a table that it can answer for, and what it says about the others.

    What is wrong with the whole table, such as a column that is not there, is still raised.
    """
    table = as_pandas(df)
    check_columns(table, (settings.id_column, settings.time_column))
    names = filled(table[settings.id_column], settings.id_column, "belongs to a series")
    answers, reasons = [], {}
    for answer, name, reason in _attempts(run, table, names):
        if reason is None:
            answers.append(answer)
        else:
            reasons[name] = reason
    errors = pd.DataFrame({settings.id_column: list(reasons), "error": list(reasons.values())})
    found = pd.concat(answers, ignore_index=True) if answers else pd.DataFrame(columns=[settings.id_column])
    # Without reasons the columns keep their types.
    both = pd.concat((found, errors), ignore_index=True) if reasons else found.assign(error=None)
    return Collected(found, errors, both)


def _attempts(
    run: Callable[[pd.DataFrame], pd.DataFrame], table: pd.DataFrame, names: pd.Series
) -> Iterator[tuple[pd.DataFrame | None, Any, str | None]]:
    """Answers for parts of the table; a part with a wrong series is halved until that is alone."""
    try:
        yield run(table), None, None
        return
    except (ValueError, RuntimeError) as error:  # of tables and settings; of torch, such as weights that collapse
        different = names.unique()
        if len(different) == 1:
            yield None, different[0], _of_series(" ".join(str(error).split()))
            return
    half = set(different[: len(different) // 2])
    first = names.isin(half)
    for part in (first, ~first):
        yield from _attempts(run, table[part], names[part])


def _of_series(reason: str) -> str:
    """The reason, which has seen the rows of one series only; on an engine nobody knows which of the table they are."""
    return f"{reason} (rows counted in this series)" if re.search(r"\brow \d", reason) else reason
