"""Cells that were not run with the settings of this version: a report has to name them."""

from typing import Any

from smct_paper.experiments.grid import Cell
from smct_paper.experiments.methods import settings_of
from smct_paper.experiments.profiles import PROFILES
from smct_paper.experiments.report.results import MethodKey, Results
from smct_paper.experiments.store import rounded


def cells_of_other_settings(results: Results) -> list[str]:
    """Names of cells whose settings, or windows and samples they are scored by, are not those of their profile now."""
    known: dict[tuple[str, MethodKey, str], dict[str, Any]] = {}
    found = []
    for row in results.rows:
        if row.task != "unistep" or row.settings is None or row.profile not in PROFILES:
            continue
        profile = PROFILES[row.profile]
        cell = Cell(row.dataset, row.split, row.method.model, row.method.config, row.repetition)
        kind = (row.dataset, row.method, row.profile)
        if kind not in known:
            known[kind] = rounded(settings_of(cell, profile))
        if known[kind] != row.settings or profile.evaluation() != row.evaluation:
            found.append(str(cell))
    return found
