"""`smct fit`: train a forecaster on a table of series.

Trains a forecaster on a long table, one row for each series and time, sorted by time within each series. Empty cells
and absent rows are missing values. A table without a column of names is one series. The folder that comes out is what
the other commands work with; a model that is there is replaced.

What is not said is chosen from the table, and told. In several processes (torchrun -m smc_transformer.fit ...) DATA is
Parquet, of which each process reads its own series.

example: smct fit data.csv --horizon 24 --out model
example: smct fit data.csv --target y --time ds --id unique_id --horizon 24 --calendar hour weekday --out model
"""

import argparse
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from smc_transformer.cli.errors import CommandError, UsageError, failing, one_line
from smc_transformer.cli.options import Commands, add_command, add_json, frequency, not_negative, positive, setting
from smc_transformer.cli.reading import FILES, TIME, add_reading_options, read_series_table
from smc_transformer.cli.writing import say, say_json
from smc_transformer.support.choices import CYCLES, SCALINGS

if TYPE_CHECKING:
    from smc_transformer.forecaster import Forecaster


NAMES = {"freq": "frequency", "input_size": "history", "observation": "distribution", "targets": "target"}
"""Settings that are called otherwise to a user of the command."""


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = add_command(commands, _run, __doc__)
    parser.add_argument("data", metavar="DATA", help=f"table of series: {FILES}")
    parser.add_argument("--out", type=Path, required=True, help="folder for the model")
    columns = parser.add_argument_group("columns")
    text = "forecast (default: y, or the only column with numbers)"
    columns.add_argument("--target", nargs="+", metavar="COLUMN", help=text)
    columns.add_argument("--time", default=TIME, metavar="COLUMN", help="times (default: ds)")
    columns.add_argument("--id", metavar="COLUMN", help="names of the series (default: unique_id, if there is one)")
    for name, which in (("--future-inputs", "known ahead"), ("--past-inputs", "observed, but not known ahead")):
        columns.add_argument(name, nargs="+", default=[], metavar="COLUMN", help=f"inputs that are {which}")
    text = "inputs made from the times (default: by the frequency; none: no such inputs)"
    columns.add_argument("--calendar", nargs="+", choices=(*CYCLES, "none"), help=text)
    text = f"{', '.join(SCALINGS)}, for all columns or by column as in y=log1p x=none (default: local)"
    columns.add_argument("--scaling", nargs="+", metavar="KIND", help=text)
    text = "lengths of the seasons in rows, or 0 for none (default: by the frequency)"
    columns.add_argument("--seasons", nargs="+", type=not_negative, metavar="ROWS", help=text)
    lengths = parser.add_argument_group("lengths")
    lengths.add_argument("--horizon", type=positive, required=True, help="steps ahead")
    text = "rows of history in a training window (default: by the season and the horizon)"
    lengths.add_argument("--input-size", type=positive, help=text)
    text = "pandas frequency (h, D, MS, 15min, ...), or a whole number for whole-number times (default: found)"
    lengths.add_argument("--freq", type=frequency, help=text)
    text = "last rows of each series held out to choose weights and widths by: 0, or at least the horizon"
    lengths.add_argument("--val-size", type=not_negative, help=text)
    training = parser.add_argument_group("training")
    text = "batches of each stage of training: likelihood, then forecasts (default: 200, then 100)"
    training.add_argument("--steps", type=positive, help=text)
    training.add_argument(
        "--seed", type=not_negative, default=0, help="of weights, training and particles (default: 0)"
    )
    training.add_argument("--particles", type=positive, default=64, help="that follow each series (default: 64)")
    for name, what in (("--training", "training"), ("--config", "model")):
        text = f"further settings of the {what} (docs/forecaster.md)"
        training.add_argument(name, nargs="+", type=setting, default=[], metavar="NAME=VALUE", help=text)
    add_reading_options(parser)
    add_json(parser)


def _run(options: argparse.Namespace) -> None:
    started = time.perf_counter()
    with failing():  # before the time is spent to train the model
        from smc_transformer.forecaster.folder.access import check_destination
        from smc_transformer.forecaster.folder.files import beside, expected_bytes
        from smc_transformer.support import processes

        processes.made_by_first(lambda: check_destination(options.out))
    quiet = options.json or processes.rank() > 0
    table, id_column = read_series_table(options)
    forecaster = _forecaster(options, id_column)
    with failing(options.data):  # before the training
        for name, words in forecaster.choose(table).items():
            if not quiet:
                say(f"{NAMES.get(name, name)}: {words}")
    n_series, n_rows = (sum(processes.gather(n)) for n in (table[id_column].nunique(), len(table)))
    with failing():
        n_bytes = expected_bytes(forecaster.settings, n_series)
        processes.made_by_first(lambda: check_destination(options.out, n_bytes))
    kept = beside(options.out, "training")
    if kept.exists() and not quiet:
        say(f"resuming what is left of an interrupted training in {kept}")
    with failing(options.data):
        forecaster.fit(table, options.val_size, checkpoint=kept)
    if not forecaster.gather():
        return
    try:
        with failing():
            forecaster.save(options.out)
    except OSError as error:
        raise CommandError(
            f"{options.out} cannot be written: {one_line(error)}; the training is kept in {kept}: call again"
        ) from None
    shutil.rmtree(kept, ignore_errors=True)
    seconds = time.perf_counter() - started
    if options.json:
        from dataclasses import asdict

        settings = {name: getattr(forecaster.settings, name) for name in ("targets", "freq", "horizon", "input_size")}
        training = None if forecaster.report is None else asdict(forecaster.report)
        counts = {"series": n_series, "rows": n_rows, "seconds": seconds}
        found = {"training": training, "freq_inferred": options.freq is None}
        say_json({"model": str(options.out), **counts, **settings, **found})
    else:
        if forecaster.report is not None and "view" in forecaster.report.chosen:
            say(f"what counts in the local view: {forecaster.report.chosen['view']}")
        say(f"trained on {n_series} series, {n_rows} rows, in {seconds:.0f} seconds")
        say(f"{options.out}: the model, with every series followed to its last row")


def _forecaster(options: argparse.Namespace, id_column: str) -> "Forecaster":
    with failing():
        from smc_transformer.forecaster import Forecaster
    same = ("input_size", "horizon", "future_inputs", "past_inputs", "freq", "seed")
    steps = {} if options.steps is None else {"likelihood_steps": options.steps, "forecast_steps": options.steps}
    try:
        return Forecaster(
            **{name: getattr(options, name) for name in same},
            targets=options.target,
            calendar=None if options.calendar is None else [name for name in options.calendar if name != "none"],
            seasons=None if options.seasons is None else [length for length in options.seasons if length],
            scaling=None if options.scaling is None else _scaling(options.scaling),
            config=dict(options.config),
            training={**steps, **dict(options.training)},
            n_particles=options.particles,
            id_column=id_column,
            time_column=options.time,
        )
    except (ValueError, TypeError) as error:  # about settings, which come from options
        raise UsageError(one_line(error)) from error


def _scaling(words: list[str]) -> str | dict[str, str]:
    """One kind for all columns, or COLUMN=KIND for each."""
    if len(words) == 1 and "=" not in words[0]:
        return words[0]
    found = {}
    for word in words:
        column, equals, kind = word.rpartition("=")
        if not (column and equals):
            raise ValueError(f"--scaling takes one kind, or COLUMN=KIND for each column, got {word!r}")
        found[column] = kind
    return found
