"""The training loop: Adam on the estimated score, EM on the covariances, early stopping, checkpoints.

    trainer = Trainer(model, epochs=20, patience=5, checkpoint="run.safetensors")
    history = trainer.fit(train, validation)        # interrupted? the same call goes on where it stopped

Step p draws its noise from a generator that depends on (seed, p) alone, and epoch e its shuffle on (seed, e). So a
resumed run repeats an uninterrupted one to the bit, and nothing depends on or changes torch's global state.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from smc_transformer.checks import check_count, check_sequences
from smc_transformer.learning.checkpoint import (
    Checkpoint,
    CheckpointError,
    load_checkpoint,
    optimiser_tensors,
    restore_optimiser,
    save_checkpoint,
)
from smc_transformer.learning.em import em_step, power_step_size
from smc_transformer.learning.evaluation import negative_log_likelihood
from smc_transformer.learning.schedule import Schedule, constant
from smc_transformer.learning.step import training_step
from smc_transformer.model import SMCTransformer
from smc_transformer.progress import ProgressReport, progress_report
from smc_transformer.randomness import derived_generator

# The purposes for which a run draws random numbers: each has a stream of its own.
_SHUFFLE, _STEP, _VALIDATION = range(3)


@dataclass(frozen=True)
class EpochReport:
    """What an epoch came to. Both figures are in nats a step; the training one is with the training particles."""

    epoch: int
    training_nll: float
    validation_nll: float | None


@dataclass(kw_only=True)
class _Progress:
    """Where a run is: all that a checkpoint holds beside tensors."""

    step: int = 0
    epoch_log_likelihood: float = 0.0
    history: list[EpochReport] = field(default_factory=list)
    best_epoch: int = 0
    best_nll: float = math.inf
    finished: bool = False


@dataclass
class Trainer:
    """Fits a model to sequences.

    Attributes:
        model: the model; trained in place.
        epochs: passes over the training sequences, at most.
        batch_size: sequences in a batch; the last batch of an epoch may be smaller.
        learning_rate: of the optimiser.
        optimiser: makes the optimiser from parameters and learning rate; Adam unless told.
        schedule: factor on the learning rate, as a function of the step p = 1, 2, ...
        em_step_size: the EM step eta_p, as a function of the step; None leaves covariances that EM learns alone.
        clip_norm: longest gradient that is followed; None: no limit.
        n_particles: particles of the training filter; None: the model's.
        n_lines: lines replayed for the gradient; None: one for each particle.
        validation_particles: particles for the validation NLL.
        patience: stop after this many epochs without a better validation NLL; None: never.
        checkpoint: file to save the run to and to resume it from.
        checkpoint_seconds: how often to save within an epoch. It is also saved after each epoch and when
            interrupted.
        seed: of shuffling and noise.
        progress: show a progress bar where there is a terminal.
        on_epoch: called after each epoch.
    """

    model: SMCTransformer
    epochs: int = 20
    batch_size: int = 32
    learning_rate: float = 3e-3
    optimiser: Callable[[Iterable[torch.nn.Parameter], float], torch.optim.Optimizer] | None = None
    schedule: Schedule = field(default_factory=constant)
    em_step_size: Callable[[int], float] | None = field(default_factory=power_step_size)
    clip_norm: float | None = 1.0
    n_particles: int | None = None
    n_lines: int | None = None
    validation_particles: int = 64
    patience: int | None = None
    checkpoint: str | Path | None = None
    checkpoint_seconds: float = 60.0
    seed: int = 0
    progress: bool = True
    on_epoch: Callable[[EpochReport], None] | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "validation_particles"):
            check_count(getattr(self, name), name)
        for name in ("n_particles", "n_lines", "patience"):
            if getattr(self, name) is not None:
                check_count(getattr(self, name), name)
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be positive, got {self.learning_rate}")

    def fit(
        self,
        train: Float[Tensor, "sequence time_plus_1 n_inputs"],
        validation: Float[Tensor, "validation_sequence validation_time n_inputs"] | None = None,
    ) -> list[EpochReport]:
        """Train, and leave the model at its best validation epoch (or, without validation, its last).

        Args:
            train: training sequences X_0, ..., X_T.
            validation: held-out sequences for early stopping and for choosing the best epoch.

        Returns:
            A report for each epoch.
        """
        config = self.model.config
        train = check_sequences(train, config.n_inputs, self.model.dtype, min_time=2, name="train")
        if validation is not None:
            validation = check_sequences(validation, config.n_inputs, self.model.dtype, min_time=2, name="validation")
        elif self.patience is not None:
            raise ValueError("early stopping (patience) needs validation sequences")
        return _Run(self, train, validation).finish()


def fit(
    model: SMCTransformer,
    train: Float[Tensor, "sequence time_plus_1 n_inputs"],
    validation: Float[Tensor, "validation_sequence validation_time n_inputs"] | None = None,
    **settings: Any,
) -> list[EpochReport]:
    """`Trainer(model, **settings).fit(train, validation)`."""
    return Trainer(model, **settings).fit(train, validation)


class _Run:
    """One training run: the trainer's settings, the data, and where it is."""

    def __init__(self, trainer: Trainer, train: Tensor, validation: Tensor | None):
        self.trainer = trainer
        self.model = trainer.model
        self.train = train
        self.validation = validation
        self.steps_per_epoch = -(-len(train) // trainer.batch_size)
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        make_optimiser = trainer.optimiser or (lambda params, rate: torch.optim.Adam(params, lr=rate))
        self.optimiser = make_optimiser(parameters, trainer.learning_rate)
        self.at = _Progress()
        self.best_weights: dict[str, Tensor] = {}
        self.path = None if trainer.checkpoint is None else Path(trainer.checkpoint)
        self.last_saved = monotonic()
        self.between_steps = True
        if self.path is not None and self.path.exists():
            self._restore(self.path)

    def finish(self) -> list[EpochReport]:
        """Train from where the run is to its end."""
        n_steps = self.trainer.epochs * self.steps_per_epoch
        with progress_report("training", n_steps, enabled=self.trainer.progress) as report:
            report.advance(self.at.step, self._summary())
            try:
                while not self.at.finished:
                    self._step()
                    report.advance(1, self._summary())
                    if self.at.step % self.steps_per_epoch == 0:
                        self._end_epoch(report)
                    elif monotonic() - self.last_saved > self.trainer.checkpoint_seconds:
                        self._save()
            except KeyboardInterrupt:
                if self.between_steps:
                    self._save()
                raise
        if self.best_weights:
            self.model.load_state_dict(self.best_weights)
        return self.at.history

    def _step(self) -> None:
        """One batch: gradient and EM."""
        trainer, number = self.trainer, self.at.step + 1
        x = self._batch(self.at.step)
        step = training_step(
            self.model,
            x,
            n_particles=trainer.n_particles,
            n_lines=trainer.n_lines,
            generator=derived_generator(trainer.seed, _STEP, number, device=x.device),
        )
        self.optimiser.zero_grad()
        n_observations = x.shape[0] * (x.shape[1] - 1)
        (-step.objective.sum() / n_observations).backward()
        if trainer.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), trainer.clip_norm)
        for group in self.optimiser.param_groups:
            group["lr"] = trainer.learning_rate * trainer.schedule(number)
        self.between_steps = False  # an interrupt from here on must not save half an update
        self.optimiser.step()
        if trainer.em_step_size is not None:
            em_step(self.model, step.moments, trainer.em_step_size(number))
        self.at.step = number
        self.at.epoch_log_likelihood += float(step.log_likelihood.sum())
        self.between_steps = True

    def _batch(self, step: int) -> Tensor:
        epoch, position = divmod(step, self.steps_per_epoch)
        shuffle = derived_generator(self.trainer.seed, _SHUFFLE, epoch)
        order = torch.randperm(len(self.train), generator=shuffle)
        chosen = order[position * self.trainer.batch_size : (position + 1) * self.trainer.batch_size]
        return self.train[chosen.to(self.train.device)]

    def _end_epoch(self, report: ProgressReport) -> None:
        n_observations = len(self.train) * (self.train.shape[1] - 1)
        epoch = EpochReport(
            epoch=self.at.step // self.steps_per_epoch,
            training_nll=-self.at.epoch_log_likelihood / n_observations,
            validation_nll=self._validation_nll(),
        )
        self.at.epoch_log_likelihood = 0.0
        self.at.history.append(epoch)
        self._keep_best(epoch)
        patience = math.inf if self.trainer.patience is None else self.trainer.patience
        self.at.finished = epoch.epoch >= self.trainer.epochs or epoch.epoch - self.at.best_epoch >= patience
        self._save()
        report.advance(0, self._summary())
        if self.trainer.on_epoch is not None:
            self.trainer.on_epoch(epoch)

    def _validation_nll(self) -> float | None:
        if self.validation is None:
            return None
        # The same noise after every epoch, so that epochs differ by their weights only.
        generator = derived_generator(self.trainer.seed, _VALIDATION, device=self.validation.device)
        return negative_log_likelihood(
            self.model,
            self.validation,
            n_particles=self.trainer.validation_particles,
            generator=generator,
        )

    def _keep_best(self, epoch: EpochReport) -> None:
        if epoch.validation_nll is not None and epoch.validation_nll < self.at.best_nll:
            self.at.best_epoch, self.at.best_nll = epoch.epoch, epoch.validation_nll
            self.best_weights = {name: value.clone() for name, value in self.model.state_dict().items()}

    def _summary(self) -> str:
        if not self.at.history:
            return ""
        last = self.at.history[-1]
        validation = "" if last.validation_nll is None else f", validation {last.validation_nll:.4f}"
        return f"epoch {last.epoch}: nll {last.training_nll:.4f}{validation}"

    def _identity(self) -> dict[str, Any]:
        """What must be the same for a checkpoint to continue this run."""
        return {
            "config": self.model.config.to_dict(),
            "batch_size": self.trainer.batch_size,
            "seed": self.trainer.seed,
            "sequences": list(self.train.shape),
        }

    def _save(self) -> None:
        if self.path is None:
            return
        tensors = {
            **{f"model/{name}": value for name, value in self.model.state_dict().items()},
            **{f"best/{name}": value for name, value in self.best_weights.items()},
            **{f"optimiser/{name}": value for name, value in optimiser_tensors(self.optimiser).items()},
        }
        save_checkpoint(self.path, Checkpoint(tensors, {"identity": self._identity(), **asdict(self.at)}))
        self.last_saved = monotonic()

    def _restore(self, path: Path) -> None:
        tensors, state = load_checkpoint(path)
        identity = state.pop("identity")
        differing = {
            name: (identity.get(name), expected)
            for name, expected in self._identity().items()
            if identity.get(name) != expected
        }
        if differing:
            details = "; ".join(
                f"{name}: {found} there, {expected} here" for name, (found, expected) in differing.items()
            )
            raise CheckpointError(
                f"{path} belongs to another training run ({details}); use another file, or remove this one"
            )
        history = [EpochReport(**epoch) for epoch in state.pop("history")]
        self.at = _Progress(**state, history=history)
        # A finished run may be asked for more epochs; one that stopped for want of patience stays stopped.
        if self.at.finished and len(history) < self.trainer.epochs and self.trainer.patience is None:
            self.at.finished = False

        def under(prefix: str) -> dict[str, Tensor]:
            return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}

        self.model.load_state_dict(under("model/"))
        self.best_weights = under("best/")
        restore_optimiser(self.optimiser, under("optimiser/"))
