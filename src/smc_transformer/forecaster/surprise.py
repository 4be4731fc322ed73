"""How surprising observed values were, as a table."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from pandas.api.extensions import ExtensionArray

from smc_transformer.forecaster.distrust import Distrust
from smc_transformer.forecaster.fitted import Judged
from smc_transformer.forecaster.forecast import Number
from smc_transformer.forecaster.periods import as_shown
from smc_transformer.forecaster.settings import Settings

try:
    from pandas.api.internals import create_dataframe_from_blocks as from_blocks
except ImportError:  # before pandas 3
    from_blocks = None


def surprise_table(
    settings: Settings, judged: Sequence[Judged], levels: Sequence[Number], distrust: Distrust | None = None
) -> pd.DataFrame:
    """A row for each observed target value, by series and time.

    Values outside the central intervals of these levels are flagged, and those that were distrusted, if any can be.
    """
    return surprise_rows(settings, zip(*surprises(settings, judged, distrust), strict=True), levels, distrust)


def surprises(settings: Settings, judged: Sequence[Judged], distrust: Distrust | None) -> list[tuple[Any, ...]]:
    """The rows of that table: series, time, target, value, log_density, pit, and whether it was distrusted."""
    n_targets, found = len(settings.targets), []
    for series, scaler, judgement in judged:
        times = as_shown(series.times, settings.freq)
        values = series.values[:, :n_targets]
        density = judgement.log_density[:, :n_targets].double().numpy() + scaler.first(n_targets).log_slope(values)
        pit = judgement.pit[:, :n_targets].double().numpy()
        denied = np.zeros(values.shape, bool) if distrust is None else distrust.denies(judgement.runs).numpy()
        for row, target in np.argwhere(~np.isnan(values)):
            numbers = (array[row, target] for array in (values, density, pit, denied))
            found.append((series.name, times[row], settings.targets[target], *numbers))
    return found


def surprise_rows(
    settings: Settings, columns: Iterable[Any], levels: Sequence[Number], distrust: Distrust | None
) -> pd.DataFrame:
    """The table from its columns."""
    names = (settings.id_column, settings.time_column, "target", "value", "log_density", "pit", "distrusted")
    found: dict[str, Any] = dict(zip(names, columns, strict=False))
    if not found or len(found["value"]) == 0:  # nothing was observed
        found = {name: np.array([], dtype=object) for name in names[:3]} | {name: [] for name in names[3:]}
    numbers = {name: np.asarray(found.pop(name), dtype=float) for name in names[3:6]}
    distrusted = np.asarray(found.pop("distrusted"), dtype=bool)
    flags = {f"outside-{level:g}": outside(numbers["pit"], level) for level in levels}
    if distrust is not None:
        flags["distrusted"] = distrusted
    return table_of({name: as_column(values) for name, values in found.items()}, numbers, flags)


def outside(pit: Float[np.ndarray, "row"], percent: Number) -> Bool[np.ndarray, "row"]:
    """As `is_outside`."""
    return np.abs(2 * pit - 1) > percent / 100


def table_of(
    first: Mapping[str, Any],
    numbers: Mapping[str, Float[np.ndarray, "row"]],
    flags: Mapping[str, Bool[np.ndarray, "row"]],
) -> pd.DataFrame:
    """A table of columns of any kind, then of numbers, then of flags.

    From whole blocks, where pandas has a way to do so and the first columns are its arrays: made column by column, the
    answer to one row takes longer than its filter step.
    """
    names, n_rows = (*first, *numbers, *flags), len(next(iter(numbers.values())))
    index = pd.RangeIndex(n_rows)
    ready = flags and all(isinstance(column, ExtensionArray) for column in first.values())
    if from_blocks is None or not ready or len(set(names)) < len(first) + len(numbers) + len(flags):
        return pd.DataFrame({**first, **numbers, **flags}, index=index, copy=False)
    blocks: list[tuple[Any, np.ndarray]] = []
    for place, column in enumerate(first.values()):  # a block of times has two axes, one of text has one
        block = column.reshape(1, -1) if isinstance(column, pd.arrays.DatetimeArray) else column
        blocks.append((block, np.arange(place, place + 1)))
    for part in (numbers, flags):
        place = sum(len(own) for _, own in blocks)
        blocks.append((np.array(list(part.values())), np.arange(place, place + len(part))))
    # A view: an index can be given a name, which must not be that of the next table's too.
    return from_blocks(blocks, index=index, columns=_columns(names).view())


@lru_cache(16)
def _columns(names: tuple[str, ...]) -> pd.Index:
    return pd.Index(names)


def as_column(values: Any) -> Any:
    """An array of pandas, if that is what a table would make of a column of text or times; else as it is."""
    if isinstance(values, pd.DatetimeIndex):
        values = values.array
    if isinstance(values, pd.arrays.DatetimeArray):
        return values.copy()  # of its own: tables can be changed
    kind = _text_dtype()
    if isinstance(values, ExtensionArray):
        if kind is not None and values.dtype == kind:
            return values.copy()
        values = values.tolist()
    if isinstance(values, np.ndarray):
        return values.copy()
    if isinstance(values, list) and kind is not None and all(type(value) is str for value in values):
        return _text(tuple(values)) if len(values) == 1 else _as_text(values)
    return values


@lru_cache(64)
def _kept_text(value: str) -> Any:
    return _as_text([value])


def _text(values: tuple[str, ...]) -> Any:
    """One text, such as the name of a target: mostly the same."""
    found = _kept_text(*values)
    return found.copy() if isinstance(found, ExtensionArray) else list(found)


def _as_text(values: list[str]) -> Any:
    with contextlib.suppress(UnicodeError):  # half a character, which pyarrow refuses
        return pd.array(values, dtype=_text_dtype())
    return values


@lru_cache(1)
def _text_dtype() -> Any:
    """The type that pandas gives to a list of text; None: object, as before pandas 3."""
    kind = pd.Series(["text"]).dtype
    return kind if isinstance(kind, pd.StringDtype) else None
