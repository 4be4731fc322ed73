"""Questions about whole paths: events, first passages, sums. `Forecast` asks them of itself.

Each answer is a count or a sum over the sampled joint paths, so it takes the dependence of steps and targets into
account. Its sampling error is that of the paths, given the fitted model and the particles that the paths start from.
"""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int

from smc_transformer.empirical import Samples
from smc_transformer.forecaster.events import parse_event
from smc_transformer.support.checks import is_real, shown

if TYPE_CHECKING:
    from smc_transformer.forecaster.forecast import Forecast

EventOfPaths: TypeAlias = str | Callable[[pd.DataFrame], Any]
"""Words (`events.py`), or a function from the paths of a series to one True or False for each (`path_table`)."""


def probability(forecast: "Forecast", event: EventOfPaths) -> pd.DataFrame:
    """The share of paths of each series on which an event happens; see `Forecast.probability`."""
    share = happens(forecast, event).mean(axis=1)
    columns = {"probability": share, "standard_error": standard_error(forecast, share)}
    return pd.DataFrame({forecast.id_column: list(forecast.names), **columns})


def happens(forecast: "Forecast", event: EventOfPaths) -> Bool[np.ndarray, "series path"]:
    """Whether an event happens, on each path of each series."""
    if isinstance(event, str):
        values = {name: forecast.paths[..., place] for place, name in enumerate(forecast.targets)}
        return parse_event(event, forecast.targets, forecast.horizon).holds(values)
    if not callable(event):
        raise TypeError(f"an event is text or a function of a table of paths, got {type(event).__name__}")
    return np.stack([_checked(event(path_table(forecast, number)), forecast) for number in range(len(forecast.names))])


def path_table(forecast: "Forecast", number: int) -> pd.DataFrame:
    """All paths of a series: a row for each, and the columns (target, step), with steps from 1."""
    columns = pd.MultiIndex.from_product((forecast.targets, range(1, forecast.horizon + 1)), names=("target", "step"))
    paths = forecast.paths[number]
    rows = pd.RangeIndex(len(paths), name="sample_id")
    return pd.DataFrame(paths.transpose(0, 2, 1).reshape(len(paths), -1), rows, columns)


def standard_error(forecast: "Forecast", share: Float[np.ndarray, "series *rest"]) -> Float[np.ndarray, "series *rest"]:
    """sqrt(p (1 - p) / n) of shares of the paths, of which a scenario has fewer independent ones."""
    n_paths = np.array(list(forecast.effective_paths.values())).reshape(-1, *[1] * (share.ndim - 1))
    return np.sqrt(share * (1 - share) / n_paths)


def first_passage(forecast: "Forecast", level: int | float, above: bool, target: str | None) -> pd.DataFrame:
    """The distribution of the first step at which a target reaches a level; see `Forecast.first_passage`."""
    level = _checked_level(level)
    values = forecast.paths[..., forecast.place_of(target)]
    reached = values >= level if above else values <= level
    first = _first_steps(reached)
    steps = np.arange(forecast.horizon)
    share = (first[..., None] == steps).mean(axis=1)  # (series, step)
    never = (first == forecast.horizon).mean(axis=1)
    table = forecast.rows()
    table["step"] = np.tile(steps + 1, len(forecast.names))
    table["probability"] = share.reshape(-1)
    table["standard_error"] = standard_error(forecast, share).reshape(-1)
    table["cumulative"] = share.cumsum(axis=1).reshape(-1)
    table["never"] = np.repeat(never, forecast.horizon)
    return table


def total(forecast: "Forecast", level: Sequence[int | float]) -> pd.DataFrame:
    """Sums over the horizon of each series and target; see `Forecast.total`."""
    columns = _sum_columns(forecast, forecast.paths.sum(axis=2, keepdims=True), level)
    return pd.DataFrame({forecast.id_column: list(forecast.names), **columns})


def total_over_series(forecast: "Forecast", level: Sequence[int | float], whole_horizon: bool) -> pd.DataFrame:
    """Sums over all series; see `Forecast.total_over_series`."""
    times = forecast.times[0]
    for name, others in zip(forecast.names, forecast.times, strict=True):
        if not others.equals(times):
            raise ValueError(
                f"sums over series need forecasts of the same times, but those of series {forecast.names[0]!r} begin "
                f"at {times[0]} and those of series {name!r} at {others[0]}"
            )
    sums = forecast.paths.sum(axis=0, keepdims=True)
    if whole_horizon:
        return pd.DataFrame(_sum_columns(forecast, sums.sum(axis=2, keepdims=True), level))
    return pd.DataFrame({forecast.time_column: forecast.shown_times[0], **_sum_columns(forecast, sums, level)})


def _sum_columns(
    forecast: "Forecast", sums: Float[np.ndarray, "group path step target"], levels: Sequence[int | float]
) -> dict[str, Float[np.ndarray, "row"]]:
    """Means and central intervals of sums."""
    distribution, found = Samples(torch.from_numpy(sums)), {}
    for place, name in enumerate(forecast.targets):
        found[name] = sums[..., place].mean(axis=1).reshape(-1)
        for percent in levels:
            ends = distribution.interval(percent / 100)
            for side, end in zip(("lo", "hi"), ends, strict=True):
                found[f"{name}-{side}-{percent:g}"] = end[..., place].numpy().reshape(-1)
    return found


def _first_steps(reached: Bool[np.ndarray, "series path step"]) -> Int[np.ndarray, "series path"]:
    """The first step that is true, counted from 0; as many as there are steps where none is."""
    return np.where(reached.any(axis=-1), reached.argmax(axis=-1), reached.shape[-1])


def _checked_level(level: Any) -> float:
    if not is_real(level) or not abs(level) <= sys.float_info.max:  # as a comparison: 10**400 is no float
        raise ValueError(f"level must be a finite number, got {shown(level)}")
    return float(level)


def _checked(answer: Any, forecast: "Forecast") -> Bool[np.ndarray, "path"]:
    found, n_paths = np.asarray(answer), forecast.paths.shape[1]
    if found.shape != (n_paths,):
        raise ValueError(
            f"an event must answer for each of the {n_paths} paths of a series, with one True or False, "
            f"but its answer has the shape {found.shape}"
        )
    if found.dtype != bool:
        raise TypeError(f"an event must answer with True or False for each path, got values of type {found.dtype}")
    return found
