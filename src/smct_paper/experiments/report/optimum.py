"""The best possible scores on the synthetic series: those of the true distribution, in expectation over the windows."""

from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from smct_paper.datasets.synthetic import SYNTHETIC, MixtureAutoregression

N_STEPS = 24
REACH, N_NODES = 9.0, 901


class Optimum(NamedTuple):
    """Expected scores of the true distribution, averaged over the steps."""

    mse: float
    dist_mse: float
    nll: float


@cache
def optimum(dataset: str) -> Optimum:
    """Moments in closed form; the NLL by integration on a grid, along which p(X_t) is carried forward."""
    source = SYNTHETIC[dataset]
    coefficients, probabilities = np.array(source.coefficients), np.array(source.probabilities)
    mean, mean_square = probabilities @ coefficients, probabilities @ coefficients**2
    second_moment, total = 1.0, 0.0
    for _ in range(N_STEPS):
        total += second_moment
        second_moment = mean_square * second_moment + source.variance
    spread = (mean_square - mean**2) * total / N_STEPS  # Var[A] E[X^2]
    return Optimum(float(source.variance + spread), float(source.variance + 2 * spread), float(_nll(source)))


def _nll(source: MixtureAutoregression) -> float:
    grid = np.linspace(-REACH, REACH, N_NODES)
    width = grid[1] - grid[0]
    transition = sum(  # density of X_{t+1} (columns) given X_t (rows)
        probability * norm.pdf(grid, coefficient * grid[:, None], np.sqrt(source.variance))
        for coefficient, probability in zip(source.coefficients, source.probabilities, strict=True)
    )
    entropy = -width * (transition * np.log(np.maximum(transition, 1e-300))).sum(axis=1)
    distribution = norm.pdf(grid)
    total = 0.0
    for _ in range(N_STEPS):
        total += width * float(distribution @ entropy)
        distribution = width * distribution @ transition
    return total / N_STEPS
