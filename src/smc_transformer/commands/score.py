"""`smct score`: how surprising observed values are, as a table and as a marked picture."""

import argparse

from smc_transformer.commands.options import Commands


def add(commands: Commands) -> None:
    """Declare the command."""
    from smc_transformer.commands.model_options import (
        add_json,
        add_levels,
        add_model,
        add_picture,
        add_rows,
        add_table_out,
    )
    from smc_transformer.commands.reading import add_reading_options

    parser = commands.add_parser(
        "score",
        help="find anomalies: how surprising each observed value is",
        description=(
            "Says of each observed value how expected it was, given what came before it: the log density in nats, the "
            "pit (its probability from below: near 0 or 1 is a surprise), and whether it lies outside "
            "central intervals. An anomaly lies outside the widest of them, as 1 of 100 ordinary values does at 99 %."
        ),
        epilog="example: smct score model --data data.csv --level 99.9 --anomalies --out found.csv --plot found.png",
    )
    add_model(parser)
    add_rows(parser, "series to score from their first rows on", required=True)
    add_levels(parser, (95, 99), "central intervals")
    parser.add_argument("--anomalies", action="store_true", help="only the anomalies, the most surprising first")
    add_table_out(parser, "the table (default: CSV on standard output)")
    add_picture(parser, "the values, the anomalies marked", "the first dozen")
    add_reading_options(parser)
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from smc_transformer.as_json import records
    from smc_transformer.commands.errors import failing
    from smc_transformer.commands.model_options import follow_rows
    from smc_transformer.commands.pictures import surprise_charts
    from smc_transformer.commands.reading import check_series, load_model, read_for_model
    from smc_transformer.commands.writing import check_plots, put_picture, put_table, remark, say_json

    if options.plot is not None:
        check_plots()
    forecaster = load_model(options.model)
    table = read_for_model(options.data, forecaster, options)
    if table is None:
        _, surprise = follow_rows(forecaster, options)
    else:
        with failing(options.data):
            surprise = forecaster.score(table, options.level)
    names = check_series(options.series, surprise[forecaster.settings.id_column].drop_duplicates().tolist())
    widest = f"outside-{max(options.level):g}"
    anomalies = surprise[surprise[widest]].sort_values("log_density", ignore_index=True)
    chosen = anomalies if options.anomalies else surprise
    put_table(chosen, options.out, quiet=options.json)
    if options.plot is not None:
        figure = surprise_charts(surprise, forecaster.settings, names, max(options.level))
        put_picture(figure, options.plot, quiet=options.json or options.out is None)
    if options.json:
        say_json(
            {
                "values": len(surprise),
                "anomalies": len(anomalies),
                "level": max(options.level),
                "scores": records(chosen),
            }
        )
    else:
        remark(f"{len(anomalies)} of {len(surprise)} values outside {max(options.level):g} % intervals")
    return 0
