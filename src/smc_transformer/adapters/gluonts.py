"""The forecaster as an estimator and a predictor of GluonTS.

from smc_transformer.adapters.gluonts import SMCEstimator

predictor = SMCEstimator(prediction_length=12).train(dataset)
list(predictor.predict(dataset))                  # SampleForecast: joint paths
evaluate_model(predictor, test_data=test_data, metrics=[...])
predictor.serialize(folder)                       # Predictor.deserialize(folder)
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, cast

from smc_transformer.adapters.gluonts_tables import Window, chains, input_columns, joined, target_columns
from smc_transformer.forecaster import Forecaster

try:
    from gluonts.core.component import validated
    from gluonts.model.estimator import Estimator
    from gluonts.model.forecast import SampleForecast
    from gluonts.model.predictor import Predictor
except ImportError:
    raise ImportError("SMCEstimator needs GluonTS: pip install 'smc-transformer[gluonts]'") from None

_ARGUMENTS, _FORECASTER = "smc_predictor.json", "forecaster"
"""Of a serialised predictor: its own arguments, and the folder of the forecaster."""


class SMCPredictor(Predictor):
    """Forecasts of a trained model: joint paths after the last row of each entry, by its particles.

    Entries are followed in batches. Consecutive entries that are windows of one series, each with the rows of the one
    before it, are followed once: from window to window at the cost of the new rows.
    """

    def __init__(
        self,
        forecaster: Forecaster,
        prediction_length: int,
        lead_time: int = 0,
        num_samples: int = 100,
        batch_size: int = 256,
    ):
        super().__init__(prediction_length=prediction_length, lead_time=lead_time)
        self.forecaster, self.num_samples, self.batch_size = forecaster, num_samples, batch_size

    def predict(self, dataset: Any, num_samples: int | None = None, **_: Any) -> Iterator[Any]:
        """A `SampleForecast` for each entry, in their order."""
        entries = iter(dataset)
        while batch := [Window.of(entry) for entry in islice(entries, self.batch_size)]:
            yield from self._forecasts(batch, self.num_samples if num_samples is None else num_samples)

    def _forecasts(self, batch: Sequence[Window], num_samples: int) -> list[Any]:
        series = dict(enumerate(chains(batch)))
        found: dict[int, Any] = {}
        following: Forecaster | None = None
        # The first window of every series, then the second of those that have one, and so on.
        for number in range(max(map(len, series.values()))):
            going = {name: windows for name, windows in series.items() if number < len(windows)}
            if following is None:
                first = [windows[0][1].rows(name, 0) for name, windows in going.items()]
                following = self.forecaster.follow(joined(first))
            else:
                new = [windows[number][1].rows(name, len(windows[number - 1][1])) for name, windows in going.items()]
                if len(rows := joined(new)):
                    following.update(rows)
            found.update(self._forecast_windows(following, {name: going[name][number] for name in going}, num_samples))
        return [found[place] for place in range(len(batch))]

    def _forecast_windows(
        self, following: Forecaster, windows: Mapping[int, tuple[int, Window]], num_samples: int
    ) -> Iterator[tuple[int, Any]]:
        """The forecast of each window that its series has come to, by the window's place."""
        future = None
        if following.settings.future_inputs:
            future = joined([window.ahead(name) for name, (_, window) in windows.items()])
        n_steps = self.lead_time + self.prediction_length
        drawn = following.forecast(h=n_steps, series=list(windows), future=future, n_paths=num_samples)
        for name, paths in zip(drawn.names, drawn.paths[:, :, self.lead_time :], strict=True):
            place, window = windows[cast(int, name)]
            samples = paths[..., 0] if window.target.shape[1] == 1 else paths
            yield place, SampleForecast(samples, window.start + len(window) + self.lead_time, window.item_id)

    def serialize(self, path: Path) -> None:
        """Write a folder, as every predictor of GluonTS does; no pickle."""
        super().serialize(path)
        self.forecaster.save(Path(path) / _FORECASTER)
        names = ("prediction_length", "lead_time", "num_samples", "batch_size")
        (Path(path) / _ARGUMENTS).write_text(json.dumps({name: getattr(self, name) for name in names}))

    @classmethod
    def deserialize(cls, path: Path, **_: Any) -> "SMCPredictor":
        """The inverse of `serialize`; also by `gluonts.model.predictor.Predictor.deserialize`."""
        arguments = json.loads((Path(path) / _ARGUMENTS).read_text())
        return cls(Forecaster.load(Path(path) / _FORECASTER), **arguments)


class SMCEstimator(Estimator):
    """Trains one model on all series of a data set.

    Targets may hold NaN, which are missing values. `feat_dynamic_real` is used if the training data have it, and must
    then be known over the steps ahead of a forecast. Columns of a target of shape (column, time) are forecast jointly.

    Args:
        prediction_length: steps ahead.
        lead_time: steps between the last row and the first one that is forecast.
        input_size: rows of history in a training window; None, here and below: chosen from the data.
        seasons: lengths of seasons, in rows.
        calendar: cyclic inputs made from the times: "hour", "weekday", "month", "day_of_year".
        scaling: "local", "standard", "robust", "none" or "log1p".
        config: settings of `SMCTransformerConfig` to change.
        training: settings of `forecaster.settings.TrainingSettings` to change.
        n_particles: particles that follow each series.
        num_samples: paths of a forecast.
        batch_size: entries that are forecast together.
        seed: of weights, training and particles.
        progress: whether to show a progress bar where there is a terminal.
    """

    @validated()  # type: ignore[untyped-decorator]
    def __init__(
        self,
        prediction_length: int,
        lead_time: int = 0,
        input_size: int | None = None,
        seasons: list[int] | None = None,
        calendar: list[str] | None = None,
        scaling: str | None = None,
        config: dict[str, Any] | None = None,
        training: dict[str, Any] | None = None,
        n_particles: int = 64,
        num_samples: int = 100,
        batch_size: int = 256,
        seed: int = 0,
        progress: bool = True,
    ):
        super().__init__(lead_time=lead_time)
        self.prediction_length, self.num_samples, self.batch_size = prediction_length, num_samples, batch_size
        self.progress = progress
        self.settings: dict[str, Any] = {
            "input_size": input_size,
            "horizon": lead_time + prediction_length,
            "seasons": seasons,
            "calendar": calendar,
            "scaling": scaling,
            "config": config,
            "training": training,
            "n_particles": n_particles,
            "seed": seed,
        }

    def train(self, training_data: Iterable[Any], validation_data: Any = None, **_: Any) -> SMCPredictor:
        """Train, and return the predictor.

        The ends of the training series are held out to choose weights and widths by: `validation_data` is not used.
        """
        windows = [Window.of(entry) for entry in training_data]
        if not windows:
            raise ValueError("the data set has no entries")
        forecaster = Forecaster(
            targets=target_columns(windows[0]), future_inputs=input_columns(windows[0]), **self.settings
        )
        table = joined([window.rows(name, 0) for name, window in enumerate(windows)])
        forecaster.fit(table, progress=self.progress)
        return SMCPredictor(forecaster, self.prediction_length, self.lead_time, self.num_samples, self.batch_size)
