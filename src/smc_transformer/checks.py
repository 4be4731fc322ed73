"""Checks of what users pass in: errors say what was expected and what was got."""

from numbers import Integral
from typing import Any

import torch
from torch import Tensor


def check_count(value: Any, name: str) -> int:
    """A whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return int(value)


def check_choice(value: Any, choices: tuple[str | None, ...], name: str) -> None:
    """One of a few names."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def check_sequences(x: Any, n_features: int, dtype: torch.dtype, *, min_time: int, name: str = "x") -> Tensor:
    """A tensor (batch, time, n_features) of finite numbers of the model's type, with at least `min_time` steps."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor of shape (batch, time, {n_features}), got {type(x).__name__}")
    if not x.is_floating_point():
        raise TypeError(f"{name} must hold floating-point numbers, got {x.dtype}; convert it with {name}.float()")
    if x.ndim != 3:
        raise ValueError(f"{name} must have 3 axes (batch, time, {n_features}), got {x.ndim} axes: {tuple(x.shape)}")
    batch, time, features = x.shape
    if features != n_features:
        raise ValueError(f"{name} must have {n_features} features on its last axis, got {features}: {tuple(x.shape)}")
    if batch == 0:
        raise ValueError(f"{name} must hold at least one sequence, got shape {tuple(x.shape)}")
    if time < min_time:
        raise ValueError(f"{name} must have at least {min_time} time steps, got {time}: {tuple(x.shape)}")
    if x.dtype != dtype:
        raise TypeError(f"{name} is {x.dtype} but the model is {dtype}; convert one of them, as in {name}.to({dtype})")
    if not x.isfinite().all():
        place = (~x.isfinite()).nonzero()[0].tolist()
        value = x[tuple(place)].item()
        hint = "missing values are not supported here yet" if value != value else "all values must be finite"
        raise ValueError(f"{name} holds {value} at {place} (batch, time, feature): {hint}")
    return x
