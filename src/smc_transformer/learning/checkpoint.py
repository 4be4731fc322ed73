"""Checkpoints of a training run: one safetensors file, replaced in one go, no pickle.

Tensors (weights, covariances, optimiser moments, best weights) are stored under slashed names; numbers and the
history go as JSON into the header.
"""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from smc_transformer.support.durable import why_not_made
from smc_transformer.support.tensor_files import check_format, read_tensors, write_tensors

FORMAT = "smc-transformer-training"
VERSION = 1


class CheckpointError(ValueError):
    """A checkpoint file that cannot be used, and why."""


class Checkpoint(NamedTuple):
    """Tensors by group and name, and whatever JSON can hold."""

    tensors: Mapping[str, dict[str, Tensor]]
    state: dict[str, Any]


def check_writable(path: Path) -> None:
    """Raise before hours of work, not after, when a checkpoint could not be written."""
    if path.is_dir():
        raise CheckpointError(f"the checkpoint must be a file, but {path} is a folder")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(f"no checkpoint can be written to {path}: {error}") from None
    if reason := why_not_made(path):
        raise CheckpointError(f"no checkpoint can be written to {path}: {reason}")


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; an interrupted write leaves the previous one intact."""
    header = {"format": FORMAT, "version": VERSION, "state": checkpoint.state}
    groups = checkpoint.tensors.items()
    write_tensors(path, {f"{group}/{name}": one for group, named in groups for name, one in named.items()}, header)


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint; a truncated or foreign file raises a `CheckpointError`."""
    found, header = read_tensors(path, CheckpointError)
    check_format(path, header, "a training checkpoint", (FORMAT, VERSION), CheckpointError)
    tensors: dict[str, dict[str, Tensor]] = defaultdict(dict)
    for key, tensor in found.items():
        group, _, name = key.partition("/")
        tensors[group][name] = tensor
    if not isinstance(header.get("state"), dict):
        raise CheckpointError(f"{path} is damaged: it does not say where the training was")
    return Checkpoint(tensors, header["state"])


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The moments of an optimiser under flat names."""
    return {
        f"{parameter}/{name}": torch.as_tensor(value)
        for parameter, moments in optimiser.state_dict()["state"].items()
        for name, value in moments.items()
    }


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """The inverse of `optimiser_tensors`."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        parameter, moment = name.split("/")
        state.setdefault(int(parameter), {})[moment] = tensor
    optimiser.load_state_dict({**optimiser.state_dict(), "state": state})
    # torch casts moments to the type of their parameter; some optimisers keep them in another.
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    for number, moments in state.items():
        optimiser.state[parameters[number]].update(moments)
