"""Goals of training that are watched or interrupted: how tests look into a training run from outside."""

from typing import NamedTuple

from torch import Tensor

from helpers.models import weights
from smc_transformer.learning import Goal, Likelihood, Sampling
from smc_transformer.learning.goals import BatchReport


class Call(NamedTuple):
    """What a goal was asked for, and what it said."""

    x: Tensor
    sampling: Sampling
    training: bool
    weights: dict[str, Tensor]
    result: object


class WatchedGoal(Goal):
    """Another goal, the likelihood unless told, whose calls are written down.

    Checkpoints take it for that goal. `before` and `after` are called with the name and the number of every call.
    """

    def __init__(self, goal=None, before=None, after=None):
        self.goal = goal or Likelihood()
        self.label = self.goal.label
        self.batches: list[Call] = []
        self.validations: list[Call] = []
        self.before, self.after = (hook or (lambda name, number: None) for hook in (before, after))

    def accumulate(self, model, x, sampling):
        return self._call("accumulate", self.batches, model, x, sampling)

    def validate(self, model, x, sampling):
        return self._call("validate", self.validations, model, x, sampling)

    def settings(self):
        return self.goal.settings()

    def _call(self, name, calls, model, x, sampling):
        number = len(calls) + 1
        self.before(name, number)
        training, seen = model.training, weights(model)
        result = getattr(self.goal, name)(model, x, sampling)
        calls.append(Call(x, sampling, training, seen, result))
        self.after(name, number)
        return result


def interrupted_goal(name, *, at, after=False, goal=None):
    """The n-th call of "accumulate" or "validate" is interrupted, before it does anything or after it has."""

    def interrupt(called, number):
        if (called, number) == (name, at):
            raise KeyboardInterrupt

    return WatchedGoal(goal, **{"after" if after else "before": interrupt})


class UnreadableReport(BatchReport):
    """A batch report; whoever asks for its loss is interrupted."""

    @property
    def loss(self):
        raise KeyboardInterrupt


class InterruptedBookkeeping(WatchedGoal):
    """The n-th step is interrupted when all is learned of its batch, and its loss is to be written down."""

    def __init__(self, at):
        super().__init__()
        self.at = at

    def accumulate(self, model, x, sampling):
        report = super().accumulate(model, x, sampling)
        return UnreadableReport(*report) if len(self.batches) == self.at else report
