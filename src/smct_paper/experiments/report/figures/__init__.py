"""The figures of the report, one in each file.

Figures are drawn from results; the two that need a trained model keep what they found in the results' folder
(`predictive_bands.json`, `unique_particles.json`).
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from smct_paper.experiments.paper_numbers import REAL_DATASETS
from smct_paper.experiments.report.figures.cache import cached
from smct_paper.experiments.report.figures.calibration import calibration_figure
from smct_paper.experiments.report.figures.predictive import (
    predictive_figure,
    settings_of_bands,
    train_and_predict,
)
from smct_paper.experiments.report.figures.steps import step_figure
from smct_paper.experiments.report.figures.style import save
from smct_paper.experiments.report.figures.unique import settings_of_counts, train_and_count, unique_figure
from smct_paper.experiments.report.names import SYNTHETIC_DATASETS
from smct_paper.experiments.report.results import Results

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["BANDS_FILE", "COUNTS_FILE", "Picture", "write_figures"]

BANDS_FILE, COUNTS_FILE = "predictive_bands.json", "unique_particles.json"


class Picture(NamedTuple):
    """A figure as the page shows it; without a file it could not be drawn, and the caption says why."""

    title: str
    caption: str
    path: Path | None


def write_figures(results: Results, results_dir: Path, out: Path, console: "Console", *, train: bool) -> list[Picture]:
    """Draw all figures that there are data for."""
    return list(_pictures(results, results_dir, out, console, train))


def _pictures(results: Results, results_dir: Path, out: Path, console: "Console", train: bool) -> Iterator[Picture]:
    yield _trained(
        "Predictive distributions on a test sequence of Model I",
        "One-step forecasts of each method (trained as in the profile `quick`, fold 0) against the true 95 % band.",
        results_dir / BANDS_FILE,
        settings_of_bands,
        (lambda: train_and_predict(console)) if train else None,
        predictive_figure,
        out / "predictive.png",
        console,
    )
    for split in ("paper", "chronological"):
        figure = step_figure(results, split)
        yield _drawn(
            f"PICP at each step of the horizon, split `{split}`",
            "Multistep forecasts, mean over seeds; a calibrated method stays at 0.95.",
            figure,
            out / f"picp_per_step_{split}.png",
        )
    yield _trained(
        "Unique particles over past steps",
        "Covid (split `paper`), 60 particles, a model of the default settings after five epochs: how many different "
        "particles stand for a past step, mean and 95 % band over test counties. Left: the paper's genealogy. Then "
        "what fixed-lag and backward smoothing change (dashed: the genealogy's mean).",
        results_dir / COUNTS_FILE,
        settings_of_counts,
        (lambda: train_and_count(console)) if train else None,
        unique_figure,
        out / "unique_particles_covid.png",
        console,
    )
    yield _drawn(
        "Calibration on the synthetic series, unistep",
        CALIBRATION,
        calibration_figure(results, SYNTHETIC_DATASETS, "folds", "unistep"),
        out / "calibration_synthetic.png",
    )
    for task in ("unistep", "multistep"):
        yield _drawn(
            f"Calibration on real data, {task}, split `chronological`",
            CALIBRATION,
            calibration_figure(results, REAL_DATASETS, "chronological", task),
            out / f"calibration_{task}.png",
        )


CALIBRATION = (
    "Left: histograms of the probability integral transform, flat (dotted line) if calibrated; a U means intervals too "
    "narrow, a hill too wide; numbers are bars cut off. Right: shares of observations inside central intervals against "
    "their level, on the diagonal if calibrated."
)


def _drawn(title: str, caption: str, figure: Any, path: Path) -> Picture:
    if figure is None:
        return Picture(title, "Not drawn: none of its cells was run.", None)
    return Picture(title, caption, save(figure, path))


def _trained(
    title: str,
    caption: str,
    cache: Path,
    settings: Callable[[], Any],
    make: Callable[[], dict[str, Any]] | None,
    draw: Callable[[dict[str, Any]], Any],
    path: Path,
    console: "Console",
) -> Picture:
    try:
        content = cached(cache, settings(), make)
    except OSError as error:  # the data are not there; the rest of the report is
        console.print(f"not drawn: {title.lower()}: {error}", highlight=False, markup=False)
        return Picture(title, "Not drawn: the data were not found when the report was made.", None)
    if content is None:
        return Picture(title, f"Not drawn: {cache.name} is missing or outdated, and nothing was to be trained.", None)
    return Picture(title, caption, save(draw(content), path))
