"""A forecast of many series as one object: sampled joint futures, and all that can be read off them as tables.

Means, quantiles, intervals and probabilities are those of the sampled paths, which are joint over steps and targets.
Two things are exact instead of sampled: the density of the first step, and the split of the variance.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from smc_transformer.empirical import Samples
from smc_transformer.forecaster import questions
from smc_transformer.forecaster.columns import check_alias, column_stem, quantile_end
from smc_transformer.forecaster.frequency import Frequency, times_after, with_absent_times
from smc_transformer.forecaster.names import name_array, rows_called, with_names
from smc_transformer.forecaster.periods import as_shown
from smc_transformer.forecaster.scaling import Scaler
from smc_transformer.forecaster.table import (
    Name,
    TableError,
    as_pandas,
    check_columns,
    with_times,
)
from smc_transformer.predictive import Mixture, VarianceParts
from smc_transformer.support.checks import check_count, is_real, shown
from smc_transformer.support.randomness import as_generator

Number: TypeAlias = int | float
Numbers: TypeAlias = Number | Sequence[Number]
"""One number or several."""


class Past(NamedTuple):
    """The last rows of a series before its forecast."""

    times: pd.Index
    values: Float[np.ndarray, "row target"]  # NaN is missing


@dataclass(frozen=True)
class Forecast:
    """The future of each series, as equally likely joint paths."""

    names: tuple[Name, ...]
    times: tuple[pd.Index, ...]  # of the horizon, for each series
    targets: tuple[str, ...]
    paths: Float[np.ndarray, "series path horizon target"]  # in the user's units
    id_column: str
    time_column: str
    scalers: tuple[Scaler, ...]  # of the targets of each series
    # The distribution of the first step, in scaled values; past inputs are among its coordinates. None: a scenario.
    first: Mixture | None
    # Of each step and target, in the squares of the user's units (see `variance_parts`). None: a scenario.
    parts: VarianceParts | None
    past: tuple[Past, ...] | None = None  # of each series
    freq: Frequency | None = None  # of the times, which tables show as periods if it says so
    worth: Float[np.ndarray, "series"] | None = None  # how many independent paths there are; None: all

    @cached_property
    def distribution(self) -> Samples:
        """The marginal distributions of steps and targets."""
        return Samples(torch.from_numpy(self.paths))

    @cached_property
    def shown_times(self) -> tuple[pd.Index, ...]:
        """The times as tables show them: periods, if those of the fit are."""
        return tuple(as_shown(times, self.freq) for times in self.times)

    @property
    def horizon(self) -> int:
        """Number of steps."""
        return self.paths.shape[2]

    @property
    def mean(self) -> pd.DataFrame:
        """The mean of every step."""
        return self.as_table(self._mean())

    def quantile(self, p: Numbers) -> pd.DataFrame:
        """Quantiles of every step, in columns such as y-q-10 for p = 0.1."""
        return self.as_table(self._quantiles(p))

    def interval(self, level: Numbers = 95) -> pd.DataFrame:
        """Central intervals of every step that hold `level` percent, in columns such as y-lo-95 and y-hi-95."""
        return self.as_table(self.interval_columns(level))

    def cdf(self, values: Any) -> pd.DataFrame:
        """P(Y <= y) of each value in a table with the forecast's series, times and targets; NaN stays NaN."""
        table = with_names(as_pandas(values), self.id_column, self.names)
        table = with_times(table, self.time_column, self.shown_times[0])
        check_columns(table, (self.id_column, self.time_column, *self.targets))
        own = self.mean[[self.id_column, self.time_column]]
        found = own.merge(table, on=[self.id_column, self.time_column], how="left")
        if len(found) != len(own):
            raise TableError(f"the table must hold one row for each series and time, got {len(table)} rows")
        x = torch.tensor(found[list(self.targets)].to_numpy(float)).reshape(len(self.names), self.horizon, -1)
        return self.as_table({"": self.distribution.cdf(x).where(~x.isnan(), float("nan"))})

    def log_prob(self, values: Any) -> pd.DataFrame:
        """The exact log density of what is observed at the first step: for judging the next observation.

        It is the mixture over particles, not an estimate from samples, and joint over the targets; a NaN target is
        integrated out. Later steps have no closed form: score them with `cdf` or the paths. `values` is a table with
        one row for each series, its targets at the first time of the forecast; the answer has the column log_density,
        in nats, in the user's units.
        """
        if self.first is None:
            raise ValueError(
                "a scenario has no density in closed form, as its first step depends on values given later"
            )
        table = with_names(as_pandas(values), self.id_column, self.names)
        check_columns(table, (self.id_column, *self.targets))
        table = table.set_index(self.id_column)
        if not table.index.is_unique or not set(self.names) <= set(table.index):
            raise TableError(f"the table must hold one row for each series {list(self.names)}, got {list(table.index)}")
        x = table.loc[list(self.names), list(self.targets)].to_numpy(float)
        scaled = np.full((len(x), 1, self.first.components.mean.shape[-1]), np.nan)
        slopes = np.zeros(len(x))
        for number, scaler in enumerate(one.row(0) for one in self.scalers):
            impossible = scaler.logarithmic & (x[number] < 0)
            own = np.where(impossible, np.nan, x[number])
            scaled[number, 0, : len(self.targets)] = scaler.transform(own)
            slopes[number] = -np.inf if impossible.any() else scaler.log_slope(own)[~np.isnan(own)].sum()
        density = self.first.log_prob(torch.from_numpy(scaled).to(self.first.parameters))[:, 0]
        return pd.DataFrame({self.id_column: list(self.names), "log_density": density.double().numpy() + slopes})

    def sample(self, n_paths: int | None = None, seed: int = 0) -> pd.DataFrame:
        """Joint paths as a long table with sample_id: all of them, or some drawn with replacement."""
        paths = self.paths
        if n_paths is not None:
            paths = self.distribution.sample(check_count(n_paths, "n_paths"), as_generator(seed)).numpy()
        n_series, n_paths, horizon, _ = paths.shape
        columns: dict[str, Any] = {
            self.id_column: np.repeat(name_array(self.names), n_paths * horizon),
            "sample_id": np.tile(np.repeat(np.arange(n_paths), horizon), n_series),
            self.time_column: _chain([times.append([times] * (n_paths - 1)) for times in self.shown_times]),
        }
        columns |= {name: paths[..., number].reshape(-1) for number, name in enumerate(self.targets)}
        return pd.DataFrame(columns).infer_objects()

    def variance_parts(self) -> pd.DataFrame:
        """The variance of every step by the law of total variance: columns y-between and y-within.

        "between" is what differs between paths before a step is drawn: latents, and earlier draws. "within" is the
        noise of the step itself. In the squares of the user's units; for a target with scaling "log1p", of log(1 + y).
        """
        parts = self.exact_parts
        return self.as_table({"-between": parts.between, "-within": parts.within})

    @property
    def exact_parts(self) -> VarianceParts:
        """The parts of the variance, as numbers; a scenario has none."""
        if self.parts is None:
            raise ValueError("the variance of a scenario has no such parts: its steps depend on values given later")
        return self.parts

    @property
    def effective_paths(self) -> dict[Name, float]:
        """How many independent paths those of each series are worth: all, unless it is a scenario."""
        worth = np.full(len(self.names), float(self.paths.shape[1])) if self.worth is None else self.worth
        return dict(zip(self.names, worth.tolist(), strict=True))

    def probability(self, event: questions.EventOfPaths) -> pd.DataFrame:
        """How probable an event is for each series: columns probability and standard_error.

        The event is text such as "y > 100 at any step", "y < 0 at every step", "y >= 3 at step 4", "sum(y) > 500" or
        "max(y) > 10 and y < 0 at step 1" (`forecaster/events.py` has the grammar); or a function, which is called once
        for each series with a table of all its paths, a row for each path and columns (target, step), steps from 1,
        and returns one True or False for each row:

            forecast.probability(lambda paths: (paths["y"][4] > paths["y"][1]) & (paths["z"].sum(axis=1) < 3))

        The standard error is that of the sampling of paths, sqrt(p (1 - p) / n); it does not know how wrong the model
        may be. An event that no path has met is improbable, not impossible: with n paths, at most 3 / n (95 %).
        """
        return questions.probability(self, event)

    def first_passage(self, level: Number, above: bool = True, *, target: str | None = None) -> pd.DataFrame:
        """When a target (None: the first) first reaches a level: a row for each series and step.

        Reached means y >= level, or y <= level if not `above`; a path that is there at the first step reaches it then.
        Columns: step, the probability that it is the first one, its standard_error, the cumulative probability up to
        the step, and that of never reaching the level in the horizon (the same in all rows of a series).
        """
        return questions.first_passage(self, level, above, target)

    def total(self, level: Numbers = (80, 95)) -> pd.DataFrame:
        """Sums over the horizon, a row for each series: means and central intervals, as in `table`.

        The ends of intervals do not add up over steps; those of the sums of joint paths are right.
        """
        return questions.total(self, check_levels(level))

    def total_over_series(self, level: Numbers = (80, 95), *, whole_horizon: bool = False) -> pd.DataFrame:
        """Sums over all series, a row for each step, or one row for all steps together.

        Given the fit, paths of different series are independent: what the model has learned is shared, but what
        happens to one series says nothing about another. Series that move together have wider sums than these; model
        them as targets of one series then.
        """
        return questions.total_over_series(self, check_levels(level), whole_horizon)

    def table(
        self,
        level: Sequence[Number] = (80, 95),
        quantiles: Sequence[Number] | None = None,
        *,
        alias: str | None = None,
    ) -> pd.DataFrame:
        """Means, intervals and quantiles side by side: what `Forecaster.predict` returns.

        Columns are called by their target, or by an alias (`forecaster/columns.py`).
        """
        check_alias(alias, (self.id_column, self.time_column, *self.targets))
        further = {} if quantiles is None else self._quantiles(quantiles, alias)
        return self.as_table({**self._mean(), **self.interval_columns(level), **further}, alias=alias)

    def plot(
        self,
        ax: Any = None,
        *,
        series: Name | None = None,
        target: str | None = None,
        history: Any = None,
        level: Numbers = (80, 95),
    ) -> Any:
        """A fan chart of one series and target (None: the first), its legend above it; returns matplotlib's axes.

        The line is the mean, as in the tables; bands hold `level` percent. What came before is drawn too: the values
        of the series in the table `history`, or its last rows, which the model keeps. The fan opens from the last
        value, if that is the one before the first step.
        """
        try:
            import matplotlib.pyplot as plt
        except ImportError:
            raise ImportError("pictures need matplotlib: pip install 'smc-transformer[plots]'") from None

        from smc_transformer.charts import style

        if ax is None:
            ax = plt.figure(figsize=(8, 3.5), layout="constrained").subplots()
        name = self.names[0] if series is None else series
        if name not in self.names:
            raise ValueError(f"the forecast has no series {name!r}; it has {list(self.names)}")
        number, place = self.names.index(name), self.place_of(target)
        column, times = self.targets[place], self.times[number]
        before = self._before(number, place, history)
        last = None  # the value that the fan opens from
        if before is not None:
            style.draw_observed(ax, *before)
            if len(before[1]) and np.isfinite(before[1][-1]) and self._is_next(before[0][-1], times[0]):
                last = before[0][-1:], before[1][-1:]
        for percent, shade in style.band_shades(check_levels(level)).items():
            ends = (end[number, :, place].numpy() for end in self.distribution.interval(percent / 100))
            at, lower, upper = _opened(last, times, *ends)
            style.draw_band(ax, at, lower, upper, shade, f"{percent:g} %")
        mean = self.distribution.mean[number, :, place].numpy()
        marker = "o" if len(times) == 1 and last is None else None
        ax.plot(*_opened(last, times, mean), color=style.BLUE, linewidth=1.8, marker=marker, label="mean")
        style.quiet_frame(ax, times)
        style.legend_above(ax, f"{name}: {column}")
        return ax

    def _before(self, number: int, place: int, history: Any) -> tuple[pd.Index, Float[np.ndarray, "row"]] | None:
        """Times and values before a forecast, NaN where there are none."""
        if history is None:
            if self.past is None:
                return None
            return self.past[number].times, self.past[number].values[:, place]
        table = with_names(as_pandas(history), self.id_column, (self.names[number],))
        table = with_times(table, self.time_column, self.times[0])
        check_columns(table, (self.id_column, self.time_column, self.targets[place]))
        table = rows_called(table, self.id_column, self.names[number])
        times, values = pd.Index(table[self.time_column]), table[self.targets[place]].to_numpy(float, na_value=np.nan)
        times = times.to_timestamp() if isinstance(times, pd.PeriodIndex) else times
        return (times, values) if self.freq is None else with_absent_times(times, values, self.freq)

    def _is_next(self, time: Any, first: Any) -> bool:
        return self.freq is not None and times_after(time, 1, self.freq)[0] == first

    def _mean(self) -> dict[str, Any]:
        each = [self.paths[..., number].mean(axis=1) for number in range(len(self.targets))]
        return {"": np.stack(each, axis=-1)}

    def _quantiles(self, levels: Numbers, alias: str | None = None) -> dict[str, Any]:
        for level in (asked := _several(levels)):
            if not is_real(level) or not 0 < level < 1:
                raise ValueError(f"a quantile needs a probability strictly between 0 and 1, got {shown(level)}")
        return {quantile_end(level, alias): self.distribution.quantile(level) for level in asked}

    def interval_columns(self, levels: Numbers) -> dict[str, Any]:
        """The ends of central intervals, for `as_table`."""
        found = {}
        for percent in check_levels(levels):
            found[f"-lo-{percent:g}"], found[f"-hi-{percent:g}"] = self.distribution.interval(percent / 100)
        return found

    def as_table(self, found: dict[str, Any], *, alias: str | None = None) -> pd.DataFrame:
        """A row for each series and time; `found` holds numbers (series, step, target) by the ends of their columns."""
        columns: dict[str, Any] = {}
        for number, name in enumerate(self.targets):
            stem = column_stem(name, self.targets, alias)
            for end, values in found.items():
                columns[stem + end] = np.asarray(values[..., number], dtype=float).reshape(-1)
        return pd.concat((self.rows(), pd.DataFrame(columns)), axis=1)  # pandas warns where many are added one by one

    def rows(self) -> pd.DataFrame:
        """The series and times alone, a row for each."""
        names = np.repeat(name_array(self.names), self.horizon)
        return pd.DataFrame({self.id_column: names, self.time_column: _chain(self.shown_times)}).infer_objects()

    def place_of(self, target: str | None) -> int:
        """The number of a target; None: the first."""
        column = self.targets[0] if target is None else target
        if column not in self.targets:
            raise ValueError(f"the forecast has no target {column!r}; it has {list(self.targets)}")
        return self.targets.index(column)


def _several(given: Any) -> list[Any]:
    """What is given, one or several."""
    return list(given) if isinstance(given, Iterable) and not isinstance(given, (str, bytes)) else [given]


def check_levels(level: Any) -> list[Number]:
    """Percentages from 1 to below 100: 0.8 is what other libraries call 80, and hardly ever 0.8 % is meant."""
    levels = _several(level)
    for percent in levels:
        is_number = isinstance(percent, (int, float, np.integer, np.floating)) and not isinstance(percent, bool)
        if not is_number or not 1 <= percent < 100:
            raise ValueError(f"level is a percentage, such as 80, from 1 to below 100, got {shown(percent)}")
    return levels


def _chain(indexes: Sequence[pd.Index]) -> pd.Index:
    return indexes[0].append(list(indexes[1:]))


def _opened(last: tuple[pd.Index, Any] | None, times: pd.Index, *lines: Float[np.ndarray, "_"]) -> tuple[Any, ...]:
    """Times and lines of a forecast, from the last value before it if there is one."""
    if last is None:
        return times, *lines
    return last[0].append(times), *(np.concatenate((last[1], line)) for line in lines)
