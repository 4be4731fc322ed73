"""Checksums of what is written: a flipped bit, a lost page or an edit is noticed when it is read, not forecast from.

Every file seals itself, so that each can be replaced atomically without the others. A checksum does not stop somebody
who computes it anew: what is read is checked for what it means as well.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

SEAL = "checksum"
"""Key of the checksum in a JSON document."""


def checksum(parts: Iterable[Any]) -> str:
    """The SHA-256 of bytes (or whatever offers a buffer), one part after the other."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def sealed(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with the checksum of all else in it."""
    return {**document, SEAL: _of_document(document)}


def has_broken_seal(document: Mapping[str, Any], *, required: bool) -> bool:
    """Whether a document is other than it was when it was sealed; `required`: or was never sealed."""
    found = document.get(SEAL)
    return required if found is None else found != _of_document(document)


def _of_document(document: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in document.items() if key != SEAL}
    return checksum([json.dumps(rest, sort_keys=True).encode()])[:16]
