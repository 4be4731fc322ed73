"""Verdicts on targets: met, missed, or open while results are missing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import ge, le, lt
from typing import NamedTuple

from smct_paper.experiments.report.cells import EMPTY, MISSING, Cell, Table, TableRow, text_cell
from smct_paper.experiments.report.names import dataset_title
from smct_paper.experiments.report.results import Average

MET, MISSED, OPEN = "met", "missed", "open"
SHOWN = "{:.3f} [{} {:.3f}]"
Least = tuple[int, str]
"""How many repetitions a verdict needs, and what they are."""


class Condition(NamedTuple):
    """One comparison on one data set."""

    text: str
    holds: bool | None
    """None: not decided yet."""


@dataclass(frozen=True)
class Check:
    """A target, and how it stands on each data set."""

    target: str
    subject: str
    """What is judged: a configuration, or the baselines."""
    conditions: Mapping[str, Condition | None]
    """By data set; None where nothing was run."""
    needed: int
    """On how many data sets it must hold."""

    @property
    def verdict(self) -> str:
        """`met` and `missed` are final: no missing result could change them."""
        states = [None if condition is None else condition.holds for condition in self.conditions.values()]
        if states.count(True) >= self.needed:
            return MET
        return MISSED if len(states) - states.count(False) < self.needed else OPEN


def compare(
    average: Average | None,
    holds: Callable[[float], bool],
    text: Callable[[float], str],
    least: Least,
    undecided: str = "",
) -> Condition | None:
    """A condition on a mean; with fewer than `least` repetitions (or something undecided) it can only be missed."""
    if average is None:
        return None
    needed, what = least
    few = f"{average.repetitions} of {needed} {what}" if average.repetitions < needed else ""
    remark = ", ".join(filter(None, (few, undecided)))
    passed = holds(average.mean)
    shown = f"{text(average.mean)} ({remark})" if remark else text(average.mean)
    return Condition(shown, None if passed and remark else passed)


def bounded(
    average: Average | None, sign: str, bound: float, least: Least, *, shown: str = SHOWN, undecided: str = ""
) -> Condition | None:
    """Whether a mean keeps to a bound; `sign` is "<", "≤" or "≥", and `shown` formats mean, sign and bound."""
    keeps = {"<": lt, "≤": le, "≥": ge}[sign]
    return compare(
        average, lambda mean: keeps(mean, bound), lambda mean: shown.format(mean, sign, bound), least, undecided
    )


def check_table(title: str, checks: list[Check], datasets: tuple[str, ...]) -> Table:
    """A row for each check, with the numbers it rests on."""
    rows = []
    for check in checks:
        verdict = (text_cell(check.subject), text_cell(check.verdict, check.verdict))
        rows.append(TableRow(check.target, (*verdict, *(_cell(check, dataset) for dataset in datasets))))
    return Table(title, ("target", "judged on", "verdict", *map(dataset_title, datasets)), rows)


def _cell(check: Check, dataset: str) -> Cell:
    if dataset not in check.conditions:
        return EMPTY
    condition = check.conditions[dataset]
    if condition is None:
        return MISSING
    return text_cell(condition.text, {True: MET, False: MISSED, None: OPEN}[condition.holds])
