"""Options that the commands on a fitted model share."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smc_transformer.cli.errors import UsageError, failing
from smc_transformer.cli.options import percentage, positive, seed
from smc_transformer.cli.reading import FILES, load_model, read_for_model
from smc_transformer.cli.tables import TableFileError

if TYPE_CHECKING:
    import pandas as pd

    from smc_transformer.forecaster import Forecaster


def add_model(parser: argparse.ArgumentParser) -> None:
    """The model itself."""
    parser.add_argument("model", type=Path, metavar="MODEL", help="folder that `smct fit` has written")


def add_rows(parser: argparse.ArgumentParser, whole: str, *, required: bool) -> None:
    """Whole series, or new rows of known ones; and whether to keep what these lead to."""
    source = parser.add_mutually_exclusive_group(required=required)
    source.add_argument("--data", metavar="FILE", help=f"{whole}: {FILES}")
    source.add_argument(
        "--new",
        metavar="FILE",
        help="rows that came after those the model knows: it goes on from where it stands, at their cost only",
    )
    parser.add_argument("--save", action="store_true", help="with --new: let the model stand after these rows from now")


def add_forecast(parser: argparse.ArgumentParser) -> None:
    """How to forecast."""
    parser.add_argument("--horizon", type=positive, help="steps ahead (default: that of the fit)")
    parser.add_argument(
        "--future", metavar="FILE", help="inputs that are known ahead, at the times ahead; needed if there are any"
    )
    parser.add_argument("--paths", type=positive, default=1000, help="sampled futures behind the numbers (1000)")
    parser.add_argument("--seed", type=seed, help="of the sampled futures (default: the model's own)")


def add_levels(parser: argparse.ArgumentParser, default: tuple[int, ...], text: str) -> None:
    """Levels of intervals."""
    shown = " ".join(map(str, default))
    parser.add_argument(
        "--level", type=percentage, nargs="+", default=list(default), metavar="PERCENT", help=f"{text} ({shown})"
    )


def add_table_out(parser: argparse.ArgumentParser, what: str) -> None:
    """Where a table goes."""
    parser.add_argument("--out", type=Path, metavar="FILE", help=f"file for {what}: CSV, TSV or Parquet by its name")


def add_picture(parser: argparse.ArgumentParser, what: str, shown: str) -> None:
    """Where a picture goes, and of which series it is."""
    parser.add_argument("--plot", type=Path, metavar="FILE", help=f"file for a picture of {what}: png, svg or pdf")
    parser.add_argument("--series", nargs="+", metavar="NAME", help=f"series in the picture (default: {shown})")


def add_json(parser: argparse.ArgumentParser) -> None:
    """For machines."""
    parser.add_argument("--json", action="store_true", help="print JSON")


@contextmanager
def opened_model(options: argparse.Namespace) -> "Iterator[Forecaster]":
    """The model; with --save it is kept from other writers, and saved when all else has succeeded."""
    if not options.save:
        yield load_model(options.model)
        return
    if options.new is None:
        raise UsageError("--save keeps what rows of --new lead to: give some")
    with failing():
        from smc_transformer.forecaster.folder import Writer

        writer = Writer(options.model)
    with writer:
        forecaster = load_model(options.model)
        yield forecaster
        with failing(options.model):
            writer.save(forecaster.fitted)


def follow_rows(forecaster: "Forecaster", options: argparse.Namespace) -> "tuple[Any, Any]":
    """Take the rows of --new; the rows, and how surprising they were. Both are None where there are none."""
    rows: pd.DataFrame | None = read_for_model(options.new, forecaster, options)
    if rows is None:
        return None, None
    with failing(options.new):
        _check_known(rows, forecaster)
        return rows, forecaster.update(rows, options.level)


def _check_known(rows: "pd.DataFrame", forecaster: "Forecaster") -> None:
    """That there are rows of known series only: a wrong name would begin a new one."""
    column = forecaster.settings.id_column
    if column in rows.columns:
        known = set(forecaster.series)
        for row, name in enumerate(rows[column].tolist()):
            if name not in known:
                raise TableFileError(f"column {column!r}, row {row}: the model follows no series {name!r}")
