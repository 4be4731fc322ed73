"""Models in folders as Hugging Face has them: config.json, model.safetensors, and README.md, the model card.

    from smc_transformer.adapters import huggingface

    huggingface.save_pretrained(forecaster, "folder")
    forecaster = huggingface.from_pretrained("folder")  # or "owner/name", from the Hub
    forecaster.predict(history)                         # of any series
    huggingface.push_to_hub(forecaster, "owner/name")

For a `Forecaster` and for an `SMCTransformer`. What is written is what was learned, not what it was learned from: no
series, no name or time of one, no particles. Folders need nothing but this package; the Hub needs huggingface_hub (the
extra `huggingface`).
"""

import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from smc_transformer.adapters.model_card import card_of_forecaster, card_of_model
from smc_transformer.config import LearningSettings, SMCTransformerConfig
from smc_transformer.forecaster.facade import Forecaster
from smc_transformer.forecaster.fitted import Following
from smc_transformer.forecaster.fleet import Fleet
from smc_transformer.forecaster.folder import files
from smc_transformer.inference.settings import InferenceSettings
from smc_transformer.model import SMCTransformer
from smc_transformer.support.checksums import has_broken_seal, sealed
from smc_transformer.support.durable import replacing
from smc_transformer.support.tensor_files import check_format, read_tensors, write_tensors

FORMAT, VERSION = "smc-transformer-model", 1
"""Of the config of an `SMCTransformer`; that of a forecaster is the one of a saved forecaster."""
CONFIG, WEIGHTS, CARD = files.CONFIG, files.MODEL, "README.md"
PARTS = ("encoder", "observation")


class PretrainedError(ValueError):
    """A folder that holds no model that can be used, and why."""


def save_pretrained(model: Forecaster | SMCTransformer, folder: str | Path, *, card: str | None = None) -> Path:
    """Write what a model has learned, with a model card; a card that is there already is kept unless one is given.

    A folder with a saved forecaster (`Forecaster.save`) is refused: the states of its series would be pushed with it.
    """
    folder = Path(folder)
    if (folder / files.STATES).exists() and _follows_series(folder):
        raise PretrainedError(f"{folder} holds a saved forecaster with the states of its series: choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(model, Forecaster):
        _write_forecaster(model, folder)
        text = card_of_forecaster(model.fitted)
    elif isinstance(model, SMCTransformer):
        _write_model(model, folder)
        text = card_of_model(model, _own_parts(model))
    else:
        raise TypeError(f"a Forecaster or an SMCTransformer can be saved here, got {type(model).__name__}")
    if card is not None or not (folder / CARD).exists():
        with replacing(folder / CARD) as file:
            file.write((text if card is None else card).encode())
    return folder


def from_pretrained(
    name: str | Path,
    *,
    encoder: nn.Module | None = None,
    observation: nn.Module | None = None,
    revision: str | None = None,
    token: str | bool | None = None,
    local_files_only: bool = False,
) -> Any:
    """The model of a folder or, where there is none of that name, of a repository on the Hub.

    Args:
        name: a folder, or owner/name.
        encoder: the encoder of an `SMCTransformer` that was made with one of its owner's own, before its weights.
        observation: the same for an observation model.
        revision: branch, tag or commit on the Hub.
        token: of the Hub.
        local_files_only: take what was downloaded earlier.

    Returns:
        A `Forecaster` that follows no series yet: give histories to `predict`, or rows to `update`. Or an
        `SMCTransformer`.
    """
    folder = Path(name)
    if not folder.is_dir():
        if str(name).count("/") != 1 or str(name).startswith((".", "/")):  # such names the Hub does not have
            raise PretrainedError(f"there is no folder {name}")
        downloaded = _hub().snapshot_download(
            str(name), revision=revision, token=token, local_files_only=local_files_only, library_name="smc-transformer"
        )
        folder = Path(downloaded)
    config = _read_config(folder)
    if config.get("format") != FORMAT:
        return Forecaster.load(folder)  # says what is wrong with any other folder
    return _read_model(folder, config, {"encoder": encoder, "observation": observation})


def push_to_hub(
    model: Forecaster | SMCTransformer,
    repository: str,
    *,
    card: str | None = None,
    private: bool | None = None,
    token: str | bool | None = None,
    message: str = "A model of smc-transformer",
) -> str:
    """Upload what `save_pretrained` writes to a repository owner/name, made if need be; returns its address."""
    api = _hub().HfApi(token=token, library_name="smc-transformer")
    with tempfile.TemporaryDirectory() as folder:
        save_pretrained(model, folder, card=card)
        address = api.create_repo(repository, private=private, exist_ok=True)
        api.upload_folder(repo_id=address.repo_id, folder_path=folder, commit_message=message)
    return str(address)


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise ImportError(
            "the Hub of Hugging Face needs huggingface_hub: pip install 'smc-transformer[huggingface]'"
        ) from None
    return huggingface_hub


def _follows_series(folder: Path) -> bool:
    _, header = read_tensors(folder / files.STATES, PretrainedError)
    return bool(header.get("series"))


# --- a forecaster -------------------------------------------------------------------------------------------


def _write_forecaster(forecaster: Forecaster, folder: Path) -> None:
    """The folder of a saved forecaster that follows nothing and remembers no series of its fit."""
    fitted = forecaster.fitted
    alone = replace(fitted, panel=replace(fitted.panel, scalers={}), following=Following(Fleet(), {}), trained_until={})
    with tempfile.TemporaryDirectory(dir=folder) as made_in:
        made = Path(made_in) / "model"
        files.replace_folder(made, alone, files.fit_number(alone))
        for file in (files.MODEL, files.STATES, files.CONFIG):
            os.replace(made / file, folder / file)


# --- a model ------------------------------------------------------------------------------------------------


def _write_model(model: SMCTransformer, folder: Path) -> None:
    # The settings one level down: Hugging Face's own loaders give the keys of the first level to constructors, where
    # `observation` is a module, not a word.
    config = {
        "format": FORMAT,
        "version": VERSION,
        "architecture": model.config.to_dict(),
        "inference": model.inference.to_dict(),
        "learning": model.learning.to_dict(),
        "own_parts": _own_parts(model),
    }
    write_tensors(folder / WEIGHTS, model.state_dict(), {"format": "pt"})
    with replacing(folder / CONFIG) as file:
        file.write((json.dumps(sealed(config), indent=2) + "\n").encode())


def _own_parts(model: SMCTransformer) -> dict[str, str]:
    """Which parts are not those that the config names, with the names of their classes."""
    named = SMCTransformer(model.config, generator=0)
    return {
        part: type(getattr(model, part)).__name__
        for part in PARTS
        if type(getattr(model, part)) is not type(getattr(named, part))
    }


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise PretrainedError(f"{folder} holds no model: {CONFIG} is missing") from None
    except (ValueError, RecursionError) as error:
        raise PretrainedError(f"{path} is not readable (truncated, or another format): {error}") from None
    if not isinstance(config, dict):
        raise PretrainedError(f"{path} is not the config of a model of smc-transformer")
    return config


def _read_model(folder: Path, config: dict[str, Any], given: dict[str, nn.Module | None]) -> SMCTransformer:
    path = folder / CONFIG
    check_format(path, config, "the config of a model", (FORMAT, VERSION), PretrainedError)
    if has_broken_seal(config, required=True):
        raise PretrainedError(f"{path} is damaged or was edited: its checksum is not that of its contents")
    parts = {part: module for part, module in given.items() if module is not None}
    for part, kind in config["own_parts"].items():
        if part not in parts:
            raise PretrainedError(f"the model was made with an {part} of its own ({kind}): give it as {part}=...")
    model = SMCTransformer(
        SMCTransformerConfig.from_dict(config["architecture"]),
        generator=0,
        inference=InferenceSettings.from_dict(config["inference"]),
        learning=LearningSettings.from_dict(config["learning"]),
        **parts,
    )
    weights, _ = read_tensors(folder / WEIGHTS, PretrainedError, sealed=True)
    try:
        model.to(weights["attention.query.weight"].dtype).load_state_dict(weights)
    except (RuntimeError, KeyError) as error:
        raise PretrainedError(f"the weights in {folder / WEIGHTS} do not fit {CONFIG}: {error}") from None
    return model
