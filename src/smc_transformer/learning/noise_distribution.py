"""The noise after training: how heavy its tails are and how wide it is, by held-out one-step forecasts.

If forecasts were right, u = P(X <= x) of the observations would be uniform, and residuals r = Q(u), Q the quantiles of
the noise's own distribution, would follow that distribution. A Student-t of other degrees of freedom that they follow
better gives the tails; the width is the one by which 95 % intervals hold 95 %. The forecasts are mixtures over
particles, whose spread is not changed by this, so the same is done again from where it has come to.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from smc_transformer.inference.filter import particle_filter
from smc_transformer.kernels import threads_for_kernels
from smc_transformer.learning.calibration import LEVEL, NARROWEST, PARTICLES, WIDEST
from smc_transformer.learning.ragged import groups_by_start
from smc_transformer.model import SMCTransformer
from smc_transformer.nn.observation import StudentTObservation
from smc_transformer.support import processes
from smc_transformer.support.randomness import as_generator

ROUNDS = 3
"""Of filtering and fitting; tails are changed by all but the last, which has the last word on the width."""
DEGREES = np.geomspace(2.5, 100.0, 24)
"""Degrees of freedom that are tried: above the last one, a Student-t and a Gaussian differ by less than 1 % at 99 %."""
OBSERVATIONS = 300
"""Held-out observations that weigh as much as all earlier ones."""
EXPECTED, SPREAD = math.log(8.0), 1.0
"""What the logarithm of the degrees of freedom is believed to be before any residual is seen: mean and deviation."""


class Sequences(NamedTuple):
    """Sequences of rows, each seen as when a series is followed, and the first of their steps that counts."""

    x: Float[Tensor, "sequence time_plus_1 n_inputs"]
    first: int


@torch.no_grad()
def fit_noise_(model: SMCTransformer, held_out: Sequences, earlier: Sequences, n_scored: int) -> float:
    """Change tails (of a Student-t) and width of a model's noise by its first targets; returns the factor of the width.

    Tails are those of all sequences. The width is that of held-out ones, as far as there are enough: what a model was
    trained on it predicts a little too well. In a process group each process filters a share of the sequences.
    """
    observation, factor = model.observation, 1.0
    for number in range(ROUNDS):
        new, old = (_residuals(model, sequences, n_scored) for sequences in (held_out, earlier))
        if not len(new) + len(old):
            break
        if isinstance(observation, StudentTObservation) and number < ROUNDS - 1:
            observation.set_degrees_(best_degrees(np.concatenate((new, old))))
        (end,), weights = _quantile(model, np.array([(1 + LEVEL) / 2])), (len(new), OBSERVATIONS if len(old) else 0)
        ends = [np.quantile(np.abs(own), LEVEL) if len(own) else 1.0 for own in (new, old)]
        wanted = math.exp(np.average(np.log(ends), weights=weights)) / end
        change = float(np.clip(factor * wanted, NARROWEST, WIDEST)) / factor
        observation.widen_(change)
        factor *= change
    return factor


def best_degrees(residuals: Float[np.ndarray, "residual"]) -> float:
    """The degrees of freedom, of those tried, of the Student-t of any scale that is most likely after the residuals."""
    # For each number of degrees of freedom, the most likely scale by EM: the mean square, weighted by the precisions.
    nu = DEGREES[:, None]
    squares, variance = residuals**2, np.full_like(nu, np.median(np.abs(residuals)) ** 2 + 1e-12)
    for _ in range(30):
        variance = ((nu + 1) * squares / (nu + squares / variance)).mean(axis=1, keepdims=True)
    log_density = -0.5 * (nu + 1) * np.log1p(squares / (nu * variance)) - 0.5 * np.log(variance * nu)
    constant = [math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2) for degrees in DEGREES]
    likelihood = log_density.sum(axis=1) + len(residuals) * np.array(constant)
    prior = -0.5 * ((np.log(DEGREES) - EXPECTED) / SPREAD) ** 2
    return float(DEGREES[np.argmax(likelihood + prior)])


@threads_for_kernels()
def _residuals(model: SMCTransformer, sequences: Sequences, n_scored: int) -> Float[np.ndarray, "residual"]:
    """The quantiles, under the noise's distribution, at which observations were predicted one step ahead."""
    found = processes.gather_made(lambda: _probabilities(model, sequences, n_scored))
    return _quantile(model, np.clip(np.concatenate(found), 1e-9, 1 - 1e-9))


def _probabilities(model: SMCTransformer, sequences: Sequences, n_scored: int) -> Float[np.ndarray, "observed"]:
    generator, settings, found = as_generator(processes.rank(), sequences.x.device), model.settings(PARTICLES), []
    for group in groups_by_start(sequences.x[processes.share(len(sequences.x))]):
        result = particle_filter(model, group.x, settings, generator, on_collapse="uniform")
        steps, whole = slice(max(0, sequences.first - group.start), None), result.predictive
        predictive = model.observation.mixture(whole.log_weights[:, :, steps], whole.parameters[:, :, steps])
        targets = group.x[:, 1:, : model.config.n_targets][:, steps]
        u, targets = predictive.cdf(targets.nan_to_num())[..., :n_scored], targets[..., :n_scored]
        found.append(u[~targets.isnan()].double().cpu().numpy())
    return np.concatenate(found) if found else np.zeros(0)


def _quantile(model: SMCTransformer, u: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """Quantiles of the noise in units of its scale: of a Student-t, or of a Gaussian."""
    from scipy.special import ndtri, stdtrit  # not above: a forecast needs none of it

    if isinstance(model.observation, StudentTObservation):
        return stdtrit(float(model.observation.degrees.detach()), u)
    return ndtri(u)
