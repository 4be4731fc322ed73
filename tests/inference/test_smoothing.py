"""Smoothers around the model: densities of the future against replays, and the exact smoothing distribution."""

import functools
import math

import pytest
import torch
from helpers.gradients import assert_gradients_match, exact_gradient
from helpers.models import TINY_SEQUENCE, make_model, mean_and_error, sequences, tiny_model
from helpers.oracles import quadrature
from helpers.second_moments import assert_statistics_are_posterior_moments

from smc_transformer.inference.future_density import NetworkFutureDensity
from smc_transformer.inference.smoothing import smooth
from smc_transformer.learning import fit, training_step
from smc_transformer.smc import systematic
from smc_transformer.smc.smoothers import SMOOTHERS, History, Request
from smc_transformer.support.randomness import as_generator

N_STEPS = len(TINY_SEQUENCE) - 1

# --- densities of later observations -----------------------------------------------------------------------------

KINDS = {
    "plain": {},
    "two heads": {"d_model": 6, "n_heads": 2},
    "change of two targets": {"n_inputs": 3, "n_targets": 2, "predict_change": True, "covariance": "full"},
    "lstm, three heads": {"d_model": 6, "n_heads": 3, "encoder": "lstm", "covariance": "isotropic"},
    "positions, linear read-out": {"position_encoding": "sinusoidal", "readout": "linear"},
    "student_t": {"observation": "student_t", "ess_threshold": 0.5},
}


def composite_log_density(model, x, result, trajectories, step, lag):
    """Build each trajectory that has this particle's past, replay it, sum the next densities."""
    batch, n_trajectories, n_steps = trajectories.shape
    n_particles = result.ancestors.shape[1]
    total = torch.empty(batch, n_trajectories, n_particles, dtype=torch.float64)
    for sequence in range(batch):
        for trajectory in range(n_trajectories):
            for particle in range(n_particles):
                composite = trajectories[sequence, trajectory].clone()
                holder = particle
                for slot in range(step, -1, -1):
                    composite[slot] = holder
                    holder = int(result.ancestors[sequence, holder, slot])
                way = composite.view(1, 1, n_steps).expand(batch, 1, n_steps)
                with torch.no_grad():
                    replayed = model.replay(x, result.noise.along(way))
                total[sequence, trajectory, particle] = replayed.log_density[
                    sequence, 0, step + 1 : step + 1 + lag
                ].sum()
    return total


@pytest.mark.parametrize("window", [None, 1, 3])
@pytest.mark.parametrize("settings", KINDS.values(), ids=KINDS.keys())
def test_future_densities_are_the_replay_of_every_composite_trajectory(settings, window):
    model = make_model(**{"d_model": 4, "d_ff": 4, "window": window, "initial_latent_variance": 0.8, **settings})
    n_steps, n_particles, n_trajectories = 5, 4, 3
    x = sequences(2, n_steps, model.config.n_inputs)
    result = model.filter(x, n_particles, generator=1)
    trajectories = torch.randint(n_particles, (2, n_trajectories, n_steps), generator=as_generator(2))
    future_density = NetworkFutureDensity(model, x, result.noise, result.ancestors)
    for step, lag in ((0, 1), (0, 2), (1, 3), (2, 10), (n_steps - 2, 1)):
        found = future_density(step, trajectories, lag)
        by_hand = composite_log_density(model, x, result, trajectories, step, lag)
        if window is not None:  # densities that do not see the past are left out: the same for all particles
            found, by_hand = found - found[:, :, :1], by_hand - by_hand[:, :, :1]
        torch.testing.assert_close(found, by_hand, atol=1e-10, rtol=1e-10)
        if window != 1:
            assert (by_hand.std(dim=-1) > 1e-4).all()  # else it would not matter who came before


def test_with_a_window_of_one_the_future_tells_nothing():
    model = tiny_model(window=1)
    x = TINY_SEQUENCE.expand(2, -1, -1)
    result = model.filter(x, 5, generator=0)
    future = NetworkFutureDensity(model, x, result.noise, result.ancestors)(0, result.trajectories, 3)
    assert torch.equal(future, torch.zeros(2, 5, 5, dtype=torch.float64))


def test_the_present_past_of_an_ancestral_trajectory_has_the_densities_of_the_filter():
    """A trajectory with its own past is what the filter saw."""
    model = make_model(d_model=4, initial_latent_variance=0.5)
    x = sequences(3, 6)
    result = model.filter(x, 5, generator=0)
    trajectories, step = result.trajectories, 2
    future = NetworkFutureDensity(model, x, result.noise, result.ancestors)(step, trajectories, 2)
    own = future.gather(2, trajectories[:, :, step, None]).squeeze(-1)
    seen = result.predictive.components.log_prob(x[:, None, 1:]).gather(1, trajectories)
    torch.testing.assert_close(own, seen[:, :, step + 1 : step + 3].sum(dim=-1))


# --- the smoothing distribution ------------------------------------------------------------------------------


def smoothed_moments(model, n_particles, seed, *, smooth=smooth, n_trajectories=25, n_groups=10, n_runs=200):
    """Smoothed moments of independent runs, (run, time), by name."""
    x = TINY_SEQUENCE.expand(n_runs, -1, -1)
    groups = []
    for group in range(n_groups):
        generator = as_generator(1000 * seed + group)
        result = model.filter(x, n_particles, generator)
        trajectories, log_weights, _ = smooth(model, model.inference, x, result, n_trajectories, generator)
        with torch.no_grad():
            replayed = model.replay(x, result.noise.along(trajectories))
        latents, weights = replayed.latents, log_weights.exp().unsqueeze(-1)
        values = {
            "query": latents.query,
            "key": latents.key,
            "key_square": latents.key.square(),
            "value": latents.value,
            "value_square": latents.value.square(),
            "attention": replayed.attention,
        }
        groups.append({name: (weights * value.squeeze(-1)).sum(dim=1) for name, value in values.items()})
    return {name: torch.cat([group[name] for group in groups]) for name in groups[0]}


def assert_trajectories_have_the_smoothing_distribution(model, **options):
    """Extrapolate from M and 2 M particles, which removes the bias of order 1 / M, and compare within 4.5 errors."""
    exact = quadrature.exact(model, TINY_SEQUENCE)
    few, many = (smoothed_moments(model, n_particles, seed, **options) for seed, n_particles in ((1, 60), (2, 120)))
    for name in few:
        mean, error = mean_and_error(2 * many[name] - few[name])
        expected = getattr(exact, name)
        assert (error < 0.015 * (1 + expected.abs())).all(), f"{name}: too noisy to prove anything"
        assert ((mean - expected).abs() < 4.5 * error).all(), f"{name} differs from its exact value"


@pytest.mark.parametrize(("window", "ess_threshold"), [(1, 1.0), (2, 1.0), (None, 1.0), (None, 0.5)])
def test_backward_simulation_has_the_smoothing_distribution(window, ess_threshold):
    lag = {1: 1, 2: 1, None: N_STEPS}[window]  # a window of D hides the past D - 1 steps later
    settings = {"smoother": "backward", "smoothing_lag": lag, "window": window, "ess_threshold": ess_threshold}
    assert_trajectories_have_the_smoothing_distribution(tiny_model(**settings))


def test_a_fixed_lag_that_reaches_the_start_has_the_smoothing_distribution():
    assert_trajectories_have_the_smoothing_distribution(tiny_model(smoother="fixed_lag", smoothing_lag=N_STEPS))


def largest_bias(model, n_particles=100):
    """Of the smoothed second moments, relative to the exact ones; 2000 runs of 25 trajectories know it to about 1 %."""
    exact = quadrature.exact(model, TINY_SEQUENCE)
    found = smoothed_moments(model, n_particles, seed=3)
    names = ("key_square", "value_square")
    return max(float((found[name].mean(dim=0) / getattr(exact, name) - 1).abs().max().detach()) for name in names)


@pytest.mark.parametrize(("smoother", "lag"), [("backward", 1), ("fixed_lag", 2)])
def test_what_a_short_lag_costs(smoother, lag):
    """All the past in sight, and only the next observation tells about a step: about an eighth on this sequence."""
    assert largest_bias(tiny_model(smoother=smoother, smoothing_lag=N_STEPS)) < 0.05
    assert 0.05 < largest_bias(tiny_model(smoother=smoother, smoothing_lag=lag)) < 0.25


def backward_by_hand(model, settings, x, result, n_trajectories, generator, *, sees_the_future=True):
    history, future_density = (
        History(result.ancestors, result.log_weights),
        NetworkFutureDensity(model, x, result.noise, result.ancestors),
    )

    def future(*arguments):
        return future_density(*arguments) if sees_the_future else torch.zeros_like(future_density(*arguments))

    request = Request(n_trajectories, settings.smoothing_lag, systematic, future, generator)
    return SMOOTHERS["backward"](history, request)


def test_backward_that_ignores_the_future_is_noticed():
    model = tiny_model(smoother="backward", smoothing_lag=N_STEPS)
    x = sequences(3, N_STEPS)
    result = model.filter(x, 7, generator=0)
    arguments = (model, model.inference, x, result, 5)
    found, expected = (function(*arguments, as_generator(1)) for function in (backward_by_hand, smooth))
    assert torch.equal(found.trajectories, expected.trajectories)
    ignorant = functools.partial(backward_by_hand, sees_the_future=False)
    with pytest.raises(AssertionError, match="differs from its exact value"):
        assert_trajectories_have_the_smoothing_distribution(model, smooth=ignorant)


def test_trajectories_of_the_filter_distribution_are_noticed():
    """Fixed lag 1 is not the smoothing distribution, and the check says so."""
    with pytest.raises(AssertionError, match="differs from its exact value"):
        assert_trajectories_have_the_smoothing_distribution(tiny_model(smoother="fixed_lag", smoothing_lag=1))


# --- learning along these trajectories -----------------------------------------------------------------------


@pytest.mark.parametrize(("gradient", "window", "lag"), [("pathwise", None, N_STEPS), ("score", 2, 1)])
def test_gradients_along_backward_trajectories_are_exact_in_the_limit(gradient, window, lag):
    model = tiny_model(window=window, gradient=gradient, smoother="backward", smoothing_lag=lag)
    exact = exact_gradient(model, quadrature.exact(model, TINY_SEQUENCE).log_likelihood)
    assert_gradients_match(model, TINY_SEQUENCE, exact, n_trajectories=10, n_groups=20)


def test_em_statistics_along_backward_trajectories_are_exact_in_the_limit():
    model = tiny_model(noise_learning="em", smoother="backward", smoothing_lag=N_STEPS)
    assert_statistics_are_posterior_moments(model, n_trajectories=12)


@pytest.mark.parametrize("smoother", ["fixed_lag", "backward"])
@pytest.mark.parametrize("gradient", ["pathwise", "score"])
def test_the_objective_is_the_mean_density_along_the_trajectories(gradient, smoother):
    """Trajectories that the filter has not been through are computed anew; gradients are those of a replay."""
    model = make_model(d_model=4, d_ff=4, gradient=gradient, smoother=smoother, smoothing_lag=2, n_particles=5)
    x = sequences(3, 7)
    generator = as_generator(3)
    result = model.filter(x, 5, generator)
    trajectories, log_weights, ancestral = smooth(model, model.inference, x, result, None, generator)
    assert not ancestral
    step = training_step(model, x, generator=as_generator(3))
    replayed = model.replay(x, result.noise.along(trajectories))
    if gradient == "pathwise":
        expected = (log_weights.exp() * replayed.log_density.sum(dim=-1)).sum(dim=1)
        torch.testing.assert_close(step.objective, expected)
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        found, by_replay = (
            torch.autograd.grad(objective.sum(), parameters, allow_unused=True)
            for objective in (step.objective, expected)
        )
        for one, other in zip(found, by_replay, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(one, other)
    moment = (replayed.parameters - x[:, None, 1:]).square().mean()
    torch.testing.assert_close(step.statistics.observation.squeeze(), moment)


@pytest.mark.parametrize("smoother", ["genealogy", "fixed_lag", "backward"])
def test_one_particle_has_one_trajectory(smoother):
    model = make_model(d_model=3, smoother=smoother, smoothing_lag=2)
    x = sequences(2, 5)
    result = model.filter(x, 1, generator=0)
    trajectories, log_weights, _ = smooth(model, model.inference, x, result)
    assert torch.equal(trajectories, torch.zeros(2, 1, 5, dtype=torch.long))
    assert torch.equal(log_weights, torch.zeros(2, 1, dtype=torch.float64))
    step = training_step(model, x, n_particles=1, generator=0)
    torch.testing.assert_close(step.objective.detach(), result.log_likelihood)


def test_backward_needs_sequences_without_missing_values():
    model = make_model(d_model=3, smoother="backward")
    x = sequences(2, 5)
    x[1, 3] = math.nan
    with pytest.raises(
        ValueError, match=r'smoother="backward" needs sequences without missing values; use "fixed_lag"'
    ):
        training_step(model, x, generator=0)


@pytest.mark.parametrize("smoother", ["genealogy", "fixed_lag"])
def test_the_other_smoothers_take_sequences_with_missing_values(smoother):
    model = make_model(d_model=3, smoother=smoother, smoothing_lag=2)
    x = sequences(2, 6)
    x[1, 3:5] = math.nan
    step = training_step(model, x, generator=0)
    step.objective.sum().backward()
    assert step.objective.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("smoother", ["fixed_lag", "backward"])
def test_a_model_can_be_trained_with_it(smoother):
    model = make_model(d_model=4, d_ff=4, smoother=smoother, smoothing_lag=2, n_particles=4).float()
    x = sequences(64, 8, dtype=torch.float32)
    history = fit(model, x, epochs=6, batch_size=16, progress=False)
    assert history[-1].training_loss < history[0].training_loss
