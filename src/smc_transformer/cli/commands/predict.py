"""`smct predict`: forecasts with intervals, as a table and as a picture."""

import argparse

from smc_transformer.cli.options import Commands, probability


def add(commands: Commands) -> None:
    """Declare the command."""
    from smc_transformer.cli.model_options import (
        add_forecast,
        add_json,
        add_levels,
        add_model,
        add_picture,
        add_rows,
        add_table_out,
    )
    from smc_transformer.cli.reading import add_reading_options

    parser = commands.add_parser(
        "predict",
        help="forecast, with intervals, as a table and as a picture",
        description=(
            "Forecasts every series from where the model stands after its last row; from whole histories in --data; or "
            "from where the rows of --new lead it. Columns are y (the mean), y-lo-80, y-hi-80, ..."
        ),
        epilog="example: smct predict model --data data.csv --level 80 95 --out forecast.csv --plot forecast.png",
    )
    add_model(parser)
    add_rows(parser, "histories to forecast from, which the picture shows too", required=False)
    add_forecast(parser)
    add_levels(parser, (80, 95), "central intervals")
    parser.add_argument(
        "--quantile", type=probability, nargs="+", default=[], metavar="P", help="further columns y-q-10 for 0.1"
    )
    add_table_out(parser, "the table (default: CSV on standard output)")
    add_picture(parser, "the forecasts, their bands and the history", "the first dozen")
    add_reading_options(parser)
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from smc_transformer.cli.errors import failing
    from smc_transformer.cli.model_options import follow_rows, opened_model
    from smc_transformer.cli.reading import check_series, read_for_model
    from smc_transformer.cli.writing import check_plots, put_picture, put_table, say_json
    from smc_transformer.report.charts.series import fan_charts
    from smc_transformer.support.as_json import records

    if options.plot is not None:
        check_plots()
    with opened_model(options) as forecaster:
        history = read_for_model(options.data, forecaster, options)
        future = read_for_model(options.future, forecaster, options)
        new, _ = follow_rows(forecaster, options)
        with failing(options.data or options.new or options.model, options.future):
            forecast = forecaster.forecast(
                history, options.horizon, future=future, n_paths=options.paths, seed=options.seed
            )
            table = forecast.table(options.level, options.quantile)
        shown = check_series(options.series, list(forecast.names))
        put_table(table, options.out, quiet=options.json)
        if options.plot is not None:
            figure = fan_charts(forecast, new if history is None else history, shown, options.level)
            # Without --out the table is on standard output: nothing may come between.
            put_picture(figure, options.plot, quiet=options.json or options.out is None)
    if options.json:
        say_json({"horizon": forecast.horizon, "series": len(forecast.names), "forecast": records(table)})
    return 0
