"""A `Fitted` on disk: config.json, model.safetensors and states.safetensors; no pickle.

config.json          format version, settings, and how inputs are scaled
model.safetensors    the weights
states.safetensors   the particles of every series, the generator's state, and (in its header) names, times and scaling

All three carry the same fit number. What changes from row to row is in the states alone, so that saving after an
update replaces one file, atomically.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Generator, Tensor

from smc_transformer.forecaster.fitted import Fitted, Followed, Following
from smc_transformer.forecaster.fleet import Fleet
from smc_transformer.forecaster.panel import Panel
from smc_transformer.forecaster.scaling import Scaler
from smc_transformer.forecaster.settings import Settings
from smc_transformer.forecaster.table import Name
from smc_transformer.inference.state import ParticleState

FORMAT = "smc-transformer-forecaster"
VERSION = 2
CONFIG, MODEL, STATES = "config.json", "model.safetensors", "states.safetensors"


class SavedForecasterError(ValueError):
    """A saved forecaster that cannot be used, and why."""


def replace_folder(path: Path, fitted: Fitted, number: str) -> None:
    """Write a whole folder, with the number of the fit; an interrupted write leaves the one that was there."""
    unfinished, aside = _beside(path, "unfinished"), _beside(path, "replaced")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    weights = {name: tensor.detach().contiguous() for name, tensor in fitted.model.state_dict().items()}
    save_file(weights, unfinished / MODEL, metadata={"header": json.dumps({"fit": number})})
    save_states(unfinished, fitted, number)
    config = {
        "format": FORMAT,
        "version": VERSION,
        "fit": number,
        "settings": fitted.settings.to_dict(),
        "scaling": fitted.panel.to_dict(),
    }
    (unfinished / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    # A folder cannot be replaced atomically: the old one is moved aside, where `present` finds it if need be.
    if path.exists():
        shutil.rmtree(aside, ignore_errors=True)
        os.replace(path, aside)
    os.replace(unfinished, path)
    shutil.rmtree(aside, ignore_errors=True)


def present(path: Path) -> Path:
    """The folder, or where it is after a replacement that was interrupted."""
    aside = _beside(path, "replaced")
    return aside if not path.exists() and aside.exists() else path


def stored_fit(path: Path) -> str:
    """The number of the fit in a folder."""
    return _read_config(path)["fit"]


def load_fitted(path: Path) -> Fitted:
    """Read a folder; whatever is truncated, foreign or of a newer format raises a `SavedForecasterError`."""
    config = _read_config(path)
    try:
        settings = Settings.from_dict(config["settings"])
        scaling, number = config["scaling"], config["fit"]
        panel = Panel(settings, Scaler.from_dict(scaling["known_scaler"]), np.array(scaling["units"], float))
    except (KeyError, TypeError, ValueError) as error:
        raise SavedForecasterError(f"{path / CONFIG} is damaged: {error!r}") from None
    model = settings.make_model(generator=0)
    weights, _ = _read_tensors(path / MODEL, number)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise SavedForecasterError(f"{path / MODEL} does not fit the settings in {CONFIG}: {error}") from None
    tensors, header = _read_tensors(path / STATES, number)
    try:
        following, until = Following(Fleet(_blocks(tensors, header)), {}), {}
        for one in header["series"]:
            scaler = Scaler.from_dict(one["scaler"])
            runs = tuple(one.get("runs", [0] * len(settings.modelled)))
            following.series[one["name"]] = Followed(_time(one["last_time"]), scaler, runs)
            if one["trained_until"] is not None:
                panel.scalers[one["name"]] = scaler
                until[one["name"]] = _time(one["trained_until"])
        generator = Generator()
        generator.set_state(tensors["generator"])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise SavedForecasterError(f"{path / STATES} is damaged: {error!r}") from None
    return Fitted(settings, model, panel, following, until, generator)


def save_states(folder: Path, fitted: Fitted, number: str) -> None:
    """Write the states of all series, in one atomic replacement."""
    tensors: dict[str, Tensor] = {"generator": fitted.generator.get_state()}
    blocks = []
    for place, (names, state) in enumerate(fitted.following.fleet.blocks()):
        tensors |= {f"{place}/{name}": tensor for name, tensor in state.named_tensors().items()}
        blocks.append({"names": names})
    listed = [
        {
            "name": name,
            "last_time": _plain_time(one.last_time),
            "trained_until": _plain_time(fitted.trained_until.get(name)),
            "scaler": one.scaler.to_dict(),
            "runs": one.runs,
        }
        for name, one in fitted.following.series.items()
    ]
    unfinished = folder / (STATES + ".unfinished")
    header = {"fit": number, "series": listed, "blocks": blocks}
    save_file(tensors, unfinished, metadata={"header": json.dumps(header)})
    os.replace(unfinished, folder / STATES)


def _blocks(tensors: dict[str, Tensor], header: dict[str, Any]) -> Iterator[tuple[list[Name], ParticleState]]:
    """The blocks of the fleet, with the names of their series; in format version 1 each series is one."""
    # Not by the version of config.json, which stays as it was when states are saved again beside it.
    is_version_1 = "blocks" not in header
    for place, block in enumerate(header["series"] if is_version_1 else header["blocks"]):
        prefix = f"{place}/"
        own = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        if is_version_1:
            yield [block["name"]], ParticleState.from_version_1(own, block)
        else:
            yield block["names"], ParticleState.from_named_tensors(own)


def _read_config(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        raise SavedForecasterError(f"{path} is not a folder with a saved forecaster")
    try:
        config = json.loads((path / CONFIG).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SavedForecasterError(f"{path} holds no saved forecaster: {CONFIG} is missing") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise SavedForecasterError(f"{path / CONFIG} is not readable (truncated, or another format): {error}") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise SavedForecasterError(f"{path / CONFIG} is not that of a saved forecaster of smc-transformer")
    version = config.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise SavedForecasterError(
            f"{path} has format version {version}, this release reads up to {VERSION}; update smc-transformer"
        )
    if not isinstance(config.get("fit"), str):
        raise SavedForecasterError(f"{path / CONFIG} is damaged: it has no number of a fit")
    return config


def _read_tensors(path: Path, number: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("header", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except FileNotFoundError:
        raise SavedForecasterError(f"{path} is missing") from None
    except (SafetensorError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise SavedForecasterError(f"{path} is not readable (truncated, or another format): {error}") from None
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


def _beside(path: Path, what: str) -> Path:
    path = path.resolve()  # "." has no name of its own
    return path.with_name(f"{path.name}.{what}")


def _plain_time(time: Any) -> Any:
    """A time as JSON can hold it: a whole number, or text and the zone it is in."""
    if time is None or not isinstance(time, pd.Timestamp):
        return None if time is None else int(time)
    zone = None if time.tz is None else str(time.tz)
    universal = time if zone is None else time.tz_convert("UTC").tz_localize(None)
    return [universal.isoformat(), zone, time.unit]


def _time(stored: Any) -> Any:
    if isinstance(stored, int):
        return stored
    text, zone, unit = stored
    time = pd.Timestamp(text).as_unit(unit)
    return time if zone is None else time.tz_localize("UTC").tz_convert(zone)
