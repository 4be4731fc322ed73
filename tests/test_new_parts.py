"""The parts that docs/architecture.md adds are found by their names and do what the page says, in C and in torch."""

import re
from pathlib import Path

import pytest
import torch
from helpers.models import make_model, sequences

from smc_transformer import InferenceSettings, SMCTransformer, SMCTransformerConfig
from smc_transformer.inference import engine
from smc_transformer.inference.proposals import PROPOSALS
from smc_transformer.kernels import disabled
from smc_transformer.learning import training_step
from smc_transformer.smc.resampling import RESAMPLERS
from smc_transformer.smc.smoothers import SMOOTHERS

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
SKELETONS = dict(re.findall(r"```python\n# (\S+)\.py\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
X = sequences(4, 12)


@pytest.fixture(autouse=True)
def known():
    """What is registered, as it was before."""
    before = [(registry, dict(registry)) for registry in (PROPOSALS, RESAMPLERS, SMOOTHERS)]
    yield
    for registry, parts in before:
        registry.clear()
        registry.update(parts)


def write(path):
    """The names of a skeleton, run as the module that it would be."""
    names = {"__name__": "smc_transformer." + path.replace("/", ".")}
    exec(SKELETONS[path], names)
    return names


def log_likelihood(model, n_particles=2000, **inference):
    settings = InferenceSettings(n_particles=n_particles, **inference)
    return model.filter(X, generator=1, inference=settings).log_likelihood


def test_an_observation_model_is_filtered_in_c_with_the_numbers_of_torch():
    observation = write("nn/observation/learned_scale")["LearnedScaleObservation"](1)
    model = SMCTransformer(SMCTransformerConfig(n_inputs=1), generator=0, observation=observation).double()
    observation.widen_(0.7)
    assert engine.explain_filter(model, model.inference, X) == []
    found = log_likelihood(model, 20)
    with disabled():
        torch.testing.assert_close(found, log_likelihood(model, 20))
    training_step(model, X, generator=0).objective.sum().backward()
    assert observation.log_scale.grad.abs() > 0


def test_an_encoder_goes_on_from_where_it_is():
    encoder = write("nn/encoders/last_two")["LastTwoEncoder"](1, 8)
    model = SMCTransformer(SMCTransformerConfig(n_inputs=1, d_model=8), generator=0, encoder=encoder).double()
    whole = encoder(X)
    torch.testing.assert_close(
        whole[:, 4:], encoder.resume(X[:, 4:], encoder.resume(X[:, :4], encoder.start(X), 0)[1], 4)[0]
    )
    gaps = X.clone()
    gaps[:, 5] = torch.nan
    assert engine.explain_filter(model, model.inference, X) == []
    assert "encoder" in " ".join(engine.explain_filter(model, model.inference, gaps))
    assert model.filter(gaps, 20, generator=1).log_likelihood.isfinite().all()


def test_a_smoother_is_found_by_its_name():
    write("smc/smoothers/filtered")
    step = training_step(make_model(), X, generator=0, inference=InferenceSettings(n_particles=20, smoother="filtered"))
    assert step.objective.isfinite().all()


@pytest.mark.parametrize(
    ("path", "settings"),
    [
        ("smc/resampling/independent", {"resampling": "independent"}),
        ("inference/proposals/wide", {"proposal": "wide"}),
    ],
)
def test_schemes_and_proposals_estimate_the_same_likelihood(path, settings):
    model = make_model(d_model=4, d_ff=4)
    expected = log_likelihood(model)
    write(path)
    assert engine.explain_filter(model, InferenceSettings(**settings), X) != []
    torch.testing.assert_close(log_likelihood(model, **settings), expected, atol=0.15, rtol=0)
