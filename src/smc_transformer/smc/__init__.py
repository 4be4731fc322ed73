"""Sequential Monte Carlo on tensors: weights, resampling, genealogy, diagnostics.

Pure functions that know nothing of transformers. Axes are (batch, particle, time), or (batch, particle)
for one step; weights are logarithms and always normalised by `normalise`.
"""

from smc_transformer.smc.genealogy import gather_trajectories, trace_trajectories, unique_ancestors
from smc_transformer.smc.resampling import RESAMPLERS, Resampler, multinomial, residual, stratified, systematic
from smc_transformer.smc.selection import Selection, select
from smc_transformer.smc.weights import (
    WeightCollapseError,
    effective_sample_size,
    normalise,
    reweight,
    uniform_log_weights,
)

__all__ = [
    "RESAMPLERS",
    "Resampler",
    "Selection",
    "WeightCollapseError",
    "effective_sample_size",
    "gather_trajectories",
    "multinomial",
    "normalise",
    "residual",
    "reweight",
    "select",
    "stratified",
    "systematic",
    "trace_trajectories",
    "uniform_log_weights",
    "unique_ancestors",
]
