"""What the files of a folder may say: everything that is read is checked before anything is computed from it.

Errors here are of Python's own kinds; `damage` makes them one that names the file.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from smc_transformer.forecaster.names import is_name
from smc_transformer.forecaster.panel import Panel
from smc_transformer.forecaster.scaling import Scaler
from smc_transformer.forecaster.settings import Settings
from smc_transformer.forecaster.table import Name
from smc_transformer.forecaster.view.bank_state import BankState
from smc_transformer.model import SMCTransformer
from smc_transformer.support.checks import check_count

VIEW = "view/"
"""Of the names of tensors that hold local views."""
RECENT = "recent"
"""Of the tensor with the last rows of all series, one after the other."""
FARTHEST = 2**62
"""Of a whole-number time: the grid beyond it must have numbers too."""


@contextlib.contextmanager
def damage(path: Path | str, error: type[ValueError]) -> Iterator[None]:
    """Whatever is wrong inside this block is damage of the file at `path`."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RuntimeError) as cause:
        reason = f"{cause} is missing" if isinstance(cause, KeyError) else " ".join(str(cause).split())
        raise error(f"{path} is damaged or was edited: {reason or type(cause).__name__}") from None


def panel(stored: Mapping[str, Any], settings: Settings) -> Panel:
    """How inputs and changes are scaled; without the scalers of the series."""
    scaler(stored["known_scaler"], ("standard",) * len(settings.future_inputs))
    _column_numbers(stored["units"], len(settings.modelled), "units", positive=True)
    if ("view" in stored) != settings.is_local:
        raise ValueError(f"scaling={settings.scaling!r} {'needs a' if settings.is_local else 'has no'} view")
    found = Panel.from_dict(settings, dict(stored))
    if found.widths is not None:
        _column_numbers(found.widths, settings.horizon, "widths", positive=True)
    if not 0.0 <= found.persistence <= 1.0:
        raise ValueError(f"persistence must lie between 0 and 1, got {found.persistence}")
    if found.view is not None:
        found.view.check()
        if (found.view.bank.seasons, found.view.bank.horizon) != (settings.seasons, settings.horizon):
            raise ValueError("the view is one of other seasons or another horizon than those of the settings")
        if len(found.positive) != len(settings.targets):
            raise ValueError(f"positive must say it of {len(settings.targets)} targets, got {len(found.positive)}")
    return found


def views(tensors: Mapping[str, Tensor], panel: Panel, n_series: int) -> list[BankState]:
    """The local views of so many series, from where they are."""
    assert panel.view is not None
    n_modelled = len(panel.settings.modelled)
    later = [field for field in ("largest", "jump") if VIEW + field not in tensors]  # of a release that had none
    known = {field: tensors[VIEW + field].numpy() for field in BankState.names() if field not in later}
    known |= {field: np.full_like(known["size"], np.inf) for field in later}  # nothing is then thought to be quiet
    whole = BankState(**known)
    panel.view.bank.check(whole, n_series * n_modelled)
    return [whole.take(slice(start, start + n_modelled)) for start in range(0, len(whole), n_modelled)]


def recent(tensors: Mapping[str, Tensor], settings: Settings, lengths: Sequence[Any]) -> list[np.ndarray]:
    """The last rows of series that have so many; of a release that kept none, none."""
    counts = [check_count(length, "recent", at_least=0) for length in lengths]
    rows = tensors.get(RECENT, torch.empty(0, len(settings.modelled), dtype=torch.float64))
    if rows.dtype != torch.float64 or rows.shape != (sum(counts), len(settings.modelled)):
        raise ValueError(f"{sum(counts)} last rows of float64 expected, got {rows.dtype} of shape {tuple(rows.shape)}")
    if rows.isinf().any():
        raise ValueError("the last rows hold infinite numbers")
    return np.split(rows.numpy(), np.cumsum(counts)[:-1]) if counts else []


def scaler(stored: Mapping[str, Any], kinds: tuple[str, ...]) -> Scaler:
    """A scaler of columns of these kinds, by which values can be divided."""
    found = Scaler.from_dict(dict(stored))
    if found.kinds != kinds:
        raise ValueError(f"columns are scaled as {list(kinds)}, but a scaler is for {list(found.kinds)}")
    _column_numbers(found.shift, len(kinds), "shift")
    _column_numbers(found.spread, len(kinds), "spread", positive=True)
    return found


def _column_numbers(stored: Any, n_columns: int, what: str, *, positive: bool = False) -> np.ndarray:
    numbers = np.array(stored, float)
    if numbers.shape != (n_columns,):
        raise ValueError(f"{what} must hold {n_columns} numbers, got shape {numbers.shape}")
    if not np.isfinite(numbers).all() or (positive and (numbers <= 0).any()):
        raise ValueError(f"{what} must hold {'positive' if positive else 'finite'} numbers, got {numbers.tolist()}")
    return numbers


def model(settings: Settings, weights: Mapping[str, Tensor]) -> SMCTransformer:
    """The model with these weights, all of them finite."""
    check_weights(weights)
    made = settings.make_model(generator=0)
    try:
        made.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(f"the weights do not fit the settings in config.json: {error}") from None
    _check_distribution(made)
    return made


def check_weights(weights: Mapping[str, Tensor]) -> None:
    """That they are finite."""
    for name, tensor in weights.items():
        if not tensor.isfinite().all():
            raise ValueError(f"the weights {name!r} hold NaN or infinite numbers")


@torch.no_grad()
def _check_distribution(made: SMCTransformer) -> None:
    """That the observation model's own weights make a distribution, such as one with a positive scale."""
    observation, like = made.observation, made.attention.query.weight
    mixture = observation.mixture(like.new_zeros(1, 1, 1), like.new_zeros(1, 1, 1, observation.n_parameters))
    if not mixture.log_prob(like.new_zeros(1, 1, observation.n_targets)).isfinite().all():
        raise ValueError("the weights of the observation model make no distribution")


def words(stored: Any) -> dict[str, str]:
    """What was chosen from the table, in words; older files do not tell."""
    if not isinstance(stored, dict) or not all(isinstance(one, str) for pair in stored.items() for one in pair):
        raise TypeError(f"choices must be texts by the names of settings, got {stored!r}")
    return dict(stored)


def name(stored: Any) -> Name:
    """The name of a series."""
    found = tuple(stored) if isinstance(stored, list) else stored  # JSON has no tuples
    if not is_name(found):
        raise TypeError(f"a series is called {stored!r}")
    return found


def check_names(series: Sequence[Name], blocks: Sequence[Sequence[Name]]) -> None:
    """That every series is described once and has particles once; there may be none (adapters/huggingface.py)."""
    followed = [one for names in blocks for one in names]
    if len(set(series)) != len(series) or len(set(followed)) != len(followed) or set(series) != set(followed):
        raise ValueError("the series and those that have particles are not the same")


def runs(stored: Any, settings: Settings) -> tuple[int, ...]:
    """How many of the last values of each modelled column were outside what is believed; older files do not tell."""
    if stored is None:
        return (0,) * len(settings.modelled)
    if len(stored) != len(settings.modelled):
        raise ValueError(f"runs must hold {len(settings.modelled)} whole numbers, got {stored!r}")
    return tuple(check_count(one, "runs", at_least=0, at_most=FARTHEST) for one in stored)


def time(stored: Any, settings: Settings) -> Any:
    """A time as it was saved: a whole number, or text, its zone and its unit; such as the frequency asks for."""
    is_whole = isinstance(stored, int) and not isinstance(stored, bool)
    if is_whole is isinstance(settings.freq, str):
        raise ValueError(f"freq={settings.freq!r} has other times than {stored!r}")
    if is_whole:
        if abs(stored) > FARTHEST:
            raise ValueError(f"the time {stored} is out of reach")
        return stored
    text, zone, unit = stored
    found = pd.Timestamp(text).as_unit(unit)
    if found is pd.NaT or found.tz is not None:
        raise ValueError(f"{text!r} is no time in UTC")
    return found if zone is None else found.tz_localize("UTC").tz_convert(zone)


def check_zones(times: Sequence[Any]) -> None:
    """That all times can be compared with each other."""
    if len({getattr(one, "tz", None) is None for one in times}) > 1:
        raise ValueError("some times have a zone, and others have none")
