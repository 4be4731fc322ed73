"""Results in a JSON file: a list of records, one for each panel, split, method, seed and settings."""

import json
from pathlib import Path

Record = dict

KEY = ("panel", "split", "method", "seed", "settings")


def key(record: Record) -> str:
    return json.dumps([record[name] for name in KEY], sort_keys=True)


def read_records(path: Path | None) -> list[Record]:
    return json.loads(path.read_text()) if path is not None and path.exists() else []


def add_record(path: Path, record: Record) -> None:
    """In the place of an older one with the same key, else at the end; the file is never half written."""
    records = {key(each): each for each in (*read_records(path), record)}
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(list(records.values()), indent=1) + "\n")
    unfinished.replace(path)
