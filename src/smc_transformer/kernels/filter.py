"""The particle filter over whole sequences in one call."""

import ctypes
from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor

from smc_transformer.kernels.layer import (
    NOISES,
    Strides,
    has_layer,
    make_layer,
    point,
    prescaled,
    strides_of,
)
from smc_transformer.kernels.library import COUNT, NUMBER, POINTER, check, library, threads
from smc_transformer.nn.attention import Noise
from smc_transformer.nn.observation.elliptical import elliptical
from smc_transformer.smc.resampling import multinomial, residual, stratified, systematic
from smc_transformer.smc.weights import WeightCollapseError

if TYPE_CHECKING:
    from smc_transformer.inference.filter import Trace
    from smc_transformer.model import SMCTransformer

SCHEMES = {multinomial: 0, residual: 1, stratified: 2, systematic: 3}
"""The resampling schemes that C knows, and their numbers there."""


class Filter(ctypes.Structure):
    """Mirror of the C structure in filter.c."""

    _fields_ = [
        *((name, COUNT) for name in ("batch", "particles", "steps", "window", "n_targets")),
        *((name, POINTER) for name in ("query_mean", "key_mean", "value_mean", "embedding")),
        *((name, POINTER) for name in NOISES),
        ("noise_strides", Strides),
        *((name, POINTER) for name in ("targets", "last_targets")),
        ("n_parameters", COUNT),
        *((name, POINTER) for name in ("root", "lowest", "highest")),
        *((name, NUMBER) for name in ("constant", "degrees")),
        ("uniforms", POINTER),
        *((name, COUNT) for name in ("n_uniforms", "scheme", "stop_at_collapse")),
        ("ess_threshold", NUMBER),
        *((name, POINTER) for name in ("keys", "values", "trajectories")),
        *((name, POINTER) for name in ("ancestors", "resampled", "increments", "prior", "posterior")),
        *((name, POINTER) for name in ("parameters", "attention", "collapsed")),
    ]


def can_filter(model: "SMCTransformer", settings: Any, x: Tensor) -> bool:
    """Whether the kernel can filter these sequences."""
    return (
        has_layer(model)
        and elliptical(model.observation) is not None
        and settings.resample in SCHEMES
        and not bool(x.isnan().any())
        and library(x) is not None
    )


def run_filter(
    model: "SMCTransformer",
    settings: Any,
    x: Tensor,
    embedding: Tensor,
    noise: Noise,
    trace: "Trace",
    population: Any,
    on_collapse: str,
    generator: Generator | None,
) -> None:
    """Fill the trace, and the population if there is one, with the steps of the filter."""
    kernels, distribution = library(x), elliptical(model.observation)
    assert kernels is not None
    assert distribution is not None
    config, attention = model.config, model.attention
    batch, n_particles, n_steps = trace.ancestors.shape
    resample = settings.resample
    n_uniforms = 1 if resample is systematic else n_particles
    # Drawn as `select` would draw them, step by step from the second on.
    uniforms = torch.zeros(n_steps, batch, n_uniforms, dtype=torch.float64)
    if settings.ess_threshold > 0:
        for step in range(1, n_steps):
            torch.rand(batch, n_uniforms, generator=generator, dtype=torch.float64, out=uniforms[step])
    means = attention.means(embedding)
    eps, strides = strides_of(
        [prescaled(covariance, part) for covariance, part in zip(attention.covariances, noise, strict=True)], x
    )
    collapsed = torch.empty(batch, dtype=torch.long)
    task = Filter(
        batch=batch,
        particles=n_particles,
        steps=n_steps,
        window=config.window or 0,
        n_targets=config.n_targets,
        noise_strides=strides,
        n_parameters=model.observation.n_parameters,
        constant=distribution.constant,
        degrees=distribution.degrees or 0.0,
        n_uniforms=n_uniforms,
        scheme=SCHEMES[resample],
        stop_at_collapse=on_collapse == "error",
        ess_threshold=settings.ess_threshold,
    )
    targets = x[:, :, : config.n_targets]
    point(
        task,
        {
            "query_mean": means.query,
            "key_mean": means.key,
            "value_mean": means.value,
            "embedding": embedding.contiguous(),
            **dict(zip(NOISES, eps, strict=True)),
            "targets": targets[:, 1:].contiguous(),
            "last_targets": targets[:, :-1].contiguous() if config.predict_change else None,
            "root": distribution.root.contiguous(),
            "lowest": None if distribution.log_scales is None else distribution.log_scales[0].contiguous(),
            "highest": None if distribution.log_scales is None else distribution.log_scales[1].contiguous(),
            "uniforms": uniforms,
            "keys": None if population is None else population.keys,
            "values": None if population is None else population.values,
            "trajectories": None if population is None else population.trajectories,
            "ancestors": trace.ancestors,
            "resampled": trace.resampled,
            "increments": trace.log_increments,
            "prior": trace.prior_log_weights,
            "posterior": trace.log_weights,
            "parameters": trace.parameters,
            "attention": trace.attention,
            "collapsed": collapsed,
        },
    )
    layer = make_layer(model)
    check(
        kernels.particle_filter(
            ctypes.byref(task), ctypes.byref(layer), threads(noise.query.numel() * (4 * config.d_model + n_steps))
        )
    )
    if on_collapse == "error" and bool((collapsed >= 0).any()):
        step = int(collapsed[collapsed >= 0].min())
        raise WeightCollapseError(sequence=int((collapsed == step).nonzero()[0, 0]), step=step + 1)
