"""`smct report`: write one HTML page with forecasts, calibration and particle health.

Writes one self-contained HTML file: a fan chart of each series with history and sample paths, the calibration of a
backtest, the split of the variance, particle health, attention, settings. A backtest of a model that was fitted on
the end of the data trains a new one on the rows before.

example: smct report model --data data.csv --backtest 3 --out report.html
"""

import argparse
from pathlib import Path

from smc_transformer.cli.errors import UsageError, check_installed, failing, naming
from smc_transformer.cli.model import add_data, add_forecast, add_model_command, load_model
from smc_transformer.cli.options import Commands, not_negative
from smc_transformer.cli.reading import read_for_model
from smc_transformer.cli.writing import check_place, say, say_json


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = add_model_command(commands, _run, __doc__)
    add_data(parser, "histories to forecast from")
    parser.add_argument("--out", type=Path, required=True, help="file for the page")
    text = "forecasts of each series to score (default: none)"
    parser.add_argument("--backtest", type=not_negative, default=0, metavar="WINDOWS", help=text)
    parser.add_argument("--title", default="Forecast", help="heading of the page")
    add_forecast(parser)


def _run(options: argparse.Namespace) -> None:
    if options.backtest and options.data is None:
        raise UsageError("--backtest compares forecasts with observed values: give the series as --data")
    check_installed("jinja2", "the page needs", "report")
    check_place(options.out)
    forecaster = load_model(options.model)
    table = read_for_model(options.data, forecaster, options)
    future = read_for_model(options.future, forecaster, options)
    with failing(options.data or options.model, options.future):
        from smc_transformer.report.page import collect_page, write_page

        settings = {"n_paths": options.paths, "seed": options.seed, "title": options.title}
        page = collect_page(forecaster, table, backtest=options.backtest, h=options.horizon, future=future, **settings)
    with naming(options.out):
        write_page(page, options.out)
    if options.json:
        say_json({"page": str(options.out), "series": len(page.series), "backtest": options.backtest})
    else:
        say(f"{options.out}: {len(page.series)} series")
