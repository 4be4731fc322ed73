"""Training of a forecaster's model by the recipe that the experiments found to work (learning/recipe.py)."""

import hashlib
import json
import logging
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from smc_transformer.forecaster.panel import Horizons, Panel, Viewed
from smc_transformer.forecaster.settings import Settings
from smc_transformer.forecaster.table import TableError
from smc_transformer.forecaster.windows import (
    cutoff_windows,
    followed_windows,
    join_windows,
    training_cutoffs,
    training_windows,
    validation_windows,
)
from smc_transformer.learning import Recipe, Stage, evenly_spaced
from smc_transformer.learning.noise_distribution import Sequences, fit_noise_
from smc_transformer.learning.persistence import persistence
from smc_transformer.learning.step_widths import held_out_forecasts, step_widths, stretched
from smc_transformer.model import SMCTransformer
from smc_transformer.nn.observation import ObservationModel
from smc_transformer.support import processes

logger = logging.getLogger(__name__)

VALIDATION_WINDOWS = 100
"""Validation windows, evenly spaced, by which weights are chosen and noise is widened."""
EARLIER = 3
"""Earlier windows, for each held-out one, by which intervals of a local view are given their width."""
WIDENING_WINDOWS = 150
"""Of these, and of windows of held-out rows, how many say what the noise of one step is like: with 10,000 steps the
coverage of 95 % intervals has a standard error of 0.002, which is 0.01 of the width."""
FIRST_CORRECTION = 0.05
"""Factor on the last layer's first weights: a network begins as the forecasts of the local view, uncorrected."""
BELIEF = 0.75
"""Share of the learned corrections of the view's forecasts that is kept: what was true of training rows may end, such
as a common growth. Measured on rows before those that panels are tested on (docs/view.md)."""
FORECAST_STEPS = 100
"""Steps of the stage of forecasts from which on its learning rate falls in proportion, through the local view: series
of a panel share their dates, of which there are few, and a long way from the weights of the likelihood fits those
dates (docs/panels.md). More steps make the same way more smoothly."""
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
    chosen: dict[str, str] = field(default_factory=dict)  # settings that were left open, in words


class Examples(NamedTuple):
    """Windows to learn from, and held-out ones to choose by."""

    training: Float[Tensor, "window length n_inputs"]
    validation: Float[Tensor, "validation_window length n_inputs"] | None
    followed: Float[Tensor, "followed_window length n_inputs"] | None = None  # of a local view: `followed_windows`


def scaled_examples(panel: Panel, viewed: list[Viewed], held_out: list[int]) -> Examples:
    """Windows of series that are scaled once for all; the last rows of each are held out."""
    settings, n_modelled = panel.settings, len(panel.settings.modelled)
    rows = [panel.rows(one) for one in viewed]
    training = [panel.rows(one.rows(slice(len(one.series) - n))) for one, n in zip(viewed, held_out, strict=True)]
    at_most = settings.training_settings().max_windows
    windows = training_windows(training, n_modelled, settings.window_length, at_most)
    validation = validation_windows(rows, held_out, n_modelled, settings.window_length, settings.horizon)
    return Examples(windows, join_windows(validation, VALIDATION_WINDOWS))


def local_cutoffs(settings: Settings, lengths: list[int], held_out: list[int]) -> list[Int[np.ndarray, "_"]]:
    """The cutoffs of the windows of each series, seen through the local view: training first, then validation."""
    per_series = settings.training_settings().max_windows // max(1, sum(processes.gather(len(lengths))))
    found = []
    for length, n_held_out in zip(lengths, held_out, strict=True):
        training = training_cutoffs(length - n_held_out, settings.horizon, per_series)
        validation = np.arange(length - n_held_out - 1, length - settings.horizon if n_held_out else 0)
        found.append(np.concatenate((training, validation)).astype(int))
    return found


def local_examples(panel: Panel, viewed: list[Viewed], horizons: list[Horizons], held_out: list[int]) -> Examples:
    """The windows of these cutoffs."""
    lengths, settings = [len(one.series) for one in viewed], panel.settings
    known = [length - n for length, n in zip(lengths, held_out, strict=True)]
    before = [ahead.before(n - 1) for ahead, n in zip(horizons, known, strict=True)]
    after = [ahead.since(n - 1) for ahead, n in zip(horizons, known, strict=True)]
    at_most = settings.training_settings().max_windows
    training = join_windows(cutoff_windows(panel, viewed, before, known), at_most)
    if training is None:
        raise TableError("there is nothing to learn from: no series has values after a row in which all are observed")
    validation = cutoff_windows(panel, viewed, after, lengths) if any(held_out) else None
    followed = followed_windows(panel, viewed, held_out)
    return Examples(training, join_windows(validation, VALIDATION_WINDOWS), join_windows(followed, WIDENING_WINDOWS))


def train(
    panel: Panel, examples: Examples, *, progress: bool, checkpoint: Path | None = None
) -> tuple[SMCTransformer, TrainingReport]:
    """A model trained on windows, its weights and noise chosen by held-out ones; resumed from a `checkpoint` folder."""
    settings, history = panel.settings, panel.settings.input_size - 1
    windows, validation, followed = examples
    recipe, model = training_recipe(settings), settings.make_model(settings.seed)
    if settings.is_local:
        with torch.no_grad():
            model.readout.projection.weight.mul_(FIRST_CORRECTION)
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
    if settings.is_local and settings.support() is None:
        with torch.no_grad():
            model.readout.projection.weight[: len(settings.modelled)] *= BELIEF
            model.readout.projection.bias[: len(settings.modelled)] *= BELIEF
    widening = 1.0
    if validation is not None and _can_be_widened(settings, model, validation):
        if not settings.is_local:
            widening = recipe.widen(model, validation, histories=(history, None), n_scored=len(units))
        else:
            # One stretch of time may be unlike others: what a small network saw in training says something too.
            judged = torch.cat((validation, _earlier(settings, windows, EARLIER * len(validation))))
            assert followed is not None
            past = judged[evenly_spaced(len(judged), WIDENING_WINDOWS), : settings.input_size + 1]
            earlier, new = Sequences(past, settings.input_size // 2), Sequences(followed, history)
            widening = fit_noise_(model, new, earlier, len(units))
            # Intervals of many steps have widths of their own.
            held_out = held_out_forecasts(model, judged, settings.horizon, len(units))
            panel.widths = step_widths(held_out)
            panel.persistence = persistence(stretched(held_out.paths, panel.widths), held_out.observed)
    return model, TrainingReport(
        n_windows=len(windows),
        n_validation=0 if validation is None else len(validation),
        squared_error=tuple(losses.get("squared_error", ())),
        likelihood=tuple(losses["likelihood"]),
        forecast=tuple(losses.get("forecast", ())),
        widening=widening,
    )


def _earlier(
    settings: Settings, windows: Float[Tensor, "window length n_inputs"], n: int
) -> Float[Tensor, "_ length n_inputs"]:
    """So many windows of training, evenly spaced, with whole histories if there are as many.

    At its beginning less is known of a series than where forecasts are made.
    """
    whole = windows[~windows[:, 0, : len(settings.modelled)].isnan().any(dim=1)]
    chosen = whole if len(whole) >= n else windows
    return chosen[evenly_spaced(len(chosen), n)]


def _run_name(settings: Settings) -> str:
    """A name for checkpoints that only a training with the same settings has; the data are compared by the trainer."""
    return hashlib.sha256(json.dumps(settings.to_dict(), sort_keys=True).encode()).hexdigest()[:16]


def training_recipe(settings: Settings) -> Recipe:
    """The stages that these settings ask for."""
    chosen = settings.training_settings()
    first_steps = 0 if settings.is_local else 2 * chosen.likelihood_steps
    if chosen.squared_error_steps is not None:
        first_steps = chosen.squared_error_steps
    rate = chosen.learning_rate or (2e-3 if settings.is_local else 3e-3)
    common = Stage(0, chosen.validations, chosen.batch_size, rate)
    likelihood = Recipe(likelihood=replace(common, steps=chosen.likelihood_steps))
    # Whole numbers have a likelihood only: their draws are no differentiable function of the parameters, and the
    # numbers of classes are no distances.
    if settings.support() is not None:
        return likelihood
    if not settings.is_local:
        steps = chosen.likelihood_steps if chosen.forecast_steps is None else chosen.forecast_steps
        last = replace(common, steps=steps, learning_rate=rate / 2)
    else:
        # Held-out windows mostly share one stretch of time: the best of many looks at them would often be the luckiest.
        steps = chosen.likelihood_steps // 2 if chosen.forecast_steps is None else chosen.forecast_steps
        rate *= min(1.0, FORECAST_STEPS / max(1, steps)) / 2
        looks = max(1, chosen.validations // 3)
        last = replace(common, steps=steps, learning_rate=rate, validations=looks, start_counts=True)
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
