"""The figures of the report, one in each file.

Figures are drawn from results; the two that need a trained model keep what they found in the results' folder
(`predictive_bands.json`, `unique_particles.json`).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from rich.console import Console

from smct_paper.experiments.paper_numbers import REAL_DATASETS
from smct_paper.experiments.report.figures.cache import cached
from smct_paper.experiments.report.figures.calibration import calibration_figure
from smct_paper.experiments.report.figures.predictive import predictive_figure, settings_of_bands, train_and_predict
from smct_paper.experiments.report.figures.steps import step_figure
from smct_paper.experiments.report.figures.style import save
from smct_paper.experiments.report.figures.unique import settings_of_counts, train_and_count, unique_figure
from smct_paper.experiments.report.names import SYNTHETIC_DATASETS
from smct_paper.experiments.report.results import Results

CALIBRATION = (
    "Left: histograms of the probability integral transform, flat (dotted line) if calibrated; a U means intervals too "
    "narrow, a hill too wide; numbers are bars cut off. Right: shares of observations inside central intervals against "
    "their level, on the diagonal if calibrated."
)


class Picture(NamedTuple):
    """A figure as the page shows it; without a file it could not be drawn, and the caption says why."""

    title: str
    caption: str
    path: Path | None


def write_figures(results: Results, results_dir: Path, out: Path, console: Console, *, train: bool) -> list[Picture]:
    """Draw all figures that there are data for; `train` those that need a model, if what they show is not kept."""

    def drawn(title: str, caption: str, name: str, figure: Figure | None) -> Picture:
        if figure is None:
            return Picture(title, "Not drawn: none of its cells was run.", None)
        return Picture(title, caption, save(figure, out / name))

    def trained(
        title: str,
        caption: str,
        name: str,
        draw: Callable[[dict[str, Any]], Figure],
        kept: str,
        settings: Any,
        make: Callable[[Console], dict[str, Any]],
    ) -> Picture:
        try:
            content = cached(results_dir / kept, settings, (lambda: make(console)) if train else None)
        except OSError as error:  # the data are not there; the rest of the report is
            console.print(f"not drawn: {title.lower()}: {error}", highlight=False, markup=False)
            return Picture(title, "Not drawn: the data were not found when the report was made.", None)
        if (
            content is None and (out / name).exists() and not (results_dir / kept).exists()
        ):  # nothing says it is outdated
            return Picture(title, f"{caption} Drawn by an earlier report.", out / name)
        if content is None:
            return Picture(title, f"Not drawn: {kept} is missing or outdated, and nothing was to be trained.", None)
        return drawn(title, caption, name, draw(content))

    return [
        trained(
            "Predictive distributions on a test sequence of Model I",
            "One-step forecasts of each method (trained as in the profile `quick`, fold 0) against the true 95 % band.",
            "predictive.png",
            predictive_figure,
            "predictive_bands.json",
            settings_of_bands(),
            train_and_predict,
        ),
        *(
            drawn(
                f"PICP at each step of the horizon, split `{split}`",
                "Multistep forecasts, mean over seeds; a calibrated method stays at 0.95.",
                f"picp_per_step_{split}.png",
                step_figure(results, split),
            )
            for split in ("paper", "chronological")
        ),
        trained(
            "Unique particles over past steps",
            "Covid (split `paper`), 60 particles, a model of the default settings after five epochs: how many "
            "different particles stand for a past step, mean and 95 % band over test counties. Left: the paper's "
            "genealogy. Then what fixed-lag and backward smoothing change (dashed: the genealogy's mean).",
            "unique_particles_covid.png",
            unique_figure,
            "unique_particles.json",
            settings_of_counts(),
            train_and_count,
        ),
        drawn(
            "Calibration on the synthetic series, unistep",
            CALIBRATION,
            "calibration_synthetic.png",
            calibration_figure(results, SYNTHETIC_DATASETS, "folds", "unistep"),
        ),
        *(
            drawn(
                f"Calibration on real data, {task}, split `chronological`",
                CALIBRATION,
                f"calibration_{task}.png",
                calibration_figure(results, REAL_DATASETS, "chronological", task),
            )
            for task in ("unistep", "multistep")
        ),
    ]
