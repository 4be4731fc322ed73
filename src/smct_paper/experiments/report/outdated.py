"""Cells that were not run with the settings of this version: a report has to name them."""

from smct_paper.experiments.grid import Cell
from smct_paper.experiments.methods import wanted_of
from smct_paper.experiments.profiles import PROFILES
from smct_paper.experiments.report.results import Results
from smct_paper.experiments.store import rounded


def cells_of_other_settings(results: Results) -> list[str]:
    """Names of cells whose settings, or windows and samples they are scored by, are not those of their profile now."""
    found = []
    for profile in PROFILES.values():
        cells = {
            Cell(row.dataset, row.split, *row.method, row.repetition): row
            for row in results.rows
            if (row.task, row.profile) == ("unistep", profile.name) and row.settings is not None
        }
        now = wanted_of(cells, profile)
        for cell, row in cells.items():
            then = {"profile": row.profile, "settings": row.settings, "evaluation": row.evaluation}
            found += [str(cell)] if rounded(now[cell]) != then else []
    return found
