"""The report says what the results say, also when they are incomplete."""

import json
import math
from pathlib import Path

import pytest

from benchmarks.panels.__main__ import main
from benchmarks.panels.panels import PANELS
from benchmarks.panels.store import add_record, read_records
from benchmarks.panels.summary import geometric_means, published_rows, rows_of

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def record(panel, method, ratio, seed=0, **changes):
    """A fabricated result whose WQL is `ratio` times that of the published seasonal naive forecast."""
    return {
        "panel": panel,
        "split": "test",
        "method": method,
        "seed": seed,
        "settings": {},
        "wql": ratio * PANELS[panel].published["Seasonal naive"].wql,
        "mase": ratio,
        "coverage_80": 0.8,
        "coverage_95": 0.95,
        "ratio": ratio,
        "fit_seconds": 50.0,
        "fit_processor_seconds": 40.0,
        "predict_seconds": 2.0,
        "predict_processor_seconds": 1.0,
        "versions": {"torch": "2.13.0"},
        **changes,
    }


def report(folder, ours, peers=()):
    for name, records in (("panels.json", ours), ("panels_peers.json", peers)):
        if records:
            (folder / name).write_text(json.dumps(records))
    main(["report", "--folder", str(folder)])
    return (folder / "panels.md").read_text()


def line(page, *starts):
    (found,) = [text for text in page.splitlines() if text.startswith("| " + " | ".join(starts) + " |")]
    return [cell.strip() for cell in found.strip("|").split("|")]


def test_rows_are_means_over_seeds():
    (row,) = rows_of([record("nn5", "smc", ratio, seed) for seed, ratio in enumerate((0.4, 0.5, 0.6))])
    assert (row.panel, row.method, row.n_seeds) == ("nn5", "SMC Transformer", 3)
    assert row.ratio == pytest.approx(0.5)
    assert row.wql_deviation == pytest.approx(0.1 * 0.4246)


def test_other_settings_are_another_method():
    rows = rows_of([record("nn5", "smc", 0.4), record("nn5", "smc", 0.6, settings={"n_particles": 8})])
    assert [row.method for row in rows] == ["SMC Transformer", "SMC Transformer, n_particles=8"]


def test_published_geometric_means():
    """By hand from the table of the protocol."""
    ratios = [0.0570 / 0.0726, 0.0903 / 0.1042, 0.0762 / 0.1013, 0.9945 / 1.6, 0.1501 / 0.4246]
    ratios += [0.0254 / 0.0483, 0.0120 / 0.0130]
    mean, count = geometric_means(published_rows())["Chronos-Bolt-base"]
    assert count == 7
    assert mean == pytest.approx(math.prod(ratios) ** (1 / 7))
    assert mean == pytest.approx(0.66, abs=0.005)


def test_complete_report(tmp_path):
    ours = [record(panel, "smc", ratio, seed) for panel in PANELS for seed, ratio in enumerate((0.5, 0.7))]
    peers = [record(panel, "auto_ets", 0.7, fit_seconds=10.0) for panel in PANELS]
    peers[0] = record("hospital", "auto_ets", 0.5)
    page = report(tmp_path, ours, peers)
    assert line(page, "SMC Transformer")[1:3] == ["0.600", "7"]
    assert line(page, "AutoETS")[3:] == ["0.600", "6 of 7"]
    assert line(page, "nn5", "SMC Transformer")[2:4] == ["0.2548 ± 0.0600", "0.600"]
    assert line(page, "nn5", "AutoETS")[7:9] == ["10.0 (40.0)", "2.0 (1.0)"]
    assert line(page, "nn5", "Chronos-T5-large (published)")[2] == "0.1573"
    assert line(page, "WQL below AutoETS on at least 6 panels")[1:] == ["6 of 7", "yes"]
    assert line(page, "WQL below NHITS on at least 6 panels")[1:] == ["0 of 0", "open"]
    assert line(page, "geometric mean at most that of Chronos-Bolt-base")[2] == "yes"
    assert "- NHITS: hospital, tourism_monthly" in page
    assert "- Seasonal naive: hospital" in page
    assert (tmp_path / "panels.png").stat().st_size > 10_000


def test_intervals_of_counts_say_what_they_should_cover(tmp_path):
    ours = [record(panel, "smc", 0.9, coverage_80=0.94, expected_80=0.92, expected_95=0.951) for panel in PANELS]
    cells = line(report(tmp_path, ours), "car_parts", "SMC Transformer")
    assert cells[5:7] == ["0.940 (expected 0.920)", "0.950"]


def test_failed_targets_are_said(tmp_path):
    ours = [record(panel, "smc", 0.9) for panel in PANELS]
    ours[0] = record("hospital", "smc", 1.2, coverage_80=0.6, fit_seconds=61.0)
    page = report(tmp_path, ours)
    assert line(page, "WQL below seasonal naive on every panel")[1:] == ["6 of 7", "**no**"]
    assert line(page, "WQL below Chronos-Bolt-base on at least 4 panels")[2] == "**no**"
    eighty = "coverage of 80 % intervals within 0.75 to 0.85 on every panel"
    assert line(page, eighty)[1:] == ["6 of 7, 0.600 to 0.800", "**no**"]
    assert line(page, "fit at most 60 s by the clock, nn5 120, m4_hourly 120")[2] == "**no**"


def test_report_without_results_and_with_some(tmp_path):
    assert "measured on 0 of 7 panels" in report(tmp_path, [])
    page = report(tmp_path, [record("nn5", "smc", 0.5), record("hospital", "smc", 0.1, split="validation")])
    assert "measured on 1 of 7 panels" in page
    assert "| hospital | SMC Transformer" not in page  # validation rows are for choices, not for reports


def test_records_replace_those_of_the_same_key(tmp_path):
    path = tmp_path / "results.json"
    for ratio in (0.5, 0.4):
        add_record(path, record("nn5", "smc", ratio))
    add_record(path, record("nn5", "smc", 0.3, seed=1))
    assert [each["ratio"] for each in read_records(path)] == [0.4, 0.3]


def test_committed_page_is_that_of_the_committed_results(tmp_path):
    for name in ("panels.json", "panels_peers.json"):
        if (RESULTS / name).exists():
            (tmp_path / name).write_text((RESULTS / name).read_text())
    main(["report", "--folder", str(tmp_path)])
    assert (tmp_path / "panels.md").read_text() == (RESULTS / "panels.md").read_text()
