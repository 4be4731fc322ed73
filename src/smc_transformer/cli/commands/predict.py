"""`smct predict`: forecast, with intervals, as a table and as a picture.

Forecasts every series from the model's saved state; from whole histories in --data; or from the state after the
rows of --new. Columns are y (the mean), y-lo-80, y-hi-80, ... With --probability, --first-passage or --total the
table is the answer to that question instead, asked of the same sampled paths.

example: smct predict model --data data.csv --level 80 95 --out forecast.csv --plot forecast.png
"""

import argparse
from typing import TYPE_CHECKING

from smc_transformer.cli.errors import UsageError, failing
from smc_transformer.cli.model import (
    add_forecast,
    add_levels,
    add_model_command,
    add_outputs,
    add_rows,
    follow_rows,
    opened_model,
)
from smc_transformer.cli.options import Commands, number, probability
from smc_transformer.cli.reading import check_series, read_for_model
from smc_transformer.cli.writing import check_outputs, put_picture, put_table, say_json
from smc_transformer.support.as_json import records

if TYPE_CHECKING:
    import pandas as pd

    from smc_transformer.forecaster import Forecast


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
    check_outputs(options.out, options.plot)
    with opened_model(options) as forecaster:
        history = read_for_model(options.data, forecaster, options)
        future = read_for_model(options.future, forecaster, options)
        follow_rows(forecaster, options)
        with failing(options.data or options.new or options.model, options.future):
            settings = {"future": future, "n_paths": options.paths, "seed": options.seed}
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
