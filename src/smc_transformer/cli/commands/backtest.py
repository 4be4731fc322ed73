"""`smct backtest`: forecast the end of known series, and score these forecasts.

Forecasts the last windows of each series from the rows before them, and scores the forecasts: mse of the mean, CRPS,
coverage (picp), width (mpiw) and Winkler score of 95 % intervals, energy score of paths. Nothing after a cutoff is
used: a model that was fitted on later rows lends its settings to a new one, trained on the rows before the first
cutoff.

example: smct backtest model --data data.csv --windows 4 --out backtest.csv --plot backtest.png
"""

import argparse
from typing import TYPE_CHECKING

from smc_transformer.cli.errors import failing
from smc_transformer.cli.model import (
    add_data,
    add_horizon,
    add_levels,
    add_model_command,
    add_outputs,
    check_files,
    load_model,
)
from smc_transformer.cli.options import Commands, positive
from smc_transformer.cli.reading import check_series, read_for_model
from smc_transformer.cli.writing import put_picture, put_table, say_json, say_table
from smc_transformer.support.as_json import records

if TYPE_CHECKING:
    import pandas as pd


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = add_model_command(commands, _run, __doc__)
    add_data(parser, "table of series", required=True)
    parser.add_argument("--windows", type=positive, default=1, help="forecasts of each series (default: 1)")
    parser.add_argument("--step", type=positive, help="rows between two cutoffs (default: the horizon)")
    add_horizon(parser)
    parser.add_argument("--refit", action="store_true", help="train again at each cutoff")
    parser.add_argument("--rolling", type=positive, metavar="ROWS", help="train on so many rows before a cutoff only")
    add_levels(parser, 80, 95)
    picture = "forecasts and observed values, and how often intervals held them"
    add_outputs(parser, "the forecasts beside the observed values", picture, "the first four")


def _run(options: argparse.Namespace) -> None:
    check_files(options)
    forecaster = load_model(options.model)
    settings = forecaster.settings
    table = read_for_model(options.data, forecaster, options)
    if options.series is not None and settings.id_column in table.columns:  # before the work, which may be long
        check_series(options.series, table[settings.id_column].drop_duplicates().tolist())
    with failing(options.data):
        how = {"h": options.horizon, "level": options.level, "rolling": options.rolling, "n_paths": options.paths}
        found = forecaster.backtest(table, options.windows, options.step, options.refit, **how)
    if options.out is not None:
        put_table(found.forecasts, options.out, quiet=options.json)
    if options.plot is not None:
        from smc_transformer.report.backtest_chart import backtest_chart

        shown = check_series(options.series, found.forecasts[settings.id_column].drop_duplicates().tolist())
        put_picture(backtest_chart(found, table, settings, shown), options.plot, quiet=options.json)
    if options.json:
        rows = records(found.forecasts) if options.out is None else str(options.out)
        say_json({"windows": options.windows, "metrics": records(found.metrics), "forecasts": rows})
    else:
        _print_metrics(found.metrics)


def _print_metrics(metrics: "pd.DataFrame") -> None:
    from rich.table import Table

    shown = Table()
    for column in metrics.columns:
        shown.add_column(column, justify="left" if column == "target" else "right")
    for row in metrics.itertuples(index=False):
        shown.add_row(*(value if isinstance(value, str) else f"{value:.4g}" for value in row))
    say_table(shown, 120)
