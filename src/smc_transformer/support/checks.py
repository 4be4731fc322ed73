"""Checks of what users pass in: errors say what was expected and what was got."""

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

LARGEST_COUNT = 2**31 - 1
"""Of a count without a limit of its own: products of a few of them still are numbers that C can hold."""
LONGEST_SHOWN = 200
"""Characters of a value in an error: a name of 100 kB would hide what is wrong with it."""


def shown(value: Any) -> str:
    """A value as errors show it: its beginning and its end, if it is long."""
    try:
        text = str(value) if isinstance(value, Real) else repr(value)
    except ValueError:  # Python writes no whole numbers of thousands of digits
        return f"a whole number of {value.bit_length()} bits"
    return cut(text)


def cut(text: str) -> str:
    """The beginning and the end of a long text."""
    if len(text) <= LONGEST_SHOWN:
        return text
    half = LONGEST_SHOWN // 2
    return f"{text[:half]}...{text[-half:]} ({len(text)} characters)"


def is_whole(value: Any) -> bool:
    """Whether it is a whole number; True is none, and neither is a duration, which numpy counts among them."""
    return isinstance(value, Integral) and not isinstance(value, (bool, np.timedelta64))


def is_real(value: Any) -> bool:
    """Whether it is a number with a place on the line; True and durations are none."""
    return isinstance(value, Real) and not isinstance(value, (bool, np.timedelta64))


def check_count(value: Any, name: str, at_least: int = 1, at_most: int = LARGEST_COUNT) -> int:
    """A whole number of at least 1, or another bound, and not beyond what can be computed."""
    if not is_whole(value):
        raise TypeError(f"{name} must be a whole number, got {shown(value)}")
    if value < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {shown(int(value))}")
    if int(value) > at_most:
        raise ValueError(f"{name} must be at most {at_most}, got {shown(int(value))}")
    return int(value)


def check_number(value: Any, name: str, *, at_most: float = math.inf, positive: bool = False) -> float:
    """A finite number of at least 0, or above it."""
    if not is_real(value):
        raise TypeError(f"{name} must be a number, got {shown(value)}")
    try:
        number = float(value)
    except OverflowError:  # 10**400
        number = math.inf
    if not (0 <= number <= at_most and math.isfinite(number)) or (positive and number == 0):
        bounds = "at least 0 and finite" if at_most == math.inf else f"between 0 and {at_most:g}"
        raise ValueError(f"{name} must be {'positive and finite' if positive else bounds}, got {shown(value)}")
    return number


def check_choice(value: Any, choices: tuple[str | None, ...], name: str) -> None:
    """One of a few names."""
    if not (value is None or isinstance(value, str)) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {shown(value)}")


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
    if x.layout != torch.strided or x.device.type == "meta" or x.is_nested:
        kind = "a tensor without values (meta)" if x.device.type == "meta" else f"a {x.layout} tensor"
        kind = "a nested tensor" if x.is_nested else kind
        raise TypeError(f"{name} must be a dense tensor with values, got {kind}")
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
