"""The parts of the comparison of small states with exact ones."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.panels.panels import Panel, Split
from benchmarks.small_states import EXACT, SMALL, kept_in_turn, scores
from smc_transformer import Forecaster


def test_scores_are_those_of_a_loop_over_pairs_of_paths(saved):
    forecaster = Forecaster.load(saved)
    horizon, names = forecaster.settings.horizon, ["c", "a", "b"]
    rows = [(name, time, 3.0 + place) for place, name in enumerate(names) for time in range(horizon)]
    test = pd.DataFrame(rows, columns=["unique_id", "ds", "y"])
    test.loc[1, "y"] = np.nan  # is not scored
    found = scores(forecaster, Split(Panel("walks", "h", horizon, 1, {}), test, test), seed=0)
    forecast = forecaster.forecast(seed=0)
    crps = {name: [] for name in names}
    for name, step, y in rows:
        if (name, step) != ("c", 1):
            x = forecast.paths[forecast.names.index(name), :, step, 0]
            crps[name].append(np.abs(x - y).mean() - np.abs(x[:, None] - x).mean() / 2)
    all_y = test["y"].dropna().abs().mean()
    each = [np.mean(crps[name]) / (3.0 + place) for place, name in enumerate(names)]
    together = np.mean([one for own in crps.values() for one in own]) / all_y
    assert found == pytest.approx((together, np.mean(each)), rel=1e-5)


def test_fewer_particles_take_fewer_bytes_and_the_exact_states_come_back(saved):
    forecaster = Forecaster.load(saved)
    before = forecaster.fitted.following
    ways = [(way, n_bytes, forecaster.predict(seed=0)) for way, n_bytes in kept_in_turn(forecaster)]
    assert forecaster.fitted.following is before
    assert [way for way, _, _ in ways] == [EXACT, SMALL, "8 of 16", "4 of 16", "1 of 16"]
    bytes_of = [n_bytes for _, n_bytes, _ in ways]
    assert bytes_of[0] > bytes_of[1]
    assert bytes_of[2] > bytes_of[3] > bytes_of[4]
    assert not ways[-1][2].equals(ways[0][2])
