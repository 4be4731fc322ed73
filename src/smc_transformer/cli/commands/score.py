"""`smct score`: how surprising observed values are, as a table and as a marked picture."""

import argparse
from typing import TYPE_CHECKING

from smc_transformer.cli.errors import failing
from smc_transformer.cli.model import follow_rows, opened_model
from smc_transformer.cli.model_options import add_command, add_levels, add_outputs, add_rows
from smc_transformer.cli.options import Commands
from smc_transformer.cli.reading import check_series, read_for_model
from smc_transformer.cli.writing import check_plots, put_picture, put_table, say_json
from smc_transformer.support.as_json import records
from smc_transformer.support.remark import remark

if TYPE_CHECKING:
    import pandas as pd

SMALLEST_TAIL = 1e-7
"""Upper tails below it cannot be told apart: the model's numbers have 32 bits."""


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        "score",
        _run,
        help="find anomalies: how surprising each observed value is",
        description=(
            "Says of each observed value how expected it was, given what came before it: the log density in nats, the "
            "pit (its probability from below: near 0 or 1 is a surprise), and whether it lies outside "
            "central intervals. An anomaly lies outside the widest of them, as 1 of 100 ordinary values does at 99 %."
        ),
        epilog="example: smct score model --data data.csv --level 99.9 --anomalies --out found.csv --plot found.png",
    )
    add_rows(parser, "series to score from their first rows on", required=True)
    add_levels(parser, (95, 99), "central intervals")
    parser.add_argument("--anomalies", action="store_true", help="only the anomalies, the most surprising first")
    picture = "the values, the anomalies marked"
    add_outputs(parser, "the table (default: CSV on standard output)", picture, "the first dozen")


def _run(options: argparse.Namespace) -> int:
    from smc_transformer.report.charts.series import surprise_charts

    check_plots(options.plot)
    with opened_model(options) as forecaster:
        table = read_for_model(options.data, forecaster, options)
        if table is None:
            _, surprise = follow_rows(forecaster, options)
        else:
            with failing(options.data):
                surprise = forecaster.score(table, options.level)
        names = check_series(options.series, surprise[forecaster.settings.id_column].drop_duplicates().tolist())
        anomalies = _most_surprising_first(surprise[surprise[f"outside-{max(options.level):g}"]])
        chosen = anomalies if options.anomalies else surprise
        put_table(chosen, options.out, quiet=options.json)
        if options.plot is not None:
            figure = surprise_charts(surprise, forecaster.settings, names, max(options.level))
            put_picture(figure, options.plot, quiet=options.json or options.out is None)
    if options.json:
        counts = {"values": len(surprise), "anomalies": len(anomalies), "level": max(options.level)}
        say_json({**counts, "scores": records(chosen)})
    else:
        remark(f"{len(anomalies)} of {len(surprise)} values outside {max(options.level):g} % intervals")
    return 0


def _most_surprising_first(anomalies: "pd.DataFrame") -> "pd.DataFrame":
    """By the probability of lying as far out, which has no unit; where that is too small to tell, by the density."""
    pit = anomalies["pit"]
    tail = pit.where(pit < 0.5, 1 - pit).clip(lower=SMALLEST_TAIL)
    return anomalies.assign(tail=tail).sort_values(["tail", "log_density"], ignore_index=True).drop(columns="tail")
