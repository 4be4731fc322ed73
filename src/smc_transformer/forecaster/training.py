"""Training of a forecaster's model, as the experiments found it to work (experiments/smc_method.py).

1. The likelihood: filter, smoothing lines, Fisher's identity, EM.
2. The score of free-running forecasts, from where the likelihood has ended.
3. One factor on the noise, so that intervals of held-out rows cover what they should.
"""

import logging
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from smc_transformer.empirical import Samples
from smc_transformer.evaluation import evenly_spaced
from smc_transformer.filtering import particle_filter
from smc_transformer.forecaster.settings import DISCRETE_LAWS, Settings
from smc_transformer.learning import ForecastScore, Goal, Likelihood, Trainer, power_step_size, warmup_cosine
from smc_transformer.learning.calibration import widen_to_cover
from smc_transformer.metrics import covered
from smc_transformer.model import SMCTransformer
from smc_transformer.nn.encoders import ChangesEncoder
from smc_transformer.progress import progress_report
from smc_transformer.randomness import as_generator

logger = logging.getLogger(__name__)

VALIDATION_WINDOWS = 100
"""Validation windows, evenly spaced, by which weights are chosen and noise is widened."""
FEWEST_TO_WIDEN = 100
"""Held-out observations below which their coverage says too little to change the width of the noise."""
LEVEL = 0.95
"""Of the intervals whose coverage sets the width of the noise."""
COVERAGE_PATHS, COVERAGE_PARTICLES = 200, 32


@dataclass(frozen=True)
class TrainingReport:
    """What a training came to.

    Attributes:
        n_windows: training windows.
        n_validation: validation windows; without any, the last weights are kept and the noise is as it is.
        likelihood: validation loss of the first stage, time after time, in nats a step.
        forecast: that of the second, the CRPS in scaled units.
        widening: the factor on the noise.
    """

    n_windows: int
    n_validation: int
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
    chosen = settings.training_settings()
    if validation is not None:
        validation = validation[evenly_spaced(len(validation), VALIDATION_WINDOWS)]
    config = settings.model_config()
    model = SMCTransformer(config, generator=settings.seed)
    if isinstance(model.encoder, ChangesEncoder):
        model.encoder.set_scales_(windows)
    score = ForecastScore(settings.input_size - 1, units)
    # Draws of whole numbers are no differentiable function of the parameters: they have no second stage.
    forecast_steps = 0 if config.observation in DISCRETE_LAWS else chosen.forecast_steps
    stages: list[tuple[Goal, int, float]] = [
        (Likelihood(), chosen.likelihood_steps, chosen.learning_rate),
        (score, forecast_steps, chosen.learning_rate / 2),
    ]
    losses: list[tuple[float, ...]] = []
    with progress_report("training", sum(steps for _, steps, _ in stages), enabled=progress) as bar:
        for goal, n_steps, learning_rate in stages:
            epochs = min(chosen.validations, n_steps)
            if epochs == 0:
                losses.append(())
                continue
            per_epoch = n_steps // epochs
            history = Trainer(
                model,
                goal=goal,
                epochs=epochs,
                steps_per_epoch=per_epoch,
                batch_size=chosen.batch_size,
                learning_rate=learning_rate,
                schedule=warmup_cosine(n_steps, max(1, n_steps // 10)),
                em_step_size=power_step_size(),
                averaging=0.99,
                seed=settings.seed,
                progress=False,  # one bar for all stages
                on_epoch=lambda report, label=goal.label, amount=per_epoch: bar.advance(  # type: ignore[misc]
                    amount, f"{label} {report.training_loss:.4f}"
                ),
            ).fit(windows, validation)
            found = [report.validation_loss for report in history]
            losses.append(tuple(loss for loss in found if loss is not None))
    widening = _widen(model, validation, settings)
    n_validation = 0 if validation is None else len(validation)
    return model, TrainingReport(len(windows), n_validation, losses[0], losses[1], widening)


def _widen(
    model: SMCTransformer, validation: Float[Tensor, "window length n_inputs"] | None, settings: Settings
) -> float:
    if validation is None or model.config.observation in DISCRETE_LAWS:
        return 1.0
    future = validation[:, -settings.horizon :, : len(settings.targets)]
    n_observed = int((~future.isnan()).sum())
    if n_observed < FEWEST_TO_WIDEN:
        logger.info("%d held-out observations are too few to set the width of intervals by", n_observed)
        return 1.0
    return widen_to_cover(model, lambda candidate: _coverage(candidate, validation, settings), LEVEL)


@torch.no_grad()
def _coverage(model: SMCTransformer, x: Float[Tensor, "window length n_inputs"], settings: Settings) -> float:
    """Coverage of intervals of targets: the smaller of that of one step and that of forecasts."""
    scored, n_modelled = slice(0, len(settings.targets)), len(settings.modelled)
    history, future = x[:, : settings.input_size], x[:, settings.input_size :]
    paths = model.forecast(
        history,
        settings.horizon,
        COVERAGE_PATHS,
        future[..., n_modelled:],
        generator=0,
        n_particles=COVERAGE_PARTICLES,
        on_collapse="uniform",
    )
    mixture = particle_filter(model, x, COVERAGE_PARTICLES, as_generator(0), on_collapse="uniform").predictive
    draws = mixture.sample(COVERAGE_PATHS, 0)
    return min(
        _share_covered(Samples(paths[..., scored]), future[..., scored]),
        _share_covered(Samples(draws[..., scored]), x[:, 1:, scored]),
    )


def _share_covered(law: Samples, observed: Float[Tensor, "window time target"]) -> float:
    seen = ~observed.isnan()
    return float(covered(law.interval(LEVEL), observed)[seen].double().mean())
