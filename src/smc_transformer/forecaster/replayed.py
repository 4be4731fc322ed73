"""The rows that a stream has answered since the states were saved, as tables for `Forecaster.update`."""

from collections.abc import Iterator
from contextlib import suppress

import pandas as pd

from smc_transformer.forecaster.fitted import Fitted
from smc_transformer.forecaster.folder.recorded import Recorded
from smc_transformer.forecaster.folder.store.databases import StoreError
from smc_transformer.forecaster.rows import PastRowError, read_row, row_series, rows_table


def recorded_tables(recorded: Recorded, fitted: Fitted) -> Iterator[tuple[pd.DataFrame, int | float | None]]:
    """A table for each round, with its `distrust`; each must be taken before the next is asked for.

    Rows that the states hold already are left out.

    Raises:
        RowError: a row cannot be read.
        StoreError: a row is kept as one of another series.
    """
    for one in recorded.rounds:
        rows = []
        for place, cells in enumerate(one.rows):
            name = row_series(cells, fitted, may_begin=True)
            if one.names is not None and name != one.names[place]:
                raise StoreError(f"{recorded.place} is damaged: a row is of {name!r}, kept as of {one.names[place]!r}")
            with suppress(PastRowError):  # the states were saved with it
                rows.append(read_row(cells, name, fitted))
        if rows:
            yield rows_table(rows, fitted.settings), one.distrust
