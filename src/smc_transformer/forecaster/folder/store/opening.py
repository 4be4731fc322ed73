"""Which database holds the accepted rows of a folder: stream.sqlite in it, or the one that store.json names.

A password is not written down: PostgreSQL's own ways (PGPASSWORD, PGPASSFILE, a service file) give it.
"""

import json
import os
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

from smc_transformer.forecaster.folder.recorded import Recorded
from smc_transformer.forecaster.folder.store.accepted import Store
from smc_transformer.forecaster.folder.store.databases import PostgreSQL, SQLite, StoreError
from smc_transformer.support.durable import UNFINISHED, replacing, sync_folder

LOCAL, ADDRESS = "stream.sqlite", "store.json"
FORMAT = "smc-transformer-store"
SCHEMES = ("postgresql", "postgres")


def find_store(folder: Path, fit: str, *, writing: bool, url: str | None = None) -> Store | None:
    """The store of a folder, or None if no stream has been there yet.

    A `url` is written down in the folder, so that whoever loads it finds the rows; another one than there is refused.
    """
    known, local = _known_url(folder), folder / LOCAL
    if url is not None and known is None:
        check_url(url)
        if local.exists():
            raise StoreError(f"the rows of {folder} are in {LOCAL} already: use a folder of its own for those in {url}")
    elif url not in (None, known):
        raise StoreError(f"the rows of {folder} are in {known}, as {ADDRESS} says, not in {url}")
    address = known or url
    if address is None and not local.exists():
        return None
    database = SQLite(local, writing=writing) if address is None else PostgreSQL(address, writing=writing)
    try:
        if address is not None and not database.has_tables():
            database.close()
            return None
        found = Store(database, fit)
        if known is None and address is not None:
            _write_url(folder, address)
        return found
    except BaseException:
        database.close()
        raise


def make_store(folder: Path, fit: str, begin: Recorded, url: str | None = None) -> Store:
    """The store of a folder that has none, for a stream that goes on after what was recorded before.

    It is there as a whole or not at all.
    """
    address = _known_url(folder) or url
    if address is None:
        unfinished = folder / (LOCAL + UNFINISHED)
        _remove(unfinished)
        try:
            with closing(SQLite(unfinished, writing=True)) as made:
                Store(made, fit, begin)
                made.fold()  # or a disk that fails here would leave the tables in a log that no longer has its name
            os.replace(unfinished, folder / LOCAL)
        except BaseException:
            _remove(unfinished)
            raise
        sync_folder(folder)
        return Store(SQLite(folder / LOCAL, writing=True), fit)
    database = PostgreSQL(address, writing=True)
    try:
        _write_url(folder, address)
        return Store(database, fit, begin)
    except BaseException:
        database.close()
        raise


def _remove(unfinished: Path) -> None:
    """Delete a file of SQLite, with the logs and the index of a connection which could not write at its end."""
    for ending in ("", "-journal", "-wal", "-shm"):
        unfinished.with_name(unfinished.name + ending).unlink(missing_ok=True)


def check_url(url: str) -> None:
    """That it is one of a database that can be used, without a password."""
    try:
        parts = urlsplit(url)
        password = parts.password
    except ValueError as error:
        raise StoreError(f"a store's URL cannot be read: {error}") from None
    if parts.scheme not in SCHEMES:
        raise StoreError(f"a store is stream.sqlite in the folder, or a URL postgresql://..., got {parts.scheme}://...")
    if password is not None:
        raise StoreError(
            "a store's URL must hold no password, as it is written down: give it as PGPASSWORD or PGPASSFILE"
        )


def _write_url(folder: Path, url: str) -> None:
    with replacing(folder / ADDRESS) as file:
        file.write((json.dumps({"format": FORMAT, "url": url}) + "\n").encode())


def _known_url(folder: Path) -> str | None:
    path = folder / ADDRESS
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f"{path} is not readable: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT or not isinstance(document.get("url"), str):
        raise StoreError(f"{path} is damaged or was edited: it must name the URL of a store")
    check_url(document["url"])
    return document["url"]
