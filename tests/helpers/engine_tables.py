"""Answers of engines beside those of pandas."""

import pandas as pd

ENGINES = ("spark", "dask", "ray")


def in_order(table):
    keys = [column for column in ("unique_id", "cutoff", "sample_id", "ds", "target") if column in table.columns]
    return table.sort_values(keys, ignore_index=True)


def assert_same_bits(found, expected):
    pd.testing.assert_frame_equal(
        found[list(expected.columns)], expected, check_exact=True, check_dtype=False, check_column_type=False
    )
