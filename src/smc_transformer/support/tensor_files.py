"""Files of tensors with JSON in their header (safetensors, no pickle): checkpoints and saved forecasters.

What cannot be used raises the `error` of the caller, which says why. The library safetensors reads them. It does not
write them: its files can be read by their owner only, a kill leaves them behind under a random name, and a full disk is
an error without a number.
"""

import json
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from smc_transformer.support.checksums import checksum
from smc_transformer.support.durable import replacing

_CODES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""Types in the words of the format."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: dict[str, Any]) -> None:
    """Write a file with its checksum; an interrupted write leaves the one that was there."""
    with replacing(path) as file:
        for part in _parts(tensors, header):
            file.write(part)


def pack_tensors(tensors: Mapping[str, Tensor], header: dict[str, Any]) -> bytes:
    """What `write_tensors` would write."""
    return b"".join(_parts(tensors, header))


def _parts(tensors: Mapping[str, Tensor], header: dict[str, Any]) -> Iterator[Any]:
    # The widest types first: every tensor then begins at a multiple of its numbers' size.
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    plain = {name: tensors[name].detach().cpu().contiguous() for name in order}
    text, memory = json.dumps(header), {name: _bytes(tensor) for name, tensor in plain.items()}
    contents: dict[str, Any] = {"__metadata__": {"header": text, "checksum": _checksum(text, plain, memory)}}
    start = 0
    for name, tensor in plain.items():
        end = start + tensor.nbytes
        contents[name] = {"dtype": _CODES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
        start = end
    head = json.dumps(contents).encode()
    head += b" " * (-len(head) % 8)
    yield len(head).to_bytes(8, "little") + head
    yield from memory.values()


def read_tensors(
    path: Path, error: type[ValueError], *, sealed: bool = False
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the header of a file, if it is as it was written; `sealed`: one without a checksum is not."""
    _check_file(path, error)
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            text = metadata.get("header", "{}")
            header = json.loads(text)
            # Copies: the library's tensors lie in the file itself, which somebody else may cut off later.
            tensors = {name: _copied(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, ValueError, RecursionError, RuntimeError, MemoryError, TypeError) as cause:
        reason = " ".join(str(cause).split()) or type(cause).__name__
        raise error(f"{path} is not readable (truncated, or another format): {reason}") from None
    if not isinstance(header, dict):
        raise error(f"{path} is damaged: its header holds {type(header).__name__} instead of an object")
    found = metadata.get("checksum")
    if sealed if found is None else found != _checksum(text, tensors):
        raise error(f"{path} is damaged or was edited: its checksum is not that of its contents")
    return tensors, header


def _check_file(path: Path, error: type[ValueError]) -> None:
    """That a file can be read; of one that may not be, the library of the format says that there is none."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for
            raise error(f"{path} is not a file")
        with path.open("rb"):
            pass
    except FileNotFoundError:
        raise error(f"{path} is missing") from None
    except OSError as cause:
        raise error(f"{path} is not readable: {cause.strerror or cause}") from None


def _copied(tensor: Tensor) -> Tensor:
    """The same bytes in memory of their own; a copy of booleans would make 1 of every other byte but 0."""
    return tensor.view(torch.uint8).clone().view(torch.bool) if tensor.dtype == torch.bool else tensor.clone()


def unpack_tensors(data: bytes, what: str, error: type[ValueError]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The inverse of `pack_tensors`; errors call the bytes by their name."""
    try:
        length = int.from_bytes(data[:8], "little")
        contents = json.loads(data[8 : 8 + length])
        metadata = contents.pop("__metadata__")
        text = metadata["header"]
        header = json.loads(text)
        body, kinds = memoryview(data)[8 + length :], {code: kind for kind, code in _CODES.items()}
        tensors = {}
        for name, one in contents.items():
            start, end = one["data_offsets"]
            kind = kinds[one["dtype"]]
            raw = bytearray(body[start:end])  # a copy: torch wants memory that may be written to
            flat = torch.frombuffer(raw, dtype=kind) if raw else torch.empty(0, dtype=kind)
            tensors[name] = flat.reshape(one["shape"])
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, RecursionError, MemoryError) as cause:
        reason = " ".join(str(cause).split()) or type(cause).__name__
        raise error(f"{what} is not readable (truncated, or another format): {reason}") from None
    if not isinstance(header, dict) or metadata.get("checksum") != _checksum(text, tensors):
        raise error(f"{what} is damaged or was edited: its checksum is not that of its contents")
    return tensors, header


def check_format(path: Path | str, header: Any, what: str, known: tuple[str, int], error: type[ValueError]) -> None:
    """Refuse a header that is not of the `known` format, or of a later version than is known."""
    name, newest = known
    if not isinstance(header, dict) or header.get("format") != name:
        raise error(f"{path} is not {what} of smc-transformer")
    version = header.get("version")
    if not isinstance(version, int) or version > newest:
        raise error(f"{path} has format version {version}, this release reads up to {newest}; update smc-transformer")


def _checksum(text: str, tensors: Mapping[str, Tensor], memory: Mapping[str, Any] | None = None) -> str:
    """That of the header and of all tensors, whatever their order in the file; `memory` holds their bytes, if known."""

    def parts() -> Iterator[Any]:
        yield text.encode()
        for name in sorted(tensors):
            tensor = tensors[name]
            yield f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode()
            yield _bytes(tensor.contiguous()) if memory is None else memory[name]

    return checksum(parts())


def _bytes(tensor: Tensor) -> Any:
    """The memory of a contiguous tensor, without a copy."""
    return tensor.reshape(-1).view(torch.uint8).numpy()
