"""The kernels of the replay: latents and attention along trajectories, their gradients, and whole training steps."""

import ctypes

import pytest
import torch
from helpers.agreement import MASKED, ROUNDING, assert_same, both, largest_of, random_model, seeded, step_case
from helpers.models import sequences
from helpers.user_modules import (
    DampedObservation,
    LaplaceObservation,
    OwnReadout,
    ShiftedTwiceObservation,
    SoftplusObservation,
    SteeperReadout,
)
from torch.nn import functional as F

from smc_transformer import LearningSettings, SMCTransformer, SMCTransformerConfig
from smc_transformer.kernels import disabled
from smc_transformer.kernels.attention import attend_trajectories
from smc_transformer.kernels.trajectories import perturb_trajectories
from smc_transformer.learning import training_step
from smc_transformer.nn.attention import Noise
from smc_transformer.smc import gather_trajectories

SIZES = [(1, 1, 1, 1, 1), (2, 5, 3, 4, 3), (3, 4, 9, 6, 8), (1, 7, 2, 5, 20), (4, 3, 3, 1, 33)]
"""Batch, particles, trajectories, steps, d_model."""
OWNERS = ("none", "shared", "own")
SINGLE = 100 * torch.finfo(torch.float32).eps


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=seeded(seed), dtype=dtype)


def make_trajectories(batch, n_particles, n_trajectories, n_steps, seed=0):
    return torch.randint(n_particles, (batch, n_trajectories, n_steps), generator=seeded(seed))


def make_mean(owners, batch, n_trajectories, n_steps, d_model, dtype=torch.float64):
    shape = {"none": None, "shared": (batch, 1, n_steps, d_model), "own": (batch, n_trajectories, n_steps, d_model)}[
        owners
    ]
    return None if shape is None else draw(*shape, seed=1, dtype=dtype).requires_grad_()


def by_torch(mean, factor, noise, trajectories):
    deviation = factor * gather_trajectories(noise, trajectories)
    return deviation if mean is None else mean + deviation


# --- latents ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("owners", OWNERS)
@pytest.mark.parametrize("sizes", SIZES)
def test_latents_along_trajectories_and_their_gradients(sizes, owners, dtype, calls):
    batch, n_particles, n_trajectories, n_steps, d_model = sizes
    noise, trajectories = draw(batch, n_particles, n_steps, d_model, dtype=dtype), make_trajectories(*sizes[:4])
    mean = make_mean(owners, batch, n_trajectories, n_steps, d_model, dtype)
    factor = draw(d_model, seed=2, dtype=dtype).requires_grad_()
    inputs = [factor] if mean is None else [factor, mean]
    found, expected = (
        perturb_trajectories(mean, factor, noise, trajectories),
        by_torch(mean, factor, noise, trajectories),
    )
    rounding = SINGLE if dtype == torch.float32 else 1e-13
    assert_same(found, expected, rounding)
    direction = draw(*expected.shape, seed=3, dtype=dtype)
    gradients = torch.autograd.grad(found, inputs, direction)
    for one, other in zip(gradients, torch.autograd.grad(expected, inputs, direction), strict=True):
        assert_same(one, other, rounding)
    assert calls == {"perturb_trajectories": 1, "perturb_trajectories_backward": 1}


@pytest.mark.parametrize("owners", OWNERS)
def test_gradients_of_latents_are_derivatives(owners, calls):
    noise, trajectories = draw(2, 4, 3, 5), make_trajectories(2, 4, 3, 3)
    mean, factor = make_mean(owners, 2, 3, 3, 5), draw(5, seed=2).requires_grad_()
    inputs = (factor,) if mean is None else (factor, mean)
    assert torch.autograd.gradcheck(
        lambda factor, mean=None: perturb_trajectories(mean, factor, noise, trajectories), inputs
    )
    number = draw(seed=4).requires_grad_()  # an isotropic factor
    assert torch.autograd.gradcheck(
        lambda number: perturb_trajectories(mean, number.expand(5), noise, trajectories), (number,)
    )
    assert calls["perturb_trajectories_backward"] > 0


@pytest.mark.parametrize("frozen", ["mean", "factor"])
@pytest.mark.parametrize("owners", ["shared", "own"])
def test_what_is_frozen_gets_no_gradient_and_the_other_gets_its_own(frozen, owners, calls):
    noise, trajectories = draw(2, 4, 3, 5), make_trajectories(2, 4, 3, 3)
    mean, factor = make_mean(owners, 2, 3, 3, 5), draw(5, seed=2).requires_grad_()
    (mean if frozen == "mean" else factor).requires_grad_(False)
    free = factor if frozen == "mean" else mean
    # The gradient of a plain sum is one number seen everywhere: it does not lie in memory as the latents do.
    (found,) = torch.autograd.grad(perturb_trajectories(mean, factor, noise, trajectories).sum(), free)
    (expected,) = torch.autograd.grad(by_torch(mean, factor, noise, trajectories).sum(), free)
    assert_same(found, expected)
    assert calls == {"perturb_trajectories": 1, "perturb_trajectories_backward": 1}


def test_means_factors_and_gradients_may_lie_in_memory_as_they_like(calls):
    noise, trajectories = draw(2, 4, 3, 5), make_trajectories(2, 4, 3, 3)
    mean, factor = draw(2, 5, 3, 3, seed=1).mT.transpose(1, 3).requires_grad_(), draw(10, seed=2)[::2].requires_grad_()
    assert mean.shape == (2, 3, 3, 5)
    assert not mean.is_contiguous()
    assert not factor.is_contiguous()
    direction = draw(5, 3, 3, 2, seed=3).permute(3, 2, 1, 0)
    found, expected = (
        perturb_trajectories(mean, factor, noise, trajectories),
        by_torch(mean, factor, noise, trajectories),
    )
    assert_same(found, expected)
    for one, other in zip(
        torch.autograd.grad(found, (mean, factor), direction),
        torch.autograd.grad(expected, (mean, factor), direction),
        strict=True,
    ):
        assert_same(one, other)


@pytest.mark.parametrize(
    "scatter",
    [
        lambda noise, trajectories: (noise.transpose(1, 2).contiguous().transpose(1, 2), trajectories),
        lambda noise, trajectories: (noise.mT.contiguous().mT, trajectories),
        lambda noise, trajectories: (noise.repeat(1, 2, 1, 1)[:, ::2], trajectories),
        lambda noise, trajectories: (noise, trajectories.mT.contiguous().mT),
    ],
)
def test_noise_and_trajectories_may_lie_in_memory_as_they_like(scatter, calls):
    attention = random_model(d_model=5, d_ff=4).attention
    noise, trajectories = scatter(draw(2, 4, 3, 5), make_trajectories(2, 4, 3, 3))
    assert not (noise.is_contiguous() and trajectories.is_contiguous())
    direction = draw(2, 3, 3, 5, seed=3)

    def work():
        found = attention.deviation(Noise(*[noise] * 4), trajectories)
        return found.detach(), *torch.autograd.grad(found, attention.attention_covariance.factor, direction)

    for one, other in zip(*both(work), strict=True):
        assert_same(one, other)


def test_torch_takes_other_types_and_everything_where_kernels_are_disabled(calls):
    attention = random_model(d_model=5, d_ff=4, n_heads=5).attention
    noise, trajectories = Noise(*draw(4, 2, 4, 3, 5)), make_trajectories(2, 4, 3, 3)

    def context(dtype):
        like = Noise(*(eps.to(dtype) for eps in noise))
        return attention.to(dtype).attend_all(attention.latents(like.query[:, :1], like, trajectories))

    with disabled():
        expected = context(torch.float64)
    assert_same(context(torch.bfloat16).double(), expected, 0.05)
    assert calls == {}
    assert_same(context(torch.float64), expected, 0.05)  # the weights have been through bfloat16
    assert calls == {"perturb_trajectories": 3, "attend_trajectories": 1}


def test_kernels_that_are_not_there_say_why(calls):
    noise, trajectories, factor = draw(2, 4, 3, 5), make_trajectories(2, 4, 3, 3), draw(5)
    with pytest.raises(RuntimeError, match="numbers are float16 on cpu"):
        perturb_trajectories(None, factor.half(), noise.half(), trajectories)
    with disabled(), pytest.raises(RuntimeError, match="kernels are switched off"):
        attend_trajectories(noise, noise, noise, 1, None)


def test_noise_that_wants_a_gradient_gets_it():
    attention = random_model(d_model=5, d_ff=4).attention
    noise, trajectories = draw(2, 4, 3, 5).requires_grad_(), make_trajectories(2, 4, 3, 3)
    (found,) = torch.autograd.grad(attention.deviation(Noise(*[noise] * 4), trajectories).sum(), noise)
    factor = attention.attention_covariance.factor
    (expected,) = torch.autograd.grad(by_torch(None, factor, noise, trajectories).sum(), noise)
    assert_same(found, expected)


@pytest.mark.parametrize("structure", ["isotropic", "diagonal", "full"])
@pytest.mark.parametrize("owners", OWNERS)
def test_latents_of_every_covariance(structure, owners, calls):
    """A full covariance mixes coordinates, which is left to torch."""
    attention = random_model(d_model=5, d_ff=4, covariance=structure).attention
    noise, trajectories = Noise(*draw(4, 2, 4, 3, 5)), make_trajectories(2, 4, 3, 3)
    embedding = make_mean(owners, 2, 3, 3, 5)
    factors = [covariance.factor for covariance in attention.covariances]

    def work():
        if embedding is None:
            found, inputs = attention.deviation(noise, trajectories).unsqueeze(0), factors[3:]
        else:
            found, inputs = torch.stack(attention.latents(embedding, noise, trajectories)), [embedding, *factors[:3]]
        return found.detach(), *torch.autograd.grad(found, inputs, draw(*found.shape, seed=3))

    for one, other in zip(*both(work), strict=True):
        assert_same(one, other)
    n_calls = 1 if embedding is None else 3
    forward_and_backward = {"perturb_trajectories": n_calls, "perturb_trajectories_backward": n_calls}
    assert calls == ({} if structure == "full" else forward_and_backward)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_any_number_of_threads_makes_the_same_trajectories(dtype, calls, set_threads):
    noise, trajectories = draw(3, 4, 6, 20, dtype=dtype), make_trajectories(3, 4, 7, 6)
    mean, factor = make_mean("shared", 3, 7, 6, 20, dtype), draw(20, seed=2, dtype=dtype).requires_grad_()
    found = []
    for n_threads in (1, 2, 3):
        set_threads(n_threads)
        latents = perturb_trajectories(mean, factor, noise, trajectories)
        context = attend_trajectories(latents, 2 * latents, latents.sin(), 4, 3)
        found.append((latents, context, *torch.autograd.grad(context.square().sum(), (mean, factor))))
    for other in found[1:]:
        assert all(torch.equal(one, two) for one, two in zip(found[0], other, strict=True))
    assert calls.threads == {1, 2, 3}


# --- attention ----------------------------------------------------------------------------------------------


def attend_by_torch(query, key, value, n_heads, window):
    n_steps = query.shape[-2]
    mask = torch.ones(n_steps, n_steps, dtype=torch.bool).tril()
    mask = mask if window is None else mask.triu(1 - window)
    heads = (part.unflatten(-1, (n_heads, -1)).transpose(-2, -3) for part in (query, key, value))
    return F.scaled_dot_product_attention(*heads, attn_mask=mask).transpose(-2, -3).flatten(-2)


ATTENTION_SIZES = [(1, 1, 1, 1, 1), (2, 3, 7, 4, 2), (1, 2, 16, 8, 1), (2, 1, 17, 20, 4), (1, 2, 40, 33, 3)]
"""Batch, trajectories, steps, d_model, heads."""


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("window", [None, 1, 2, 5, 16, 60])
@pytest.mark.parametrize("sizes", ATTENTION_SIZES)
def test_attention_along_trajectories_and_its_gradients(sizes, window, dtype, calls):
    *shape, n_heads = sizes
    latents = [draw(*shape, seed=seed, dtype=dtype).requires_grad_() for seed in range(3)]
    found, expected = attend_trajectories(*latents, n_heads, window), attend_by_torch(*latents, n_heads, window)
    rounding = SINGLE if dtype == torch.float32 else 1e-13
    assert_same(found, expected, rounding)
    direction = draw(*shape, seed=3, dtype=dtype)
    gradients = torch.autograd.grad(found, latents, direction)
    for one, other in zip(gradients, torch.autograd.grad(expected, latents, direction), strict=True):
        assert_same(one, other, rounding)
    assert calls == {"attend_trajectories": 1, "attend_trajectories_backward": 1}


@pytest.mark.parametrize("window", [None, 3])
def test_gradients_of_attention_are_derivatives(window, calls):
    latents = [draw(1, 2, 5, 4, seed=seed).requires_grad_() for seed in range(3)]
    assert torch.autograd.gradcheck(lambda *latents: attend_trajectories(*latents, 2, window), latents)
    assert calls["attend_trajectories_backward"] > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_attention_with_scores_far_from_zero(dtype, calls):
    """Softmax is that of differences: exponentials of these scores would overflow, above and below."""
    query, key, value = (draw(1, 2, 20, 4, seed=seed, dtype=dtype) for seed in range(3))
    latents = [(1000 * query).requires_grad_(), (10 * key).requires_grad_(), value.requires_grad_()]
    found, expected = attend_trajectories(*latents, 1, None), attend_by_torch(*latents, 1, None)
    rounding = 2e-3 if dtype == torch.float32 else 1e-10  # that of the scores, some ten thousand
    assert_same(found, expected, rounding)
    gradients = torch.autograd.grad(found.sum(), latents)
    for one, other in zip(gradients, torch.autograd.grad(expected.sum(), latents), strict=True):
        assert_same(one, other, rounding)


EXPONENTIAL = """
#include "common.h"
void exponentials(const real *x, real *out, count n) { for (count i = 0; i < n; i++) out[i] = exp_negative(x[i]); }
"""


def test_exponentials_are_exact_to_float32(compiled):
    """As exact as x is: half a rounding of x makes |x| / 2 of exp(x). Below exp(-87) float32 has little left."""
    x = torch.cat((-torch.linspace(0, 86.9, 1_000_001), torch.tensor([-88.0, -1e3, -1e30, -float("inf")])))
    found = torch.empty_like(x)
    pointers = (ctypes.c_void_p(part.data_ptr()) for part in (x, found))
    compiled(EXPONENTIAL).exponentials(*pointers, ctypes.c_int64(len(x)))
    expected = x.double().exp()
    error = ((found - expected) / expected)[:-4].abs()
    assert (error < (2 + x[:-4].abs() / 2) * torch.finfo(torch.float32).eps).all()
    assert (found[-4:] >= 0).all()
    assert (found[-4:] < 2e-38).all()
    assert found[0] == 1.0


def test_latents_of_attention_may_lie_in_memory_as_they_like(calls):
    latents = [draw(2, 3, 4, 7, seed=seed).mT.requires_grad_() for seed in range(3)]
    assert not latents[0].is_contiguous()
    found, expected = attend_trajectories(*latents, 2, 3), attend_by_torch(*latents, 2, 3)
    assert_same(found, expected)
    gradients = torch.autograd.grad(found.sum(), latents)
    for one, other in zip(gradients, torch.autograd.grad(expected.sum(), latents), strict=True):
        assert_same(one, other)


# --- training steps -----------------------------------------------------------------------------------------


def numbers(statistics):
    """All tensors in statistics, whatever holds them."""
    if isinstance(statistics, torch.Tensor):
        return [statistics]
    parts = statistics.values() if isinstance(statistics, dict) else statistics or ()
    return [number for part in parts for number in numbers(part)]


def estimates(model, x, **options):
    """The objective, its gradient for every parameter, the statistics, and the likelihood."""
    model.zero_grad()
    step = training_step(model, x, generator=3, **options)
    step.objective.sum().backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}  # zero_grad lets go of them
    return step.objective.detach(), gradients, numbers(step.statistics), step.log_likelihood


def assert_same_estimates(model, x, **options):
    (one, gradients, statistics, likelihood), (two, expected, others, reference) = both(
        lambda: estimates(model, x, **options)
    )
    rounding = MASKED if x.isnan().any() else ROUNDING
    assert_same(one, two, rounding, "objective")
    assert_same(likelihood, reference, rounding, "log_likelihood")
    assert len(statistics) == len(others)
    for found, wanted in zip(statistics, others, strict=True):
        assert_same(found, wanted, rounding, "statistics")
    # Gradients are sums of parts that may cancel: their rounding is that of the largest of them.
    largest = largest_of(*(part for part in expected.values() if part is not None))
    for name, wanted in expected.items():
        assert (gradients[name] is None) == (wanted is None), name
        if wanted is not None:
            assert_same(gradients[name], wanted, rounding, name, largest)
    return expected


REPLAY = ("perturb_trajectories", "attend_trajectories", "replay_backward")
"""The kernels of which a replay may use some."""


@pytest.mark.parametrize("gradient", ["pathwise", "score"])
@pytest.mark.parametrize("noise_learning", ["em", "gradient"])
@pytest.mark.parametrize("n_trajectories", [None, 3, 12])
@pytest.mark.parametrize("covariance", ["isotropic", "diagonal", "full"])
def test_a_training_step_is_that_of_torch(gradient, noise_learning, n_trajectories, covariance, calls):
    model = random_model(
        n_inputs=2,
        d_model=6,
        d_ff=5,
        n_heads=2,
        window=4,
        gradient=gradient,
        noise_learning=noise_learning,
        covariance=covariance,
        training=True,
    )
    gradients = assert_same_estimates(model, sequences(3, 9, 2), n_particles=7, n_trajectories=n_trajectories)
    for name in model.gradient_parameters():
        assert gradients[name].abs().sum() > 0, name
    if noise_learning == "gradient":
        assert all(gradients[f"attention.{part}_covariance.factor"] is not None for part in Noise._fields)
    assert calls["particle_filter"] == 1
    assert any(calls[name] for name in REPLAY)


@pytest.mark.parametrize("seed", range(40))
def test_training_steps_of_all_kinds_are_those_of_torch(seed, calls):
    model, x, case = step_case(seed + 100, gradient=("pathwise", "pathwise", "score")[seed % 3])
    assert_same_estimates(model, x, n_particles=case.n_particles, n_trajectories=(None, 1, 5)[seed // 3 % 3])
    assert any(calls[name] for name in REPLAY)


@pytest.mark.parametrize("gradient", ["pathwise", "score"])
@pytest.mark.parametrize(
    "distribution", [LaplaceObservation, ShiftedTwiceObservation, DampedObservation, SoftplusObservation]
)
def test_a_training_step_with_a_distribution_of_ones_own_is_that_of_torch(gradient, distribution, calls):
    config = SMCTransformerConfig(d_model=5, d_ff=4, n_inputs=2, n_targets=2, predict_change=True)
    learning = LearningSettings(gradient=gradient)
    model = SMCTransformer(config, generator=0, learning=learning, observation=distribution(2)).double()
    assert_same_estimates(model, sequences(3, 9, 2), n_particles=7)
    assert any(calls[name] for name in REPLAY)


def test_a_training_step_without_latent_noise_is_that_of_torch(calls):
    """Particles are all alike: no matter whom a trajectory passes through."""
    model = random_model(d_model=5, d_ff=4, initial_latent_variance=0.0, training=True)
    assert_same_estimates(model, sequences(3, 9), n_particles=7)
    assert any(calls[name] for name in REPLAY)


@pytest.mark.parametrize("readout", [OwnReadout, SteeperReadout])
def test_a_training_step_with_a_read_out_of_ones_own_is_that_of_torch(readout, calls):
    model = random_model(d_model=5, d_ff=4, predict_change=True)
    model.readout = readout(5, 4, 1).double()
    assert_same_estimates(model, sequences(3, 9), n_particles=7)
    assert any(calls[name] for name in REPLAY)


def test_any_number_of_threads_takes_the_same_training_step(calls, set_threads):
    model, x = random_model(d_model=6, d_ff=5, training=True), sequences(5, 9)
    found = []
    for n_threads in (1, 2, 3):
        set_threads(n_threads)
        objective, gradients, statistics, _ = estimates(model, x, n_particles=7)
        found.append([objective, *(part for part in gradients.values() if part is not None), *statistics])
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            assert_same(two, one)  # products of matrices in torch itself may round otherwise
    assert calls.threads == {1, 2, 3}


def test_gradients_may_be_asked_for_where_kernels_are_disabled(calls):
    """What the kernels began goes on there."""
    model, x = random_model(d_model=4, d_ff=5, training=True), sequences(2, 5)
    _, expected, _, _ = estimates(model, x, n_particles=4)
    expected = {name: None if part is None else part.clone() for name, part in expected.items()}
    model.zero_grad()
    step = training_step(model, x, n_particles=4, generator=3)
    with disabled():
        step.objective.sum().backward()
    for name, parameter in model.gradient_parameters().items():
        assert_same(parameter.grad, expected[name], name=name)


def test_gradients_of_single_kernels_may_be_asked_for_where_kernels_are_disabled(calls):
    noise, trajectories, factor = draw(2, 4, 3, 5), make_trajectories(2, 4, 3, 3), draw(5, seed=2).requires_grad_()

    def context():
        latents = perturb_trajectories(None, factor, noise, trajectories)
        return attend_trajectories(latents, latents.sin(), latents.cos(), 1, 2).square().sum()

    (expected,) = torch.autograd.grad(context(), factor)
    began = context()
    with disabled():
        (found,) = torch.autograd.grad(began, factor)
    assert torch.equal(found, expected)
    assert calls["perturb_trajectories_backward"] == calls["attend_trajectories_backward"] == 2
