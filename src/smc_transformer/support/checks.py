"""Checks of what users pass in: errors say what was expected and what was got."""

import math
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor


def check_count(value: Any, name: str, at_least: int = 1) -> int:
    """A whole number of at least 1, or another bound."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {value}")
    return int(value)


def check_number(value: Any, name: str, *, at_most: float = math.inf, positive: bool = False) -> float:
    """A finite number of at least 0, or above it."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    number = float(value)
    if not (0 <= number <= at_most and math.isfinite(number)) or (positive and number == 0):
        bounds = "at least 0 and finite" if at_most == math.inf else f"between 0 and {at_most:g}"
        raise ValueError(f"{name} must be {'positive and finite' if positive else bounds}, got {value}")
    return number


def check_choice(value: Any, choices: tuple[str | None, ...], name: str) -> None:
    """One of a few names."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def check_sequences(
    x: Any, n_features: int, dtype: torch.dtype, *, min_time: int, n_targets: int = 0, name: str = "x"
) -> Tensor:
    """A tensor (batch, time, n_features) of numbers of the model's type, with at least `min_time` steps.

    All must be finite, but that the first `n_targets` features may be missing (NaN) after the first step.
    """
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
    wrong = ~x.isfinite()
    wrong[:, 1:, :n_targets] &= ~x[:, 1:, :n_targets].isnan()
    if wrong.any():
        place = wrong.nonzero()[0].tolist()
        value = x[tuple(place)].item()
        hint = "all values must be finite"
        if math.isnan(value):
            hint = "only targets may be missing, and not those of the first time step"
        raise ValueError(f"{name} holds {value} at {place} (batch, time, feature): {hint}")
    return x
