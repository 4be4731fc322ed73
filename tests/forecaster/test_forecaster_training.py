"""What a fit does with an observation model of a user's."""

import logging

import torch
from helpers.forecaster_tables import TINY, make, walks
from torch import nn

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
