"""The forecaster: fit, predict, update, score, backtest, save and load."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import Generator

from smc_transformer.forecaster.automatic import choose, provisional
from smc_transformer.forecaster.backtest import Backtest, run_backtest
from smc_transformer.forecaster.choosing import chosen_names
from smc_transformer.forecaster.distrust import Distrust
from smc_transformer.forecaster.fitted import Fitted, Following
from smc_transformer.forecaster.fleet import Fleet
from smc_transformer.forecaster.folder.access import read_folder, save_folder
from smc_transformer.forecaster.folder.journal import JournalError, Seen
from smc_transformer.forecaster.forecast import Forecast, Number, Numbers, check_levels
from smc_transformer.forecaster.frequency import LONGEST, Frequency, times_after
from smc_transformer.forecaster.given import read_given
from smc_transformer.forecaster.panel import Panel
from smc_transformer.forecaster.rows import PastRowError, RowError, read_row
from smc_transformer.forecaster.settings import Settings
from smc_transformer.forecaster.surprise import surprise_table
from smc_transformer.forecaster.table import Name, Series, TableError, read_series
from smc_transformer.forecaster.training import (
    TrainingReport,
    local_cutoffs,
    local_examples,
    scaled_examples,
    train,
)
from smc_transformer.model import SMCTransformer
from smc_transformer.support.checks import check_count
from smc_transformer.support.randomness import as_generator, derived_generator

logger = logging.getLogger(__name__)

VALIDATION_WINDOWS = 30
"""How many validation windows the default of `val_size` aims at."""
FEWEST_TRAINING_ROWS = 4
"""Before the horizon that is held out, for a series to have any held out; through the local view."""


class Forecaster:
    """Forecasts distributions of series in a long table: one row for each series and time.

    Times of a series lie on a regular grid. Absent rows and NaN are missing values: never filled in, but inferred by
    the particles. All methods take tables of pandas, polars or pyarrow, and return pandas tables.

    Args:
        input_size: rows of history in a training window. Forecasts use the whole history they are given. None, here and
            below: chosen from the table, and told in `report.chosen`.
        horizon: steps ahead that the model is trained for, and the default of forecasts.
        targets: columns to forecast, jointly. None: y, or the only column with numbers.
        future_inputs: columns that are known ahead: their value at t informs the prediction of t.
        past_inputs: columns that are observed but not known ahead; forecast jointly with the targets, never plugged in.
        freq: a pandas frequency ("h", "D", "MS", "15min", ...), or a step for whole-number times.
        calendar: cyclic inputs made from the times: "hour", "weekday", "month", "day_of_year".
        scaling: "local" (the default): each value relative to what simple forecasts say about it, row by row
            (docs/view.md). "standard", "robust", "none" or "log1p": by statistics of each series' training rows, once
            for all; or a dictionary of these by column.
        seasons: lengths of the seasons of the local view, in rows.
        config: settings of `SMCTransformerConfig` to change.
        training: settings of `forecaster.settings.TrainingSettings` to change.
        n_particles: particles that follow each series.
        seed: of weights, training and particles.
        id_column: column of the series' names.
        time_column: column of the times.

    Example:
        >>> import pandas as pd
        >>> table = pd.DataFrame({"unique_id": "a", "ds": range(60), "y": [step % 5 for step in range(60)]})
        >>> short = {"likelihood_steps": 2, "forecast_steps": 2}  # a real training has hundreds of steps
        >>> forecaster = Forecaster(input_size=10, horizon=2, freq=1, training=short).fit(table, progress=False)
        >>> forecaster.predict(level=[80]).columns.tolist()
        ['unique_id', 'ds', 'y', 'y-lo-80', 'y-hi-80']
    """

    def __init__(
        self,
        input_size: int | None = None,
        horizon: int = 24,
        targets: Sequence[str] | str | None = None,
        future_inputs: Sequence[str] | str = (),
        past_inputs: Sequence[str] | str = (),
        freq: Frequency | None = None,
        *,
        calendar: Sequence[str] | str | None = None,
        scaling: str | Mapping[str, str] | None = None,
        seasons: Sequence[int] | int | None = None,
        config: Mapping[str, Any] | None = None,
        training: Mapping[str, Any] | None = None,
        n_particles: int = 64,
        seed: int = 0,
        id_column: str = "unique_id",
        time_column: str = "ds",
    ):
        self._asked = {name: value for name, value in locals().items() if name != "self"}
        self.settings = provisional(self._asked)  # what is open is chosen by `fit`
        self._fitted: Fitted | None = None
        self._seen: dict[Path, Seen] | None = None  # of the streams of folders that it knows; None after a fit
        self.report: TrainingReport | None = None

    @property
    def fitted(self) -> Fitted:
        """The trained model, the scaling, and the particles of every series after its last row."""
        if self._fitted is None:
            raise ValueError("the forecaster has not been fitted yet: call fit() with a table first")
        return self._fitted

    @property
    def model(self) -> SMCTransformer:
        """The trained model."""
        return self.fitted.model

    @property
    def series(self) -> list[Name]:
        """The series that are followed."""
        return list(self.fitted.following.series)

    def choose(self, df: Any) -> dict[str, str]:
        """Choose from a table what was left open, as `fit` does first: what was chosen, by setting, in words."""
        self.settings, words = choose(self._asked, df)
        return words

    def fit(
        self, df: Any, val_size: int | None = None, progress: bool = True, *, checkpoint: str | Path | None = None
    ) -> "Forecaster":
        """Train on a table of series, and follow each of them to its last row.

        The last `val_size` rows of each series are held out, to choose weights and the width of intervals by: 0, or at
        least the horizon. None: the horizon, or for few series up to a fifth of the rows; 0 for series that are too
        short for that. A progress bar is shown where there is a terminal. With a `checkpoint`, a folder, a training
        that was interrupted is resumed by the same call with the same settings and table.
        """
        settings, words = choose(self._asked, df)
        for name, chosen in words.items():
            logger.info("%s: %s", name, chosen)
        given = read_series(df, settings)
        held_out = [_held_out(series, settings, val_size, len(given)) for series in given]
        training = [series.rows(slice(0, len(series) - n)) for series, n in zip(given, held_out, strict=True)]
        panel = Panel.fit(settings, training)
        begun = [panel.beginning(series) for series in given]  # an error now, not after the training
        # Held out of what is left.
        held_out = [n if n < len(series) - 1 else 0 for series, n in zip(begun, held_out, strict=True)]
        if settings.is_local:
            cutoffs = local_cutoffs(settings, [len(series) for series in begun], held_out)
            viewed, states, horizons = panel.begin(begun, cutoffs)
            examples = local_examples(panel, viewed, horizons, held_out)
        else:
            viewed, states, _ = panel.begin(begun)
            examples = scaled_examples(panel, viewed, held_out)
        if (described := panel.describe(states)) is not None:
            words["view"] = described
            logger.info("view: %s", described)
        resumed = None if checkpoint is None else Path(checkpoint)
        model, report = train(panel, examples, progress=progress, checkpoint=resumed)
        until = {series.name: series.times[-1] for series in given}
        generator = derived_generator(settings.seed, 1)
        fitted = Fitted(settings, model, panel, Following(Fleet(), {}), until, generator, words)
        fitted.following, _ = fitted.follow_viewed(viewed, states, fitted.generator)
        self.settings = settings
        self._fitted, self._seen, self.report = fitted, None, replace(report, chosen=words)
        return self

    def predict(
        self,
        df: Any = None,
        h: int | None = None,
        level: Numbers = (80, 95),
        quantiles: Sequence[Number] | None = None,
        *,
        series: Name | Sequence[Name] | None = None,
        future: Any = None,
        n_paths: int = 1000,
        seed: int | None = None,
    ) -> pd.DataFrame:
        """Means and intervals of the next h steps: columns y, y-lo-80, y-hi-80, ...

        Args:
            df: histories to forecast from; None: the series as `fit` and `update` have followed them.
            h: steps ahead; None: the horizon.
            level: percentages of central intervals.
            quantiles: probabilities of further columns, such as y-q-10 for 0.1.
            series: a name or several: forecast these alone, at their cost only; None: all. The paths of a series have
                the same distribution whichever others are forecast with it, but not the same numbers: they share a
                generator.
            future: the future inputs of the steps ahead, in a table with series and times; needed if there are any.
            n_paths: sampled futures behind the numbers.
            seed: of the paths; None goes on from a copy of the filter's generator, so that the same call twice gives
                the same numbers, and leaves no trace.
        """
        levels = check_levels(level)
        forecast = self.forecast(df, h, series=series, future=future, n_paths=n_paths, seed=seed)
        return forecast.table(levels, quantiles)

    def simulate(self, df: Any = None, n_paths: int = 1000, h: int | None = None, **options: Any) -> pd.DataFrame:
        """Joint sample paths as a long table with sample_id; arguments and options as in `forecast`."""
        return self.forecast(df, h, n_paths=n_paths, **options).sample()

    def forecast(
        self,
        df: Any = None,
        h: int | None = None,
        *,
        series: Name | Sequence[Name] | None = None,
        future: Any = None,
        n_paths: int = 1000,
        seed: int | None = None,
    ) -> Forecast:
        """The forecast as one object, from which all else can be read; arguments as in `predict`."""
        n_paths = check_count(n_paths, "n_paths")
        following, times, generator = self._start(df, h, series, seed)
        return self.fitted.forecast(following, self.read_future(times, future), n_paths, generator)

    def scenario(
        self,
        given: Any,
        df: Any = None,
        h: int | None = None,
        *,
        series: Name | Sequence[Name] | None = None,
        future: Any = None,
        n_paths: int = 1000,
        seed: int | None = None,
    ) -> Forecast:
        """What if: a forecast in which some future values are fixed, and all others are drawn given these.

        Its joint paths hold the given values exactly, at every step before and after them the distribution is the
        conditional one: the filter goes through the horizon, weighted by what is given, and is traced back from its end
        (`inference/conditioned_paths.py`). `effective_paths` of the forecast says how many independent paths they are
        worth; there are fewer, and at some point a warning in the log, the less the model expects the values given.

        Given is not the same as caused: the scenario is the future as the model sees it where these values are
        observed, not where somebody makes them so. Values of a series say nothing about other series.

        Args:
            given: a table with series, times ahead, and one or more of the targets and past inputs; NaN and absent rows
                are not given. Future inputs stay in `future`.
            df: as in `predict`, like all that follows.
            h: steps ahead; None: the horizon.
            series: a name or several; None: all.
            future: the future inputs of the steps ahead.
            n_paths: joint paths.
            seed: of the paths.
        """
        n_paths = check_count(n_paths, "n_paths")
        following, times, generator = self._start(df, h, series, seed)
        last_times = {name: following.series[name].last_time for name in times}
        values = read_given(given, self.settings, times, last_times)
        return self.fitted.scenario(following, self.read_future(times, future), values, n_paths, generator)

    def _start(
        self, df: Any, h: int | None, series: Name | Sequence[Name] | None, seed: int | None
    ) -> tuple[Following, dict[Name, pd.Index], Generator | None]:
        """Where a forecast begins: the series as they are followed, the times ahead of those chosen, a generator."""
        fitted, h = self.fitted, self.settings.horizon if h is None else check_count(h, "h", at_most=LONGEST)
        generator: Generator | None = fitted.generator.clone_state() if seed is None else as_generator(seed)
        if df is None:
            following = fitted.following
            if not following.series:
                raise ValueError("the forecaster follows no series yet: give their histories as df, or to update()")
            chosen = chosen_names(series, following.series)
        else:
            given = {one.name: one for one in self.read(df)}
            chosen = chosen_names(series, given)
            following, _ = fitted.follow([given[name] for name in chosen], generator)
        times = {name: times_after(following.series[name].last_time, h, self.settings.freq) for name in chosen}
        return following, times, generator

    def update(self, df_new: Any, level: Numbers = (80, 95), *, distrust: Number | None = None) -> pd.DataFrame:
        """Follow the series over new rows: a filter step for each, no new training, at the cost of the new rows only.

        A series that is not known yet is followed from its first complete row on, scaled by the rows given now. An
        update happens as a whole or, after an error, not at all.

        Args:
            df_new: rows that come after those known.
            level: percentages for the flags of the answer.
            distrust: a percentage, such as 99.9: a target outside the central interval of this level, predicted before
                it was seen, is taken for missing, so that an outlier does not drag the state along. After as many of
                these in a row as the horizon has steps, which is as long as the model was trained to run blind, values
                are believed until one lies inside again: a series may really have moved. None: all are believed.

        Returns:
            How surprising the new values were, as `score` says it; with `distrust` also whether they were distrusted.
        """
        fitted, levels = self.fitted, check_levels(level)
        doubt = None
        if distrust is not None:
            (percent,) = check_levels(distrust)
            doubt = Distrust(percent, len(self.settings.targets), patience=self.settings.horizon)
        last_times = {name: followed.last_time for name, followed in fitted.following.series.items()}
        judged = fitted.update(self.read(df_new, after=last_times), doubt)
        return surprise_table(self.settings, judged, levels, doubt)

    def score(self, df: Any, level: Numbers = (80, 95)) -> pd.DataFrame:
        """How surprising each observed value is, before it is seen: for finding anomalies.

        Each series is followed from its first complete row on, which nothing predicts. The answer has a row for each
        observed value: its target and value, log_density (in nats, of this value alone), pit (near 0 or 1 is a
        surprise), and for each level, a percentage, whether the value lies outside the central interval.
        """
        levels = check_levels(level)
        _, judged = self.fitted.follow(self.read(df), self.fitted.generator.clone_state(), judging=True)
        return surprise_table(self.settings, judged, levels)

    def backtest(
        self,
        df: Any,
        n_windows: int = 1,
        step_size: int | None = None,
        refit: bool = False,
        *,
        h: int | None = None,
        level: Numbers = (80, 95),
        rolling: int | None = None,
        n_paths: int = 1000,
        progress: bool = True,
    ) -> Backtest:
        """Forecast the last windows of each series from the rows before them, and score what came.

        Nothing that comes after a cutoff is ever used: where this forecaster has been fitted on rows after the first
        cutoff (or not at all), a new one with the same settings is trained on the rows before it.

        Args:
            df: the table.
            n_windows: forecasts of each series.
            step_size: rows between two cutoffs; None: as many as there are steps ahead, so that windows do not overlap.
            refit: train again at each cutoff.
            h: steps ahead; None: the horizon.
            level: percentages of central intervals.
            rolling: train on that many rows before a cutoff only; None: on all of them.
            n_paths: sampled futures behind the numbers.
            progress: show progress bars of trainings where there is a terminal.
        """
        horizon = self.settings.horizon if h is None else check_count(h, "h", at_most=LONGEST)
        return run_backtest(
            self.settings,
            self._fitted,
            lambda table: Forecaster(**self._asked).fit(table, progress=progress).fitted,
            df,
            n_windows=check_count(n_windows, "n_windows"),
            step_size=horizon if step_size is None else check_count(step_size, "step_size"),
            refit=refit,
            horizon=horizon,
            levels=check_levels(level),
            rolling=None if rolling is None else check_count(rolling, "rolling"),
            n_paths=check_count(n_paths, "n_paths"),
        )

    def save(self, path: str | Path) -> None:
        """Write a folder: config.json, model.safetensors, states.safetensors.

        An interrupted write leaves what was there before. After `update`, only the states are written again, and the
        journal of a stream (`smct stream`), whose rows they hold, is emptied. A forecaster that was fitted anew
        replaces the one in the folder, with its journal.

        Raises:
            SavedForecasterError: another process is writing to the folder, such as a running stream; or the stream
                there has answered lines since this forecaster was loaded, which the save would undo.
        """
        known, folder = self._seen, Path(path).resolve()
        seen = save_folder(Path(path), self.fitted, None if known is None else known.get(folder, Seen()))
        self._seen = {**(known or {}), folder: seen}

    @classmethod
    def load(cls, path: str | Path) -> "Forecaster":
        """A saved forecaster, in the state after the last row that it has seen.

        The rows that a stream (`smct stream`) has answered since the states were saved are replayed from its journal,
        whether it has stopped, was killed, or is running. A running stream does not prevent loading, as forecasts
        beside it are what it is for: its files are replaced atomically and read in an order in which no row is missed.
        Only `save` is refused then.
        """
        fitted, journal = read_folder(Path(path))
        forecaster = cls(**fitted.settings.to_dict())
        forecaster.settings = fitted.settings
        forecaster._fitted, forecaster._seen = fitted, {Path(path).resolve(): journal.seen}
        for cells in journal.rows:
            try:
                forecaster.update(read_row(cells, fitted).table(fitted.settings), distrust=journal.distrust)
            except PastRowError:
                continue  # the states were saved with it
            except (RowError, TableError) as error:
                raise JournalError(f"{journal.path} is damaged: {error}") from None
        return forecaster

    def read(self, df: Any, **options: Any) -> list[Series]:
        """As `forecaster.table.read_series`, with times in the time zone of the fit: how every method reads a table."""
        return read_series(df, self.settings, zone_of=self.fitted.some_time, **options)

    def read_future(self, times: Mapping[Name, pd.Index], future: Any) -> dict[Name, Series]:
        """The future inputs of each series at the times of a forecast; `future` as in `predict`."""
        settings = self.settings
        if not settings.future_inputs:
            if future is not None:
                raise TableError("future was given, but the forecaster has no future inputs")
            return {name: Series.of_inputs(name, index, np.empty((len(index), 0))) for name, index in times.items()}
        if future is None:
            raise TableError(
                f"a forecast needs the future inputs {list(settings.future_inputs)} at the times ahead: "
                f"give them as future, a table with {settings.id_column!r} and {settings.time_column!r}"
            )
        given = {series.name: series for series in self.read(future, values=())}
        found = {}
        for name, index in times.items():
            if name not in given:
                raise TableError(f"future has no rows of series {name!r}")
            places = given[name].times.get_indexer(index)
            if (places < 0).any():
                first = index[int(np.flatnonzero(places < 0)[0])]
                raise TableError(f"future has no row of series {name!r} at {first}, which the forecast needs")
            found[name] = Series.of_inputs(name, index, given[name].known[places])
        return found


def _held_out(series: Series, settings: Settings, val_size: int | None, n_series: int) -> int:
    """How many last rows of a series are kept out of training."""
    if val_size is not None:
        val_size = check_count(val_size, "val_size", at_least=0)
        if 0 < val_size < settings.horizon:
            raise ValueError(f"val_size must be 0 or at least the horizon, {settings.horizon}, got {val_size}")
        if val_size and len(series) < settings.window_length + val_size:
            raise TableError(
                f"series {series.name!r} has {len(series)} rows: too few for val_size={val_size} after a training "
                f"window of {settings.window_length}"
            )
        return val_size
    needed = FEWEST_TRAINING_ROWS if settings.is_local else settings.input_size
    if len(series) < needed + 2 * settings.horizon:
        return 0
    # Few series have few windows at their end: hold out more rows, as far as a fifth of them goes.
    wanted = settings.horizon + -(-VALIDATION_WINDOWS // n_series) - 1
    return max(settings.horizon, min(wanted, len(series) // 5, len(series) - needed - settings.horizon))
