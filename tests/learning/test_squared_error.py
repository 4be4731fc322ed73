"""The squared error of the transformer without its noise: against a filter that has none, and in training."""

import math

import pytest
import torch
from helpers.models import make_model, sequences
from helpers.user_modules import NotingObservation, give_observation

from smc_transformer import SMCTransformer, SMCTransformerConfig
from smc_transformer.learning import Sampling, SquaredError, Trainer
from smct_paper.datasets import SYNTHETIC

OBSERVATIONS = ["gaussian", "heteroscedastic", "student_t"]


def small_model(**settings):
    return make_model(**{"d_model": 4, "d_ff": 4, "n_inputs": 3, "n_targets": 2, **settings})


def without_noise(**settings):
    """The same weights, and latents that have no noise."""
    model, noiseless = small_model(**settings), small_model(initial_latent_variance=0.0, **settings)
    weights = {name: value for name, value in model.state_dict().items() if "covariance" not in name}
    noiseless.load_state_dict(weights, strict=False)
    return model, noiseless


def accumulate(goal, model, x, seed=0):
    model.zero_grad()
    generator = torch.Generator().manual_seed(seed)
    report = goal.accumulate(model, x, Sampling(5, generator=generator))
    return report, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def validate(goal, model, x, seed=0):
    return goal.validate(model, x, Sampling(5, generator=torch.Generator().manual_seed(seed)))


def with_gaps(x, share=0.25):
    missing = torch.rand(x.shape, generator=torch.Generator().manual_seed(3)) < share
    missing[:, 0] = missing[..., 2] = False
    return x.masked_fill(missing, math.nan)


@pytest.mark.parametrize("observation", OBSERVATIONS)
@pytest.mark.parametrize("predict_change", [False, True])
def test_it_is_the_error_of_a_filter_whose_particles_are_all_the_same(observation, predict_change):
    model, noiseless = without_noise(observation=observation, predict_change=predict_change, encoder="gru")
    x = sequences(6, 9, 3)
    mean = noiseless.filter(x, 3, generator=0).predictive.mean
    errors = (mean - x[:, 1:, :2]).square()
    assert validate(SquaredError(), model, x) == pytest.approx(errors.mean().item(), rel=1e-9)
    weighted = (errors[..., :1] * 3.0**2).mean().item()
    assert validate(SquaredError((3.0,)), model, x) == pytest.approx(weighted, rel=1e-9)
    # With its noise the model predicts something else: zero noise is not what any small noise would give.
    assert (model.filter(x, 3, generator=0).predictive.mean - mean).abs().max() > 1e-3


def test_the_gradient_is_that_of_differences():
    model, x, goal = small_model(), sequences(3, 5, 3), SquaredError((1.0, 2.0))
    report, gradients = accumulate(goal, model, x)
    assert report.statistics is None
    assert report.loss / report.n_terms == pytest.approx(validate(goal, model, x))
    step = 1e-6
    for name in ("readout.projection.bias", "attention.value.weight", "encoder.projection.weight"):
        parameter = model.get_parameter(name)
        for number in range(2):
            with torch.no_grad():
                parameter.view(-1)[number] += step
                above = validate(goal, model, x)
                parameter.view(-1)[number] -= 2 * step
                below = validate(goal, model, x)
                parameter.view(-1)[number] += step
            slope = (above - below) / (2 * step)
            assert gradients[name].view(-1)[number].item() == pytest.approx(slope, rel=1e-5, abs=1e-8)


def test_chunks_of_a_batch_add_up_to_the_batch():
    """More sequences than are done at a time, against two halves that are."""
    model, x, goal = give_observation(small_model(), NotingObservation), sequences(80_000, 5, 3), SquaredError()
    whole, gradients = accumulate(goal, model, x)
    assert max(model.observation.asked) < 80_000
    model.observation.asked.clear()
    halves = [accumulate(goal, model, half) for half in x.split(40_000)]
    assert set(model.observation.asked) == {40_000}
    assert whole.loss == pytest.approx(sum(report.loss for report, _ in halves))
    assert whole.n_terms == sum(report.n_terms for report, _ in halves)
    for name in gradients:
        torch.testing.assert_close(gradients[name], sum(found[name] for _, found in halves) / 2)


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_missing_values_are_no_terms_and_have_no_gradient_of_their_own(observation):
    model, goal = small_model(observation=observation), SquaredError()
    x = with_gaps(sequences(8, 6, 3))
    report, gradients = accumulate(goal, model, x)
    assert report.n_terms == int((~x[:, 1:, :2].isnan()).sum()) < 8 * 6 * 2
    assert all(gradient.isfinite().all() for gradient in gradients.values())
    assert math.isfinite(report.loss)


def test_what_is_missing_is_drawn_without_a_look_at_what_comes_later():
    """An observation that is moved changes its own error only."""
    model, goal = small_model(), SquaredError()
    x = sequences(40, 3, 3)
    x[:, 2, :2] = math.nan
    losses = []
    for offset in (0.0, 1.0, 2.0):
        moved = x.clone()
        moved[:, 3, :2] += offset
        losses.append(accumulate(goal, model, moved)[0].loss)
    # Sums of (e + offset)^2: a parabola in the offset, as long as the drawn X_2 does not follow X_3.
    assert losses[2] - 2 * losses[1] + losses[0] == pytest.approx(2 * 40 * 2, rel=1e-9)


def test_it_learns_the_mean_of_model_i_and_leaves_the_noise_alone():
    distribution = SYNTHETIC["model1"]
    train, held_out = distribution.sample(400, 24, 0).float(), distribution.sample(200, 24, 1).float()
    model = SMCTransformer(SMCTransformerConfig(d_model=8, d_ff=8), generator=0)
    before = {name: value.clone() for name, value in model.state_dict().items() if "covariance" in name}
    history = Trainer(model, goal=SquaredError(), epochs=12, learning_rate=1e-2, progress=False).fit(train, held_out)
    best = (held_out[:, 1:] - 0.8 * held_out[:, :-1]).square().mean().item()
    assert history[0].validation_loss > 1.05 * best
    assert validate(SquaredError(), model, held_out) < 1.02 * best
    for name, value in before.items():
        assert torch.equal(model.state_dict()[name], value)


def test_more_weights_than_targets_are_refused():
    with pytest.raises(ValueError, match="3 weights for 2 targets"):
        validate(SquaredError((1.0, 1.0, 1.0)), small_model(), sequences(2, 4, 3))
