"""Files of tensors with JSON in their header (safetensors, no pickle): checkpoints and saved forecasters.

What cannot be used raises the `error` of the caller, which says why.
"""

import json
import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor


def write_tensors(path: Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Write a file; an interrupted write leaves the one that was there."""
    unfinished = path.with_name(path.name + ".unfinished")
    plain = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    save_file(plain, unfinished, metadata={"header": json.dumps(header)})
    os.replace(unfinished, path)


def read_tensors(path: Path, error: type[ValueError]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the header of a file."""
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("header", "{}"))
            return {name: file.get_tensor(name) for name in file.keys()}, header  # noqa: SIM118 (not a dict)
    except FileNotFoundError:
        raise error(f"{path} is missing") from None
    except (SafetensorError, json.JSONDecodeError, UnicodeDecodeError) as cause:
        raise error(f"{path} is not readable (truncated, or another format): {cause}") from None


def check_format(path: Path, header: Any, what: str, known: tuple[str, int], error: type[ValueError]) -> None:
    """Refuse a header that is not of the `known` format, or of a later version than is known."""
    name, newest = known
    if not isinstance(header, dict) or header.get("format") != name:
        raise error(f"{path} is not {what} of smc-transformer")
    version = header.get("version")
    if not isinstance(version, int) or version > newest:
        raise error(f"{path} has format version {version}, this release reads up to {newest}; update smc-transformer")
