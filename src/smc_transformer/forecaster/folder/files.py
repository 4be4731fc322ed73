"""A `Fitted` on disk: config.json, model.safetensors and states.safetensors; no pickle.

config.json          format version, settings, and how inputs are scaled
model.safetensors    the weights
states.safetensors   particles and local view of every series; in its header names and times

Nothing is stored of randomness: what a series draws is told by the seed, its name and how many rows it has seen.

All three carry the same fit number. What changes from row to row is in the states alone, so that saving after an
update replaces one file, atomically; hence each file holds a checksum of its own, and no file that of another. What is
read is checked for what it means as well (contents.py), since a checksum can be computed anew.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from smc_transformer.forecaster.fitted import Fitted, Followed, Following
from smc_transformer.forecaster.fleet import Fleet
from smc_transformer.forecaster.folder import contents
from smc_transformer.forecaster.panel import Panel, ViewState
from smc_transformer.forecaster.scaling import Scaler
from smc_transformer.forecaster.settings import Settings
from smc_transformer.forecaster.table import Name
from smc_transformer.forecaster.view.bank_state import BankState
from smc_transformer.inference.small_state import from_small_tensors, small_tensors
from smc_transformer.inference.state import ParticleState
from smc_transformer.model import SMCTransformer
from smc_transformer.support.checksums import has_broken_seal, sealed
from smc_transformer.support.durable import replacing, resolved, sync_folder
from smc_transformer.support.tensor_files import check_format, read_tensors, write_tensors

FORMAT = "smc-transformer-forecaster"
VERSION = 4
SEALED = 3
"""Format version from which on every file must have a checksum; older ones may have one."""
CONFIG, MODEL, STATES = "config.json", "model.safetensors", "states.safetensors"
EXACT, SMALL = "exact", "small"
"""How states are kept: to the bit, or in about 64 kB a series (`inference/small_state.py`)."""
SMALL_BYTES, BYTES_OF_NAMES = 64_000, 3_000
"""Of a small state, and of what else its file says about a series."""


class SavedForecasterError(ValueError):
    """A saved forecaster that cannot be used, and why."""


def replace_folder(path: Path, fitted: Fitted, number: str, states: str = EXACT) -> None:
    """Write a whole folder, with the number of the fit; an interrupted write leaves the one that was there."""
    try:
        contents.check_weights(fitted.model.state_dict())
    except ValueError as error:
        raise SavedForecasterError(f"{path} is as it was: {error}, and could not be loaded again") from None
    unfinished, aside = beside(path, "unfinished"), beside(path, "replaced")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        unfinished.mkdir(parents=True)
        write_tensors(unfinished / MODEL, fitted.model.state_dict(), {"fit": number})
        save_states(unfinished, fitted, number, states)
        config = {
            "format": FORMAT,
            "version": VERSION,
            "fit": number,
            "settings": fitted.settings.to_dict(),
            "scaling": fitted.panel.to_dict(),
            "chosen": fitted.chosen,
        }
        with replacing(unfinished / CONFIG) as file:
            file.write((json.dumps(sealed(config), indent=2) + "\n").encode())
        # A folder cannot be replaced atomically: the old one is moved aside, where `present` finds it if need be.
        if path.exists():
            shutil.rmtree(aside, ignore_errors=True)
            os.replace(path, aside)
        os.replace(unfinished, path)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        if aside.exists() and not path.exists():
            os.replace(aside, path)
        raise
    sync_folder(unfinished.parent)
    forget_replaced(path)


def forget_replaced(path: Path) -> None:
    """Remove what a kill right after a replacement has left beside the folder that is there now."""
    shutil.rmtree(beside(path, "replaced"), ignore_errors=True)


def expected_bytes(settings: Settings, n_series: int) -> int:
    """About how large a folder will be: keys and values of all slots of all particles, and some more."""
    config = settings.model_config()
    slots, numbers = config.window or settings.window_length, 2 * config.d_model + 2
    return 2**20 + 4 * n_series * settings.n_particles * (slots * numbers + 4 * config.d_model)


def present(path: Path) -> Path:
    """The folder, or where it is after a replacement that was interrupted."""
    aside = beside(path, "replaced")
    # Not by Path.exists, which raises where the folder above is closed to this user.
    return aside if not os.path.exists(path) and os.path.exists(aside) else path


def stored_fit(path: Path) -> str:
    """The number of the fit in a folder."""
    return _read_config(path)["fit"]


def load_fitted(path: Path) -> Fitted:
    """Read a folder; whatever is truncated, damaged, foreign or of a newer format raises a `SavedForecasterError`."""
    config = _read_config(path)
    number, is_sealed = config["fit"], config["version"] >= SEALED
    with contents.damage(path / CONFIG, SavedForecasterError):
        settings = Settings.from_dict(config["settings"])
        panel = contents.panel(config["scaling"], settings)
        chosen = contents.words(config.get("chosen", {}))
    weights, _ = _read_tensors(path / MODEL, number, is_sealed)
    with contents.damage(path / MODEL, SavedForecasterError):
        model = contents.model(settings, weights)
    tensors, header = _read_tensors(path / STATES, number, is_sealed)
    with contents.damage(path / STATES, SavedForecasterError):
        following, until = read_following(tensors, header, settings, model, panel)
    return Fitted(settings, model, panel, following, until, chosen)


def read_following(
    tensors: dict[str, Tensor], header: dict[str, Any], settings: Settings, model: SMCTransformer, panel: Panel
) -> tuple[Following, dict[Name, Any]]:
    """The series of some states, and until when those of the fit were trained on; the panel gets their scalers."""
    following, until = Following(Fleet(), {}), {}
    listed = header["series"]
    views: Sequence[ViewState] = (
        [contents.scaler(one["scaler"], settings.kinds()) for one in listed]
        if panel.view is None
        else contents.views(tensors, panel, len(listed))
        if listed  # a pretrained forecaster follows nothing yet
        else []
    )
    recent = contents.recent(tensors, settings, [one.get("recent", 0) for one in listed])
    for one, view, rows in zip(listed, views, recent, strict=True):
        name, runs = contents.name(one["name"]), contents.runs(one.get("runs"), settings)
        following.series[name] = Followed(contents.time(one["last_time"], settings), view, runs, rows)
        if one["trained_until"] is not None:
            until[name] = contents.time(one["trained_until"], settings)
            if isinstance(view, Scaler):
                panel.scalers[name] = view
    for one in header.get("trained", ()):
        name = contents.name(one["name"])
        until[name] = contents.time(one["trained_until"], settings)
        if panel.view is None:
            panel.scalers[name] = contents.scaler(one["scaler"], settings.kinds())
    blocks = list(_blocks(tensors, header, settings.n_particles))
    contents.check_names([contents.name(one["name"]) for one in listed], [names for names, _ in blocks])
    contents.check_zones([one.last_time for one in following.series.values()] + list(until.values()))
    for names, state in blocks:
        state.check(model, settings.n_particles)
        if len(state) != len(names):
            raise ValueError(f"{len(names)} series, but particles of {len(state)}")
    following.fleet.add(blocks)
    return following, until


def save_states(folder: Path, fitted: Fitted, number: str, states: str = EXACT) -> None:
    """Write the states of all series, in one atomic replacement."""
    tensors, header = state_parts(fitted, number, fitted.following.series, states)
    if (gone := _no_longer_followed(fitted)) != []:
        header["trained"] = gone
    write_tensors(folder / STATES, tensors, header)


def state_parts(
    fitted: Fitted, number: str, names: Iterable[Name], states: str = EXACT
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The states of some series as tensors, exact or small, and what else is known of them."""
    fleet, known = fitted.following.fleet, {name: fitted.following.series[name] for name in names}
    chosen = list(known)
    tensors: dict[str, Tensor] = {}
    blocks: list[dict[str, Any]] = []
    for place, own in enumerate(fleet.groups(chosen)):
        names, state = [chosen[one] for one in own], fleet.take([chosen[one] for one in own])
        n_kept = particles_kept(state, known[names[0]]) if states == SMALL else None
        found = state.named_tensors() if n_kept is None else small_tensors(state, n_kept)
        tensors |= {f"{place}/{name}": tensor for name, tensor in found.items()}
        blocks.append({"names": names, **({} if n_kept is None else {SMALL: True})})
    listed = [
        {
            "name": name,
            "last_time": _plain_time(one.last_time),
            "trained_until": _plain_time(fitted.trained_until.get(name)),
            "runs": one.runs,
            "recent": len(one.recent),
            **({"scaler": one.view.to_dict()} if isinstance(one.view, Scaler) else {}),
        }
        for name, one in known.items()
    ]
    views = [one.view for one in known.values() if isinstance(one.view, BankState)]
    if views:
        arrays = BankState.cat(views).arrays()
        tensors |= {contents.VIEW + name: torch.from_numpy(array) for name, array in arrays.items()}
    rows = [one.recent for one in known.values()]
    tensors[contents.RECENT] = torch.from_numpy(np.concatenate([*rows, np.empty((0, len(fitted.settings.modelled)))]))
    return tensors, {"fit": number, "series": listed, "blocks": blocks}


def particles_kept(state: ParticleState, followed: Followed) -> int:
    """How many particles of each series a small state has: half, a quarter, ... of them, as many as fit."""
    rest = followed.recent.nbytes + BYTES_OF_NAMES
    if isinstance(followed.view, BankState):
        rest += sum(array.nbytes for array in followed.view.arrays().values())
    per_particle = 2 * 2 * state.capacity * state.keys.shape[-1]
    if state.has_own_inputs:
        per_particle += sum(rows[0].nbytes for rows in (state.last.flatten(0, 1), *state.encoder_state))
    kept = state.n_particles
    while kept > 1 and rest + kept * per_particle > SMALL_BYTES:
        kept //= 2
    return kept


def _no_longer_followed(fitted: Fitted) -> list[dict[str, Any]]:
    """Series of the fit, where others are followed instead."""
    scalers = fitted.panel.scalers
    return [
        {
            "name": name,
            "trained_until": _plain_time(time),
            **({"scaler": scalers[name].to_dict()} if name in scalers else {}),
        }
        for name, time in fitted.trained_until.items()
        if name not in fitted.following.series
    ]


def _blocks(
    tensors: dict[str, Tensor], header: dict[str, Any], n_particles: int
) -> Iterator[tuple[list[Name], ParticleState]]:
    """The blocks of the fleet, with the names of their series; in format version 1 each series is one."""
    # Not by the version of config.json, which stays as it was when states are saved again beside it.
    is_version_1 = "blocks" not in header
    for place, block in enumerate(header["series"] if is_version_1 else header["blocks"]):
        prefix = f"{place}/"
        own = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        if is_version_1:
            yield [contents.name(block["name"])], ParticleState.from_version_1(own, block)
        else:
            state = from_small_tensors(own, n_particles) if SMALL in block else ParticleState.from_named_tensors(own)
            yield [contents.name(one) for one in block["names"]], state


def _read_config(path: Path) -> dict[str, Any]:
    file = path / CONFIG
    try:
        if not path.is_dir():
            raise SavedForecasterError(f"{path} is not a folder with a saved forecaster")
        config = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SavedForecasterError(f"{path} holds no saved forecaster: {CONFIG} is missing") from None
    except SavedForecasterError:
        raise
    except (ValueError, RecursionError) as error:  # no JSON, no text, too many digits, or nested without end
        raise SavedForecasterError(f"{file} is not readable (truncated, or another format): {error}") from None
    except OSError as error:
        raise SavedForecasterError(f"{file} is not readable: {error.strerror or error}") from None
    check_format(file, config, "the config of a saved forecaster", (FORMAT, VERSION), SavedForecasterError)
    if has_broken_seal(config, required=config["version"] >= SEALED):
        raise SavedForecasterError(f"{file} is damaged or was edited: its checksum is not that of its contents")
    if not isinstance(config.get("fit"), str):
        raise SavedForecasterError(f"{file} is damaged: it has no number of a fit")
    return config


def _read_tensors(path: Path, number: str, is_sealed: bool) -> tuple[dict[str, Tensor], dict[str, Any]]:
    tensors, header = read_tensors(path, SavedForecasterError, sealed=is_sealed)
    if header.get("fit") != number:
        raise SavedForecasterError(f"{path} belongs to another fit than {CONFIG} beside it")
    return tensors, header


def fit_number(fitted: Fitted) -> str:
    """A number that is the same for the same settings, scaling and weights."""
    digest = hashlib.sha256(json.dumps([fitted.settings.to_dict(), fitted.panel.to_dict()], sort_keys=True).encode())
    for name, tensor in sorted(fitted.model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().contiguous().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def holds_fit(path: Path, number: str) -> bool:
    """Whether a folder holds this fit already, so that its states are all that need be written."""
    try:
        return stored_fit(path) == number and (path / MODEL).exists()
    except SavedForecasterError:
        return False


def beside(path: Path, what: str) -> Path:
    """A name next to a folder's own, for what is unfinished or was replaced."""
    path = resolved(path)  # "." has no name of its own
    return path.with_name(f"{path.name}.{what}")


def _plain_time(time: Any) -> Any:
    """A time as JSON can hold it: a whole number, or text and the zone it is in."""
    if time is None or not isinstance(time, pd.Timestamp):
        return None if time is None else int(time)
    zone = None if time.tz is None else str(time.tz)
    universal = time if zone is None else time.tz_convert("UTC").tz_localize(None)
    return [universal.isoformat(), zone, time.unit]
