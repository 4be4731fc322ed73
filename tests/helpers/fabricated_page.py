"""A page made up for the tests: plausible in shape, true of nothing."""

import numpy as np

from smc_transformer.report.page.data import (
    QUANTILES,
    AttentionPage,
    BacktestPage,
    HealthPage,
    LevelScores,
    ReportPage,
    SeriesPage,
    TargetPage,
    plain_list,
)

NASTY = """</script><img src=x onerror="boom()"> & 'quoted' "twice" <b>"""
N_PAST, HORIZON, N_PATHS, N_SLOTS = 120, 24, 12, 24
GAP = range(60, 70)
ALONE = 65
"""A value between two gaps."""


def hours(n, start="2024-03-01T00:00"):
    return [str(time) for time in np.datetime64(start, "s") + np.arange(n) * np.timedelta64(3600, "s")]


def target(random, level=10.0):
    past = level + 3 * np.sin(2 * np.pi * np.arange(N_PAST) / 24) + random.normal(size=N_PAST) * 0.5
    past[list(GAP)] = np.nan
    past[ALONE] = level
    centre = level + 3 * np.sin(2 * np.pi * np.arange(N_PAST, N_PAST + HORIZON) / 24)
    spread = 0.5 * np.sqrt(np.arange(1, HORIZON + 1))
    draws = centre + spread * random.normal(size=(2000, HORIZON))
    return TargetPage(
        history=plain_list(past),
        mean=plain_list(draws.mean(axis=0)),
        quantiles=[plain_list(row) for row in np.quantile(draws, QUANTILES, axis=0)],
        paths=[plain_list(row) for row in draws[:N_PATHS]],
        between=plain_list(0.8 * spread**2 - 0.15),
        within=plain_list(0.2 * spread**2 + 0.15),
        variance_of="y",
    )


def series(name, random, n_targets=1, dated=True):
    times = hours(N_PAST + HORIZON) if dated else list(range(N_PAST + HORIZON))
    weights = random.dirichlet(np.linspace(0.5, 4, N_SLOTS))
    return SeriesPage(
        name=name,
        history_times=times[:N_PAST],
        forecast_times=times[N_PAST:],
        targets=[target(random, 10.0 * (1 + number)) for number in range(n_targets)],
        health=HealthPage(
            times=times[1:N_PAST],
            ess=plain_list(64 * random.beta(5, 3, size=N_PAST - 1)),
            unique=plain_list(np.ceil(4 + 60 * (np.arange(1, N_PAST) / N_PAST) ** 6)),
            n_particles=64,
        ),
        attention=AttentionPage(
            times=times[N_PAST - N_SLOTS : N_PAST],
            mean=plain_list(weights),
            lower=plain_list(0.6 * weights),
            upper=plain_list(1.5 * weights),
        ),
    )


def backtest(random):
    levels = [round(0.05 * number, 2) for number in range(1, 20)]
    return BacktestPage(
        n_forecasts=300,
        n_values=300 * HORIZON,
        mse=1.234567,
        crps=0.5432,
        energy_score=4.321,
        levels=[
            LevelScores(level, 0.98 * level / 100, width, 1.3 * width, plain_list(level / 100 + drift(random)))
            for level, width in ((50.0, 1.5), (80.0, 2.9), (95.0, 4.4))
        ],
        calibration_levels=levels,
        calibration_coverage=[round(level - 0.15 * level * (1 - level), 4) for level in levels],
        pit=[int(count) for count in 360 + 60 * np.abs(np.linspace(-1, 1, 20)) + random.normal(size=20) * 12],
    )


def drift(random):
    return np.clip(random.normal(size=HORIZON) * 0.012 - 0.001 * np.arange(HORIZON), -0.3, 0.04)


def page(names=("Munich", "Oslo", NASTY), n_targets=1, dated=True):
    random = np.random.default_rng(0)
    return ReportPage(
        title="Forecast of the sensors",
        created="2026-11-16 04:30 UTC",
        targets=["temperature", "load <kW>"][:n_targets],
        series=[series(name, random, n_targets, dated) for name in names],
        backtest=[backtest(random) for _ in range(n_targets)],
        settings=[
            ("horizon", "24"),
            ("particles", "64"),
            ("config", '{"d_model": 32, "encoder": "gru"}'),
            (NASTY, NASTY),
        ],
        time_label="ds",
    )
