"""Commands on a fitted model: the options that they share, and the model loaded, updated with new rows, saved."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smc_transformer.cli.errors import TableFileError, UsageError, failing, naming
from smc_transformer.cli.options import Commands, add_command, add_json, not_negative, percentage, positive
from smc_transformer.cli.reading import FILES, add_reading_options, read_for_model
from smc_transformer.cli.writing import check_outputs

if TYPE_CHECKING:
    from smc_transformer.forecaster import Forecaster


def add_model_command(
    commands: Commands, run: Callable[[argparse.Namespace], None], text: str, *, tables: bool = True
) -> argparse.ArgumentParser:
    """A command on a fitted model, and mostly on tables too."""
    parser = add_command(commands, run, text)
    parser.add_argument("model", type=Path, metavar="MODEL", help="folder that `smct fit` has written")
    if tables:
        add_reading_options(parser)
        add_json(parser)
    return parser


def add_data(parser: argparse._ActionsContainer, what: str, *, required: bool = False) -> None:
    """A table of whole series."""
    parser.add_argument("--data", required=required, metavar="FILE", help=f"{what}: {FILES}")


def add_rows(parser: argparse.ArgumentParser, whole: str, *, required: bool) -> None:
    """Whole series, or new rows of known ones; and whether to save the state after these."""
    source = parser.add_mutually_exclusive_group(required=required)
    add_data(source, whole)
    text = "rows after those that the model knows: the filter goes on from its saved state, at their cost only"
    source.add_argument("--new", metavar="FILE", help=text)
    parser.add_argument("--save", action="store_true", help="with --new: save the state after these rows in the model")


def add_horizon(parser: argparse.ArgumentParser, default: int | None = None, paths: int = 1000) -> None:
    """How far, and by how many paths, to forecast."""
    shown = "that of the fit" if default is None else default
    parser.add_argument("--horizon", type=positive, default=default, help=f"steps ahead (default: {shown})")
    text = f"sampled futures that the numbers are computed from (default: {paths})"
    parser.add_argument("--paths", type=positive, default=paths, help=text)


def add_forecast(parser: argparse.ArgumentParser) -> None:
    """How to forecast."""
    add_horizon(parser)
    text = "inputs that are known ahead, at the times ahead; needed if there are any"
    parser.add_argument("--future", metavar="FILE", help=text)
    parser.add_argument("--seed", type=not_negative, help="of the sampled futures (default: the model's own)")


def add_levels(parser: argparse.ArgumentParser, *default: int) -> None:
    """Levels of intervals."""
    text = f"central intervals ({' '.join(map(str, default))})"
    parser.add_argument("--level", type=percentage, nargs="+", default=list(default), metavar="PERCENT", help=text)


def add_outputs(parser: argparse.ArgumentParser, table: str, picture: str, shown: str) -> None:
    """Where a table and a picture go, and which series are in the picture."""
    parser.add_argument("--out", type=Path, metavar="FILE", help=f"file for {table}: CSV, TSV or Parquet by its name")
    parser.add_argument("--plot", type=Path, metavar="FILE", help=f"file for a picture of {picture}: png, svg or pdf")
    parser.add_argument("--series", nargs="+", metavar="NAME", help=f"series in the picture (default: {shown})")


def check_files(options: argparse.Namespace) -> None:
    """Fail before the work, not after it, if what `add_outputs` has declared could not be made."""
    if options.series is not None and options.plot is None:
        raise UsageError("--series chooses the series in the picture: give --plot as well")
    check_outputs(options.out, options.plot)


def load_model(path: Path) -> "Forecaster":
    """The saved forecaster in a folder, with the rows that `smct stream` has answered."""
    with failing():
        from smc_transformer.forecaster import Forecaster

        return Forecaster.load(path)


@contextmanager
def opened_model(options: argparse.Namespace) -> "Iterator[Forecaster]":
    """The model; with --save it is locked against other writers, and saved when all else has succeeded."""
    if not options.save:
        yield load_model(options.model)
        return
    if options.new is None:
        raise UsageError("--save saves the state after the rows of --new: give some")
    with failing():
        from smc_transformer.forecaster.folder.access import Writer

        writer = Writer(options.model)
    with writer:
        forecaster = load_model(options.model)
        yield forecaster
        with failing(options.model), naming(options.model):
            writer.save(forecaster.fitted)


def follow_rows(forecaster: "Forecaster", options: argparse.Namespace) -> tuple[Any, Any]:
    """Update the model with the rows of --new; the rows and their surprise, or None and None without --new."""
    rows = read_for_model(options.new, forecaster, options)
    if rows is None:
        return None, None
    column, known = forecaster.settings.id_column, set(forecaster.series)
    with failing(options.new):
        for row, name in enumerate(rows.get(column, [])):  # a misspelt name would begin a new series
            if name not in known:
                raise TableFileError(f"column {column!r}, row {row}: the model follows no series {name!r}")
        return rows, forecaster.update(rows, options.level)
