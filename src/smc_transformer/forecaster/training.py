"""Training of a forecaster's model, as the experiments found it to work (experiments/smc_method.py).

1. The squared error of the transformer without its noise, which is quick.
2. The likelihood: filter, smoothing lines, Fisher's identity, EM.
3. The score of free-running forecasts, from where the likelihood has ended.
4. One factor on the noise, so that intervals of held-out rows cover what they should.
"""

import logging
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from smc_transformer.forecaster.settings import Settings
from smc_transformer.learning import ForecastScore, Goal, Likelihood, SquaredError, Stage, train_in_stages
from smc_transformer.learning.calibration import LEVEL, forecast_coverage, one_step_coverage, widen_to_cover
from smc_transformer.model import SMCTransformer
from smc_transformer.nn.encoders import ChangesEncoder
from smct_paper.evaluation import evenly_spaced

logger = logging.getLogger(__name__)

VALIDATION_WINDOWS = 100
"""Validation windows, evenly spaced, by which weights are chosen and noise is widened."""
FEWEST_TO_WIDEN = 100
"""Held-out observations below which their coverage says too little to change the width of the noise."""


@dataclass(frozen=True)
class TrainingReport:
    """What a training came to.

    Attributes:
        n_windows: training windows.
        n_validation: validation windows; without any, the last weights are kept and the noise is as it is.
        squared_error: validation loss of the first stage, time after time.
        likelihood: that of the second, in nats a step.
        forecast: that of the third, the CRPS in scaled units.
        widening: the factor on the noise.
    """

    n_windows: int
    n_validation: int
    squared_error: tuple[float, ...]
    likelihood: tuple[float, ...]
    forecast: tuple[float, ...]
    widening: float


def train(
    settings: Settings,
    units: tuple[float, ...],
    windows: Float[Tensor, "window length n_inputs"],
    validation: Float[Tensor, "validation_window length n_inputs"] | None,
    *,
    progress: bool,
) -> tuple[SMCTransformer, TrainingReport]:
    """A trained model.

    Args:
        settings: of the forecaster.
        units: what one unit of each target is in scaled values, in which forecasts are scored.
        windows: training windows.
        validation: windows to choose weights and width by.
        progress: show a bar where there is a terminal.
    """
    if validation is not None:
        validation = validation[evenly_spaced(len(validation), VALIDATION_WINDOWS)]
    model = settings.make_model(settings.seed)
    if isinstance(model.encoder, ChangesEncoder):
        model.encoder.set_scales_(windows)
    reports = train_in_stages(
        model, _stages(settings, units), windows, validation, seed=settings.seed, progress=progress
    )
    losses = {
        name: tuple(report.validation_loss for report in history if report.validation_loss is not None)
        for name, history in reports.items()
    }
    return model, TrainingReport(
        len(windows),
        0 if validation is None else len(validation),
        losses.get("squared_error", ()),
        losses["likelihood"],
        losses.get("forecast", ()),
        _widen(model, validation, settings),
    )


def _stages(settings: Settings, units: tuple[float, ...]) -> dict[str, tuple[Stage, Goal]]:
    chosen = settings.training_settings()
    first_steps = 2 * chosen.likelihood_steps if chosen.squared_error_steps is None else chosen.squared_error_steps

    def stage(steps: int, learning_rate: float) -> Stage:
        return Stage(steps, validations=chosen.validations, batch_size=chosen.batch_size, learning_rate=learning_rate)

    stages: dict[str, tuple[Stage, Goal]] = {
        "squared_error": (stage(first_steps, chosen.learning_rate), SquaredError(units)),
        "likelihood": (stage(chosen.likelihood_steps, chosen.learning_rate), Likelihood()),
        "forecast": (
            stage(chosen.forecast_steps, chosen.learning_rate / 2),
            ForecastScore(settings.input_size - 1, units),
        ),
    }
    # Whole numbers have a likelihood only: their draws are no differentiable function of the parameters, and the
    # numbers of classes are no distances.
    discrete = settings.support() is not None
    return {
        name: (stage, goal)
        for name, (stage, goal) in stages.items()
        if stage.steps > 0 and (name == "likelihood" or not discrete)
    }


def _widen(
    model: SMCTransformer, validation: Float[Tensor, "window length n_inputs"] | None, settings: Settings
) -> float:
    if validation is None or model.observation.support is not None:
        return 1.0
    n_targets, history = len(settings.targets), settings.input_size - 1
    n_observed = int((~validation[:, -settings.horizon :, :n_targets].isnan()).sum())
    if n_observed < FEWEST_TO_WIDEN:
        logger.info("%d held-out observations are too few to set the width of intervals by", n_observed)
        return 1.0

    def coverage(candidate: SMCTransformer) -> float:
        """The smaller of that of one step and that of forecasts."""
        return min(
            forecast_coverage(candidate, validation, history, n_targets),
            one_step_coverage(candidate, validation, n_targets),
        )

    return widen_to_cover(model, coverage, LEVEL)
