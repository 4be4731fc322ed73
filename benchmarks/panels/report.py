"""docs/results/panels.md and its picture, from the committed results: no number there is written by hand.

Our rows are those of panels.json, the peers' those of panels_peers.json; either may be absent or incomplete. Published
numbers are those of panels.py.
"""

from pathlib import Path

from benchmarks.panels.figure import draw_ratios
from benchmarks.panels.methods import METHODS
from benchmarks.panels.panels import PANELS
from benchmarks.panels.store import Record, read_records
from benchmarks.panels.summary import Row, geometric_means, published_rows, rows_of

FOLDER = Path("docs/results")
OURS, PEERS, PAGE, PICTURE = "panels.json", "panels_peers.json", "panels.md", "panels.png"
NAIVE, SMC = METHODS["seasonal_naive"], METHODS["smc"]
COVERAGE = {80: (0.75, 0.85), 95: (0.92, 0.98)}
"""What coverage of the intervals is aimed at, on each panel."""
FIT_SECONDS = {"nn5": 120, "m4_hourly": 120}
"""Panels that may take longer to fit than 60 s."""


def write_report(folder: Path = FOLDER) -> Path:
    """Write the page and the picture; returns the page's path."""
    records = [record for name in (OURS, PEERS) for record in read_records(folder / name) if record["split"] == "test"]
    measured = rows_of(records)
    draw_ratios(in_order(measured), folder / PICTURE)
    page = folder / PAGE
    page.write_text(page_text(measured, records))
    return page


def in_order(measured: list[Row]) -> list[Row]:
    """Measured and published rows: by panel, measured ones first."""
    panels = list(PANELS)
    return sorted([*measured, *published_rows()], key=lambda row: panels.index(row.panel))


def page_text(measured: list[Row], records: list[Record]) -> str:
    parts = [
        "# Seven public panels",
        f"Made by `python -m benchmarks.panels report` from {OURS} and {PEERS}; no number on this page is written by "
        "hand. What is measured and how: [docs/panels.md](../panels.md). Chronos: numbers its authors published.",
        f"![WQL over that of a seasonal naive forecast, by panel and method]({PICTURE})",
        "## Over all panels",
        means_table(in_order(measured)),
        *targets(measured),
        "## Each panel",
        "Means over seeds, ± the standard deviation between them. Seconds are those of the clock and, in brackets, of "
        "the processor, on a machine of two cores that may have been busy with other work: the second tells more.",
        panels_table(in_order(measured)),
        *absent(measured),
        "## Versions",
        versions(records),
    ]
    return "\n\n".join(parts) + "\n"


def means_table(rows: list[Row]) -> str:
    """Geometric means; ours on the panels of the other method too, as not all methods have all panels."""
    ratios = {(row.panel, row.method): row.ratio for row in rows}
    lines = [("method", "WQL / seasonal naive, geometric mean", "panels", f"{SMC} on these", "lower on")]
    for method, (mean, count) in geometric_means(rows).items():
        if method == NAIVE:
            continue
        panels = [row.panel for row in rows if row.method == method]
        ours = [row for row in rows if row.method == SMC and row.panel in panels]
        beside = f"{geometric_means(ours)[SMC][0]:.3f}" if len(ours) == len(panels) and method != SMC else ""
        lower = sum(row.ratio < ratios[row.panel, method] for row in ours)
        lines.append((method, f"{mean:.3f}", f"{count}", beside, f"{lower} of {len(ours)}" if beside else ""))
    return markdown(lines, left=1)


def targets(measured: list[Row]) -> list[str]:
    """What the defaults are meant to reach, and whether they do; nothing before all panels have been measured."""
    ours = {row.panel: row for row in measured if row.method == SMC}
    if set(ours) != set(PANELS):
        return [f"{SMC}: measured on {len(ours)} of {len(PANELS)} panels, so no target is judged yet."]
    everything = in_order(measured)
    ratios = {(row.panel, row.method): row.ratio for row in everything}
    lines = [("target", "measured", "met")]

    def judge(what: str, value: str, met: bool | None) -> None:
        lines.append((what, value, "open" if met is None else "yes" if met else "**no**"))

    def below(other: str, at_least: int) -> None:
        beside = [panel for panel in ours if (panel, other) in ratios]
        count = sum(ratios[panel, SMC] < ratios[panel, other] for panel in beside)
        possible = count + len(ours) - len(beside)  # on panels where the other has not been measured
        met = True if count >= at_least else None if possible >= at_least else False
        judge(f"WQL below {other} on at least {at_least} panels", f"{count} of {len(beside)}", met)
        if beside:
            mean = geometric_means([row for row in everything if row.method == other])[other][0]
            same = geometric_means([ours[panel] for panel in beside])[SMC][0]
            where = "" if len(beside) == len(ours) else f", on {len(beside)} panels"
            judge(f"geometric mean at most that of {other}{where}", f"{same:.3f}, {mean:.3f}", same <= mean)

    count = sum(row.ratio < 1 for row in ours.values())
    judge("WQL below seasonal naive on every panel", f"{count} of {len(ours)}", count == len(ours))
    below(METHODS["auto_ets"], 6)
    below(METHODS["nhits"], 6)
    below("Chronos-Bolt-base", 4)
    for percent, (least, most) in COVERAGE.items():
        found = [getattr(row, f"coverage_{percent}") for row in ours.values()]
        inside = sum(least <= share <= most for share in found)
        what = f"coverage of {percent} % intervals within {least} to {most} on every panel"
        judge(what, f"{inside} of {len(found)}, {min(found):.3f} to {max(found):.3f}", inside == len(found))
    quick = sum(row.fit_seconds <= FIT_SECONDS.get(panel, 60) for panel, row in ours.items())
    what = "fit at most 60 s by the clock, " + ", ".join(f"{panel} {limit}" for panel, limit in FIT_SECONDS.items())
    judge(what, f"{quick} of {len(ours)}", quick == len(ours))
    return ["Targets of the defaults:", markdown(lines, left=2)]


def panels_table(rows: list[Row]) -> str:
    lines = [("panel", "method", "WQL", "/ naive", "MASE", "80 %", "95 %", "fit s", "predict s", "seeds")]
    for row in rows:
        deviation = "" if row.wql_deviation is None else f" ± {row.wql_deviation:.4f}"
        published = row.fit_seconds is None
        lines.append(
            (
                row.panel,
                row.method + (" (published)" if published else ""),
                f"{row.wql:.4f}{deviation}",
                f"{row.ratio:.3f}",
                f"{row.mase:.3f}",
                _share(row.coverage_80) + _expected(row.expected_80, 0.8),
                _share(row.coverage_95) + _expected(row.expected_95, 0.95),
                _seconds(row.fit_seconds, row.fit_processor_seconds),
                _seconds(row.predict_seconds, row.predict_processor_seconds),
                "" if published else str(row.n_seeds),
            )
        )
    return markdown(lines, left=2)


def absent(measured: list[Row]) -> list[str]:
    """What has not been measured, said openly."""
    known = {(row.panel, row.method.partition(",")[0]) for row in measured}
    lines = []
    for method in METHODS.values():
        missing = [panel for panel in PANELS if (panel, method) not in known]
        if missing:
            lines.append(f"- {method}: {', '.join(missing)}")
    return ["Not measured:\n\n" + "\n".join(lines)] if lines else []


def versions(records: list[Record]) -> str:
    used = {
        f"- {METHODS[record['method']]}: "
        + ", ".join(f"{name} {number}" for name, number in record["versions"].items())
        for record in records
        if record["versions"]
    }
    return "\n".join(sorted(used)) or "None: nothing has been measured."


def markdown(lines: list[tuple[str, ...]], left: int) -> str:
    """A table, its first line the header; the first `left` columns are text."""
    header, *body = lines
    rule = [" --- "] * left + [" ---: "] * (len(header) - left)
    return "\n".join(
        ["| " + " | ".join(header) + " |", "|" + "|".join(rule) + "|", *("| " + " | ".join(row) + " |" for row in body)]
    )


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _expected(value: float | None, level: float) -> str:
    """What the method itself expects, where that is not what the level says: intervals of whole numbers."""
    return "" if value is None or abs(value - level) < 0.01 else f" (expected {value:.3f})"


def _seconds(clock: float | None, processor: float | None) -> str:
    return "" if clock is None or processor is None else f"{clock:.1f} ({processor:.1f})"
