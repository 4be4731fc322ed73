"""Small models and sequences for the tests."""

import torch

from smc_transformer import SMCTransformer, SMCTransformerConfig


def make_model(seed=0, *, spread_covariances=True, **settings):
    """A float64 model with random weights and, unless they are zero, covariances that differ between coordinates."""
    model = SMCTransformer(SMCTransformerConfig(**settings), generator=seed).double()
    if spread_covariances:
        generator = torch.Generator().manual_seed(seed + 1)
        for covariance in [*model.latent_covariances().values(), model.observation.covariance]:
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
    """Random sequences X_0, ..., X_{n_steps} with some persistence."""
    noise = torch.randn(batch, n_steps + 1, n_inputs, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    for t in range(n_steps):
        noise[:, t + 1] += 0.6 * noise[:, t]
    return noise


def mean_and_error(samples):
    """Mean over the first axis and its standard error."""
    return samples.mean(dim=0), samples.std(dim=0) / len(samples) ** 0.5
