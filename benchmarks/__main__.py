"""Measure speed and memory, print a table, write benchmarks/results.json: `make bench`, or with --tiny to try.

python -m benchmarks --only stream growth
"""

import argparse
import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import (
    busy,
    everyday,
    fitting,
    fleet,
    growth,
    long_stream,
    memory,
    multistep,
    predictive,
    startup,
    stream,
    training_step,
)

RESULTS = Path(__file__).with_name("results.json")
BENCHMARKS = {
    "training_step": training_step,
    "everyday": everyday,
    "busy": busy,
    "predictive": predictive,
    "multistep": multistep,
    "growth": growth,
    "memory": memory,
    "stream": stream,
    "long_stream": long_stream,
    "fitting": fitting,
    "fleet": fleet,
    "startup": startup,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="tiny sizes: only to see that everything runs")
    parser.add_argument(
        "--only", nargs="+", choices=BENCHMARKS, help="some of them; other results are left as they are"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="file for the results")
    options = parser.parse_args()
    console = Console(width=150)
    rows = []
    for name in options.only or BENCHMARKS:
        console.print(f"measuring {name} ...", style="dim")
        rows += BENCHMARKS[name].measure(tiny=options.tiny)
        write(options.out, rows)
    table = Table("ratio", "size (batch, particles, steps)", "measured", "target", "met")
    for row in rows:
        met = "" if row["target"] is None else "yes" if row["met"] else "[red]no[/red]"
        table.add_row(row["name"], str(row["size"]), f"{row['ratio']:g}", row["target"] or "reported", met)
    console.print(table)


def write(path: Path, rows: list[dict]) -> None:
    """Put new results in the place of old ones of the same name and size, and others at the end."""
    old = json.loads(path.read_text()) if path.exists() else []

    def key(row: dict) -> tuple[str, str]:
        return row["name"], str(row["size"]) if isinstance(row["size"], (list, tuple)) else ""

    known = {key(json.loads(json.dumps(row))): row for row in rows}
    merged = [known.pop(key(row), row) for row in old] + list(known.values())
    path.write_text(json.dumps(merged, indent=2) + "\n")


if __name__ == "__main__":
    main()
