"""The parts of a layer say why torch does what C could do."""

import logging

import pytest
import torch
from helpers.agreement import random_model

from smc_transformer.kernels import disabled, library
from smc_transformer.nn.conditions import explain_attention, explain_draws, explain_perturbation
from smc_transformer.nn.covariance import DiagonalCovariance, FullCovariance, IsotropicCovariance

pytestmark = pytest.mark.skipif(library(torch.empty(0)) is None, reason="there are no kernels to do without")

SINGLE, DOUBLE, HALF = (torch.zeros(2, 3, dtype=dtype) for dtype in (torch.float32, torch.float64, torch.float16))


class HalvedCovariance(DiagonalCovariance):
    def scale(self, noise):
        return super().scale(noise) / 2


def test_there_is_no_reason_where_c_does_it():
    assert explain_draws(SINGLE) == []
    for like in (SINGLE, DOUBLE):
        assert explain_attention(like) == []
        assert explain_perturbation(DiagonalCovariance(3, 0.5), like) == []
        assert explain_perturbation(IsotropicCovariance(3, 0.5), like) == []


def test_kernels_that_are_switched_off():
    with disabled():
        assert explain_draws(SINGLE) == ["normal draws in torch: kernels are switched off"]
        assert explain_attention(SINGLE) == ["attention of trajectories in torch: kernels are switched off"]
        assert explain_perturbation(DiagonalCovariance(3, 0.5), SINGLE) == [
            "noise of trajectories in torch: kernels are switched off"
        ]


def test_other_types_of_numbers():
    assert explain_draws(DOUBLE) == ["normal draws in torch: those of C have the precision of float32"]
    assert explain_draws(HALF) == ["normal draws in torch: numbers are float16 on cpu"]
    assert explain_attention(HALF) == ["attention of trajectories in torch: numbers are float16 on cpu"]


def test_every_reason_against_the_noise_of_trajectories_is_said():
    eps = torch.zeros(2, 3, requires_grad=True)
    wanted = "noise of trajectories in torch: gradients of the noise are wanted"
    assert explain_perturbation(FullCovariance(3, 0.5), eps) == [
        "noise of trajectories in torch: the covariance of a noise is full",
        wanted,
    ]
    replaced = ["noise of trajectories in torch: the covariance of a noise was replaced", wanted]
    assert explain_perturbation(HalvedCovariance(3, 0.5), eps) == replaced
    covariance = DiagonalCovariance(3, 0.5)
    covariance.scale = lambda noise: noise
    assert explain_perturbation(covariance, eps) == replaced


def test_each_work_of_a_layer_logs_its_reason_once(caplog):
    """On a device that no other test uses, as their reasons have been logged by now."""
    caplog.set_level(logging.INFO, logger="smc_transformer")
    attention = random_model(d_model=5, d_ff=4).attention.to("meta")
    trajectories = torch.zeros(2, 3, 6, dtype=torch.int64, device="meta")
    for _ in range(2):
        noise = attention.draw_noise(2, 4, 6)
        attention.attend_all(attention.latents(noise.query[:, :1], noise, trajectories))
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.INFO] == [
        f"{work} in torch: numbers are float64 on meta"
        for work in ("normal draws", "noise of trajectories", "attention of trajectories")
    ]
