"""Tails and width of the noise after training, on sequences whose noise is known."""

import numpy as np
import pytest
import torch
from scipy import stats

from smc_transformer import SMCTransformer, SMCTransformerConfig
from smc_transformer.learning.noise_distribution import Sequences, best_degrees, fit_noise_

N, STEPS = 300, 40


def wrong_model(observation="student_t"):
    """One that predicts 0 with noise of scale 1, and next to no latent noise."""
    config = SMCTransformerConfig(n_inputs=1, n_targets=1, d_model=4, d_ff=4, window=4, observation=observation)
    torch.manual_seed(0)
    model = SMCTransformer(config)
    with torch.no_grad():
        for parameter in model.readout.projection.parameters():
            parameter.zero_()
    return model


def noise(distribution, first=0):
    drawn = distribution.rvs(size=(N, STEPS + 1, 1), random_state=1)
    return Sequences(torch.from_numpy(drawn).float(), first)


def held(model, x):
    """The shares of values inside their 80, 95 and 99 % intervals."""
    predicted = model.filter(x, generator=0).predictive
    u = predicted.cdf(x[:, 1:]).numpy()
    return [float((np.abs(2 * u - 1) < level).mean()) for level in (0.8, 0.95, 0.99)]


def none():
    return Sequences(torch.zeros(0, STEPS + 1, 1), 0)


@pytest.mark.parametrize(
    "distribution", [stats.t(4, scale=0.7), stats.norm(scale=2.0), stats.t(8)], ids=["t4", "normal", "t8"]
)
def test_intervals_of_all_levels_hold_what_they_say(distribution):
    model = wrong_model()
    before = held(model, noise(distribution).x)
    factor = fit_noise_(model, noise(distribution), none(), 1)
    assert 0.5 <= factor <= 4
    for level, share in zip((0.8, 0.95, 0.99), held(model, noise(distribution).x), strict=True):
        # The same values are judged, so what remains is the filter's own noise and the grid of degrees of freedom.
        assert abs(share - level) < 5 * np.sqrt(level * (1 - level) / (N * STEPS)) + 0.003, (level, share, before)


def test_a_gaussian_has_a_width_and_no_tails():
    model, distribution = wrong_model("gaussian"), stats.norm(scale=1.3)
    fit_noise_(model, noise(distribution), none(), 1)
    for level, share in zip((0.8, 0.95, 0.99), held(model, noise(distribution).x), strict=True):
        assert abs(share - level) < 0.01


@pytest.mark.parametrize(("degrees", "low", "high"), [(3.0, 2.5, 3.7), (8.0, 6.5, 10.0), (100.0, 30.0, 100.0)])
def test_degrees_of_freedom_are_found_whatever_the_scale(degrees, low, high):
    drawn = stats.t(degrees, scale=0.3).rvs(size=20_000, random_state=2)
    assert low <= best_degrees(drawn) <= high


def test_few_residuals_say_little_about_tails():
    assert 4 < best_degrees(stats.norm.rvs(size=10, random_state=3)) < 16


def test_held_out_sequences_have_the_say_about_the_width():
    """Earlier ones, which a model was trained on, look too well predicted."""
    trained, new = noise(stats.t(8, scale=0.8)), noise(stats.t(8, scale=1.2))
    by_both, by_trained = wrong_model(), wrong_model()
    fit_noise_(by_both, new, trained, 1)
    fit_noise_(by_trained, none(), trained, 1)
    # 12,000 held-out values beside the weight of 300 earlier ones.
    assert abs(held(by_both, new.x)[1] - 0.95) < 0.01
    assert held(by_trained, new.x)[1] < 0.9


def test_only_the_steps_that_count_are_judged():
    known = noise(stats.t(8), first=STEPS // 2)
    disturbed = known.x.clone()
    disturbed[:, : STEPS // 2] *= 5
    found = [fit_noise_(wrong_model(), Sequences(x, known.first), none(), 1) for x in (known.x, disturbed)]
    assert found[0] == pytest.approx(found[1], rel=0.05)
