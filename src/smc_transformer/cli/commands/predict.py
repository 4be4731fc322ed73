"""`smct predict`: forecast, with intervals, as a table and as a picture.

Forecasts every series from the model's saved state; from whole histories in --data; or from the state after the
rows of --new. Columns are y (the mean), y-lo-80, y-hi-80, ... With --probability, --first-passage or --total the
table is the answer to that question instead, asked of the same sampled paths. With --engine, --data and --out are
Parquet datasets (folders), read and written by the workers of a cluster, and nothing passes through this process.

example: smct predict model --data data.csv --level 80 95 --out forecast.csv --plot forecast.png
example: smct predict model --engine spark --address spark://host:7077 --data histories --out forecasts --errors wrong
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from smc_transformer.cli.errors import CommandError, UsageError, failing
from smc_transformer.cli.model import (
    add_forecast,
    add_levels,
    add_model_command,
    add_outputs,
    add_rows,
    check_files,
    follow_rows,
    load_model,
    opened_model,
)
from smc_transformer.cli.options import Commands, number, probability
from smc_transformer.cli.reading import check_series, read_for_model
from smc_transformer.cli.writing import check_table, put_picture, put_table, say, say_json
from smc_transformer.support.as_json import records
from smc_transformer.support.durable import why_not_made

if TYPE_CHECKING:
    import pandas as pd

    from smc_transformer.forecaster import Forecast, Forecaster

ENGINES = ("spark", "dask", "ray")


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = add_model_command(commands, _run, __doc__)
    add_rows(parser, "histories to forecast from, which the picture shows too", required=False)
    add_forecast(parser)
    add_levels(parser, 80, 95)
    text = "further columns y-q-10 for 0.1"
    parser.add_argument("--quantile", type=probability, nargs="+", default=[], metavar="P", help=text)
    picture = "the forecasts, their bands and the history"
    _add_questions(parser)
    _add_engine(parser)
    add_outputs(parser, "the table (default: CSV on standard output)", picture, "the first dozen")


def _add_questions(parser: argparse.ArgumentParser) -> None:
    """Questions about whole paths, one at a time."""
    group = parser.add_argument_group("questions about whole paths, instead of the forecast of each step")
    one = group.add_mutually_exclusive_group()
    text = (
        "how probable an event is for each series, with its standard error; an event is 'y > 100 at any step', "
        "'y < 0 at every step', 'y >= 3 at step 4', 'sum(y) > 500', also with max, min or mean, and several with "
        "'and' or 'or' between them"
    )
    one.add_argument("--probability", metavar="EVENT", help=text)
    text = "when the target first reaches a level: the probability of each step, and of never"
    one.add_argument("--first-passage", type=number, metavar="LEVEL", help=text)
    text = "sums over the horizon of each series, with the intervals of --level"
    one.add_argument("--total", action="store_true", help=text)
    group.add_argument("--below", action="store_true", help="with --first-passage: reach the level from above")
    text = "with --first-passage: which target (default: the first)"
    group.add_argument("--target", metavar="COLUMN", help=text)


def _usable(forecaster: "Forecaster", history: "pd.DataFrame | None", errors: Path) -> "pd.DataFrame":
    """The series that can be forecast; the others are written down with their reasons."""
    if history is None:
        raise UsageError("--errors is about the series of --data: give some")
    wrong = forecaster.predict(history, 1, n_paths=1, level=[50], errors="collect").errors
    put_table(wrong, errors, quiet=True)
    column = forecaster.settings.id_column
    return history[~history[column].isin(wrong[column])].reset_index(drop=True)


def _add_engine(parser: argparse.ArgumentParser) -> None:
    """Where the work is done, and what becomes of series that cannot be used."""
    group = parser.add_argument_group("larger tables")
    text = "share the work between the workers of a cluster; needs the extra of this name"
    group.add_argument("--engine", choices=ENGINES, help=text)
    text = "of the cluster, as spark://host:7077, tcp://host:8786 or host:6379 (default: this machine)"
    group.add_argument("--address", help=text)
    text = "leave out series that cannot be used, and write their names and reasons here (default: stop)"
    group.add_argument("--errors", type=Path, metavar="FILE", help=text)


def _run_on_engine(options: argparse.Namespace) -> None:
    """Parquet in, Parquet out, by an engine."""
    questions = (options.probability, options.first_passage, options.total or None)
    if options.data is None or options.out is None:
        raise UsageError("--engine reads the Parquet dataset --data and writes the Parquet dataset --out: give both")
    if any(one is not None for one in (*questions, options.plot, options.new)) or options.json:
        raise UsageError("--engine gives the forecast of each step: without questions, --plot, --new and --json")
    for path in (options.out, options.errors):
        if path is not None and path.exists() and any(path.iterdir() if path.is_dir() else [path]):
            raise CommandError(f"{path} exists already: nothing was written")
        # On other machines it is the workers who know.
        if path is not None and options.address is None and (reason := why_not_made(path)):
            raise CommandError(f"{path} cannot be written: {reason}")
    with failing(options.data, options.future):
        from smc_transformer.engines import load, parted, told_in_a_line

        engine = load(options.engine)
        forecaster = load_model(options.model)
        future = read_for_model(options.future, forecaster, options)
        settings = {"future": future, "n_paths": options.paths, "seed": options.seed}
        arguments = {"level": options.level, "quantiles": options.quantile, **settings}
        with told_in_a_line(), engine.connected(options.address):
            table = engine.read(str(options.data))
            if options.errors is None:
                engine.write(forecaster.predict(table, options.horizon, **arguments), str(options.out))
            else:
                found = forecaster.predict(table, options.horizon, errors="collect", **arguments)
                # Computed once for both.
                parts = parted(engine, engine.kept(found.both), forecaster.settings.id_column)
                for part, path in zip(parts[:2], (options.out, options.errors), strict=True):
                    engine.write(part, str(path))
    say(f"{options.out}: forecasts" + ("" if options.errors is None else f"; {options.errors}: what was left out"))


def _answer(forecast: "Forecast", options: argparse.Namespace) -> "tuple[str, pd.DataFrame]":
    """What is asked for, by its name in JSON, and the table of it."""
    if options.probability is not None:
        return "probability", forecast.probability(options.probability)
    if options.first_passage is not None:
        found = forecast.first_passage(options.first_passage, above=not options.below, target=options.target)
        return "first_passage", found
    if options.total:
        return "total", forecast.total(options.level)
    return "forecast", forecast.table(options.level, options.quantile)


def _run(options: argparse.Namespace) -> None:
    if options.first_passage is None and (options.below or options.target is not None):
        raise UsageError("--below and --target go with --first-passage")
    if options.engine is not None:
        _run_on_engine(options)
        return
    if options.address is not None:
        raise UsageError("--address is that of an --engine: give both")
    check_files(options)
    check_table(options.errors)
    with opened_model(options) as forecaster:
        history = read_for_model(options.data, forecaster, options)
        future = read_for_model(options.future, forecaster, options)
        follow_rows(forecaster, options)
        with failing(options.data or options.new or options.model, options.future):
            settings = {"future": future, "n_paths": options.paths, "seed": options.seed}
            if options.errors is not None:
                history = _usable(forecaster, history, options.errors)
            forecast = forecaster.forecast(history, options.horizon, **settings)
            what, table = _answer(forecast, options)
        shown = check_series(options.series, list(forecast.names))
        put_table(table, options.out, quiet=options.json)
        if options.plot is not None:
            from smc_transformer.report.series_charts import fan_charts

            figure = fan_charts(forecast, history, shown, options.level)
            # Without --out the table is on standard output, where nothing else may be printed.
            put_picture(figure, options.plot, quiet=options.json or options.out is None)
    if options.json:
        say_json({"horizon": forecast.horizon, "series": len(forecast.names), what: records(table)})
