"""Measure speed and memory, print a table, write benchmarks/results.json: `make bench`, or with --tiny to try.

python -m benchmarks --only stream growth
"""

import argparse
import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import fitting, growth, memory, multistep, predictive, startup, stream, training_step

RESULTS = Path(__file__).with_name("results.json")
BENCHMARKS = {
    "training_step": training_step,
    "predictive": predictive,
    "multistep": multistep,
    "growth": growth,
    "memory": memory,
    "stream": stream,
    "fitting": fitting,
    "startup": startup,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="tiny sizes: only to see that everything runs")
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, help="some of them; nothing is written without --out")
    parser.add_argument("--out", type=Path, help=f"file for the results (default: {RESULTS.name} here)")
    options = parser.parse_args()
    console = Console(width=150)
    rows = []
    for name in options.only or BENCHMARKS:
        console.print(f"measuring {name} ...", style="dim")
        rows += BENCHMARKS[name].measure(tiny=options.tiny)
    out = options.out or (None if options.only else RESULTS)
    if out is not None:
        out.write_text(json.dumps(rows, indent=2) + "\n")
    table = Table("ratio", "size (batch, particles, steps)", "measured", "target", "met")
    for row in rows:
        met = "" if row["target"] is None else "yes" if row["met"] else "[red]no[/red]"
        table.add_row(row["name"], str(row["size"]), f"{row['ratio']:g}", row["target"] or "reported", met)
    console.print(table)


if __name__ == "__main__":
    main()
