"""Small windows for the tests of the baselines."""

import torch

from smct_paper.datasets import SYNTHETIC, Windows


def make_windows(x, *, n_targets=None, n_modelled=None, history=None, name="own", shares=(0.6, 0.2)):
    """Windows from sequences (sequence, time, column), cut into three parts in their order."""
    n_columns = x.shape[-1]
    first, second = int(shares[0] * len(x)), int(sum(shares) * len(x))
    n_targets = n_columns if n_targets is None else n_targets
    return Windows(
        name=name,
        split="chronological",
        train=x[:first],
        validation=x[first:second],
        test=x[second:],
        n_targets=n_targets,
        n_modelled=n_targets if n_modelled is None else n_modelled,
        history=(x.shape[1] - 1) // 2 if history is None else history,
        columns=tuple(f"column {number}" for number in range(n_columns)),
        mean=torch.zeros(n_columns),
        deviation=torch.ones(n_columns),
    )


def synthetic_windows(name="model1", n_sequences=400, n_steps=12, seed=0, **settings):
    return make_windows(SYNTHETIC[name].sample(n_sequences, n_steps, seed), name=name, **settings)


def vector_sequences(n_sequences=300, n_steps=10, seed=0):
    """A stable vector autoregression of order two with correlated noise, and its coefficients."""
    first = torch.tensor([[0.5, 0.2, 0.1], [-0.1, 0.4, 0.0], [0.0, 0.1, 0.6]])
    second = torch.tensor([[0.2, 0.0, 0.0], [0.0, 0.3, 0.0], [0.1, 0.0, 0.1]])
    root = torch.tensor([[0.5, 0.0, 0.0], [0.4, 0.3, 0.0], [0.0, 0.1, 0.2]])
    noise = torch.randn(n_sequences, n_steps + 31, 3, generator=torch.Generator().manual_seed(seed)) @ root.T
    x = noise.clone()
    for t in range(2, x.shape[1]):
        x[:, t] = x[:, t - 1] @ first.T + x[:, t - 2] @ second.T + noise[:, t]
    return x[:, 30:].contiguous(), (first, second, root)


def with_gaps(x, share=0.1, seed=0):
    """Values missing at random, but none at the first step."""
    gaps = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed)) < share
    gaps[:, 0] = False
    return x.masked_fill(gaps, float("nan"))
