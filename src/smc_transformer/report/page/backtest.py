"""The scores of a backtest, from its table of forecasts and observed values."""

from collections.abc import Sequence

import pandas as pd
import torch

from smc_transformer.forecaster import Backtest
from smc_transformer.forecaster.columns import OBSERVED
from smc_transformer.report.page.data import BacktestPage, LevelScores, plain, plain_list
from smc_transformer.scores import COVERAGE_LEVELS, central_coverage, interval_scores, pit_histogram


def backtest_pages(backtest: Backtest, targets: Sequence[str], id_column: str) -> list[BacktestPage]:
    """The backtest of each target."""
    table = backtest.forecasts
    n_forecasts = len(table[[id_column, "cutoff"]].drop_duplicates())
    step = table.groupby([id_column, "cutoff"], sort=False).cumcount() + 1
    metrics = backtest.metrics.set_index("target")
    pages = []
    for target in targets:
        seen = table[target + OBSERVED].notna()
        pit = torch.tensor(table.loc[seen, f"{target}-pit"].to_numpy(float))
        pages.append(
            BacktestPage(
                n_forecasts=n_forecasts,
                n_values=int(seen.sum()),
                **{name: plain(metrics.at[target, name]) for name in ("mse", "crps", "energy_score")},
                levels=[_level_scores(table, target, level, step) for level in sorted(levels_of(table, target))],
                calibration_levels=COVERAGE_LEVELS,
                calibration_coverage=[plain(share) for share in central_coverage(pit)],
                pit=pit_histogram(pit),
            )
        )
    return pages


def levels_of(table: pd.DataFrame, target: str) -> list[float]:
    """Percentages of the intervals that the table has."""
    start = f"{target}-lo-"
    return [float(column.removeprefix(start)) for column in table.columns if column.startswith(start)]


def _level_scores(table: pd.DataFrame, target: str, level: float, step: "pd.Series[int]") -> LevelScores:
    seen = table[target + OBSERVED].notna()
    observed, lower, upper = (
        torch.tensor(table.loc[seen, column].to_numpy(float)).view(1, -1, 1)
        for column in (target + OBSERVED, f"{target}-lo-{level:g}", f"{target}-hi-{level:g}")
    )
    found = interval_scores((lower, upper), observed, level / 100)
    inside = step[seen].to_frame("step").assign(inside=found["picp"].flatten().numpy()).groupby("step")["inside"]
    by_step = inside.mean().reindex(range(1, int(step.max()) + 1))
    means = {name: plain(float(values.mean())) for name, values in found.items()}
    return LevelScores(level, **means, picp_by_step=plain_list(by_step))
