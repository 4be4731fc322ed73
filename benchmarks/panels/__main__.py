"""Forecast seven public panels with default settings, and score them as the public Chronos evaluation does.

    python -m benchmarks.panels --out results.json                    # all panels, seasonal naive and ours, three seeds
    python -m benchmarks.panels --only hospital --seeds 0 --validation --settings '{"n_particles": 32}'
    python -m benchmarks.panels report                                # docs/results/panels.md and its picture

Choices are made with --validation, which never looks at test rows. With --out, what the file already has is not run
again (--again: it is). Data: the folder of --data or of SMC_TRANSFORMER_DATA.
"""

import argparse
import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.panels.methods import METHODS
from benchmarks.panels.panels import PANELS
from benchmarks.panels.running import load_split, run_method, split_name
from benchmarks.panels.store import Record, add_record, key, read_records
from benchmarks.panels.summary import geometric_means, published_rows, rows_of

SEEDLESS = ("seasonal_naive", "auto_ets")
"""Methods without randomness: one run, as seed 0."""


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", choices=("run", "report"), default="run")
    parser.add_argument("--only", nargs="+", choices=PANELS, default=list(PANELS), metavar="PANEL", help="some panels")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=["seasonal_naive", "smc"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    help_text = "drop the test rows, forecast the rows before them; with K the K-th horizon before them"
    parser.add_argument("--validation", nargs="?", type=int, const=1, default=0, metavar="K", help=help_text)
    parser.add_argument("--settings", type=json.loads, default={}, help="JSON: arguments of the method to change")
    parser.add_argument("--out", type=Path, help="JSON file, to which results are added as they come")
    parser.add_argument("--again", action="store_true", help="run also what the file has")
    parser.add_argument("--data", type=Path, help="folder that has the folder panels")
    parser.add_argument("--folder", type=Path, default=Path("docs/results"), help="of the report and its results")
    options = parser.parse_args(arguments)
    if options.validation < 0:
        parser.error(f"--validation {options.validation}: must be at least 1")
    console = Console(width=140)
    if options.command == "report":
        from benchmarks.panels.report import write_report  # matplotlib: not in the peers' environment

        console.print(f"wrote {write_report(options.folder)}", highlight=False)
    else:
        show(console, run(options, console))


def run(options: argparse.Namespace, console: Console) -> list[Record]:
    known = {} if options.again else {key(record): record for record in read_records(options.out)}
    records = []
    for panel in options.only:
        for method in options.methods:
            settings = {} if method == "seasonal_naive" else options.settings
            for seed in [0] if method in SEEDLESS else options.seeds:
                asked = {"panel": panel, "method": method, "seed": seed, "settings": settings}
                asked["split"] = split_name(options.validation)
                record = known.get(key(asked))
                if record is None:
                    split = load_split(panel, options.validation, options.data)
                    record = run_method(split, method, seed, settings, horizons_back=options.validation)
                    if options.out is not None:
                        add_record(options.out, record)
                    console.print(line(record), style="dim", highlight=False)
                records.append(record)
    return records


def line(record: Record) -> str:
    times = f"fit {record['fit_seconds']:.1f} s ({record['fit_processor_seconds']:.1f} s processor), "
    times += f"predict {record['predict_seconds']:.1f} s ({record['predict_processor_seconds']:.1f} s)"
    scores = f"WQL {record['wql']:.4f} MASE {record['mase']:.3f} ratio {record['ratio']:.3f}"
    if record["coverage_80"] is not None:
        scores += f" coverage {record['coverage_80']:.3f}"
    if record["coverage_95"] is not None:
        scores += f" {record['coverage_95']:.3f}"
    return f"{record['panel']} {record['method']} seed {record['seed']}: {scores}, {times}"


def show(console: Console, records: list[Record]) -> None:
    """Means over seeds, and the geometric means beside the published ones on the same panels."""
    rows = rows_of(records)
    columns = ("panel", "method", "seeds", "WQL", "/ naive", "MASE", "80 %", "95 %", "fit s", "predict s")
    table = Table(*columns, title="Mean over seeds")
    for row in rows:
        numbers = ((row.wql, 4), (row.ratio, 3), (row.mase, 3), (row.coverage_80, 3), (row.coverage_95, 3))
        numbers += ((row.fit_seconds, 1), (row.predict_seconds, 1))
        table.add_row(row.panel, row.method, str(row.n_seeds), *(number(*each) for each in numbers))
    console.print(table)
    for method, (mean, count) in geometric_means(rows).items():
        console.print(f"geometric mean of WQL / seasonal naive, {method}: {mean:.3f} ({count} panels)", highlight=False)
    if any(record["split"] == "test" for record in records):
        same = [row for row in published_rows() if row.panel in {each.panel for each in rows}]
        for method, (mean, count) in geometric_means(same).items():
            console.print(f"  published, {method}: {mean:.3f} ({count} panels)", style="dim", highlight=False)


def number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


if __name__ == "__main__":
    main()
