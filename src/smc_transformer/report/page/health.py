"""The health of each series' particles over the rows that the page shows.

The forecaster keeps no record of its filter, so this is one more run of the same filter, over these rows only.
"""

import contextlib

import torch
from torch import Generator

from smc_transformer.forecaster import Forecaster, TableError
from smc_transformer.forecaster.panel import Panel, Viewed
from smc_transformer.forecaster.table import Name, Series
from smc_transformer.inference.filter import particle_filter
from smc_transformer.report.page.data import HealthPage, plain_list, plain_times

SERIES_AT_ONCE = 16
"""Series that are filtered together: bounds the memory."""


def series_health(
    forecaster: Forecaster, given: list[Series], n_rows: int, generator: Generator | None
) -> dict[Name, HealthPage]:
    """Effective sample sizes and unique ancestors over the last rows; of those with two from a complete one on."""
    model, panel, n_particles = forecaster.model, forecaster.fitted.panel, forecaster.settings.n_particles
    by_length: dict[int, list[Viewed]] = {}
    for one in _viewed(panel, given):
        try:
            begun = panel.beginning(one.rows(slice(-n_rows, None)).series)
        except TableError:
            continue
        if len(begun) > 1:
            by_length.setdefault(len(begun), []).append(one.rows(slice(-len(begun), None)))
    found = {}
    for alike in by_length.values():
        for start in range(0, len(alike), SERIES_AT_ONCE):
            chosen = alike[start : start + SERIES_AT_ONCE]
            rows = torch.stack([panel.rows(one) for one in chosen])
            result = particle_filter(model, rows, model.settings(n_particles), generator, on_collapse="uniform")
            for one, ess, unique in zip(chosen, result.ess, result.unique_ancestors, strict=True):
                times = plain_times(one.series.times[1:])
                found[one.series.name] = HealthPage(times, plain_list(ess), plain_list(unique), n_particles)
    return found


def _viewed(panel: Panel, given: list[Series]) -> list[Viewed]:
    """The series as they are seen from their first complete rows on; those that have none are left out."""
    begun = []
    for series in given:
        with contextlib.suppress(TableError):
            begun.append(panel.beginning(series))
    return panel.begin(begun)[0] if begun else []
