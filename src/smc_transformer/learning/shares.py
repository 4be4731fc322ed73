"""The gradient and the statistics of a batch of which each of several processes has a share.

A goal's loss is a mean over the terms of its batch. With n_r terms in the share of process r, and g_r the gradient of
the mean over these, the gradient of the batch is

    g = sum_r n_r g_r / sum_r n_r,

and the EM statistics of the shares average by how many steps each has, as those of chunks do (`learning/step.py`).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from smc_transformer.learning.em import Statistics, merge_statistics
from smc_transformer.learning.goals import BatchReport, Goal, Sampling
from smc_transformer.model import SMCTransformer
from smc_transformer.support import processes


class _Part(NamedTuple):
    """What a process tells the others about its share."""

    report: BatchReport | None
    learned: list[bool]  # which parameters have a gradient


def join_batch(
    model: SMCTransformer, parameters: Sequence[torch.nn.Parameter], accumulate: Callable[[], BatchReport | None]
) -> BatchReport:
    """Gradients and report of a batch in every process, from `accumulate`, which adds those of its own share.

    It answers None where a process has no share. The gradients must be zero or None before.
    """
    if processes.size() == 1:
        report = accumulate()
        assert report is not None
        return report

    def own() -> _Part:
        report = accumulate()
        return _Part(report, [parameter.grad is not None for parameter in parameters])

    parts = processes.gather_made(own)
    reports = [part.report for part in parts if part.report is not None]
    n_terms = sum(report.n_terms for report in reports)
    report = parts[processes.rank()].report
    _join_gradients(
        [one for one, *learned in zip(parameters, *(part.learned for part in parts), strict=True) if any(learned)],
        0.0 if report is None else report.n_terms / n_terms,
    )
    told = [(report.statistics, report.n_steps) for report in reports if report.statistics is not None]
    return BatchReport(sum(report.loss for report in reports), n_terms, *_joined_statistics(model, told))


def join_means(
    goal: Goal, model: SMCTransformer, x: Float[Tensor, "sequence time_plus_1 n_inputs"], sampling: Sampling
) -> float:
    """The mean loss of held-out sequences, of which each process takes a share."""
    if processes.size() == 1:
        return goal.validate(model, x, sampling)
    own = x[processes.share(len(x))]

    def mean() -> tuple[float, int]:
        n_terms = goal.n_validated(model, own) if len(own) else 0
        return (goal.validate(model, own, sampling), n_terms) if n_terms else (0.0, 0)

    means = processes.gather_made(mean)
    n_terms = sum(n for _, n in means)
    return sum(loss * n for loss, n in means) / n_terms if n_terms else float("nan")


@torch.no_grad()
def _join_gradients(parameters: Sequence[torch.nn.Parameter], factor: float) -> None:
    """The sum over processes of the gradients, each by its factor, in one message."""
    if not parameters:
        return
    flat = torch.cat([_gradient(parameter).flatten() for parameter in parameters]).mul_(factor)
    processes.sum_(flat)
    for parameter, part in zip(parameters, flat.split([one.numel() for one in parameters]), strict=True):
        parameter.grad = part.reshape(parameter.shape).clone()


def _gradient(parameter: torch.nn.Parameter) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def _joined_statistics(model: SMCTransformer, told: list[tuple[Statistics, int]]) -> tuple[Statistics | None, int]:
    n_steps = sum(n for _, n in told)
    if not told:
        return None, 1
    return merge_statistics(model, [(statistics, n / n_steps) for statistics, n in told]), n_steps
