"""Checkpoints of a training run: one safetensors file, replaced in one go, no pickle.

Tensors (weights, covariances, optimiser moments, best weights) are stored under slashed names; numbers and the
history go as JSON into the header.
"""

import json
import os
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

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
    if not os.access(path.parent, os.W_OK):
        raise CheckpointError(f"no checkpoint can be written to {path}: the folder is not writable")


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; an interrupted write leaves the previous one intact."""
    header = {"format": FORMAT, "version": VERSION, "state": checkpoint.state}
    tensors = {
        f"{group}/{name}": tensor.detach().contiguous()
        for group, named in checkpoint.tensors.items()
        for name, tensor in named.items()
    }
    unfinished = path.with_name(path.name + ".unfinished")
    save_file(tensors, unfinished, metadata={"header": json.dumps(header)})
    os.replace(unfinished, path)


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint; a truncated or foreign file raises a `CheckpointError`."""
    tensors: dict[str, dict[str, Tensor]] = defaultdict(dict)
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("header", "{}"))
            for key in file.keys():  # noqa: SIM118 (not a dict)
                group, _, name = key.partition("/")
                tensors[group][name] = file.get_tensor(key)
    except (SafetensorError, json.JSONDecodeError) as error:
        raise CheckpointError(f"{path} is not a readable checkpoint (truncated, or another format): {error}") from None
    if header.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not a training checkpoint of smc-transformer")
    if header["version"] > VERSION:
        raise CheckpointError(
            f"{path} has format version {header['version']}, this release reads up to {VERSION}; update smc-transformer"
        )
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
