"""The local view of columns in C: what is said about their next rows, and how it learns from a value.

Arrays of numpy, as the view knows no torch; each column by itself, so that its numbers do not depend on the
columns beside it.
"""

import ctypes
from collections.abc import Mapping
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int

from smc_transformer.kernels.library import check, find, loaded, threads
from smc_transformer.kernels.structures import COUNT, POINTER, Bank, View

T = TypeVar("T", Bank, View)

_LIKE = torch.empty(0)
MOST_ORIGINS = 16
"""Running forecasts of a candidate that C has room for."""


def about_view() -> list[str]:
    """Why the view is not computed in C; none: it is."""
    found = find(_LIKE)
    return [found] if isinstance(found, str) else []


def bank_structure(numbers: Mapping[str, int | float], arrays: Mapping[str, np.ndarray]) -> Bank:
    """The candidates; their arrays are kept alive with them."""
    if numbers["origins"] > MOST_ORIGINS:
        raise ValueError(f"at most {MOST_ORIGINS} origins, got {numbers['origins']}")
    return _pointing(Bank(**numbers), arrays)


def view_structure(numbers: Mapping[str, int | float], prior: Float[np.ndarray, "candidate"]) -> View:
    """The constants of a view."""
    return _pointing(View(**numbers), {"prior": np.ascontiguousarray(prior, dtype=np.float64)})


def bank_of_columns(bank: Bank, state: Mapping[str, np.ndarray], n_columns: int) -> Bank:
    """The candidates with the state of columns, which C reads and writes where it is."""
    candidates = (1 + bank.profiles) * bank.smoothers
    shapes = {
        "profile_entries": (bank.entries,),
        "latest": (bank.places,),
        "visits": (bank.places,),
        "reference": (bank.profiles,),
        "level": (candidates,),
        "trend": (candidates,),
        "origin_level": (bank.origins, candidates),
        "origin_trend": (bank.origins, candidates),
        "errors": (candidates,),
    }
    for name, array in state.items():
        shape = (n_columns, *shapes.get(name, ()))
        kind = np.int64 if name in ("n_rows", "n_observed", "silent", "visits") else np.float64
        if array.shape != shape or array.dtype != kind or not (array.flags.c_contiguous and array.flags.writeable):
            raise ValueError(f"{name} must be a contiguous array {shape} of {np.dtype(kind)}, got {array.shape}")
    found = _pointing(Bank.from_buffer_copy(bank), state)
    found.n_columns, found.template = n_columns, bank  # whose arrays it points to
    return found


def observe_columns(bank: Bank, rows: Int[np.ndarray, "row"] | None, y: Float[np.ndarray, "row"]) -> None:
    """Let columns take their next values, in place; NaN is missing."""
    y = np.ascontiguousarray(y, dtype=np.float64)
    if len(y) != (bank.n_columns if rows is None else len(rows)):
        raise ValueError(f"there are {bank.n_columns} columns, got {len(y)} values")
    check(loaded(_LIKE).observe_columns(ctypes.byref(bank), _rows(rows, bank), COUNT(len(y)), POINTER(_address(y))))


def glance_columns(
    bank: Bank, view: View, rows: Int[np.ndarray, "row"] | None, n_steps: int, n_features: int
) -> tuple[Float[np.ndarray, "row step"], Float[np.ndarray, "row"], Float[np.ndarray, "row step feature"]]:
    """Anchor, unit and features of the next rows of columns."""
    n_columns = bank.n_columns if rows is None else len(rows)
    anchor, unit = np.empty((n_columns, n_steps)), np.empty(n_columns)
    features = np.empty((n_columns, n_steps, n_features))
    if features.shape[-1] != 4 + bank.seasons + bool(view.counts):
        raise ValueError(f"a view of {bank.seasons} seasons does not have {n_features} features")
    outputs = (POINTER(_address(array)) for array in (anchor, unit, features))
    sizes = map(COUNT, (n_columns, n_steps, n_features))
    work = n_columns * (n_steps + 4) * (1 + bank.profiles) * bank.smoothers * 8
    structures = (ctypes.byref(bank), ctypes.byref(view))
    check(loaded(_LIKE).glance_columns(*structures, _rows(rows, bank), *sizes, *outputs, threads(work)))
    return anchor, unit, features


def _pointing(structure: T, arrays: Mapping[str, np.ndarray]) -> T:
    """The structure with pointers to arrays, which are kept alive as long as it is."""
    for name, array in arrays.items():
        setattr(structure, name, _address(array))
    structure.kept = (getattr(structure, "kept", None), *arrays.values())
    return structure


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def _rows(rows: Int[np.ndarray, "row"] | None, bank: Bank) -> ctypes.c_void_p:
    """Where the numbers of columns are; C does not look whether there are such columns."""
    if rows is None:
        return POINTER(None)
    if rows.dtype != np.int64 or not rows.flags.c_contiguous:
        raise ValueError(f"rows must be contiguous whole numbers, got {rows.dtype}")
    if len(rows) and not (rows.min() >= 0 and rows.max() < bank.n_columns):
        raise ValueError(f"rows must be among the {bank.n_columns} columns, got {rows.min()} to {rows.max()}")
    return POINTER(_address(rows))
