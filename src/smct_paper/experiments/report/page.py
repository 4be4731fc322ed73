"""The report's page, as Markdown and as one HTML file that needs nothing else."""

import base64
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from rich.console import Console

from smct_paper.experiments.grid import Cell
from smct_paper.experiments.methods import wanted_of
from smct_paper.experiments.paper_numbers import REAL_DATASETS
from smct_paper.experiments.profiles import PROFILES
from smct_paper.experiments.report.cells import MARKS, Table, TableRow, text_cell, to_markdown
from smct_paper.experiments.report.checks import MET, Check, check_table
from smct_paper.experiments.report.figures import Picture, write_figures
from smct_paper.experiments.report.names import SYNTHETIC_DATASETS
from smct_paper.experiments.report.results import Results, read_results
from smct_paper.experiments.report.tables.ingredients import ablation_table, latents_table
from smct_paper.experiments.report.tables.intervals import interval_table
from smct_paper.experiments.report.tables.runs import SPLITS, grid_table, made_with, time_table
from smct_paper.experiments.report.tables.scores import crps_table, score_table
from smct_paper.experiments.report.tables.synthetic import synthetic_table
from smct_paper.experiments.report.targets import chronological_checks, paper_checks, synthetic_checks
from smct_paper.experiments.store import rounded

TEMPLATES = Path(__file__).parent / "templates"
TASKS = ("unistep", "multistep")
PAPER_SPLIT = (
    "Overlapping windows are shuffled before they are split, as the paper does, so that test values leak into "
    "training. These tables are for comparison with the paper only."
)
CHRONOLOGICAL = (
    "Windows are cut in time (covid: by county), so that no test value is seen in training: the numbers to trust. "
    "The two tables of CRPS first, then all scores of each data set."
)
OTHER_SETTINGS = (
    "These were run with settings that this version does not have any more, in part or as a whole: what the page says "
    "of a profile is not true of them. The next run does them again."
)


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    title: str
    text: Sequence[str] = ()
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()

    @property
    def anchor(self) -> str:
        """The name that links to this section have."""
        return re.sub(r"\W+", "-", self.title.lower()).strip("-")


def write_report(results_dir: Path, out: Path, console: Console, *, train: bool = True) -> list[Path]:
    """Write report.md, report.html, the pictures, and beside them the results.json that they show; returns the files.

    The models of two figures are trained (a few minutes) if `train` is set and what they show is not kept in
    `results_dir` already.

    Raises:
        FileNotFoundError: if there are no results.
    """
    results = read_results(results_dir)
    out.mkdir(parents=True, exist_ok=True)
    pictures = write_figures(results, results_dir, out, console, train=train)
    sections = report_sections(results, pictures)
    written = [picture.path for picture in pictures if picture.path is not None]
    for name in ("report.md", "report.html"):
        written.append(out / name)
        written[-1].write_text(_rendered(f"{name}.j2", sections), encoding="utf-8")
    if out.resolve() != results_dir.resolve():
        written.append(Path(shutil.copy(results_dir / "results.json", out)))
    for path in written:
        console.print(f"written: {path}", highlight=False, soft_wrap=True)
    return written


def report_sections(results: Results, pictures: Sequence[Picture]) -> list[Section]:
    """All that the page says, from top to bottom."""
    sections = [_grid_section(results), _target_section(results)]
    found = {split: {row.dataset for row in results.select(split=split)} for split in SPLITS}
    if found["folds"]:
        tables = [synthetic_table(results, name) for name in SYNTHETIC_DATASETS if name in found["folds"]]
        sections.append(Section("Synthetic series", tables=tables))
    if found["paper"]:
        tables = [interval_table(results, task) for task in TASKS]
        sections.append(Section("Real data, as in the paper", [PAPER_SPLIT], tables))
    if found["chronological"]:
        datasets = [name for name in REAL_DATASETS if name in found["chronological"]]
        tables = [crps_table(results, task) for task in reversed(TASKS)]
        tables += [score_table(results, task, name) for task in TASKS for name in datasets]
        sections.append(Section("Real data, cut in time", [CHRONOLOGICAL], tables))
    ingredients = [table for table in (ablation_table(results), latents_table(results)) if table is not None]
    if ingredients:
        sections.append(Section("Ingredients", tables=ingredients))
    sections.append(Section("Figures", pictures=pictures))
    times = (time_table(results, split) for split in SPLITS)
    sections.append(Section("Training times", tables=[table for table in times if table is not None]))
    if results.failures:
        rows = [TableRow(cell, (text_cell(reason),)) for cell, reason in results.failures.items()]
        text = "These cells failed, and the next run tries them again."
        sections.append(Section("Failed cells", [text], [Table("", ("cell", "error"), rows)]))
    others = cells_of_other_settings(results)
    if others:
        rows = [TableRow(cell, ()) for cell in others]
        sections.append(Section("Cells of other settings", [OTHER_SETTINGS], [Table("", ("cell",), rows)]))
    return sections


def _grid_section(results: Results) -> Section:
    profiles = sorted({row.profile for row in results.rows})
    text = [PROFILES[name].describe() if name in PROFILES else f"profile {name}" for name in profiles]
    text.append(
        "All scores are on scaled values, averaged over test windows, steps and targets; ± is the standard deviation "
        "over seeds or folds, where there are several. Intervals are central 95 % ones."
    )
    text += made_with(results)
    return Section("What was run", [part[0].upper() + part[1:] for part in text], [grid_table(results)])


def _target_section(results: Results) -> Section:
    groups = (
        ("Synthetic series", [*synthetic_checks(results)], SYNTHETIC_DATASETS),
        ("Real data, split `paper`", [*paper_checks(results)], REAL_DATASETS),
        ("Real data, split `chronological`", [*chronological_checks(results)], REAL_DATASETS),
    )
    every = [check for _, checks, _ in groups for check in checks]
    text = [
        "Each target is judged from the results, with its bound in brackets, for both configurations of the SMC "
        "Transformer. A target is open while cells that could decide it are missing (or seeds: it needs 3, on "
        "synthetic data 5 folds).",
        *(_count(every, config) for config in ("best", "paper")),
    ]
    return Section("Targets", text, [check_table(*group) for group in groups])


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


def _count(checks: list[Check], config: str) -> str:
    verdicts = [check.verdict for check in checks if check.subject.split(",")[0] == config]
    counted = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in MARKS if verdict in verdicts)
    return f"Configuration `{config}`: {counted or f'none {MET}'} of {len(verdicts)}."


def _rendered(template: str, sections: list[Section]) -> str:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=template.endswith(".html.j2"),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters |= {"markdown": to_markdown, "code": _with_code, "base64": base64.b64encode}
    return environment.get_template(template).render(sections=sections, marks=MARKS)


def _with_code(text: str) -> Markup:
    """Words between backticks as code, the rest escaped."""
    return Markup(re.sub(r"`(.*?)`", r"<code>\1</code>", str(escape(text))))
