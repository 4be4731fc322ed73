"""`smct predict`: forecast, with intervals, as a table and as a picture.

Forecasts every series from the model's saved state; from whole histories in --data; or from the state after the
rows of --new. Columns are y (the mean), y-lo-80, y-hi-80, ...

example: smct predict model --data data.csv --level 80 95 --out forecast.csv --plot forecast.png
"""

import argparse

from smc_transformer.cli.errors import failing
from smc_transformer.cli.model import (
    add_forecast,
    add_levels,
    add_model_command,
    add_outputs,
    add_rows,
    follow_rows,
    opened_model,
)
from smc_transformer.cli.options import Commands, probability
from smc_transformer.cli.reading import check_series, read_for_model
from smc_transformer.cli.writing import check_outputs, put_picture, put_table, say_json
from smc_transformer.support.as_json import records


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = add_model_command(commands, _run, __doc__)
    add_rows(parser, "histories to forecast from, which the picture shows too", required=False)
    add_forecast(parser)
    add_levels(parser, 80, 95)
    text = "further columns y-q-10 for 0.1"
    parser.add_argument("--quantile", type=probability, nargs="+", default=[], metavar="P", help=text)
    picture = "the forecasts, their bands and the history"
    add_outputs(parser, "the table (default: CSV on standard output)", picture, "the first dozen")


def _run(options: argparse.Namespace) -> None:
    check_outputs(options.out, options.plot)
    with opened_model(options) as forecaster:
        history = read_for_model(options.data, forecaster, options)
        future = read_for_model(options.future, forecaster, options)
        new, _ = follow_rows(forecaster, options)
        with failing(options.data or options.new or options.model, options.future):
            settings = {"future": future, "n_paths": options.paths, "seed": options.seed}
            forecast = forecaster.forecast(history, options.horizon, **settings)
            table = forecast.table(options.level, options.quantile)
        shown = check_series(options.series, list(forecast.names))
        put_table(table, options.out, quiet=options.json)
        if options.plot is not None:
            from smc_transformer.report.series_charts import fan_charts

            figure = fan_charts(forecast, new if history is None else history, shown, options.level)
            # Without --out the table is on standard output, where nothing else may be printed.
            put_picture(figure, options.plot, quiet=options.json or options.out is None)
    if options.json:
        say_json({"horizon": forecast.horizon, "series": len(forecast.names), "forecast": records(table)})
