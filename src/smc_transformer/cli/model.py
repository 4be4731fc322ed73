"""The fitted model of a command: loaded, updated with new rows, saved."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smc_transformer.cli.errors import TableFileError, UsageError, failing
from smc_transformer.cli.reading import read_for_model

if TYPE_CHECKING:
    from smc_transformer.forecaster import Forecaster


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
        with failing(options.model):
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
