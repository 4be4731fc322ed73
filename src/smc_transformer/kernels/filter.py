"""The particle filter over whole sequences in one call."""

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from smc_transformer.kernels.elliptical import Elliptical
from smc_transformer.kernels.layer import LayerTensors
from smc_transformer.kernels.library import check, loaded, threads
from smc_transformer.kernels.structures import MEANS, NOISES, Filter, point, strides_of

SCHEMES = ("multinomial", "residual", "stratified", "systematic")
"""The resampling schemes that C knows, in the order of their numbers there."""


class FilterOutputs(NamedTuple):
    """Where the filter writes; None: not wanted."""

    ancestors: Int[Tensor, "batch particle time"]
    resampled: Bool[Tensor, "batch time"]
    increments: Float[Tensor, "batch time"]
    prior: Float[Tensor, "batch particle time"]
    """Log-weights before each observation."""
    posterior: Float[Tensor, "batch particle time"]
    parameters: Float[Tensor, "batch particle time n_parameters"]
    attention: Float[Tensor, "batch particle time d"] | None = None
    keys: Float[Tensor, "batch particle time d"] | None = None
    values: Float[Tensor, "batch particle time d"] | None = None
    trajectories: Int[Tensor, "batch particle time"] | None = None


def filter_sequences(
    layer: LayerTensors,
    density: Elliptical,
    means: Sequence[Float[Tensor, "batch time d"]],
    embedding: Float[Tensor, "batch time d"],
    noise: Sequence[Float[Tensor, "batch particle time d"]],
    targets: Float[Tensor, "batch time n_targets"],
    last_targets: Float[Tensor, "batch time n_targets"] | None,
    uniforms: Float[Tensor, "time batch _"],
    *,
    scheme: str,
    ess_threshold: float,
    window: int | None,
    stop_at_collapse: bool,
    out: FilterOutputs,
) -> Int[Tensor, "batch"]:
    """Filter whole sequences; `last_targets` are added to the locations, `uniforms` are as many as the scheme needs.

    Returns:
        The step, counted from 0, at which each sequence lost all its weight; -1: it did not.
    """
    batch, n_particles, n_steps, n_parameters = out.parameters.shape
    kernels = loaded(targets)
    eps, strides = strides_of(noise, targets)
    collapsed = torch.empty(batch, dtype=torch.long)
    task = Filter(
        batch=batch,
        particles=n_particles,
        steps=n_steps,
        window=window or 0,
        n_targets=targets.shape[-1],
        noise_strides=strides,
        n_parameters=n_parameters,
        constant=density.constant,
        degrees=density.degrees or 0.0,
        n_uniforms=uniforms.shape[-1],
        scheme=SCHEMES.index(scheme),
        stop_at_collapse=stop_at_collapse,
        ess_threshold=ess_threshold,
    )
    lowest, highest = density.log_scales or (None, None)
    point(
        task,
        {
            **dict(zip(MEANS, (part.contiguous() for part in (*means, embedding)), strict=True)),
            **dict(zip(NOISES, eps, strict=True)),
            "targets": targets.contiguous(),
            "last_targets": None if last_targets is None else last_targets.contiguous(),
            "root": density.root.contiguous(),
            "lowest": None if lowest is None else lowest.contiguous(),
            "highest": None if highest is None else highest.contiguous(),
            "uniforms": uniforms,
            "collapsed": collapsed,
            **out._asdict(),
        },
    )
    work = eps[0].numel() * (4 * embedding.shape[-1] + n_steps)
    check(kernels.particle_filter(ctypes.byref(task), ctypes.byref(layer.structure()), threads(work)))
    return collapsed
