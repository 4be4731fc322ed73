"""`smct data`: the data sets of the experiments, and their files."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smc_transformer.cli.errors import one_line
from smc_transformer.cli.options import Commands, add_json, not_negative
from smc_transformer.cli.writing import say_json, say_table
from smc_transformer.support.remark import remark
from smct_paper.commands import add_action

if TYPE_CHECKING:
    from rich.table import Table

    from smct_paper.datasets.summary import Summary

NAMES = ("model1", "model2", "model3", "covid", "air_quality", "weather", "energy", "stock")
WIDTH = 240
"""Characters of the tables in files and pipes."""


def add(commands: Commands) -> None:
    """Declare the command."""
    data = commands.add_parser(
        "data",
        help="list the data sets, find or download their files",
        description="The data sets of the experiments: what they are, where their files are, what they hold.",
        epilog="examples: smct data list; smct data prepare weather",
    )
    actions = data.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = add_action(
        actions,
        "list",
        _run_list,
        help="what the data sets are, and which files are at hand",
        description=(
            "Lists the data sets and whether their files are found: in --data-dir, in the folder that "
            "SMC_TRANSFORMER_DATA names, or in the cache folder. Nothing is downloaded."
        ),
        epilog="example: smct data list",
    )
    prepare = add_action(
        actions,
        "prepare",
        _run_prepare,
        help="find or download a data set's file, read it, and print what came out",
        description=(
            "Finds a data set's file, or downloads it from its publisher into the cache folder; reads it, cuts its "
            "windows, and prints rows, span, missing values and the number of windows."
        ),
        epilog="example: smct data prepare air_quality --split paper",
    )
    for action in (listing, prepare):
        action.add_argument("--data-dir", type=Path, help="folder that is searched first")
        add_json(action)
    prepare.add_argument("name", choices=(*NAMES, "all"), metavar="NAME", help=f"{', '.join(NAMES)}, or all of them")
    cut = "how training, validation and test parts are cut (the synthetic sets have folds)"
    prepare.add_argument("--split", choices=("chronological", "paper"), default="chronological", help=cut)
    prepare.add_argument("--seed", type=not_negative, default=0, help="seed of shuffles and of synthetic data")


def _run_list(options: argparse.Namespace) -> int:
    from rich.table import Table

    from smct_paper.datasets import DATASETS
    from smct_paper.datasets.files import find_file

    rows: list[dict[str, Any]] = []
    table = Table("name", "title", title="data sets")
    for name in ("inputs", "targets", "L", "history / horizon"):
        table.add_column(name, justify="right")
    table.add_column("publisher")
    table.add_column("file", overflow="fold")
    for info in DATASETS.values():
        found = None if info.file is None else find_file(info.file, options.data_dir)
        what = {"name": info.name, "title": info.title}
        lengths = {"inputs": info.n_inputs, "targets": info.n_targets, "L": info.window}
        row = {**what, **lengths, "history": info.history, "horizon": info.horizon, "publisher": info.publisher}
        licence = None if info.file is None else info.file.licence
        rows.append({**row, "licence": licence, "file": None if found is None else str(found)})
        file = "needs none" if info.file is None else str(found or "not found")
        spans = (*map(str, lengths.values()), f"{info.history} / {info.horizon}")
        table.add_row(*what.values(), *spans, info.publisher, file)
    if options.json:
        say_json(rows)
    else:
        say_table(table, WIDTH)
    return 0


def _run_prepare(options: argparse.Namespace) -> int:
    from dataclasses import asdict

    from smct_paper.datasets import DATASETS
    from smct_paper.datasets.summary import summarise

    results: list[dict[str, Any]] = []
    for name in NAMES if options.name == "all" else (options.name,):
        split = None if DATASETS[name].file is None else options.split
        try:
            summary = summarise(name, split, seed=options.seed, data_dir=options.data_dir)
        except (OSError, ValueError, ImportError) as error:
            message = one_line(error)
            remark(f"smct: {name}: {message}")
            results.append({"name": name, "error": message})
            continue
        results.append(asdict(summary))
        if not options.json:
            say_table(_summary_table(summary), WIDTH)
    if options.json:
        say_json(results)
    return int(any("error" in result for result in results))


def _summary_table(summary: "Summary") -> "Table":
    from rich.table import Table

    table = Table(title=f"{summary.name}, {summary.split}", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    if summary.path is not None and summary.span is not None and summary.missing is not None:
        version = "a version tested with" if summary.tested else "another version than tested with"
        table.add_row("file", summary.path)
        table.add_row("sha256 of the csv", f"{summary.sha256} ({version})")
        table.add_row("counties" if summary.name == "covid" else "rows", f"{summary.rows:,}")
        table.add_row("from, to", ", ".join(summary.span))
        table.add_row("gaps in time", str(summary.gaps))
        shares = [f"{name} {share:.2%}" for name, share in summary.missing.items() if share > 0]
        table.add_row("missing", ", ".join(shares) or "none")
    table.add_row("windows", ", ".join(f"{part} {count:,}" for part, count in summary.windows.items()))
    return table
