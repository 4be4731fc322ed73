"""The forecaster: fit, predict, update, score, backtest, save and load."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from smc_transformer.forecaster.automatic import choose, provisional
from smc_transformer.forecaster.backtest import Backtest, run_backtest
from smc_transformer.forecaster.choosing import chosen_names
from smc_transformer.forecaster.collecting import check_errors, collect
from smc_transformer.forecaster.distrust import Distrust
from smc_transformer.forecaster.fitted import Fitted, Following
from smc_transformer.forecaster.fitting import fit_table
from smc_transformer.forecaster.folder.access import read_folder, save_folder
from smc_transformer.forecaster.folder.files import EXACT, SMALL
from smc_transformer.forecaster.folder.recorded import Seen
from smc_transformer.forecaster.folder.store.databases import StoreError
from smc_transformer.forecaster.forecast import Forecast, Number, Numbers, check_levels
from smc_transformer.forecaster.foreign import engine_of, run_on_engine
from smc_transformer.forecaster.frequency import LONGEST, Frequency
from smc_transformer.forecaster.future import read_future
from smc_transformer.forecaster.given import read_given
from smc_transformer.forecaster.names import with_names
from smc_transformer.forecaster.one_step import one_step_forecasts
from smc_transformer.forecaster.replayed import recorded_tables
from smc_transformer.forecaster.rows import RowError
from smc_transformer.forecaster.steps import asked_steps
from smc_transformer.forecaster.surprise import surprise_table
from smc_transformer.forecaster.table import Name, Series, TableError, as_pandas, read_series, times_ahead
from smc_transformer.forecaster.tick import tick
from smc_transformer.forecaster.training import TrainingReport
from smc_transformer.model import SMCTransformer
from smc_transformer.support.checks import check_choice, check_count
from smc_transformer.support.durable import resolved


class Forecaster:
    """Forecasts distributions of series in a long table: one row for each series and time.

    Times of a series lie on a regular grid. Absent rows and NaN are missing values: never filled in, but inferred by
    the particles. All methods take tables of pandas, polars or pyarrow, and return pandas tables. `predict`,
    `simulate`, `score`, `backtest` and `update` also take tables of Spark, Dask or Ray, and return such tables
    (docs/scale.md).

    Args:
        input_size: rows of history in a training window. Forecasts use the whole history they are given. None, here and
            below: chosen from the table, and told in `report.chosen`.
        horizon: steps ahead that the model is trained for, and the default of forecasts.
        targets: columns to forecast, jointly. None: y, or the only column with numbers.
        future_inputs: columns that are known ahead: their value at t informs the prediction of t.
        past_inputs: columns that are observed but not known ahead; forecast jointly with the targets, never plugged in.
        freq: a pandas frequency ("h", "D", "MS", "15min", ...), one of periods ("period[M]"), or a step for
            whole-number times.
        calendar: cyclic inputs made from the times: "hour", "weekday", "month", "day_of_year".
        scaling: "local" (the default): each value relative to what simple forecasts say about it, row by row
            (docs/view.md). "standard", "robust", "none" or "log1p": by statistics of each series' training rows, once
            for all; or a dictionary of these by column.
        seasons: lengths of the seasons of the local view, in rows.
        config: settings of `SMCTransformerConfig` to change.
        training: settings of `forecaster.settings.TrainingSettings` to change.
        n_particles: particles that follow each series.
        seed: of weights, training and particles. With compiled kernels it gives other numbers of the same distribution
            than without: these draw from a counter-based generator, which torch does not have.
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

    def __repr__(self) -> str:
        steps = f"horizon={self.settings.horizon}"
        if self._fitted is None:
            return f"<Forecaster({steps}), not fitted>"
        targets, n_series = ", ".join(self.settings.targets), len(self.fitted.following.series)
        return f"<Forecaster({steps}) of {targets}, freq={self.settings.freq!r}, that follows {n_series} series>"

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

        A table without the column unique_id is one series.

        The last `val_size` rows of each series are held out, to choose weights and the width of intervals by: 0, or at
        least the horizon. None: the horizon, or for few series up to a fifth of the rows; 0 for series that are too
        short for that. Progress is shown by a bar where there is a terminal, elsewhere by a line now and then. With a
        `checkpoint`, a folder, a training that was interrupted is resumed by the same call with the same settings and
        table.

        In a process group of torch.distributed each process calls it with a table of its own series, which nobody else
        has: one model is trained on all of them, and each process follows its own (docs/scale.md). A checkpoint can be
        resumed by another number of processes, as long as their tables, one after the other, are the same.
        """
        resumed = None if checkpoint is None else Path(checkpoint)
        self._fitted, self.report = fit_table(self._asked, df, val_size, progress=progress, checkpoint=resumed)
        self.settings, self._seen = self._fitted.settings, None
        return self

    def gather(self) -> bool:
        """After `fit` in a process group: the first process then follows the series of all, and can save them.

        Returns whether this is the first process; the others keep their own series. Alone there is nothing to do.
        """
        return self.fitted.gather()

    def predict(
        self,
        df: Any = None,
        h: int | Sequence[int] | None = None,
        level: Numbers = (80, 95),
        quantiles: Sequence[Number] | None = None,
        *,
        series: Name | Sequence[Name] | None = None,
        future: Any = None,
        n_paths: int = 1000,
        seed: int | None = None,
        errors: str = "raise",
        alias: str | None = None,
    ) -> Any:
        """Means and intervals of the next h steps: columns y, y-lo-80, y-hi-80, ...

        Args:
            df: histories to forecast from; None: the series as `fit` and `update` have followed them.
            h: steps ahead, or a list of those that are asked for; None: the horizon.
            level: percentages of central intervals.
            quantiles: probabilities of further columns, such as y-q-10 for 0.1.
            series: a name or several: forecast these alone, at their cost only; None: all. The numbers of a series are
                the same whichever others are forecast with it: it has a random stream of its own.
            future: the future inputs of the steps ahead, in a table with series and times; needed if there are any, at
                the steps that are asked for. At steps between that have none they count as their means in the fit.
            n_paths: sampled futures behind the numbers.
            errors: "raise", or "collect": a series that cannot be used does not stop the others, and the answer is a
                `Collected`, with the table and the reasons.
            seed: of the paths; None: that of the forecaster. The paths of a series are told by the seed, its name and
                how many rows it has seen, so that the same call twice gives the same numbers, and leaves no trace.
            alias: a name of the model, by which columns are called instead of the target, as in tables of Nixtla's
                libraries: SMC, SMC-lo-80, SMC-hi-80. A quantile is then the end of an interval, since these libraries
                take other columns for models.
        """
        check_errors(errors)
        levels = check_levels(level)
        options = {"h": h, "series": series, "future": future, "n_paths": n_paths, "seed": seed}

        def run(table: Any) -> pd.DataFrame:
            forecast = self.forecast(table, **options)
            found, asked = forecast.table(levels, quantiles, alias=alias), asked_steps(h, self.settings.horizon)
            if len(asked) == forecast.horizon:
                return found
            rows = [place * forecast.horizon + step - 1 for place in range(len(forecast.names)) for step in asked]
            return found.iloc[rows].reset_index(drop=True)

        if df is None:
            return run(None)
        arguments = {**options, "level": levels, "quantiles": quantiles, "alias": alias}
        return self._answer("predict", run, df, arguments, errors)

    def simulate(
        self, df: Any = None, n_paths: int = 1000, h: int | None = None, *, errors: str = "raise", **options: Any
    ) -> Any:
        """Joint sample paths as a long table with sample_id; arguments and options as in `predict` and `forecast`."""
        check_errors(errors)
        arguments = {"h": h, "n_paths": n_paths, **options}

        def run(table: Any) -> pd.DataFrame:
            return self.forecast(table, **arguments).sample()

        return run(None) if df is None else self._answer("simulate", run, df, arguments, errors)

    def _answer(
        self, verb: str, run: Callable[[Any], pd.DataFrame], df: Any, arguments: dict[str, Any], errors: str
    ) -> Any:
        """The answer for a table: on its engine, if it has one, and with the reasons of wrong series, if asked for."""
        if engine_of(df) is not None:
            return run_on_engine(self, verb, df, arguments, errors)
        return collect(run, df, self.settings) if check_errors(errors) else run(df)

    def forecast(
        self,
        df: Any = None,
        h: int | Sequence[int] | None = None,
        *,
        series: Name | Sequence[Name] | None = None,
        future: Any = None,
        n_paths: int = 1000,
        seed: int | None = None,
    ) -> Forecast:
        """The forecast as one object, from which all else can be read; arguments as in `predict`.

        It has all steps up to the last one asked for; a list of steps says where future inputs must be known.
        """
        n_paths, steps = check_count(n_paths, "n_paths"), asked_steps(h, self.settings.horizon)
        following, times = self._start(df, steps[-1], series, seed)
        return self.fitted.forecast(following, self.read_future(times, future, steps), n_paths, seed)

    def one_step(
        self,
        df: Any,
        level: Numbers = (80, 95),
        quantiles: Sequence[Number] | None = None,
        *,
        n_paths: int = 1000,
        seed: int | None = None,
        alias: str | None = None,
    ) -> pd.DataFrame:
        """What was to be expected of each row of a history, given the rows before it: columns as in `predict`.

        Each series is followed from its first complete row on, which nothing predicts; every later row has a line, also
        where its value is missing. `score` says how the values that came compare with this.

        Args:
            df: histories.
            level: percentages of central intervals.
            quantiles: probabilities of further columns.
            n_paths: draws behind the numbers of each row.
            seed: of particles and draws; None: as in `predict`.
            alias: as in `predict`.
        """
        levels, n_paths = check_levels(level), check_count(n_paths, "n_paths")
        tables = [
            forecast.table(levels, quantiles, alias=alias)
            for forecast in one_step_forecasts(self.fitted, self.read(df), n_paths, seed)
        ]
        if not tables:
            raise TableError("there is nothing to predict: no series has a row after one in which all are observed")
        return pd.concat(tables, ignore_index=True)

    def follow(self, df: Any) -> "Forecaster":
        """A forecaster with the same trained model that follows other series, those of a table, without training.

        This one stays as it is. The two share the weights.
        """
        fitted, settings = self.fitted, self.settings
        following, _ = fitted.follow(self.read(df), None)
        found = Forecaster(**settings.to_dict())
        found.settings, found.report = settings, self.report
        found._fitted = replace(fitted, following=following)
        return found

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
        h = self.settings.horizon if h is None else check_count(h, "h", at_most=LONGEST)
        following, times = self._start(df, h, series, seed)
        last_times = {name: following.last_time(name) for name in times}
        values = read_given(given, self.settings, times, last_times)
        return self.fitted.scenario(following, self.read_future(times, future), values, n_paths, seed)

    def _start(
        self, df: Any, h: int, series: Name | Sequence[Name] | None, seed: int | None
    ) -> tuple[Following, dict[Name, pd.Index]]:
        """Where a forecast begins: the series as they are followed, and the times ahead of those chosen."""
        fitted, table = self.fitted, None
        if df is None:
            following = fitted.following
            if not following.series:
                raise ValueError("the forecaster follows no series yet: give their histories as df, or to update()")
            chosen = chosen_names(series, following.series)
        else:
            table = with_names(as_pandas(df), self.settings.id_column, fitted.following.series)
            given = {one.name: one for one in self.read(table)}
            chosen = chosen_names(series, given)
            following, _ = fitted.follow([given[name] for name in chosen], seed)
        times = {name: times_ahead(name, following.last_time(name), h, self.settings, table) for name in chosen}
        return following, times

    def update(
        self, df_new: Any, level: Numbers = (80, 95), *, distrust: Number | None = None, errors: str = "raise"
    ) -> Any:
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
            errors: as in `predict`: with "collect" the series that can be used are updated, the others stay as they
                were.

        Returns:
            How surprising the new values were, as `score` says it; with `distrust` also whether they were distrusted.
        """
        levels = check_levels(level)

        def run(table: Any) -> pd.DataFrame:
            return self._update(table, levels, distrust)

        return self._answer("update", run, df_new, {"level": levels, "distrust": distrust}, errors)

    def _update(self, df_new: Any, levels: list[Number], distrust: Number | None) -> pd.DataFrame:
        fitted = self.fitted
        doubt = None
        if distrust is not None:
            (percent,) = check_levels(distrust)
            doubt = Distrust(percent, len(self.settings.targets), patience=self.settings.horizon)
        found = tick(fitted, df_new, levels, doubt)
        if found is not None:
            return found
        last_times = fitted.following.last_times()
        judged = fitted.update(self.read(df_new, after=last_times), doubt)
        return surprise_table(self.settings, judged, levels, doubt)

    def score(self, df: Any, level: Numbers = (95, 99), *, errors: str = "raise") -> Any:
        """How surprising each observed value is, before it is seen: for finding anomalies.

        Each series is followed from its first complete row on, which nothing predicts. The answer has a row for each
        observed value: its target and value, log_density (in nats, of this value alone), pit (near 0 or 1 is a
        surprise), and for each level, a percentage, whether the value lies outside the central interval. `errors` is
        as in `predict`.
        """
        levels = check_levels(level)

        def run(table: Any) -> pd.DataFrame:
            _, judged = self.fitted.follow(self.read(table), judging=True)
            return surprise_table(self.settings, judged, levels)

        return self._answer("score", run, df, {"level": levels}, errors)

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
        errors: str = "raise",
        alias: str | None = None,
    ) -> Any:
        """Forecast the last windows of each series from the rows before them, and score the forecasts.

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
            errors: as in `predict`, for the forecasts of a model that need not be trained for it.
            alias: as in `predict`; the table of forecasts is then one that Nixtla's libraries evaluate as it is.

        Returns:
            A `Backtest`. For a table of an engine, or with `errors="collect"`, its forecasts alone: the metrics are
            means over them.
        """
        options: dict[str, Any] = {"n_windows": n_windows, "step_size": step_size, "h": h}
        options |= {"level": level, "n_paths": n_paths, "alias": alias}
        if engine_of(df) is not None or check_errors(errors):
            if refit or rolling is not None:
                raise ValueError("refit and rolling train: on an engine, or with errors='collect', nothing is trained")
            return self._answer("backtest", lambda table: self.past_forecasts(table, **options), df, options, errors)

        def fit(table: pd.DataFrame) -> Fitted:
            return Forecaster(**self._asked).fit(table, progress=progress).fitted

        return self._backtest(df, fit, self._fitted, refit=refit, rolling=rolling, **options)

    def past_forecasts(self, df: Any, **options: Any) -> pd.DataFrame:
        """The forecasts of a `backtest` by the model as it is: nothing is trained, so it must know no later rows.

        Options as in `backtest`: n_windows, step_size, h, level, n_paths and alias.
        """

        def fit(table: pd.DataFrame) -> Fitted:
            raise ValueError(
                "the forecaster was trained on rows after the first cutoff, and nothing is trained here: fit it on the "
                "rows before the windows first"
            )

        return self._backtest(df, fit, self.fitted, **options).forecasts

    def _backtest(
        self,
        df: Any,
        fit: Callable[[pd.DataFrame], Fitted],
        fitted: Fitted | None,
        *,
        n_windows: int = 1,
        step_size: int | None = None,
        h: int | None = None,
        level: Numbers = (80, 95),
        n_paths: int = 1000,
        alias: str | None = None,
        refit: bool = False,
        rolling: int | None = None,
    ) -> Backtest:
        """A backtest, its arguments checked; `fit` trains where that is needed."""
        horizon = self.settings.horizon if h is None else check_count(h, "h", at_most=LONGEST)
        return run_backtest(
            self.settings if fitted is not None else choose(self._asked, df)[0],
            fitted,
            fit,
            df,
            n_windows=check_count(n_windows, "n_windows"),
            step_size=horizon if step_size is None else check_count(step_size, "step_size"),
            refit=refit,
            horizon=horizon,
            levels=check_levels(level),
            rolling=None if rolling is None else check_count(rolling, "rolling"),
            n_paths=check_count(n_paths, "n_paths"),
            alias=alias,
        )

    def save(self, path: str | Path, *, states: str = "exact") -> None:
        """Write a folder: config.json, model.safetensors, states.safetensors.

        With states="small" each series takes about 64 kB: fewer particles than it is followed by, their keys and values
        in 16 bits. Forecasts of what is loaded then differ a little (docs/live.md); by default they are the same.

        An interrupted write leaves what was there before. After `update`, only the states are written again, and the
        store of a stream (`smct stream`) is told that they hold its rows. A forecaster that was fitted anew replaces
        the one in the folder, with its stream.

        Raises:
            SavedForecasterError: another process is writing to the folder, such as a running stream; or the stream
                there has answered lines since this forecaster was loaded, which the save would undo.
        """
        check_choice(states, (EXACT, SMALL), "states")
        known, folder = self._seen, resolved(path)
        seen = save_folder(Path(path), self.fitted, None if known is None else known.get(folder, Seen()), states)
        self._seen = {**(known or {}), folder: seen}

    @classmethod
    def load(cls, path: str | Path) -> "Forecaster":
        """A saved forecaster, in the state after the last row that it has seen.

        The rows that a stream (`smct stream`) has answered since the states were saved are replayed from its store,
        whether it has stopped, was killed, or is running. A running stream does not prevent loading, as forecasts
        beside it are what it is for: its files are replaced atomically and read in an order in which no row is missed.
        Only `save` is refused then.
        """
        fitted, recorded = read_folder(Path(path))
        forecaster = cls.of(fitted)
        forecaster._seen = {resolved(path): recorded.seen}
        try:
            for table, distrust in recorded_tables(recorded, fitted):
                forecaster.update(table, distrust=distrust)
        except (RowError, TableError) as error:
            raise StoreError(f"{recorded.place} is damaged: {error}") from None
        return forecaster

    @classmethod
    def of(cls, fitted: Fitted) -> "Forecaster":
        """A forecaster of what a fit has left behind."""
        forecaster = cls(**fitted.settings.to_dict())
        forecaster.settings, forecaster._fitted, forecaster._seen = fitted.settings, fitted, {}
        return forecaster

    def read(self, df: Any, **options: Any) -> list[Series]:
        """As `forecaster.table.read_series`, with times in the time zone of the fit: how every method reads a table.

        A table without a column of names holds the only series that is followed.
        """
        table = with_names(as_pandas(df), self.settings.id_column, self.fitted.following.series)
        return read_series(table, self.settings, zone_of=self.fitted.some_time, **options)

    def read_future(
        self, times: Mapping[Name, pd.Index], future: Any, steps: Sequence[int] | None = None
    ) -> dict[Name, Series]:
        """The future inputs of each series at the times of a forecast; `future` as in `predict`.

        They must be known at some steps (None: at all); where they are not, they are the means of the fit.
        """
        return read_future(self.read, self.fitted, times, future, steps)
