"""A forecast of many series as one object: sampled joint futures, and all that can be read off them as tables.

Means, quantiles, intervals and probabilities are those of the sampled paths, which are joint over steps and targets.
Two things are exact instead of sampled: the density of the first step, and the split of the variance.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from smc_transformer.empirical import Samples
from smc_transformer.forecaster.scaling import Scaler
from smc_transformer.forecaster.table import Name, TableError, as_pandas, check_columns, with_times
from smc_transformer.model import SMCTransformer
from smc_transformer.predictive import Mixture, VarianceParts
from smc_transformer.report.charts.particles import BLUE, INK
from smc_transformer.report.charts.style import band_shades, draw_band, legend_above, quiet_frame
from smc_transformer.smc.weights import uniform_log_weights
from smc_transformer.support.checks import check_count
from smc_transformer.support.randomness import as_generator

Number: TypeAlias = int | float
Numbers: TypeAlias = Number | Sequence[Number]
"""One number or several."""


@dataclass(frozen=True)
class Forecast:
    """The future of each series, as equally likely joint paths.

    Attributes:
        names: the series.
        times: the times of the horizon, for each series.
        targets: the columns.
        paths: values in the user's units.
        id_column: name of the column of series in tables.
        time_column: name of the column of times in tables.
        scalers: the scaling of the targets of each series.
        first: the distribution of the first step, in scaled values; past inputs are among its coordinates.
        parts: the variance of each step and target, split, in the squares of the user's units. For a target with
            scaling "log1p" it is the variance of log(1 + y).
    """

    names: tuple[Name, ...]
    times: tuple[pd.Index, ...]
    targets: tuple[str, ...]
    paths: Float[np.ndarray, "series path horizon target"]
    id_column: str
    time_column: str
    scalers: tuple[Scaler, ...]
    first: Mixture
    parts: VarianceParts

    @cached_property
    def distribution(self) -> Samples:
        """The marginal distributions of steps and targets."""
        return Samples(torch.from_numpy(self.paths))

    @property
    def horizon(self) -> int:
        """Number of steps."""
        return self.paths.shape[2]

    @property
    def mean(self) -> pd.DataFrame:
        """The mean of every step."""
        return self._table(self._mean_columns)

    def quantile(self, p: Numbers) -> pd.DataFrame:
        """Quantiles of every step, in columns such as y-q-10 for p = 0.1."""
        levels = [p] if isinstance(p, (int, float)) else list(p)
        return self._table(lambda number, name: self._quantile_columns(number, name, levels))

    def interval(self, level: Numbers = 95) -> pd.DataFrame:
        """Central intervals of every step that hold `level` percent, in columns such as y-lo-95 and y-hi-95."""
        return self._table(lambda number, name: self._interval_columns(number, name, check_levels(level)))

    def cdf(self, values: Any) -> pd.DataFrame:
        """P(Y <= y) of each value in a table with the forecast's series, times and targets; NaN stays NaN."""
        x = self._values_at_times(values)
        probabilities = self.distribution.cdf(torch.from_numpy(x)).where(~torch.from_numpy(np.isnan(x)), float("nan"))
        return self._table(lambda number, name: {name: probabilities[..., number].numpy()})

    def log_prob(self, values: Any) -> pd.DataFrame:
        """The exact log density of what is observed at the first step: for judging the next observation.

        It is the mixture over particles, not an estimate from samples, and joint over the targets; a NaN target is
        integrated out. Later steps have no closed form: score them with `cdf` or the paths.

        Args:
            values: a table with the series (one row for each) and their targets at the first time of the forecast.

        Returns:
            A table with the series and the column log_density, in nats, in the user's units.
        """
        table = as_pandas(values)
        check_columns(table, (self.id_column, *self.targets))
        table = table.set_index(self.id_column)
        absent = [name for name in self.names if name not in table.index]
        if absent or not table.index.is_unique:
            raise TableError(f"the table must hold one row for each series {list(self.names)}, got {list(table.index)}")
        x = table.loc[list(self.names), list(self.targets)].to_numpy(float)
        n_modelled = self.first.components.mean.shape[-1]
        scaled = np.full((len(x), 1, n_modelled), np.nan)
        slopes = np.zeros(len(x))
        for number, scaler in enumerate(self.scalers):
            impossible = scaler.logarithmic & (x[number] < 0)
            own = np.where(impossible, np.nan, x[number])
            scaled[number, 0, : len(self.targets)] = scaler.transform(own)
            slopes[number] = np.where(np.isnan(own), 0.0, scaler.log_slope(own)).sum()
            if impossible.any():
                slopes[number] = -np.inf
        density = self.first.log_prob(torch.from_numpy(scaled).to(self.first.parameters))[:, 0]
        return pd.DataFrame({self.id_column: list(self.names), "log_density": density.double().numpy() + slopes})

    def sample(self, n_paths: int | None = None, seed: int = 0) -> pd.DataFrame:
        """Joint paths as a long table with sample_id: all of them, or some drawn with replacement."""
        paths = self.paths
        if n_paths is not None:
            n_paths = check_count(n_paths, "n_paths")
            paths = Samples(torch.from_numpy(paths)).sample(n_paths, as_generator(seed)).numpy()
        n_series, n_paths, horizon, _ = paths.shape
        columns: dict[str, Any] = {
            self.id_column: np.repeat(np.array(self.names, dtype=object), n_paths * horizon),
            "sample_id": np.tile(np.repeat(np.arange(n_paths), horizon), n_series),
            self.time_column: _chain([times.repeat(1).append([times] * (n_paths - 1)) for times in self.times]),
        }
        for number, name in enumerate(self.targets):
            columns[name] = paths[..., number].reshape(-1)
        return _with_plain_names(pd.DataFrame(columns), self.id_column)

    def variance_parts(self) -> pd.DataFrame:
        """The variance of every step by the distribution of total variance: columns y-between and y-within.

        "between" is what differs between paths before a step is drawn: latents, and earlier draws. "within" is the
        noise of the step itself. In the squares of the user's units; for a target with scaling "log1p", of log(1 + y).
        """
        return self._table(
            lambda number, name: {
                f"{name}-between": self.parts.between[..., number].numpy(),
                f"{name}-within": self.parts.within[..., number].numpy(),
            }
        )

    def table(self, level: Sequence[Number] = (80, 95), quantiles: Sequence[Number] | None = None) -> pd.DataFrame:
        """Means, intervals and quantiles side by side: what `Forecaster.predict` returns."""
        levels = check_levels(level)
        return self._table(
            lambda number, name: {
                **self._mean_columns(number, name),
                **self._interval_columns(number, name, levels),
                **self._quantile_columns(number, name, () if quantiles is None else quantiles),
            }
        )

    def plot(
        self,
        ax: Any = None,
        *,
        series: Name | None = None,
        target: str | None = None,
        history: Any = None,
        level: Sequence[Number] = (95, 80, 50),
    ) -> Any:
        """A fan chart of one series, its legend above it; returns matplotlib's axes.

        Args:
            ax: axes to draw on; None makes some.
            series: which series; None: the first.
            target: which target; None: the first.
            history: a table whose values of the series are drawn before the forecast.
            level: percentages of the bands.
        """
        import matplotlib.pyplot as plt

        if ax is None:
            ax = plt.figure(figsize=(8, 3.5), layout="constrained").subplots()
        name = self.names[0] if series is None else series
        if name not in self.names:
            raise ValueError(f"the forecast has no series {name!r}; it has {list(self.names)}")
        column = self.targets[0] if target is None else target
        if column not in self.targets:
            raise ValueError(f"the forecast has no target {column!r}; it has {list(self.targets)}")
        number, place = self.names.index(name), self.targets.index(column)
        times = self.times[number]
        if history is not None:
            past = with_times(as_pandas(history), self.time_column, self.times[0])
            past = past[past[self.id_column] == name]
            ax.plot(past[self.time_column], past[column], color=INK, linewidth=1.1, label="observed")
        shades = band_shades(check_levels(level))
        for percent, shade in shades.items():
            lower, upper = (end[number, :, place] for end in self.distribution.interval(percent / 100))
            draw_band(ax, times, lower, upper, shade, f"{percent:g} %")
        median = self.distribution.quantile(0.5)[number, :, place]
        ax.plot(times, median, color=BLUE, linewidth=1.8, marker="o" if len(times) == 1 else None, label="median")
        quiet_frame(ax, times)
        legend_above(ax, f"{name}: {column}")
        return ax

    def _mean_columns(self, number: int, name: str) -> dict[str, np.ndarray]:
        return {name: self.paths[..., number].mean(axis=1)}

    def _quantile_columns(self, number: int, name: str, levels: Sequence[Number]) -> dict[str, np.ndarray]:
        for level in levels:
            if not 0 < level < 1:
                raise ValueError(f"a quantile needs a probability strictly between 0 and 1, got {level}")
        return {f"{name}-q-{100 * level:g}": self.distribution.quantile(level)[..., number].numpy() for level in levels}

    def _interval_columns(self, number: int, name: str, levels: Sequence[Number]) -> dict[str, np.ndarray]:
        found = {}
        for percent in levels:
            lower, upper = self.distribution.interval(percent / 100)
            found[f"{name}-lo-{percent:g}"] = lower[..., number].numpy()
            found[f"{name}-hi-{percent:g}"] = upper[..., number].numpy()
        return found

    def _table(self, columns: Callable[[int, str], dict[str, np.ndarray]]) -> pd.DataFrame:
        """A row for each series and time."""
        found: dict[str, Any] = {
            self.id_column: np.repeat(np.array(self.names, dtype=object), self.horizon),
            self.time_column: _chain(self.times),
        }
        for number, name in enumerate(self.targets):
            for column, values in columns(number, name).items():
                found[column] = np.asarray(values, dtype=float).reshape(-1)
        return _with_plain_names(pd.DataFrame(found), self.id_column)

    def _values_at_times(self, values: Any) -> Float[np.ndarray, "series horizon target"]:
        table = with_times(as_pandas(values), self.time_column, self.times[0])
        check_columns(table, (self.id_column, self.time_column, *self.targets))
        own = self.mean[[self.id_column, self.time_column]]
        found = own.merge(table, on=[self.id_column, self.time_column], how="left")
        if len(found) != len(own):
            raise TableError(f"the table must hold one row for each series and time, got {len(table)} rows")
        return found[list(self.targets)].to_numpy(float, copy=True).reshape(len(self.names), self.horizon, -1)


def check_levels(level: Numbers) -> list[Number]:
    """Percentages between 0 and 100."""
    levels = [level] if isinstance(level, (int, float)) else list(level)
    for percent in levels:
        if not 0 < percent < 100:
            raise ValueError(f"level is a percentage strictly between 0 and 100, got {percent}")
    return levels


def _chain(indexes: Sequence[pd.Index]) -> pd.Index:
    return indexes[0].append(list(indexes[1:]))


def _with_plain_names(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """The table with a column of text or of whole numbers where it was one of objects."""
    table[column] = table[column].infer_objects()
    return table


def mixture_of_paths(model: SMCTransformer, first: Float[Tensor, "series path n_parameters"]) -> Mixture:
    """The one-step distribution of equally likely paths."""
    n_series, n_paths, _ = first.shape
    log_weights = uniform_log_weights(first.new_empty(n_series, n_paths)).unsqueeze(-1)
    return model.observation.mixture(log_weights, first.unsqueeze(2))
