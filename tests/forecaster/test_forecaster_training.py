"""What a fit makes of its settings, of held-out rows, and of an observation model of a user's."""

import logging

import numpy as np
import pandas as pd
import pytest
import torch
from helpers.forecaster_tables import TINY, make, series, walks
from helpers.models import assert_same, weights
from torch import nn

from smc_transformer.forecaster.settings import Settings
from smc_transformer.forecaster.training import training_recipe
from smc_transformer.nn.observation import OBSERVATION_MODELS, ObservationModel
from smc_transformer.nn.observation.gaussian import GaussianComponents


class OwnScale(ObservationModel):
    """Gaussian, its scale learned by gradient; nothing says how to make it wider."""

    def __init__(self, n_targets):
        super().__init__(n_targets, n_parameters=n_targets)
        self.log_scale = nn.Parameter(torch.zeros(n_targets))

    def components(self, parameters):
        return GaussianComponents(parameters, self.log_scale.exp().diag())


def test_noise_that_cannot_be_widened_stays_as_trained(monkeypatch, caplog):
    monkeypatch.setitem(OBSERVATION_MODELS, "own_scale", lambda settings: OwnScale(settings.n_targets))
    forecaster = make(config={**TINY, "observation": "own_scale"})
    with caplog.at_level(logging.INFO):
        forecaster.fit(walks(200), progress=False)
    assert forecaster.report.widening == 1.0
    assert "OwnScale has no widen_: the width of intervals stays as trained" in caplog.messages
    assert forecaster.predict().notna().all(axis=None)


def forecast_stage(scaling="local", **training):
    return training_recipe(Settings(scaling=scaling, training=training)).forecast


def test_a_longer_stage_of_forecasts_goes_no_farther_through_the_local_view():
    usual = forecast_stage()
    assert (usual.steps, usual.learning_rate) == (100, 1e-3)
    for stage in (forecast_stage(likelihood_steps=600), forecast_stage(forecast_steps=3000, learning_rate=2e-3)):
        assert stage.steps > 100
        assert stage.steps * stage.learning_rate == pytest.approx(usual.steps * usual.learning_rate)
    assert forecast_stage(forecast_steps=40).learning_rate == 1e-3
    assert usual.start_counts
    plain = forecast_stage("standard", likelihood_steps=600)
    assert (plain.steps, plain.learning_rate, plain.start_counts) == (600, 1.5e-3, False)


def rising_until(last, n_rows):
    """Series that rise together, and all fall after row `last`."""
    random = np.random.default_rng(0)
    slope = np.where(np.arange(n_rows) < last, 1.0, -6.0)
    return pd.concat(
        [series(str(number), 50 + np.cumsum(slope + random.normal(size=n_rows))) for number in range(12)],
        ignore_index=True,
    )


def test_a_stage_of_forecasts_that_held_out_rows_contradict_is_left_out():
    table, trained = rising_until(56, 60), {}
    for steps in (0, 30):
        training = {"likelihood_steps": 4, "forecast_steps": steps, "batch_size": 16, "learning_rate": 2e-2}
        forecaster = make(training=training).fit(table, val_size=4, progress=False)
        trained[steps] = weights(forecaster.fitted.model)
        assert len(forecaster.report.forecast) == (2 if steps else 0)
    assert_same(trained[30], trained[0])


def test_a_stage_of_forecasts_that_held_out_rows_agree_with_is_kept():
    table, trained = rising_until(100, 60), []
    for steps in (0, 30):
        training = {"likelihood_steps": 4, "forecast_steps": steps, "batch_size": 16, "learning_rate": 2e-2}
        trained.append(weights(make(training=training).fit(table, val_size=4, progress=False).fitted.model))
    assert not torch.equal(*(found["readout.projection.weight"] for found in trained))
