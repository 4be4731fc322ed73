"""Data of figures that need a trained model are kept as JSON, so that they can be drawn again without training."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from smct_paper.experiments.store import write_whole


def cached(path: Path, settings: Any, make: Callable[[], dict[str, Any]] | None) -> dict[str, Any] | None:
    """The content of a file, made first if it is not there or was made with other settings; None if it may not be made.

    `settings` is all that the content depends on, as JSON can hold it.
    """
    settings = json.loads(json.dumps(settings))
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if content.get("settings") == settings:
        return content
    if make is None:
        return None
    content = {"settings": settings, **make()}
    write_whole(path, json.dumps(content) + "\n")
    return content


def rounded(values: Iterable[Any], digits: int = 4) -> list[float]:
    """A tensor's numbers, short enough to keep."""
    return [round(float(value), digits) for value in values]
