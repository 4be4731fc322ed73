"""Training of a forecaster's model by the recipe that the experiments found to work (learning/recipe.py)."""

import hashlib
import json
import logging
from dataclasses import dataclass, replace
from pathlib import Path

from jaxtyping import Float
from torch import Tensor

from smc_transformer.forecaster.panel import Panel
from smc_transformer.forecaster.settings import Settings
from smc_transformer.forecaster.table import Series
from smc_transformer.forecaster.windows import training_windows, validation_windows
from smc_transformer.learning import Recipe, Stage, evenly_spaced
from smc_transformer.model import SMCTransformer
from smc_transformer.nn.observation import ObservationModel

logger = logging.getLogger(__name__)

VALIDATION_WINDOWS = 100
"""Validation windows, evenly spaced, by which weights are chosen and noise is widened."""
FEWEST_TO_WIDEN = 100
"""Held-out observations below which their coverage says too little to change the width of the noise."""


@dataclass(frozen=True)
class TrainingReport:
    """What a training came to: validation losses of its stages, time after time, and the width of the noise."""

    n_windows: int  # for training
    n_validation: int  # without any, the last weights are kept and the noise is as it is
    squared_error: tuple[float, ...]
    likelihood: tuple[float, ...]  # in nats a step
    forecast: tuple[float, ...]  # the CRPS in scaled units
    widening: float  # the factor on the noise


def train(
    panel: Panel,
    given: list[Series],
    training: list[Series],
    held_out: list[int],
    *,
    progress: bool,
    checkpoint: Path | None = None,
) -> tuple[SMCTransformer, TrainingReport]:
    """A model trained on `training`, its weights and noise chosen by the last rows of `given`, which were held out."""
    settings, n_modelled, history = panel.settings, len(panel.settings.modelled), panel.settings.input_size - 1
    rows, training_rows = ([panel.rows(one, panel.scaler(one)) for one in part] for part in (given, training))
    at_most = settings.training_settings().max_windows
    windows = training_windows(training_rows, n_modelled, settings.window_length, at_most)
    validation = validation_windows(rows, held_out, n_modelled, settings.window_length, settings.horizon)
    if validation is not None:
        validation = validation[evenly_spaced(len(validation), VALIDATION_WINDOWS)]
    recipe, model = _recipe(settings), settings.make_model(settings.seed)
    # What one unit of each target is in scaled values, in which forecasts are scored.
    units = tuple(panel.units[: len(settings.targets)].tolist())
    losses = recipe.train(
        model,
        windows,
        validation,
        history=history,
        units=units,
        seed=settings.seed,
        progress=progress,
        checkpoint=None if checkpoint is None else checkpoint / _run_name(settings),
    )
    widening = 1.0
    if validation is not None and _can_be_widened(settings, model, validation):
        widening = recipe.widen(model, validation, histories=(history, None), n_scored=len(units))
    return model, TrainingReport(
        n_windows=len(windows),
        n_validation=0 if validation is None else len(validation),
        squared_error=tuple(losses.get("squared_error", ())),
        likelihood=tuple(losses["likelihood"]),
        forecast=tuple(losses.get("forecast", ())),
        widening=widening,
    )


def _run_name(settings: Settings) -> str:
    """A name for checkpoints that only a training with the same settings has; the data are compared by the trainer."""
    return hashlib.sha256(json.dumps(settings.to_dict(), sort_keys=True).encode()).hexdigest()[:16]


def _recipe(settings: Settings) -> Recipe:
    chosen = settings.training_settings()
    first_steps = 2 * chosen.likelihood_steps if chosen.squared_error_steps is None else chosen.squared_error_steps
    common = Stage(0, chosen.validations, chosen.batch_size, chosen.learning_rate)
    likelihood = Recipe(likelihood=replace(common, steps=chosen.likelihood_steps))
    # Whole numbers have a likelihood only: their draws are no differentiable function of the parameters, and the
    # numbers of classes are no distances.
    if settings.support() is not None:
        return likelihood
    last = replace(common, steps=chosen.forecast_steps, learning_rate=chosen.learning_rate / 2)
    return replace(likelihood, squared_error=replace(common, steps=first_steps), forecast=last)


def _can_be_widened(
    settings: Settings, model: SMCTransformer, validation: Float[Tensor, "window length n_inputs"]
) -> bool:
    """Whether noise has a width, and enough was observed to say what it should be."""
    if settings.support() is not None:
        return False
    if type(model.observation).widen_ is ObservationModel.widen_:
        logger.info("%s has no widen_: the width of intervals stays as trained", type(model.observation).__name__)
        return False
    n_observed = int((~validation[:, -settings.horizon :, : len(settings.targets)].isnan()).sum())
    if n_observed < FEWEST_TO_WIDEN:
        logger.info("%d held-out observations are too few to set the width of intervals by", n_observed)
    return n_observed >= FEWEST_TO_WIDEN
