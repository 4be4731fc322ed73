"""`smct experiment`: run the paper's experiments, see how far they are, write the report."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from smc_transformer.cli.errors import CommandError
from smc_transformer.cli.options import Commands, positive

if TYPE_CHECKING:
    from rich.console import Console

    from smct_paper.experiments.grid import Cell
    from smct_paper.experiments.profiles import Profile
    from smct_paper.experiments.store import Store

GROUPS = ("synthetic", "realworld", "all")
RESULTS = Path("results")
Action = Callable[[argparse.Namespace], int]


def add(commands: Commands) -> None:
    """Declare the command and its parts."""
    experiment = commands.add_parser(
        "experiment",
        help="run the paper's experiments, see how far they are, write the report",
        description="The paper's experiments: every model on every data set, in tables and figures.",
    )
    parts = experiment.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_run(parts)
    _add_list(parts)
    _add_report(parts)


def _add_run(parts: Commands) -> None:
    run = parts.add_parser(
        "run",
        help="train and score the grid; what is finished already is not done again",
        description=(
            "Trains and scores every model on every data set, several at a time. Each cell of the grid is written to "
            "a file of its own as it finishes, so that an interrupted run goes on where it stopped. A cell that fails "
            "is reported at the end (exit code 1) and tried again by the next run. A finished cell with other "
            "settings or of another profile is run again."
        ),
        epilog="example: smct experiment run realworld --dataset weather stock --model lstm smc_transformer",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    run.add_argument("group", choices=GROUPS, help="which data sets")
    _add_choice(run)
    run.add_argument(
        "--jobs", type=positive, default=argparse.SUPPRESS, help="worker processes (default: as many as cores)"
    )
    run.add_argument(
        "--data-dir",
        type=Path,
        default=argparse.SUPPRESS,
        help="folder with the data sets' files (default: $SMC_TRANSFORMER_DATA, else they are downloaded)",
    )
    run.add_argument("--fresh", action="store_true", help="forget the chosen cells first, finished or not")
    run.set_defaults(run=_checked(run, _run))


def _add_list(parts: Commands) -> None:
    listing = parts.add_parser(
        "list",
        help="the grid, with what is done, failed and open",
        description="Lists the grid: how many cells are done, failed, changed (finished with other settings) and open.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    listing.add_argument("group", choices=GROUPS, nargs="?", default="all", help="which data sets")
    _add_choice(listing)
    listing.set_defaults(run=_checked(listing, _list))


def _add_report(parts: Commands) -> None:
    report = parts.add_parser(
        "report",
        help="tables and figures, beside the paper's numbers",
        description=(
            "Writes the tables and figures of the results that there are, as Markdown and as one HTML page, with "
            "results.json beside them. Two figures need models of their own, which are trained (some minutes) and "
            "what they show is kept in the results' folder, until settings change."
        ),
        epilog="example: smct experiment report --results results --out docs/results",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    report.add_argument("--results", type=Path, default=RESULTS, help="folder of `smct experiment run`")
    report.add_argument(
        "--out", type=Path, default=argparse.SUPPRESS, help="folder for the report (default: the results' folder)"
    )
    report.add_argument("--no-train", action="store_true", help="leave out figures whose models are not trained yet")
    report.set_defaults(run=_report)


def _add_choice(parser: argparse.ArgumentParser) -> None:
    """Options that choose cells. Names are checked when the command runs: the registries import torch."""

    def several(option: str, text: str) -> None:
        parser.add_argument(option, nargs="+", action="extend", default=argparse.SUPPRESS, metavar="NAME", help=text)

    several("--dataset", "some of the data sets")
    several("--model", "some of the models: baselines by name, smc_transformer")
    several(
        "--config",
        "some of the configurations: paper, best, default (of models without settings in the paper), for synthetic "
        "data with the number of particles (best-30); `ablations`: best with an ingredient left out, run only on "
        "request",
    )
    several("--split", "some of the splits of real data: chronological, paper")
    parser.add_argument("--profile", choices=("quick", "paper"), default="quick", help="how long to train")
    parser.add_argument(
        "--seeds",
        type=positive,
        default=argparse.SUPPRESS,
        help="seeds of each model on real data, folds on synthetic data (default: the profile's number, 5 folds)",
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")


def _checked(parser: argparse.ArgumentParser, action: Action) -> Action:
    """The action, with wrong choices reported as argparse reports wrong usage."""

    def run(options: argparse.Namespace) -> int:
        from smct_paper.experiments.grid import ChoiceError

        try:
            return action(options)
        except ChoiceError as error:
            parser.error(str(error))

    return run


def _chosen(options: argparse.Namespace) -> "tuple[list[Cell], Profile, Store]":
    from smct_paper.experiments.grid import Choice, select_cells
    from smct_paper.experiments.profiles import PROFILES
    from smct_paper.experiments.store import Store

    profile = PROFILES[options.profile]
    choice = Choice(
        datasets=getattr(options, "dataset", None),
        models=getattr(options, "model", None),
        configs=getattr(options, "config", None),
        splits=getattr(options, "split", None),
        seeds=getattr(options, "seeds", None),
    )
    return select_cells(options.group, profile, choice), profile, Store(options.out)


def _run(options: argparse.Namespace) -> int:
    from rich.console import Console

    from smct_paper.experiments.progress import say
    from smct_paper.experiments.runner import run_grid, states

    cells, profile, store = _chosen(options)
    if store.has_lost_its_cells:
        raise CommandError(f"{store.results} is without its cells, and a run would replace it: choose another --out")
    if options.fresh:
        store.remove(cells)
    console = Console()
    found = states(cells, profile, store)
    todo = [cell for cell, state in found.items() if state != "done"]
    say(console, profile.describe(getattr(options, "seeds", None)))
    say(console, _plan(list(found.values())))
    try:
        outcome = run_grid(
            todo,
            profile,
            store,
            jobs=getattr(options, "jobs", None),
            data_dir=getattr(options, "data_dir", None),
            console=console,
        )
    except KeyboardInterrupt:
        say(console, "stopped: finished cells are kept, the same command goes on from here")
        raise
    say(console, f"{outcome.finished} cells finished, {len(outcome.failed)} failed; results: {store.results}")
    _say_failures(console, store, list(outcome.failed))
    return 1 if outcome.failed else 0


def _plan(found: list[str]) -> str:
    """What a run is going to do."""
    words = {
        "done": "finished already",
        "failed": "failed before and tried again",
        "changed": "finished with other settings or another profile and run again",
        "open": "open",
    }
    counts = {state: found.count(state) for state in words}
    return f"{len(found)} cells: " + ", ".join(
        f"{counts[state]} {text}" for state, text in words.items() if counts[state]
    )


def _say_failures(console: "Console", store: "Store", cells: "list[Cell]") -> None:
    from smct_paper.experiments.progress import say
    from smct_paper.experiments.store import last_line

    for cell in cells:
        error = (store.read(cell) or {}).get("error", "")
        say(console, f"failed: {cell}: {last_line(error)} (more in {store.path(cell)})", style="red")


def _list(options: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.table import Table

    from smct_paper.experiments.progress import say
    from smct_paper.experiments.runner import states

    cells, profile, store = _chosen(options)
    found = states(cells, profile, store)
    console = Console()
    if not console.is_terminal:  # nothing is known of a pipe's width: wide enough that no name is broken
        console = Console(width=120)
    table = Table()
    for title in ("data set", "split", "model", "configuration"):
        table.add_column(title, overflow="fold")  # a name that is cut off cannot be typed
    for title in ("done", "failed", "changed", "open"):
        table.add_column(title, justify="right")
    rows: dict[tuple[str, str, str, str], list[str]] = {}
    for cell, state in found.items():
        rows.setdefault((cell.dataset, cell.split, cell.model, cell.config), []).append(state)
    for row, of_row in rows.items():
        table.add_row(*row, *(str(of_row.count(state) or "") for state in ("done", "failed", "changed", "open")))
    console.print(table)
    say(console, profile.describe(getattr(options, "seeds", None)))
    say(console, _plan(list(found.values())))
    _say_failures(console, store, [cell for cell, state in found.items() if state == "failed"])
    return 0


def _report(options: argparse.Namespace) -> int:
    from rich.console import Console

    from smct_paper.experiments.report import write_report
    from smct_paper.experiments.store import Store

    store = Store(options.results)
    if store.cells.is_dir():
        store.assemble()  # a run that was killed may have left an older results.json
    out = getattr(options, "out", options.results)
    write_report(options.results, out, Console(), train=not options.no_train)
    return 0
