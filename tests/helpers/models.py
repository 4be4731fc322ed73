"""Small models and sequences for the tests."""

import copy

import torch

from smc_transformer import SMCTransformer
from smc_transformer.nn import Covariance

STRUCTURES = ("isotropic", "diagonal", "full")
"""Of covariances."""


def make_model(seed=0, *, spread_covariances=True, **settings):
    """A float64 model with random weights and, unless they are zero, covariances that differ between coordinates."""
    model = SMCTransformer.from_settings(settings, generator=seed).double()
    if spread_covariances:
        generator = torch.Generator().manual_seed(seed + 1)
        covariances = [part for part in model.modules() if isinstance(part, Covariance)]
        for covariance in covariances:
            if not covariance.is_zero:
                covariance.assign_(random_covariance(covariance.matrix().detach(), generator))
    return model


def random_covariance(around, generator):
    """A random covariance matrix with correlations and about the size of a given one."""
    size = len(around)
    mixing = torch.eye(size, dtype=around.dtype) + 0.5 * torch.rand(size, size, generator=generator, dtype=around.dtype)
    factor = torch.linalg.cholesky(around) @ mixing
    return factor @ factor.T


def sequences(batch, n_steps, n_inputs=1, seed=0, dtype=torch.float64):
    """Random sequences X_0, ..., X_{n_steps} with some autocorrelation."""
    noise = torch.randn(batch, n_steps + 1, n_inputs, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    for t in range(n_steps):
        noise[:, t + 1] += 0.6 * noise[:, t]
    return noise


def in_float32(model):
    """A copy for many runs that are averaged: rounding is far below their standard errors, and they take less time."""
    return copy.deepcopy(model).float()


def mean_and_error(samples):
    """Mean over the first axis and its standard error."""
    return samples.mean(dim=0), samples.std(dim=0) / len(samples) ** 0.5


def linear_model(structure="full", **settings):
    """Window 1, linear read-out, two targets among three inputs."""
    defaults = {"n_inputs": 3, "n_targets": 2, "d_model": 4, "window": 1, "readout": "linear"}
    defaults["initial_latent_variance"] = 0.15
    return make_model(covariance=structure, observation_covariance=structure, **{**defaults, **settings})


def tiny_model(**settings):
    """One dimension and a linear read-out: within reach of quadrature. Latent noise is large on purpose."""
    model = make_model(
        **{
            "d_model": 1,
            "readout": "linear",
            "initial_latent_variance": 0.5,
            "initial_observation_variance": 0.5,
            **settings,
        }
    )
    with torch.no_grad():
        model.attention.query.weight.fill_(1.2)
        model.attention.key.weight.fill_(-0.9)
        model.attention.value.weight.fill_(0.8)
        model.attention.output.weight.fill_(1.1)
        model.encoder.projection.weight.fill_(0.7)
        model.readout.projection.weight.fill_(0.9)
    return model


def gappy_model(structure="full", **settings):
    """Window 1, linear read-out, two targets that are all the inputs there are: `masked_linear` is its oracle."""
    defaults = {"n_inputs": 2, "d_model": 2, "initial_latent_variance": 0.2}
    return linear_model(structure, **{**defaults, **settings})


def gappy_sequence():
    """One sequence with a step that is missing wholly, one partly, and two in a row."""
    x = sequences(1, 6, 2)[0]
    x[2] = float("nan")
    x[3, 1] = float("nan")
    x[5, 0] = float("nan")
    return x


def simulate(model, n_sequences, n_steps, seed):
    """Sequences drawn from the model itself: a forecast from nothing but X_0."""
    start = sequences(n_sequences, 0, model.config.n_inputs, seed=seed)
    future = model.forecast(start, n_steps, n_samples=1, generator=seed)
    return torch.cat((start, future[:, 0]), dim=1)


TINY_SEQUENCE = torch.tensor([0.5, -0.8, 1.3, 0.4], dtype=torch.float64).unsqueeze(-1)


def weights(model):
    """A copy of everything that a model holds."""
    return {name: value.clone() for name, value in model.state_dict().items()}


def assert_same(one, other):
    """The same names, and the same numbers to the bit."""
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name
