"""The page: whole, partial, and without results."""

import base64
import io
import json
import re
from itertools import pairwise

import helpers.fabricated_results as fabricated
import pytest
from helpers.html_pages import read_page
from rich.console import Console

from smct_paper.experiments.grid import Cell
from smct_paper.experiments.methods import settings_of
from smct_paper.experiments.profiles import QUICK
from smct_paper.experiments.report import write_report
from smct_paper.experiments.report.figures.style import spread
from smct_paper.experiments.report.results import Results, Row
from smct_paper.experiments.report.tables.ingredients import latents_table
from smct_paper.experiments.store import rounded

pytestmark = pytest.mark.slow


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=200)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A report of made-up results of the whole grid."""
    folder = fabricated.write_rows(tmp_path_factory.mktemp("results"), fabricated.all_rows())
    fabricated.write_caches(folder)
    out = folder / "report"
    written = write_report(folder, out, Console(file=io.StringIO()), train=False)
    return out, written


def test_files_are_those_returned(report):
    out, written = report
    assert sorted(out.iterdir()) == sorted(written)
    assert {path.suffix for path in written} == {".png", ".md", ".html", ".json"}
    assert (out / "results.json").read_bytes() == (out.parent / "results.json").read_bytes()
    assert len([path for path in written if path.suffix == ".png"]) == 7


def test_pictures_are_small(report):
    _, written = report
    assert all(path.stat().st_size < 150_000 for path in written if path.suffix == ".png")


def test_html_is_whole_and_needs_nothing_else(report):
    out, _ = report
    page = read_page((out / "report.html").read_text())
    pictures = [reference for reference in page.references if reference.startswith("data:image/png;base64,")]
    links = [reference for reference in page.references if reference.startswith("#")]
    assert len(pictures) == 7
    assert len(pictures) + len(links) == len(page.references)
    assert {link.removeprefix("#") for link in links} == set(page.identifiers)
    assert base64.b64decode(pictures[0].split(",")[1]).startswith(b"\x89PNG")
    text = (out / "report.html").read_text()
    assert not re.search(r"https?:|//[a-z]|@import|url\(", re.sub(r"base64,[^\"]+", "", text))


def test_markdown_shows_the_pictures_beside_it(report):
    out, _ = report
    shown = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", (out / "report.md").read_text())
    assert len(shown) == 7
    assert all((out / name).exists() for name in shown)


def test_tables_of_markdown_have_as_many_cells_in_each_line(report):
    out, _ = report
    for block in re.findall(r"(?:^\|.*\n)+", (out / "report.md").read_text(), flags=re.MULTILINE):
        lengths = {len(re.split(r"(?<!\\)\|", line)) for line in block.strip().splitlines()}
        assert len(lengths) == 1


def test_both_pages_have_the_same_numbers(report):
    out, _ = report
    page = " ".join(read_page((out / "report.html").read_text()).text)
    for value in re.findall(r"\d\.\d{3,4}\b", (out / "report.md").read_text()):
        assert value in page


def test_the_profile_is_said_at_the_top(report):
    out, _ = report
    top = (out / "report.md").read_text()[:1500]
    assert "quick" in top
    assert "500 evenly spaced" in top


def test_half_a_grid_makes_a_report_that_says_so(tmp_path, console):
    rows = [row for row in fabricated.real_rows("chronological") if row["dataset"] in ("covid", "stock")]
    folder = fabricated.write_rows(tmp_path, [row for row in rows if row["model"] != "transformer"])
    written = write_report(folder, tmp_path / "out", console, train=False)
    text = (tmp_path / "out" / "report.md").read_text()
    assert "not run: " in text
    assert "Transformer; " in text
    assert "Not drawn: none of its cells was run." in text
    assert "Synthetic series" in text  # among the targets, which are open
    assert {path.name for path in written} == {
        "picp_per_step_chronological.png",
        "calibration_unistep.png",
        "calibration_multistep.png",
        "report.md",
        "report.html",
        "results.json",
    }
    read_page((tmp_path / "out" / "report.html").read_text())


def test_cells_of_other_settings_are_listed(tmp_path, console):
    cell = Cell("covid", "paper", "lstm", "paper", 0)
    now = {"settings": rounded(settings_of(cell, QUICK)), "evaluation": QUICK.evaluation()}
    others = {**now, "settings": {**now["settings"], "epochs": 1}}
    row, *_ = (row for row in fabricated.real_rows("paper", n_seeds=1) if row["model"] == "lstm")
    fabricated.write_rows(tmp_path, [{**row, **now}, {**row, **others, "dataset": "stock"}])
    write_report(tmp_path, tmp_path / "out", console, train=False)
    _, text = (tmp_path / "out" / "report.md").read_text().split("## Cells of other settings")
    assert "stock paper lstm" in text
    assert "covid" not in text


def test_what_the_latents_carry_is_a_table():
    rows = [
        fabricated.make_row("covid", "smc_transformer", "best", "chronological", "unistep", seed, {}, training=facts)
        for seed, facts in enumerate(({"between_particles": 0.2}, {"between_particles": 0.4}))
    ]
    table = latents_table(Results([Row.read(row) for row in rows]))
    (line,) = table.rows
    assert line.heading == "SMC Transformer (best)"
    assert line.cells[table.columns.index("covid") - 1].parts[0].text == "0.300"
    assert latents_table(Results([])) is None


def test_failed_cells_are_listed(tmp_path, console):
    folder = fabricated.write_rows(tmp_path, fabricated.real_rows("paper", n_seeds=1)[:4])
    (folder / "cells").mkdir()
    failed = {"dataset": "covid", "error": "Traceback\nValueError: <broken> | bar"}
    (folder / "cells" / "covid-paper-lstm-paper-0.json").write_text(json.dumps(failed))
    write_report(folder, tmp_path / "out", console, train=False)
    assert "covid-paper-lstm-paper-0 | ValueError: <broken> \\| bar" in (tmp_path / "out" / "report.md").read_text()
    page = read_page((tmp_path / "out" / "report.html").read_text())
    assert "ValueError: <broken> | bar" in " ".join(page.text)


@pytest.mark.parametrize("content", [None, "[]"])
def test_no_results_is_an_error_that_says_what_to_run(tmp_path, console, content):
    if content is not None:
        (tmp_path / "results.json").write_text(content)
    with pytest.raises(FileNotFoundError, match="smct experiment run"):
        write_report(tmp_path, tmp_path / "out", console)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("positions", [[0.5], [0.5, 0.5, 0.5], [0.99, 1.0, 0.98], [0.0, 0.01, 0.9], []])
def test_labels_keep_their_distance_and_their_order(positions):
    places = spread(positions, 0.1, 0.0, 1.0)
    ordered = sorted(places)
    assert all(second - first >= 0.1 - 1e-9 for first, second in pairwise(ordered))
    assert all(0.0 <= place <= 1.0 for place in places)
    for first, second in pairwise(positions):
        if first < second:
            assert places[positions.index(first)] < places[positions.index(second)]
