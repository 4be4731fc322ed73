"""Zero latent noise beside the default, on a panel made here."""

import numpy as np
import pandas as pd
import pytest
import torch
from helpers.forecaster_tables import SHORT, TINY

from benchmarks.latents_on_panels import VARIANTS, run
from benchmarks.panels.methods import smc
from benchmarks.panels.panels import Panel, split_panel
from smc_transformer.support.randomness import as_generator

PANEL = Panel("small", "D", 4, 3, {})


def small_split():
    days, generator = pd.date_range("2024-01-01", periods=44), as_generator(0)
    rows = [
        pd.DataFrame({"unique_id": name, "ds": days, "y": 5 + torch.randn(len(days), generator=generator).double()})
        for name in ("a", "b", "c")
    ]
    return split_panel(PANEL, pd.concat(rows, ignore_index=True))


def tiny(settings):
    config = {**TINY, **settings.get("config", {})}
    return {"training": SHORT, "n_particles": 16, "config": config}


def test_rows_are_judged_one_by_one_and_zero_noise_stays_zero():
    split = small_split()
    for name, settings in VARIANTS.items():
        found = run(split, 0, tiny(settings))
        forecaster = smc.fitted(split, 0, tiny(settings))
        days = [forecaster.update(day)["log_density"] for _, day in split.test.groupby("ds")]
        assert found["one_step_log_density"] == pytest.approx(float(np.mean(pd.concat(days))), abs=1e-4)
        assert 0 <= found["coverage_80"] <= found["coverage_95"] <= 1
        zero = [covariance.is_zero for covariance in forecaster.model.attention.covariances]
        assert all(zero) if name == "no latent noise" else not any(zero)
