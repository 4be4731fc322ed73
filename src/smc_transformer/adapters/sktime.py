"""The forecaster as one of sktime.

from smc_transformer.adapters.sktime import SMCForecaster

forecaster = SMCForecaster().fit(y, X=X, fh=range(1, 13))
forecaster.predict(X=X_ahead)                     # also predict_interval, _quantiles, _var, _proba: of the same draws
forecaster.update(y_new, X=X_new)                 # a filter step for each new row: the weights stay as they are
SMCForecaster().pretrain(y_panel).fit(y)          # training on a panel; fit then follows y with the trained model
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float

try:
    from sktime.forecasting.base import BaseForecaster, ForecastingHorizon
except ImportError:
    raise ImportError("SMCForecaster needs sktime: pip install 'smc-transformer[sktime]'") from None

from smc_transformer.adapters.sktime_tables import (
    ID,
    TIME,
    answer_index,
    frequency_of,
    input_columns,
    keys_of,
    long_table,
    name_of,
    target_columns,
)
from smc_transformer.forecaster import Forecaster
from smc_transformer.forecaster.frequency import offset_of, times_between
from smc_transformer.forecaster.names import ONLY_SERIES, Name
from smc_transformer.forecaster.one_step import one_step_forecasts
from smc_transformer.forecaster.table import as_timestamps

HORIZON = 12
"""Steps that the model is trained for, where neither the constructor nor fh says how many."""


class SMCForecaster(BaseForecaster):
    """The Monte Carlo Transformer: joint forecasts of all columns of y, as distributions.

    All series of a panel or a hierarchy are learned by one model and followed by particles of their own. Predictions at
    times that were seen are one-step predictions, made before each row was seen; the first row of a series has none
    (NaN). Missing values of y are inferred, never filled in. X must be given in `predict` if it was in `fit`, at the
    times of fh; where X is not known, at other steps or as NaN, it counts as its mean in the fit.

    `update` takes a filter step for each row after those known, with `update_params` or without: the state follows the
    data, and the weights stay as they are. Rows of times that are known already are ignored.

    Args:
        horizon: steps ahead that the model is trained for; None: as many as fh asks for in fit, or 12. Forecasts may
            go further.
        input_size: rows of history in a training window; None, here and below: chosen from the data.
        seasons: lengths of seasons, in rows.
        calendar: cyclic inputs made from the times: "hour", "weekday", "month", "day_of_year".
        scaling: "local", "standard", "robust", "none" or "log1p".
        config: settings of `SMCTransformerConfig` to change.
        training: settings of `forecaster.settings.TrainingSettings` to change.
        n_particles: particles that follow each series.
        n_paths: draws behind all predictions.
        random_state: of weights, training, particles and draws.
        progress: whether to show a progress bar of the training where there is a terminal.

    Examples:
        >>> from sktime.datasets import load_airline
        >>> from smc_transformer.adapters.sktime import SMCForecaster
        >>> few_steps = {"likelihood_steps": 2, "forecast_steps": 2}  # leave this out for a forecast that is any good
        >>> forecaster = SMCForecaster(training=few_steps, random_state=0).fit(load_airline(), fh=[1, 2, 3])
        >>> forecaster.predict_interval(coverage=0.8).shape
        (3, 2)
    """

    _tags: ClassVar[dict[str, Any]] = {
        "authors": ["smc-transformer"],
        "maintainers": ["smc-transformer"],
        "python_dependencies": ["torch", "skpro"],
        "capability:multivariate": True,
        "capability:exogenous": True,
        "capability:insample": True,
        "capability:pred_int": True,
        "capability:pred_int:insample": True,
        "capability:missing_values": True,
        "capability:non_contiguous_X": True,
        "capability:categorical_in_X": False,
        "capability:unequal_length": True,
        "capability:update": True,
        "capability:pretrain": True,
        "capability:random_state": True,
        "property:randomness": "derandomized",
        "pretrain:fitted_params": ["pretrained_forecaster_"],
        "y_inner_mtype": ["pd.DataFrame", "pd-multiindex", "pd_multiindex_hier"],
        "X_inner_mtype": ["pd.DataFrame", "pd-multiindex", "pd_multiindex_hier"],
        "requires-fh-in-fit": False,
        "X-y-must-have-same-index": True,
    }

    # The history is kept here, for predictions of rows that were seen: sktime need not keep it as well.
    _config: ClassVar[dict[str, Any]] = {"remember_data": False}
    _y = None
    _X = None

    def __init__(
        self,
        horizon: int | None = None,
        input_size: int | None = None,
        seasons: Sequence[int] | int | None = None,
        calendar: Sequence[str] | str | None = None,
        scaling: str | None = None,
        config: Mapping[str, Any] | None = None,
        training: Mapping[str, Any] | None = None,
        n_particles: int = 64,
        n_paths: int = 1000,
        random_state: Any = None,
        progress: bool = False,
    ):
        self.horizon = horizon
        self.input_size = input_size
        self.seasons = seasons
        self.calendar = calendar
        self.scaling = scaling
        self.config = config
        self.training = training
        self.n_particles = n_particles
        self.n_paths = n_paths
        self.random_state = random_state
        self.progress = progress
        super().__init__()

    def _fit(self, y: pd.DataFrame, X: pd.DataFrame | None, fh: Any) -> "SMCForecaster":  # noqa: N803 (sktime's name)
        table = self._read(y, X)
        pretrained = getattr(self, "pretrained_forecaster_", None)
        self.forecaster_ = self._trained(y, X, fh, table) if pretrained is None else pretrained.follow(table)
        self._history, self._keys, self._index = table, keys_of(y.index), y.index[:0]
        return self

    def _pretrain(self, y: pd.DataFrame, X: pd.DataFrame | None = None, fh: Any = None) -> "SMCForecaster":  # noqa: N803
        self.pretrained_forecaster_ = self._trained(y, X, fh, self._read(y, X))
        return self

    def _update(
        self,
        y: pd.DataFrame,
        X: pd.DataFrame | None = None,  # noqa: N803
        update_params: bool = True,
    ) -> "SMCForecaster":
        last = {name: one.last_time for name, one in self.forecaster_.fitted.following.series.items()}
        table = self._read(y, X)
        times = self._as_followed(table[TIME])
        is_new = [name not in last or time > last[name] for name, time in zip(table[ID], times, strict=True)]
        table = table[is_new].reset_index(drop=True)
        if len(table):
            self.forecaster_.update(table)
            self._history = pd.concat((self._history, table), ignore_index=True)
            self._keys += [key for key in keys_of(y.index) if key not in self._keys]
        return self

    def _predict(self, fh: Any, X: pd.DataFrame | None) -> pd.DataFrame:  # noqa: N803
        index, draws = self._draws(fh, X)
        return pd.DataFrame(draws.mean(axis=0), index=index, columns=self._get_columns(method="predict"))

    def _predict_quantiles(self, fh: Any, X: pd.DataFrame | None, alpha: Sequence[float]) -> pd.DataFrame:  # noqa: N803
        index, draws = self._draws(fh, X)
        found = np.quantile(draws, alpha, axis=0, method="inverted_cdf")  # (alpha, row, column), as of the same draws
        values = found.transpose(1, 2, 0).reshape(len(index), -1)
        return pd.DataFrame(values, index=index, columns=self._get_columns(method="predict_quantiles", alpha=alpha))

    def _predict_var(self, fh: Any, X: pd.DataFrame | None = None, cov: bool = False) -> pd.DataFrame:  # noqa: N803
        if cov:
            return super()._predict_var(fh=fh, X=X, cov=cov)
        index, draws = self._draws(fh, X)
        return pd.DataFrame(draws.var(axis=0), index=index, columns=self._get_columns(method="predict_var"))

    def _predict_proba(self, fh: Any, X: pd.DataFrame | None, marginal: bool = True) -> Any:  # noqa: N803
        from skpro.distributions import Empirical

        index, draws = self._draws(fh, X)
        tiled = index.take(np.tile(np.arange(len(index)), len(draws)))
        levels = [tiled.get_level_values(level) for level in range(index.nlevels)]
        numbers = np.repeat(np.arange(len(draws)), len(index))
        samples = pd.MultiIndex.from_arrays([numbers, *levels], names=["sample", *index.names])
        values = pd.DataFrame(draws.reshape(-1, draws.shape[-1]), index=samples, columns=self._get_columns())
        return Empirical(values, time_indep=marginal, index=index, columns=values.columns)

    def _draws(
        self,
        fh: Any,
        X: pd.DataFrame | None,  # noqa: N803
    ) -> tuple[pd.Index, Float[np.ndarray, "draw row column"]]:
        """Draws of every series at the times of fh, from which all predictions are read."""
        shown = self._times_of(fh)
        times, forecaster = self._as_followed(pd.Series(shown)), self.forecaster_
        n_targets = len(forecaster.settings.targets)
        names: list[Name] = [ONLY_SERIES if key is None else name_of(key) for key in self._keys]
        found = np.full((self.n_paths, len(names), len(times), n_targets), np.nan)
        ahead = self._ahead(names, X, times)
        before = self._before(names, times)
        for number, name in enumerate(names):
            for drawn in (before, ahead):
                if name in drawn:
                    known, paths = drawn[name]
                    places = known.get_indexer(times)
                    found[:, number, places >= 0] = paths[:, places[places >= 0]]
        index = answer_index(self._keys, self._index, shown)
        return index, found.reshape(self.n_paths, len(index), n_targets)

    def _times_of(self, fh: Any) -> pd.Index:
        """The times of fh; steps are counted on the grid of the fit where the cutoff does not tell its own."""
        cutoff = self.cutoff
        if not fh.is_relative or not isinstance(cutoff, pd.DatetimeIndex) or cutoff.freq is not None:
            return fh.to_absolute_index(cutoff)
        step = offset_of(str(self.forecaster_.settings.freq))
        return pd.DatetimeIndex([cutoff[0] + int(number) * step for number in fh])

    def _ahead(
        self,
        names: Sequence[Name],
        X: pd.DataFrame | None,  # noqa: N803
        times: pd.Index,
    ) -> dict[Name, tuple[pd.Index, Float[np.ndarray, "draw step target"]]]:
        """Paths of the steps after the last row of each series, up to the last one asked for; series that have any.

        Series may end at different times: those that end together are forecast together.
        """
        forecaster, found = self.forecaster_, {}
        future = None if X is None else self._with_means(long_table(X, input_columns(X)), input_columns(X))
        last = {name: forecaster.fitted.following.series[name].last_time for name in names}
        for end in sorted(set(last.values())):
            later = times[times > end]
            if len(later) == 0:
                continue
            steps = times_between(end, later.max(), forecaster.settings.freq).get_indexer(later)
            if (steps < 1).any():
                wrong = later[int((steps < 1).argmax())]
                raise ValueError(f"fh asks for {wrong}, which is not a time of freq={forecaster.settings.freq!r}")
            together = [name for name in names if last[name] == end]
            known = None if future is None else self._ahead_of(future, end, together)
            drawn = forecaster.forecast(
                h=sorted({int(step) for step in steps}), series=together, future=known, n_paths=self.n_paths
            )
            for name, index, paths in zip(drawn.names, drawn.times, drawn.paths, strict=True):
                found[name] = (index, paths)
        return found

    def _before(
        self, names: Sequence[Name], times: pd.Index
    ) -> dict[Name, tuple[pd.Index, Float[np.ndarray, "draw row target"]]]:
        """Draws of the rows that were seen, each given the rows before it; nothing if no time asked for was."""
        following = self.forecaster_.fitted.following.series
        some = [name for name in names if (times <= following[name].last_time).any()]
        if not some:
            return {}
        table = self._history[self._history[ID].isin(some).to_numpy()].sort_values(TIME, kind="stable")
        given = self.forecaster_.read(table)
        drawn = one_step_forecasts(self.forecaster_.fitted, given, self.n_paths, None)
        return {one.names[0]: (one.times[0], one.paths[0]) for one in drawn}

    def _trained(
        self,
        y: pd.DataFrame,
        X: pd.DataFrame | None,  # noqa: N803
        fh: Any,
        table: pd.DataFrame,
    ) -> Forecaster:
        """A forecaster that was trained on all series, and follows them."""
        from sklearn.utils import check_random_state

        seed = self.random_state
        if not isinstance(seed, (int, np.integer)):
            seed = check_random_state(seed).randint(2**31)
        forecaster = Forecaster(
            input_size=self.input_size,
            horizon=self._horizon(fh) if self.horizon is None else self.horizon,
            targets=target_columns(y),
            future_inputs=input_columns(X),
            freq=frequency_of(y.index),
            calendar=self.calendar,
            scaling=self.scaling,
            seasons=self.seasons,
            config=self.config,
            training=self.training,
            n_particles=self.n_particles,
            seed=int(seed),
        )
        return forecaster.fit(table, progress=self.progress)

    def _horizon(self, fh: Any) -> int:
        if fh is None:
            return HORIZON
        if not isinstance(fh, ForecastingHorizon):
            fh = ForecastingHorizon(fh)
        if not fh.is_relative:
            if self.cutoff is None:
                return HORIZON
            fh = fh.to_relative(self.cutoff)
        steps = np.asarray(fh.to_pandas())
        return max(1, int(steps.max())) if np.issubdtype(steps.dtype, np.integer) else HORIZON

    def _read(self, y: pd.DataFrame, X: pd.DataFrame | None) -> pd.DataFrame:  # noqa: N803
        """A long table of y and X."""
        table, inputs = long_table(y, target_columns(y)), input_columns(X)
        if X is None:
            return table
        aligned = long_table(X.reindex(y.index), inputs)
        return self._with_means(pd.concat((table, aligned[inputs]), axis=1), inputs)

    def _with_means(self, table: pd.DataFrame, inputs: Sequence[str]) -> pd.DataFrame:
        """Inputs that are not known count as their means in the fit."""
        fitted = getattr(self, "forecaster_", getattr(self, "pretrained_forecaster_", None))
        for number, column in enumerate(inputs):
            if table[column].isna().any():
                mean = table[column].mean() if fitted is None else fitted.fitted.panel.known_scaler.shift[number]
                table = table.assign(**{column: table[column].fillna(0.0 if np.isnan(mean) else mean)})
        return table

    def _ahead_of(self, future: pd.DataFrame, end: Any, names: Sequence[Name]) -> pd.DataFrame:
        later = (self._as_followed(future[TIME]) > end) & future[ID].isin(list(names)).to_numpy()
        return future[later]

    def _as_followed(self, times: pd.Series) -> pd.Index:
        """Times as the forecaster counts them: periods by their first moments."""
        is_stamp = isinstance(self.forecaster_.settings.freq, str)
        return as_timestamps(times, TIME) if is_stamp else pd.Index(times.to_numpy("int64"))

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Small models that train for a moment: for the checks of sktime."""
        tiny = {
            "config": {"d_model": 4, "d_ff": 4, "window": 4, "n_particles": 3},
            "input_size": 4,
            "n_particles": 4,
            "n_paths": 20,
        }
        short = {"likelihood_steps": 1, "forecast_steps": 1, "batch_size": 4, "validations": 1, "max_windows": 40}
        shorter = {**short, "squared_error_steps": 0, "forecast_steps": 0}
        return [{**tiny, "training": short, "horizon": 3}, {**tiny, "training": shorter, "scaling": "standard"}]
