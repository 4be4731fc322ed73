"""Training in stages: one goal after the other, each from where the last has ended, under one progress bar."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from smc_transformer.learning.em import power_step_size
from smc_transformer.learning.goals import Goal
from smc_transformer.learning.schedule import Schedule, warmup_cosine, warmup_inverse_sqrt
from smc_transformer.learning.trainer import EpochReport, Trainer
from smc_transformer.support.progress import ProgressReport, progress_report

if TYPE_CHECKING:
    from smc_transformer.model import SMCTransformer


@dataclass(frozen=True)
class Stage:
    """How long and how fast to train towards one goal.

    Attributes:
        steps: batches in all.
        validations: how often the validation loss is taken, evenly over the steps.
        batch_size: sequences in a batch.
        learning_rate: its peak (of the Vaswani schedule: a factor on it).
        schedule: "cosine" (with a warm-up of `warmup` of the steps) or "vaswani" (the paper).
        warmup: share of the steps in which the learning rate rises.
        weight_decay: of AdamW; 0 is Adam.
        averaging: share of the old in a running average of the weights; None: none.
        em_offset: offset of the EM steps, (p + offset)^-0.6.
        n_trajectories: trajectories of each sequence that the gradient goes through; None: one for each particle.
        patience: stop after so many validations without a better one; None: never.
    """

    steps: int
    validations: int = 12
    batch_size: int = 64
    learning_rate: float = 3e-3
    schedule: str = "cosine"
    warmup: float = 0.1
    weight_decay: float = 0.0
    averaging: float | None = 0.99
    em_offset: int = 0
    n_trajectories: int | None = None
    patience: int | None = None

    @property
    def steps_per_validation(self) -> int:
        """Batches between two validations."""
        return max(1, self.steps // self.validations)

    def trainer(self, model: "SMCTransformer", goal: Goal, seed: int) -> Trainer:
        """The trainer of this stage; it has no progress bar of its own."""
        return Trainer(
            model,
            goal=goal,
            epochs=min(self.steps, self.validations),
            steps_per_epoch=self.steps_per_validation,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            optimiser=self._optimiser,
            schedule=self._schedule(model.config.d_model),
            em_step_size=power_step_size(offset=self.em_offset),
            n_trajectories=self.n_trajectories,
            averaging=self.averaging,
            patience=self.patience,
            seed=seed,
            progress=False,
        )

    def _optimiser(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=learning_rate, weight_decay=self.weight_decay, fused=True)

    def _schedule(self, d_model: int) -> Schedule:
        n_warmup = max(1, round(self.warmup * self.steps))
        return (
            warmup_inverse_sqrt(d_model, n_warmup)
            if self.schedule == "vaswani"
            else warmup_cosine(self.steps, n_warmup)
        )


def train_in_stages(
    model: "SMCTransformer",
    stages: Mapping[str, tuple[Stage, Goal]],
    train: Float[Tensor, "sequence time_plus_1 n_inputs"],
    validation: Float[Tensor, "validation_sequence time_plus_1 n_inputs"] | None,
    *,
    seed: int = 0,
    progress: bool = False,
) -> dict[str, list[EpochReport]]:
    """Train towards one goal after the other.

    Args:
        model: trained in place.
        stages: by their names, in their order.
        train: training sequences.
        validation: sequences by which each stage chooses its best weights; None: it keeps its last.
        seed: of shuffling and noise.
        progress: show a bar where there is a terminal.

    Returns:
        What each stage came to.
    """
    reports: dict[str, list[EpochReport]] = {}
    with progress_report("training", sum(stage.steps for stage, _ in stages.values()), enabled=progress) as bar:
        for name, (stage, goal) in stages.items():
            trainer = stage.trainer(model, goal, seed)
            trainer.on_epoch = _shown_on(bar, stage, goal)
            reports[name] = trainer.fit(train, validation)
    return reports


def _shown_on(bar: ProgressReport, stage: Stage, goal: Goal) -> Callable[[EpochReport], None]:
    return lambda report: bar.advance(stage.steps_per_validation, f"{goal.label} {report.training_loss:.4f}")
