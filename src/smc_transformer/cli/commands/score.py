"""`smct score`: find anomalies, by how surprising each observed value is.

Says of each observed value how expected it was, given what came before it: the log density in nats, the pit (how
probable a smaller value was: near 0 or 1 is a surprise), and whether it lies outside central intervals. An anomaly
lies outside the widest of them, as 1 of 100 ordinary values does at 99 %.

example: smct score model --data data.csv --level 99.9 --anomalies --out found.csv --plot found.png
"""

import argparse
from typing import TYPE_CHECKING

from smc_transformer.cli.errors import failing
from smc_transformer.cli.model import (
    add_levels,
    add_model_command,
    add_outputs,
    add_rows,
    check_files,
    follow_rows,
    opened_model,
)
from smc_transformer.cli.options import Commands
from smc_transformer.cli.reading import check_series, read_for_model
from smc_transformer.cli.writing import put_picture, put_table, say_json
from smc_transformer.support.as_json import records
from smc_transformer.support.remark import remark

if TYPE_CHECKING:
    import pandas as pd

SMALLEST_TAIL = 1e-7
"""Upper tails below it cannot be told apart: the model's numbers have 32 bits."""


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = add_model_command(commands, _run, __doc__)
    add_rows(parser, "series to score from their first rows on", required=True)
    add_levels(parser, 95, 99)
    parser.add_argument("--anomalies", action="store_true", help="only the anomalies, the most surprising first")
    picture = "the values, the anomalies marked"
    add_outputs(parser, "the table (default: CSV on standard output)", picture, "the first dozen")


def _run(options: argparse.Namespace) -> None:
    check_files(options)
    level = max(options.level)
    with opened_model(options) as forecaster:
        table = read_for_model(options.data, forecaster, options)
        if table is None:
            _, surprise = follow_rows(forecaster, options)
        else:
            with failing(options.data):
                surprise = forecaster.score(table, options.level)
        names = check_series(options.series, surprise[forecaster.settings.id_column].drop_duplicates().tolist())
        anomalies = most_surprising_first(surprise[surprise[f"outside-{level:g}"]])
        chosen = anomalies if options.anomalies else surprise
        put_table(chosen, options.out, quiet=options.json)
        if options.plot is not None:
            from smc_transformer.report.series_charts import surprise_charts

            figure = surprise_charts(surprise, forecaster.settings, names, level)
            put_picture(figure, options.plot, quiet=options.json or options.out is None)
    if options.json:
        counts = {"values": len(surprise), "anomalies": len(anomalies), "level": level}
        say_json({**counts, "scores": records(chosen)})
    else:
        remark(f"{len(anomalies)} of {len(surprise)} values outside {level:g} % intervals")


def most_surprising_first(anomalies: "pd.DataFrame") -> "pd.DataFrame":
    """By the probability of lying as far out, which has no unit; where that is too small to tell, by the density."""
    pit = anomalies["pit"]
    tail = pit.where(pit < 0.5, 1 - pit).clip(lower=SMALLEST_TAIL)
    return anomalies.assign(tail=tail).sort_values(["tail", "log_density"], ignore_index=True).drop(columns="tail")
