"""The training loop: Adam on the estimated score, EM on the covariances, early stopping, checkpoints.

    trainer = Trainer(model, epochs=20, patience=5, checkpoint="run.safetensors")
    history = trainer.fit(train, validation)        # interrupted? the same call goes on where it stopped

Step p draws its noise from a generator that depends on (seed, p) alone, and epoch e its shuffle on (seed, e). So a
resumed run repeats an uninterrupted one to the bit, and nothing depends on or changes torch's global state.

In a process group (`support/processes.py`) every process calls `fit` with the same sequences. The batches are those of
one process; each process takes its share of a batch, and gradients, EM statistics and losses are those of the whole
batch in all of them. The noise of a sequence then depends on how many processes there are: each has a generator.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from smc_transformer.kernels import threads_for_kernels
from smc_transformer.learning.averaging import WeightAverage
from smc_transformer.learning.checkpoint import (
    Checkpoint,
    CheckpointError,
    check_writable,
    load_checkpoint,
    optimiser_tensors,
    restore_optimiser,
    save_checkpoint,
)
from smc_transformer.learning.em import em_step, power_step_size
from smc_transformer.learning.goals import BatchReport, Goal, Likelihood, Sampling
from smc_transformer.learning.optimiser import Adam, clip_gradients
from smc_transformer.learning.ragged import check_ragged, starts
from smc_transformer.learning.schedule import Schedule, constant
from smc_transformer.learning.shares import join_batch, join_means
from smc_transformer.model import SMCTransformer
from smc_transformer.smc.weights import WeightCollapseError
from smc_transformer.support import processes
from smc_transformer.support.checks import check_count, check_number
from smc_transformer.support.progress import ProgressReport, progress_report
from smc_transformer.support.randomness import LARGEST_SEED, derived_generator

# The purposes for which a run draws random numbers: each has a stream of its own.
_SHUFFLE, _STEP, _VALIDATION = range(3)


@dataclass(frozen=True)
class EpochReport:
    """What an epoch came to: the goal's mean loss (nats a step for the likelihood), in training and validation."""

    epoch: int
    training_loss: float
    validation_loss: float | None


@dataclass
class Trainer:
    """Fits a model to sequences.

    Attributes:
        model: the model; trained in place, and left in evaluation mode.
        goal: the loss to make small: `Likelihood()`, or `ForecastScore(history)` for free-running forecasts.
        epochs: passes over the training sequences, at most.
        steps_per_epoch: batches that count as an epoch, after which to validate; None: a pass over all sequences.
        batch_size: sequences in a batch; one batch of a pass over all may be smaller.
        learning_rate: of the optimiser.
        optimiser: makes the optimiser from parameters and learning rate; Adam unless told.
        schedule: factor on the learning rate, as a function of the step p = 1, 2, ...
        em_step_size: the EM step eta_p, as a function of the step; None leaves what EM learns alone. For multimodal
            data see `power_step_size` and docs/learning.md.
        clip_norm: longest gradient that is followed; None: no limit.
        n_particles: particles of the training filter; None: the model's.
        n_trajectories: trajectories replayed for the gradient; None: one for each particle.
        averaging: share of the old in a running average of the weights over steps, such as 0.99; the average is what
            is validated and kept. None: the weights as they are.
        validation_particles: particles for the validation loss; None: twice as many as in training.
        patience: stop after this many epochs without a better validation loss; None: never.
        start_counts: the weights that training begins with count as an epoch: they are kept unless others do better on
            validation sequences.
        checkpoint: file to save the run to and to resume it from.
        checkpoint_seconds: how often to save within an epoch; it is also saved after each and when interrupted.
        seed: of shuffling and noise.
        progress: show a progress bar where there is a terminal.
        on_epoch: called after each epoch.
    """

    model: SMCTransformer
    goal: Goal = field(default_factory=Likelihood)
    epochs: int = 20
    steps_per_epoch: int | None = None
    batch_size: int = 32
    learning_rate: float = 3e-3
    optimiser: Callable[[Iterable[torch.nn.Parameter], float], torch.optim.Optimizer] | None = None
    schedule: Schedule = field(default_factory=constant)
    em_step_size: Callable[[int], float] | None = field(default_factory=power_step_size)
    clip_norm: float | None = 1.0
    n_particles: int | None = None
    n_trajectories: int | None = None
    averaging: float | None = None
    validation_particles: int | None = None
    patience: int | None = None
    start_counts: bool = False
    checkpoint: str | Path | None = None
    checkpoint_seconds: float = 60.0
    seed: int = 0
    progress: bool = True
    on_epoch: Callable[[EpochReport], None] | None = None

    def __post_init__(self) -> None:
        optional = ("steps_per_epoch", "validation_particles", "n_particles", "n_trajectories", "patience")
        for name in ("epochs", "batch_size", *optional):
            if name not in optional or getattr(self, name) is not None:
                setattr(self, name, check_count(getattr(self, name), name))
        self.seed = check_count(self.seed, "seed", at_least=0, at_most=LARGEST_SEED)
        self.learning_rate = check_number(self.learning_rate, "learning_rate", positive=True)
        self.checkpoint_seconds = check_number(self.checkpoint_seconds, "checkpoint_seconds")
        if self.averaging is not None:
            self.averaging = check_number(self.averaging, "averaging", at_most=1.0)
        if self.clip_norm is not None:
            self.clip_norm = check_number(self.clip_norm, "clip_norm", positive=True)

    def fit(
        self,
        train: Float[Tensor, "sequence time_plus_1 n_inputs"],
        validation: Float[Tensor, "validation_sequence validation_time n_inputs"] | None = None,
    ) -> list[EpochReport]:
        """Train, and leave the model at its best validation epoch (or, without validation, its last).

        NaN targets are missing. Shorter sequences begin later: rows that are NaN in every column before the first that
        is not have not begun (`learning/ragged.py`). Validation sequences choose the best epoch and stop early. Returns
        a report for each.
        """
        train = check_ragged(self.model, train, min_time=2, name="train")
        if validation is not None:
            validation = check_ragged(self.model, validation, min_time=2, name="validation")
        elif self.patience is not None:
            raise ValueError("early stopping (patience) needs validation sequences")
        return _Run(self, train, validation).finish()


def fit(model: SMCTransformer, train: Tensor, validation: Tensor | None = None, **settings: Any) -> list[EpochReport]:
    """`Trainer(model, **settings).fit(train, validation)`."""
    return Trainer(model, **settings).fit(train, validation)


@dataclass(kw_only=True)
class _RunState:
    """Where a run is: all that a checkpoint holds beside tensors."""

    step: int = 0
    epoch_loss: float = 0.0
    epoch_terms: int = 0
    history: list[EpochReport] = field(default_factory=list)
    best_epoch: int = 0
    best_loss: float = math.inf


class _Run:
    """One training run: the trainer's settings, the data, and where it is."""

    def __init__(self, trainer: Trainer, train: Tensor, validation: Tensor | None):
        self.trainer, self.model = trainer, trainer.model
        self.train, self.validation, self.starts = train, validation, starts(train)
        self.n_particles = trainer.n_particles or trainer.model.inference.n_particles
        self.steps_per_pass = -(-len(train) // trainer.batch_size)
        self.steps_per_epoch = trainer.steps_per_epoch or self.steps_per_pass
        self.parameters = list(self.model.gradient_parameters().values())
        make_optimiser = trainer.optimiser or partial(Adam, fused=True)
        self.optimiser = make_optimiser(self.parameters, trainer.learning_rate)
        self.learning_rates = [group["lr"] for group in self.optimiser.param_groups]
        self.at = _RunState()
        self.order: tuple[int, tuple[Tensor, ...]] = (-1, ())  # the pass, and its batches
        self.average = None if trainer.averaging is None else WeightAverage(self.model, trainer.averaging)
        self.best_weights: dict[str, Tensor] = {}
        self.between_steps = True
        self.last_saved = monotonic()
        self.path = None if trainer.checkpoint is None else Path(trainer.checkpoint)
        if self.path is not None:
            self.identity = self._identity()
            stored = processes.made_by_first(partial(_stored, self.path))
            if stored is not None:
                self._restore(self.path, stored)

    def finish(self) -> list[EpochReport]:
        """Train from where the run is to its end."""
        n_steps = self.trainer.epochs * self.steps_per_epoch
        try:
            with (
                threads_for_kernels(),
                progress_report("training", n_steps, enabled=self.trainer.progress) as report,
            ):
                report.advance(self.at.step, self._summary())
                if self.trainer.start_counts and self.at.step == 0 and self.validation is not None:
                    self._keep_if_better(0, self._validation_loss(self.validation), self._weights())
                while not self._finished():
                    self._go_on(report)
        except KeyboardInterrupt:
            if self.between_steps:
                self._save()
            raise
        finally:
            self.model.eval()
        if self.best_weights:
            self.model.load_state_dict(self.best_weights)
        return self.at.history

    def _finished(self) -> bool:
        n_epochs, patience = len(self.at.history), self.trainer.patience or math.inf
        return n_epochs >= self.trainer.epochs or n_epochs - self.at.best_epoch >= patience

    def _go_on(self, report: ProgressReport) -> None:
        """The next step, or the end of an epoch when all its steps are done."""
        if self.at.step == (len(self.at.history) + 1) * self.steps_per_epoch:
            self._end_epoch()
            self._save()
            report.advance(0, self._summary())
            if self.trainer.on_epoch is not None:
                self.trainer.on_epoch(self.at.history[-1])
        else:
            self._step()
            report.advance(1, self._summary())
            if monotonic() - self.last_saved > self.trainer.checkpoint_seconds:
                self._save()

    def _step(self) -> None:
        """One batch: gradient and EM."""
        trainer, number = self.trainer, self.at.step + 1
        chosen = self._chosen(self.at.step)
        if not self.model.training:
            self.model.train()
        self.optimiser.zero_grad()
        own = chosen[processes.share(len(chosen))]
        report = join_batch(self.model, self.parameters, partial(self._accumulate, own, number))
        if trainer.clip_norm is not None:
            clip_gradients(self.parameters, trainer.clip_norm)
        for group, rate in zip(self.optimiser.param_groups, self.learning_rates, strict=True):
            group["lr"] = rate * trainer.schedule(number)
        self.between_steps = False  # an interrupt from here on must not save half an update
        self.optimiser.step()
        if trainer.em_step_size is not None and report.statistics is not None:
            em_step(self.model, report.statistics, trainer.em_step_size(number))
        if self.average is not None:
            self.average.update(number)
        self.at.step = number
        self.at.epoch_loss += report.loss
        self.at.epoch_terms += report.n_terms
        self.between_steps = True

    def _accumulate(self, chosen: Tensor, number: int) -> BatchReport | None:
        """Gradients of some sequences in step `number`; None where there are no sequences."""
        if len(chosen) == 0:
            return None
        generator = processes.own_generator(self.trainer.seed, _STEP, number, device=self.train.device)
        sampling = Sampling(self.n_particles, self.trainer.n_trajectories, generator)
        try:
            return self.trainer.goal.accumulate(self.model, self.train[chosen], sampling)
        except WeightCollapseError as error:
            raise WeightCollapseError(int(chosen[error.sequence]), error.step) from None

    def _chosen(self, step: int) -> Tensor:
        """The sequences of a step's batch."""
        number, position = divmod(step, self.steps_per_pass)
        if self.order[0] != number:
            shuffle = derived_generator(self.trainer.seed, _SHUFFLE, number)
            self.order = (number, self._batches(shuffle))
        return self.order[1][position]

    def _batches(self, shuffle: Generator) -> tuple[Tensor, ...]:
        """The batches of a pass over all sequences, those that begin at the same row together where there are such."""
        order, size = torch.randperm(len(self.train), generator=shuffle).to(self.train.device), self.trainer.batch_size
        if (self.starts == self.starts[0]).all():
            return order.split(size)
        order = order[self.starts[order].argsort(stable=True)]
        # Moved by a random number of places, so that a start does not meet the same neighbours in every pass.
        order = order.roll(int(torch.randint(len(order), (), generator=shuffle)))
        batches = order.split(size)
        return tuple(batches[number] for number in torch.randperm(len(batches), generator=shuffle).tolist())

    def _end_epoch(self) -> None:
        # While the average stands in for the weights, an interrupt must not save it as them.
        self.between_steps = self.average is None
        with nullcontext() if self.average is None else self.average.applied():
            validation_loss = None if self.validation is None else self._validation_loss(self.validation)
            weights = self._weights()
        epoch = EpochReport(len(self.at.history) + 1, self.at.epoch_loss / self.at.epoch_terms, validation_loss)
        self.between_steps = False
        self.at.epoch_loss, self.at.epoch_terms = 0.0, 0
        self.at.history.append(epoch)
        if validation_loss is None and self.average is not None:
            self.best_weights = weights  # nothing to choose by: the last average
        if validation_loss is not None:
            self._keep_if_better(epoch.epoch, validation_loss, weights)
        self.between_steps = True

    def _weights(self) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in self.model.state_dict().items()}

    def _keep_if_better(self, epoch: int, validation_loss: float, weights: dict[str, Tensor]) -> None:
        if validation_loss < self.at.best_loss:
            self.at.best_epoch, self.at.best_loss, self.best_weights = epoch, validation_loss, weights

    def _validation_loss(self, x: Tensor) -> float:
        self.model.eval()
        # The same noise after every epoch, so that epochs differ by their weights only.
        generator = processes.own_generator(self.trainer.seed, _VALIDATION, device=x.device)
        sampling = Sampling(self.trainer.validation_particles or 2 * self.n_particles, generator=generator)
        return join_means(self.trainer.goal, self.model, x, sampling)

    def _summary(self) -> str:
        if not self.at.history:
            return ""
        last = self.at.history[-1]
        validation = "" if last.validation_loss is None else f", validation {last.validation_loss:.4f}"
        return f"epoch {last.epoch}: {self.trainer.goal.label} {last.training_loss:.4f}{validation}"

    def _identity(self) -> dict[str, Any]:
        """What must be the same for a checkpoint to continue this run."""
        model, trainer = self.model, self.trainer
        return {
            "config": {**model.config.to_dict(), **model.inference.to_dict(), **model.learning.to_dict()},
            "type": str(model.dtype),
            "training data": _fingerprint(self.train),
            "validation data": None if self.validation is None else _fingerprint(self.validation),
            "optimiser": type(self.optimiser).__name__,
            "optimiser options": [
                str({name: value for name, value in group.items() if name not in ("params", "lr")})
                for group in self.optimiser.param_groups
            ],
            **trainer.goal.settings(),
            **{name: getattr(trainer, name) for name in ("learning_rate", "clip_norm", "batch_size", "seed")},
            **{name: getattr(trainer, name) for name in ("n_particles", "n_trajectories", "validation_particles")},
            **{name: getattr(trainer, name) for name in ("steps_per_epoch", "averaging")},
        }

    def _save(self) -> None:
        if self.path is None or processes.rank() > 0:
            return
        tensors = {
            "model": self.model.state_dict(),
            "best": self.best_weights,
            "average": {} if self.average is None else self.average.weights,
            "optimiser": optimiser_tensors(self.optimiser),
        }
        save_checkpoint(self.path, Checkpoint(tensors, {"identity": self.identity, **asdict(self.at)}))
        self.last_saved = monotonic()

    def _restore(self, path: Path, stored: Checkpoint) -> None:
        try:
            self._restore_from(path, *stored)
        except (KeyError, TypeError, AttributeError, RuntimeError) as error:
            raise CheckpointError(
                f"{path} is damaged: {' '.join(str(error).split())}; remove it to begin anew"
            ) from None

    def _restore_from(self, path: Path, tensors: Mapping[str, dict[str, Tensor]], state: dict[str, Any]) -> None:
        found = state.pop("identity")
        found.setdefault("n_trajectories", found.pop("n_lines", None))  # their name in earlier checkpoints
        differing = [
            f"{name}: {found.get(name)} there, {expected} here"
            for name, expected in self.identity.items()
            if found.get(name) != expected
        ]
        if differing:
            raise CheckpointError(
                f"{path} belongs to another training run ({'; '.join(differing)}); use another file, or remove this one"
            )
        state["history"] = [EpochReport(**epoch) for epoch in state["history"]]
        self.at = _RunState(**state)
        self.model.load_state_dict(tensors["model"])
        self.best_weights = tensors["best"]
        if self.average is not None:
            self.average.weights = tensors["average"]
        restore_optimiser(self.optimiser, tensors["optimiser"])


def _stored(path: Path) -> Checkpoint | None:
    """What a run can go on from, if there is anything; that it can be written later."""
    check_writable(path)
    return load_checkpoint(path) if path.exists() else None


def _fingerprint(x: Tensor) -> str:
    """A short hash of the data, so that a checkpoint is not taken for a run on other data of the same shape."""
    return f"{tuple(x.shape)} {hashlib.sha256(x.detach().cpu().contiguous().numpy().tobytes()).hexdigest()[:12]}"
