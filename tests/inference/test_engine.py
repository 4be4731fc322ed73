"""The engine says why torch does what C could do."""

import logging

import pytest
import torch
from helpers.agreement import random_model, seeded
from helpers.models import sequences
from torch import nn

from smc_transformer.inference import engine
from smc_transformer.kernels import disabled, library
from smc_transformer.smc import RESAMPLERS

pytestmark = pytest.mark.skipif(library(torch.empty(0)) is None, reason="there are no kernels to do without")


def explain(model, x):
    """Reasons of the filter, a step and a replay."""
    embedding = model.encoder(x[:, :-1]).detach()
    noise = model.attention.draw_noise(len(x), 4, x.shape[1] - 1, seeded(0))
    return (
        engine.explain_filter(model, model.inference, x),
        engine.explain_step(model, embedding),
        engine.explain_replay(model, embedding.unsqueeze(1), noise),
    )


def test_there_is_no_reason_where_c_does_it():
    assert explain(random_model(d_model=4, d_ff=5), sequences(2, 5)) == ([], [], [])


def test_every_reason_is_said():
    model, x = random_model(d_model=4, d_ff=5, observation="negative_binomial", proposal="guided"), sequences(2, 5)
    model.readout = nn.Bilinear(4, 4, 2).double()
    x[0, 2] = float("nan")
    assert engine.explain_filter(model, model.inference, x) == [
        "step by step: the read-out was replaced",
        "step by step: proposal 'guided' draws again once the observation is known",
        "step by step: values are missing, and the observation model has features of its own",
    ]


def test_kernels_that_are_switched_off():
    with disabled():
        assert explain(random_model(d_model=4, d_ff=5), sequences(2, 5)) == (
            ["step by step: kernels are switched off"],
            ["a step in torch: kernels are switched off"],
            ["a replay in torch: kernels are switched off"],
        )


def test_other_types_of_numbers():
    model, x = random_model(d_model=4, d_ff=5).bfloat16(), sequences(2, 5).bfloat16()
    assert engine.explain_filter(model, model.inference, x) == ["step by step: numbers are bfloat16 on cpu"]


def test_a_full_covariance_is_no_reason_but_for_the_replay():
    found = explain(random_model(d_model=4, d_ff=5, covariance="full"), sequences(2, 5))
    assert found == ([], [], ["a replay in torch: the covariance of a noise is full"])


def test_a_step_whose_gradient_is_wanted_is_taken_in_torch():
    model = random_model(d_model=4, d_ff=5)
    embedding = model.encoder(sequences(2, 5))
    assert engine.explain_step(model, embedding) == ["a step in torch: gradients are wanted"]
    with torch.no_grad():
        assert engine.explain_step(model, embedding) == []


def test_a_replay_whose_gradient_by_the_noise_is_wanted_is_done_in_torch():
    model, x = random_model(d_model=4, d_ff=5), sequences(2, 5)
    noise = model.attention.draw_noise(2, 4, 5, seeded(0))
    noise.value.requires_grad_()
    embedding = model.encoder(x[:, :-1]).unsqueeze(1)
    assert engine.explain_replay(model, embedding, noise) == ["a replay in torch: gradients of the noise are wanted"]


def test_each_reason_is_logged_once(caplog, monkeypatch):
    """Under a name of its own, as the reasons of other tests have been logged by now."""
    monkeypatch.setitem(RESAMPLERS, "first_of_all", RESAMPLERS["systematic"])
    model, x = random_model(d_model=4, d_ff=5, resampling="first_of_all"), sequences(2, 5)
    caplog.set_level(logging.INFO, logger="smc_transformer")
    for _ in range(3):
        model.filter(x, 5, generator=0)
    reason = "step by step: resampling scheme 'first_of_all' is not one that C knows"
    logged = [(record.levelno, record.getMessage()) for record in caplog.records]
    assert [line for line in logged if "first_of_all" in line[1]] == [(logging.INFO, reason)]
