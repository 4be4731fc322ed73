"""Run all benchmarks, print a table, write benchmarks/results.json: `make bench`, or `python -m benchmarks --tiny`."""

import argparse
import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import training_step

RESULTS = Path(__file__).with_name("results.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="tiny sizes: only to see that everything runs")
    parser.add_argument("--out", type=Path, default=RESULTS, help="file for the results")
    options = parser.parse_args()
    rows = training_step.measure(tiny=options.tiny)
    options.out.write_text(json.dumps(rows, indent=2) + "\n")
    table = Table("ratio", "size (batch, particles, steps)", "measured", "target", "met")
    for row in rows:
        size = ", ".join(map(str, row["size"]))
        table.add_row(row["name"], size, str(row["ratio"]), str(row["target"]), "yes" if row["met"] else "no")
    Console().print(table)


if __name__ == "__main__":
    main()
