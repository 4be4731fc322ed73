"""`smct experiment`: run the paper's experiments, see how far they are, write the report."""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smc_transformer.cli.errors import CommandError, UsageError, check_installed, failing
from smc_transformer.cli.options import Commands, positive
from smc_transformer.support.durable import why_not_made
from smct_paper.commands import add_action

if TYPE_CHECKING:
    from rich.console import Console

    from smct_paper.experiments.grid import Cell
    from smct_paper.experiments.profiles import Profile
    from smct_paper.experiments.store import State, Store

GROUPS = ("synthetic", "realworld", "all")
PROFILES = ("quick", "paper")
"""Names of those in `experiments/`, which `smct --help` need not load."""
RESULTS = Path("results")
STATES = {
    "done": "finished already",
    "failed": "failed before and tried again",
    "changed": "finished with other settings or another profile and run again",
    "open": "open",
}


def add(commands: Commands) -> None:
    """Declare the command and its parts."""
    experiment = commands.add_parser(
        "experiment",
        help="run the paper's experiments, see how far they are, write the report",
        description="The paper's experiments: every model on every data set, in tables and figures.",
    )
    parts = experiment.add_subparsers(title="commands", metavar="COMMAND", required=True)
    run = add_action(
        parts,
        "run",
        _run,
        help="train and score the grid; what is finished already is not done again",
        description=(
            "Trains and scores every model on every data set, several at a time. Each cell of the grid is written to "
            "a file of its own as it finishes, so that an interrupted run goes on where it stopped. A cell that fails "
            "is reported at the end (exit code 1) and tried again by the next run. A finished cell with other "
            "settings or of another profile is run again."
        ),
        epilog="example: smct experiment run realworld --dataset weather stock --model lstm smc_transformer",
    )
    run.add_argument("group", choices=GROUPS, help="which data sets")
    _add_choice(run)
    _add(run, "--jobs", "worker processes (default: as many as cores)", type=positive)
    _add(
        run, "--engine", "where the cells run: dask, a cluster of workers (default: processes here)", choices=("dask",)
    )
    _add(run, "--address", "of the Dask scheduler (default: a cluster on this machine)")
    files = "folder with the data sets' files (default: $SMC_TRANSFORMER_DATA, else they are downloaded)"
    _add(run, "--data-dir", files, type=Path)
    run.add_argument("--fresh", action="store_true", help="forget the chosen cells first, finished or not")

    listing = add_action(
        parts,
        "list",
        _list,
        help="the grid, with what is done, failed and open",
        description="Lists the grid: how many cells are done, failed, changed (finished with other settings) and open.",
    )
    listing.add_argument("group", choices=GROUPS, nargs="?", default="all", help="which data sets")
    _add_choice(listing)

    report = add_action(
        parts,
        "report",
        _report,
        help="tables and figures, beside the paper's numbers",
        description=(
            "Writes the tables and figures of the results that there are, as Markdown and as one HTML page, with "
            "results.json beside them. Two figures need models of their own, which are trained (some minutes) and "
            "what they show is kept in the results' folder, until settings change."
        ),
        epilog="example: smct experiment report --results results --out docs/results",
    )
    report.add_argument("--results", type=Path, default=RESULTS, help="folder of `smct experiment run`")
    _add(report, "--out", "folder for the report (default: the results' folder)", type=Path)
    report.add_argument("--no-train", action="store_true", help="train nothing: old or no figures of models")


def _add_choice(parser: argparse.ArgumentParser) -> None:
    """Options that choose cells. Names are checked when the command runs: the registries import torch."""
    several: dict[str, Any] = {"nargs": "+", "action": "extend", "metavar": "NAME"}
    _add(parser, "--dataset", "some of the data sets", **several)
    _add(parser, "--model", "some of the models: baselines by name, smc_transformer", **several)
    configs = (
        "some of the configurations: paper, best, default (of models without settings in the paper), for synthetic "
        "data with the number of particles (best-30); `ablations`: best with an ingredient left out, run only on "
        "request"
    )
    _add(parser, "--config", configs, **several)
    _add(parser, "--split", "some of the splits of real data: chronological, paper", **several)
    parser.add_argument("--profile", choices=PROFILES, default="quick", help="how long to train")
    seeds = "seeds of each model on real data, folds on synthetic data (default: the profile's number, 5 folds)"
    _add(parser, "--seeds", seeds, type=positive)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")


def _add(parser: argparse.ArgumentParser, option: str, text: str, **settings: Any) -> None:
    """An option that is absent unless given, so that its help does not say that it is None by default."""
    parser.add_argument(option, default=argparse.SUPPRESS, help=text, **settings)


def _chosen(options: argparse.Namespace) -> "tuple[list[Cell], Profile, Store]":
    from smct_paper.experiments.grid import Choice, ChoiceError, select_cells
    from smct_paper.experiments.profiles import PROFILES
    from smct_paper.experiments.store import Store

    profile = PROFILES[options.profile]
    named = {"datasets": "dataset", "models": "model", "configs": "config", "splits": "split", "seeds": "seeds"}
    choice = Choice(**{name: getattr(options, option, None) for name, option in named.items()})
    try:
        return select_cells(options.group, profile, choice), profile, Store(options.out)
    except ChoiceError as error:
        parser: argparse.ArgumentParser = options.parser
        parser.error(str(error))


def _run(options: argparse.Namespace) -> int:
    from rich.console import Console

    from smct_paper.experiments import runner
    from smct_paper.experiments.progress import say

    cells, profile, store = _chosen(options)
    if store.has_lost_its_cells:
        try:
            say(Console(), f"{store.restore()} cells are made from {store.results}")
        except ValueError as error:
            raise CommandError(f"{error}; a run would replace it: choose another --out") from error
    if options.fresh:
        store.remove(cells)
    console = Console()
    found = runner.states(cells, profile, store)
    _say_plan(console, profile, found, options)
    todo = [cell for cell, state in found.items() if state != "done"]
    if todo and (reason := why_not_made(store.results)):
        raise CommandError(f"{options.out} cannot be written: {reason}")
    given: dict[str, Any] = {name: getattr(options, name, None) for name in ("jobs", "data_dir", "engine", "address")}
    if given["address"] is not None and given["engine"] is None:
        raise UsageError("--address is that of an --engine: give both")
    try:
        with failing():
            outcome = runner.run_grid(todo, profile, store, console=console, **given)
    except KeyboardInterrupt:
        say(console, "stopped: finished cells are kept, the same command goes on from here")
        raise
    say(console, f"{len(outcome.finished)} cells finished, {len(outcome.failed)} failed; results: {store.results}")
    _say_failures(console, store, outcome.failed)
    return 1 if outcome.failed else 0


def _say_plan(console: "Console", profile: "Profile", found: "dict[Cell, State]", options: argparse.Namespace) -> None:
    """What a run is going to do."""
    from smct_paper.experiments.progress import say

    states = list(found.values())
    counts = ", ".join(f"{states.count(state)} {text}" for state, text in STATES.items() if state in states)
    say(console, profile.describe(getattr(options, "seeds", None)))
    say(console, f"{len(states)} cells: {counts}")


def _say_failures(console: "Console", store: "Store", cells: "Iterable[Cell]") -> None:
    from smct_paper.experiments.progress import say
    from smct_paper.experiments.store import last_line

    for cell in cells:
        reason = last_line(store.read(cell).get("error", ""))
        say(console, f"failed: {cell}: {reason} (more in {store.path(cell)})", style="red")


def _list(options: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.table import Table

    from smct_paper.experiments.runner import states

    cells, profile, store = _chosen(options)
    found = states(cells, profile, store)
    # Nothing is known of a pipe's width: wide enough that no name is broken.
    console = Console(width=None if Console().is_terminal else 120)
    table = Table()
    for title in ("data set", "split", "model", "configuration"):
        table.add_column(title, overflow="fold")  # a name that is cut off cannot be typed
    for state in STATES:
        table.add_column(state, justify="right")
    rows: dict[tuple[str, str, str, str], list[str]] = {}
    for cell, state in found.items():
        rows.setdefault((cell.dataset, cell.split, cell.model, cell.config), []).append(state)
    for row, of_row in rows.items():
        table.add_row(*row, *(str(of_row.count(state) or "") for state in STATES))
    console.print(table)
    _say_plan(console, profile, found, options)
    _say_failures(console, store, [cell for cell, state in found.items() if state == "failed"])
    return 0


def _report(options: argparse.Namespace) -> int:
    from rich.console import Console

    for package in ("matplotlib", "jinja2"):
        check_installed(package, "the report needs", "experiments")
    from smct_paper.experiments.report import write_report
    from smct_paper.experiments.store import Store

    store = Store(options.results)
    if store.cells.is_dir():
        store.assemble()  # a run that was killed may have left an older results.json
    write_report(options.results, getattr(options, "out", options.results), Console(), train=not options.no_train)
    return 0
