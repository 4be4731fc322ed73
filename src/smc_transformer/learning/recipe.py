"""The training recipe: one goal after the other, each from where the last has ended, under one progress bar.

1. The squared error of the transformer without its noise, which is quick.
2. The likelihood: filter, smoothing trajectories, Fisher's identity, EM.
3. The score of free-running forecasts, from where the likelihood has ended.
4. One factor on the noise, so that intervals of held-out sequences cover what they should.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from smc_transformer.learning.calibration import LEVEL, share_covered, widen_to_cover
from smc_transformer.learning.em import power_step_size
from smc_transformer.learning.goals import ForecastScore, Goal, Likelihood
from smc_transformer.learning.optimiser import AdamW
from smc_transformer.learning.schedule import warmup_cosine, warmup_inverse_sqrt
from smc_transformer.learning.squared_error import SquaredError
from smc_transformer.learning.trainer import EpochReport, Trainer
from smc_transformer.model import SMCTransformer
from smc_transformer.nn.encoders import ChangesEncoder
from smc_transformer.support.checks import check_count
from smc_transformer.support.progress import progress_report


@dataclass(frozen=True)
class Stage:
    """How long and how fast to train towards one goal."""

    steps: int  # batches in all
    validations: int = 12  # how often the validation loss is taken, evenly over the steps
    batch_size: int = 64
    learning_rate: float = 3e-3  # its peak (of the Vaswani schedule: a factor on it)
    schedule: str = "cosine"  # after a warm-up; or "vaswani" (the paper)
    warmup: float = 0.1  # share of the steps in which the learning rate rises
    weight_decay: float = 0.0  # of AdamW; 0 is Adam
    averaging: float | None = 0.99  # share of the old in a running average of the weights; None: none
    em_offset: int = 0  # of the EM steps, (p + offset)^-0.6
    n_trajectories: int | None = None  # of each sequence, for the gradient; None: one for each particle
    patience: int | None = None  # stop after so many validations without a better one; None: never
    start_counts: bool = False  # keep the weights it begins with unless others do better on validation sequences

    @property
    def steps_per_validation(self) -> int:
        """Batches between two validations."""
        return max(1, self.steps // self.validations)

    def trainer(self, model: SMCTransformer, goal: Goal, seed: int) -> Trainer:
        """The trainer of this stage; it has no progress bar of its own."""
        n_warmup = max(1, round(self.warmup * self.steps))
        vaswani = self.schedule == "vaswani"
        return Trainer(
            model,
            goal=goal,
            epochs=min(self.steps, self.validations),
            steps_per_epoch=self.steps_per_validation,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            optimiser=partial(AdamW, weight_decay=self.weight_decay, fused=True),
            schedule=warmup_inverse_sqrt(model.config.d_model, n_warmup)
            if vaswani
            else warmup_cosine(self.steps, n_warmup),
            em_step_size=power_step_size(offset=self.em_offset),
            n_trajectories=self.n_trajectories,
            averaging=self.averaging,
            patience=self.patience,
            start_counts=self.start_counts,
            seed=seed,
            progress=False,
        )


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a model is trained, and its noise widened; a stage that is None or has no steps is left out."""

    squared_error: Stage | None = None
    likelihood: Stage = field(default_factory=lambda: Stage(1000))
    forecast: Stage | None = None
    forecast_paths: int = 8  # of each sequence in the stage of forecasts; 16 were no better on three panels
    validation_paths: int = 64  # of each validation sequence in it
    widening_blocks: int = 1  # as in `calibration.share_covered`

    def train(
        self,
        model: SMCTransformer,
        train: Float[Tensor, "sequence time_plus_1 n_inputs"],
        validation: Float[Tensor, "validation_sequence time_plus_1 n_inputs"] | None,
        *,
        history: int,
        units: tuple[float, ...],
        seed: int = 0,
        progress: bool = False,
        checkpoint: Path | None = None,
    ) -> dict[str, list[float]]:
        """Train a new model in place, as in `train_in_stages`, without widening; returns all validation losses.

        Forecasts are of all rows after number `history`; sequences that begin late know less before them. Only the
        first targets count, as many as there are units: their errors and scores are multiplied by these.
        """
        score = ForecastScore(history, units, n_paths=self.forecast_paths, validation_paths=self.validation_paths)
        stages: dict[str, tuple[Stage | None, Goal]] = {
            "squared_error": (self.squared_error, SquaredError(units)),
            "likelihood": (self.likelihood, Likelihood()),
            "forecast": (self.forecast, score),
        }
        chosen = {name: (stage, goal) for name, (stage, goal) in stages.items() if stage and stage.steps > 0}
        if isinstance(model.encoder, ChangesEncoder):
            model.encoder.set_scales_(train)
        reports = train_in_stages(model, chosen, train, validation, seed=seed, progress=progress, checkpoint=checkpoint)
        return {
            name: [report.validation_loss for report in stage if report.validation_loss is not None]
            for name, stage in reports.items()
        }

    def widen(
        self,
        model: SMCTransformer,
        x: Float[Tensor, "sequence time_plus_1 n_inputs"],
        level: float = LEVEL,
        *,
        histories: Sequence[int | None],
        n_scored: int,
        n_halvings: int = 8,
    ) -> float:
        """Widen or narrow the model's noise until intervals of held-out sequences cover `level` of the observations.

        The smallest coverage counts, of forecasts after these histories; None is one step ahead. See
        `calibration.share_covered` and `calibration.widen_to_cover`, whose factor is returned.
        """

        def coverage(candidate: SMCTransformer) -> float:
            smallest = math.inf
            # The quicker first: one that is too small decides, whatever the others are.
            for history in sorted(histories, key=lambda history: history is not None):
                if smallest >= level:
                    found = share_covered(candidate, x, n_scored, history=history, n_blocks=self.widening_blocks)
                    smallest = min(smallest, found)
            return smallest

        return widen_to_cover(model, coverage, level, n_halvings)


def evenly_spaced(n: int, n_chosen: int | None) -> Int[Tensor, "chosen"]:
    """Indices from 0 to n - 1, first and last among them; all if more are asked for."""
    if n_chosen is None or check_count(n_chosen, "n_windows") >= n:
        return torch.arange(n)
    return torch.from_numpy(np.linspace(0, n - 1, n_chosen).round().astype(np.int64))


def train_in_stages(
    model: SMCTransformer,
    stages: Mapping[str, tuple[Stage, Goal]],
    train: Float[Tensor, "sequence time_plus_1 n_inputs"],
    validation: Float[Tensor, "validation_sequence time_plus_1 n_inputs"] | None,
    *,
    seed: int = 0,
    progress: bool = False,
    checkpoint: Path | None = None,
) -> dict[str, list[EpochReport]]:
    """Train a model in place towards one goal after the other, and report what each stage came to.

    The validation sequences are those by which each stage chooses its best weights; without any it keeps its last.
    With a `checkpoint`, the beginning of the names of files, one for each stage, the same call after an interruption
    resumes where that was.
    """
    reports: dict[str, list[EpochReport]] = {}
    with progress_report("training", sum(stage.steps for stage, _ in stages.values()), enabled=progress) as bar:
        for name, (stage, goal) in stages.items():
            trainer = stage.trainer(model, goal, seed)
            if checkpoint is not None:
                trainer.checkpoint = checkpoint.with_name(f"{checkpoint.name}-{name}.safetensors")
            trainer.on_epoch = lambda report, stage=stage, goal=goal: bar.advance(
                stage.steps_per_validation, f"{goal.label} {report.training_loss:.4f}"
            )
            reports[name] = trainer.fit(train, validation)
    return reports
