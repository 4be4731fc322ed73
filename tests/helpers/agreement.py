"""Random models and sequences, and the same work done twice: by the kernels and by torch alone."""

import random
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from helpers.models import make_model, random_covariance, sequences
from smc_transformer.inference import compiled
from smc_transformer.inference.compiled import draw_numbers
from smc_transformer.inference.filter import particle_filter
from smc_transformer.kernels import disabled
from smc_transformer.nn import Covariance
from smc_transformer.nn.attention import Noise
from smc_transformer.nn.noise import standard_normal
from smc_transformer.nn.observation.scaled import ScaledObservation, nearest_correlation
from smc_transformer.nn.streams import Streams, standard_gamma

ROUNDING = 1e-11
"""Allowed in float64, relative to the largest number: fifty thousand roundings, some hundred of what is seen."""

MASKED = 1e-8
"""Allowed with gaps: torch adds 1e-9 to the covariance of a step in which any sequence has one, C only to its own."""


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def draw_by_turns(settings, density, size, gaps, generator):
    """What `compiled.draw_numbers` draws, in the order in which a filter does that goes step by step."""
    if isinstance(generator, Streams):
        return draw_numbers(settings, density, size, gaps, generator)
    n_steps, batch, n_particles = size
    n_uniforms = 1 if settings.resampling == "systematic" else n_particles
    uniforms = torch.zeros(n_steps, batch, n_uniforms, dtype=torch.float64)
    for step in range(n_steps):
        if step > 0 and settings.ess_threshold > 0:
            uniforms[step] = torch.rand(batch, n_uniforms, generator=generator, dtype=torch.float64)
        if gaps is None or gaps.observed[:, step].all():
            continue
        if gaps.gamma is not None:
            shapes = (density.degrees + gaps.observed[:, step].sum(dim=1, keepdim=True).to(gaps.gamma)) / 2
            gaps.gamma[:, :, step] = standard_gamma(shapes.expand(-1, n_particles), generator)
        gaps.normal[:, :, step] = standard_normal((batch, *gaps.normal[0, :, step].shape), gaps.normal, generator)
    return uniforms


def both(work):
    """What `work()` returns, done by the kernels and by torch, from the same random numbers with gaps too."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(compiled, "draw_numbers", draw_by_turns)
        by_kernels = work()
    with disabled():
        return by_kernels, work()


def largest_of(*tensors):
    """The size of the largest finite number, at least one."""
    return max([1.0, *(x[x.isfinite()].double().abs().max().item() for x in tensors if x.isfinite().any())])


def assert_same(result, expected, rounding=ROUNDING, name="", largest=None):
    """Equal up to rounding of the size of the largest number; infinities and NaN where they are expected."""
    assert result.shape == expected.shape, name
    assert result.dtype == expected.dtype, name
    if not expected.is_floating_point():
        assert torch.equal(result, expected), f"{name} differ"
        return
    torch.testing.assert_close(
        result,
        expected,
        atol=rounding * (largest_of(expected) if largest is None else largest),
        rtol=0,
        equal_nan=True,
        msg=lambda message: f"{name}: {message}",
    )


# --- models -------------------------------------------------------------------------------------------------


@torch.no_grad()
def random_model(seed=0, *, training=False, **settings):
    """A float64 model in which no two parameters are alike, so that none can stand in for another."""
    model = make_model(seed, **settings).train(training)
    generator = seeded(seed + 2)
    factors = {id(part.factor) for part in model.modules() if isinstance(part, Covariance)}
    for parameter in model.parameters():
        if id(parameter) not in factors:
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    norms = (part for part in model.readout.modules() if isinstance(part, nn.LayerNorm))
    for norm, epsilon in zip(norms, (1e-3, 1e-2), strict=False):
        norm.eps = epsilon
    distribution = model.observation
    if isinstance(distribution, ScaledObservation):
        distribution.correlation.copy_(nearest_correlation(random_covariance(distribution.correlation, generator)))
        # Narrow, so that evaluation mode cuts some of the log-scales off at either end.
        distribution.lowest.copy_(
            distribution.initial_log_scale - 0.3 * torch.rand(distribution.n_targets, generator=generator)
        )
        distribution.highest.copy_(
            distribution.initial_log_scale + 0.3 * torch.rand(distribution.n_targets, generator=generator)
        )
    return model


# --- cases --------------------------------------------------------------------------------------------------

OPTIONS = {
    "d_model": (1, 3, 4, 8, 16, 20, 32, 33),
    "d_ff": (2, 5, 7, 17, 24, 35),
    "window": (None, 1, 2, 5, 50),
    "resampling": ("multinomial", "residual", "stratified", "systematic"),
    "ess_threshold": (0.0, 0.5, 1.0),
    "covariance": ("isotropic", "diagonal", "full"),
    "readout": ("transformer", "linear"),
    "predict_change": (False, True),
    "observation": ("gaussian", "heteroscedastic", "student_t"),
    "observation_covariance": ("isotropic", "diagonal", "full"),
    "encoder": ("linear", "linear", "transformer", "lstm", "gru", "convolution"),
    "n_targets": (1, 1, 2, 3),
    "initial_latent_variance": (0.05, 0.25, 1.0),
    "initial_observation_variance": (0.1, 0.5),
}
EXTREMES = {"batch": (1, 6), "n_particles": (1, 2, 7, 8, 9, 40), "n_steps": (1, 2, 30)}
POSITION_ENCODINGS = (None, "sinusoidal", "learned")


@dataclass(frozen=True)
class Case:
    """Sequences, and a model to filter them with."""

    seed: int
    batch: int
    n_particles: int
    n_steps: int
    training: bool
    settings: dict

    def model(self):
        return random_model(self.seed, training=self.training, **self.settings)

    def sequences(self):
        return sequences(self.batch, self.n_steps, self.settings["n_inputs"], seed=self.seed)

    def noise(self, dtype=torch.float64):
        shape = (4, self.batch, self.n_particles, self.n_steps, self.settings["d_model"])
        return Noise(*torch.randn(shape, generator=seeded(self.seed), dtype=dtype))

    def __str__(self):
        return f"{self.seed}-{self.settings['observation']}-{self.settings['resampling']}"


def random_case(seed):
    """One of many combinations; the first sizes of each kind are the extremes."""
    chance = random.Random(seed)
    settings = {name: chance.choice(values) for name, values in OPTIONS.items()}
    settings["n_heads"] = chance.choice([n for n in range(1, 17) if settings["d_model"] % n == 0])
    settings["n_inputs"] = settings["n_targets"] + chance.choice((0, 0, 1, 2))
    if settings["encoder"] in ("linear", "transformer"):
        settings["position_encoding"] = chance.choice(POSITION_ENCODINGS)
    return Case(
        seed=seed,
        batch=chance.choice((*EXTREMES["batch"], chance.randint(1, 6))),
        n_particles=chance.choice((*EXTREMES["n_particles"], *(chance.randint(1, 40) for _ in range(6)))),
        n_steps=chance.choice((*EXTREMES["n_steps"], *(chance.randint(3, 30) for _ in range(6)))),
        training=chance.random() < 0.3,
        settings=settings,
    )


OBSERVATIONS = (*OPTIONS["observation"], "negative_binomial", "categorical")


def step_case(seed, **settings):
    """A model, and sequences that it can observe, some with gaps. The seed counts through the observation models."""
    case = random_case(seed)
    settings = {
        **case.settings,
        "observation": OBSERVATIONS[seed % 5],
        "window": OPTIONS["window"][seed // 5 % 5],
        **settings,
    }
    if settings["observation"] == "categorical":
        settings |= {"n_targets": 1, "n_inputs": 1, "predict_change": False, "n_classes": 4}
    x = sequences(case.batch, 3 + case.n_steps, settings["n_inputs"], seed=seed)
    targets = x[:, :, : settings["n_targets"]]
    if settings["observation"] == "negative_binomial":
        targets.copy_(targets.abs().mul(2).round())
    if settings["observation"] == "categorical":
        targets.copy_(targets.abs().mul(2).floor().clamp(max=3))
    if random.Random(seed).random() < 0.4:
        targets[:, 2] = float("nan")
        targets[-1, 3, -1] = float("nan")
    return random_model(seed, training=case.training, **settings), x, case


# --- the filter ---------------------------------------------------------------------------------------------


def run_filter(model, x, noise, seed=2, **options):
    """The filter's result under given noise, and the generator as the filter leaves it."""
    generator = seeded(seed)
    n_particles = noise.query.shape[1]
    result = particle_filter(
        model, x, model.settings(n_particles), generator, noise=noise, keep_attention=True, **options
    )
    return result, generator


def parts(result):
    """What a filter found out, by name, with time on the last axis but one where there is another."""
    return {
        **{name: getattr(result, name) for name in ("ancestors", "resampled", "log_increments", "log_weights")},
        "prior_log_weights": result.predictive.log_weights,
        "parameters": result.predictive.parameters,
        "attention": result.attention,
    }


def largest_number(wanted, name):
    """Of what rounding is measured by: weights are differences of log-densities, and have their rounding."""
    return largest_of(*(wanted[one] for one in {name, "log_increments"} if name == one or "weights" in name))


def assert_same_filter(model, x, noise, rounding=ROUNDING, **options):
    """The kernels' filter is torch's; returns the kernels' result."""
    (result, generator), (expected, expected_generator) = both(lambda: run_filter(model, x, noise, **options))
    found, wanted = parts(result), parts(expected)
    for name in wanted:
        assert_same(found[name], wanted[name], rounding, name, largest_number(wanted, name))
    assert (result.completed is None) == (expected.completed is None)
    if expected.completed is not None:
        assert_same(result.completed, expected.completed, rounding, "completed")
    # Whoever draws from the generator next gets the same numbers, too.
    assert torch.equal(generator.get_state(), expected_generator.get_state())
    return result
