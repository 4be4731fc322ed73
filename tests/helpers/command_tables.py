"""Small tables and models for the tests of commands."""

import json

import numpy as np
import pandas as pd

from smc_transformer.cli import main

QUICK = (
    *("--steps", "2", "--particles", "12", "--input-size", "10", "--horizon", "4"),
    *("--config", "d_model=8", "d_ff=8", "window=6", "n_particles=4"),
    *("--training", "batch_size=4", "validations=1"),
)
"""Options of a fit that takes a moment."""


def waves(*lengths, start="2024-01-01", noise=0.1, seed=0):
    """Hourly waves called a, b, ... of the given lengths."""
    random = np.random.default_rng(seed)
    tables = []
    for number, length in enumerate(lengths):
        y = 10 * number + np.sin(np.arange(length) / 4) + noise * random.normal(size=length)
        times = pd.date_range(start, periods=length, freq="h")
        tables.append(pd.DataFrame({"unique_id": chr(ord("a") + number), "ds": times, "y": y.round(4)}))
    return pd.concat(tables, ignore_index=True)


def write(table, path):
    table.to_csv(path, index=False)
    return str(path)


def json_lines(table):
    return "".join(
        json.dumps({"unique_id": row.unique_id, "ds": row.ds.isoformat(), "y": row.y}) + "\n"
        for row in table.sort_values(["ds", "unique_id"]).itertuples()
    )


def run(capsys, *arguments):
    """Exit code, standard output and standard error of a command."""
    capsys.readouterr()
    try:
        code = main([str(argument) for argument in arguments])
    except SystemExit as stop:  # by argparse
        code = stop.code
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def run_json(capsys, *arguments):
    code, out, err = run(capsys, *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def fails(capsys, code, *arguments):
    """The one line on standard error of a command that fails."""
    found, out, err = run(capsys, *arguments)
    assert found == code, (out, err)
    assert "Traceback" not in err
    if code == 1:
        assert err.count("\n") == 1, err
    return err
