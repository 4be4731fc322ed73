"""The particle filter over whole sequences in one call."""

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from smc_transformer.kernels.densities import Categorical, Elliptical, Form, NegativeBinomial
from smc_transformer.kernels.encoder import EncoderTensors
from smc_transformer.kernels.layer import LayerTensors
from smc_transformer.kernels.library import check, loaded, threads
from smc_transformer.kernels.structures import MEANS, NOISES, PROJECTIONS, Filter, point, strides_of

KINDS = (Elliptical, NegativeBinomial, Categorical)
"""The forms of densities that C knows, in the order of their numbers there."""
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


class Gaps(NamedTuple):
    """What the filter needs where targets are missing, and where it writes what becomes of them."""

    observed: Bool[Tensor, "batch time n_targets"]
    inputs: Float[Tensor, "batch time_plus_1 n_inputs"]
    """X_0, ..., X_T; in place of missing targets any numbers."""
    encoder: EncoderTensors
    query: Float[Tensor, "d d"]
    key: Float[Tensor, "d d"]
    value: Float[Tensor, "d d"]
    normal: Float[Tensor, "batch particle time n_targets"]
    """Standard normal draws."""
    gamma: Float[Tensor, "batch particle time"] | None
    """Standard Gamma draws of shape (degrees + observed targets) / 2, for a Student-t."""
    positions: Float[Tensor, "time d"] | None
    """Encodings of the positions, added to the embeddings."""
    completed: Float[Tensor, "batch particle time n_targets"]
    """Written: the targets as each particle has them."""
    last: Float[Tensor, "batch particle n_inputs"]
    """Written, like those below: the inputs after the last step."""
    previous: Float[Tensor, "batch particle n_inputs"]
    """The inputs before those."""
    hidden: Float[Tensor, "batch particle d"]
    """The embeddings before the last inputs."""

    def encoder_state(self) -> tuple[Tensor, ...]:
        """The state of the encoder after the last step but its inputs, one row for each particle, as torch has it."""
        previous = () if self.encoder.level_scale is None else (self.previous.flatten(0, 1),)
        return previous if self.encoder.recurrent is None else (*previous, self.hidden.flatten(0, 1).unsqueeze(1))

    @property
    def reach(self) -> int:
        """How many inputs before the last an embedding sees; -1: all of them."""
        if self.encoder.recurrent is not None:
            return -1
        return 0 if self.encoder.level_scale is None else 1


def filter_sequences(
    layer: LayerTensors,
    density: Form,
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
    gaps: Gaps | None = None,
) -> Int[Tensor, "batch"]:
    """Filter whole sequences; `last_targets` are added to the first parameters, `uniforms` are those of the scheme.

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
        density=KINDS.index(type(density)),
        n_uniforms=uniforms.shape[-1],
        scheme=SCHEMES.index(scheme),
        stop_at_collapse=stop_at_collapse,
        ess_threshold=ess_threshold,
    )
    if isinstance(density, Elliptical):
        task.constant, task.degrees = density.constant, density.degrees or 0.0
        lowest, highest = density.log_scales or (None, None)
        parts = {"root": density.root, "lowest": lowest, "highest": highest}
        point(task, {name: None if part is None else part.contiguous() for name, part in parts.items()})
    elif isinstance(density, NegativeBinomial):
        task.largest_log = density.largest_log
    point(
        task,
        {
            **dict(zip(MEANS, (part.contiguous() for part in (*means, embedding)), strict=True)),
            **dict(zip(NOISES, eps, strict=True)),
            "targets": targets.contiguous(),
            "last_targets": None if last_targets is None else last_targets.contiguous(),
            "uniforms": uniforms,
            "collapsed": collapsed,
            **out._asdict(),
        },
    )
    encoder = None
    if gaps is not None:
        task.n_inputs, task.reach, encoder = gaps.inputs.shape[-1], gaps.reach, gaps.encoder.structure()
        given = {
            name: getattr(gaps, name) for name in ("observed", "inputs", "normal", "gamma", "positions", *PROJECTIONS)
        }
        point(task, {name: None if part is None else part.contiguous() for name, part in given.items()})
        point(task, {name: getattr(gaps, name) for name in ("completed", "last", "previous", "hidden")})
    work = eps[0].numel() * (4 * embedding.shape[-1] + n_steps)
    structures = (ctypes.byref(task), ctypes.byref(layer.structure()), encoder and ctypes.byref(encoder))
    check(kernels.particle_filter(*structures, threads(work)))
    return collapsed
