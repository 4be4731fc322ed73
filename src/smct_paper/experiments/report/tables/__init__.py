"""The tables of the report, one kind in each file; all numbers come from the rows."""

from smct_paper.experiments.report.tables.ablation import ablation_table
from smct_paper.experiments.report.tables.grid import grid_table
from smct_paper.experiments.report.tables.intervals import interval_table
from smct_paper.experiments.report.tables.latents import latents_table
from smct_paper.experiments.report.tables.scores import crps_table, score_table
from smct_paper.experiments.report.tables.synthetic import synthetic_table
from smct_paper.experiments.report.tables.times import time_table

__all__ = [
    "ablation_table",
    "crps_table",
    "grid_table",
    "interval_table",
    "latents_table",
    "score_table",
    "synthetic_table",
    "time_table",
]
