"""SQLite and PostgreSQL as the store needs them: statements with `?`, transactions that are durable when they end."""

import contextlib
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from urllib.parse import quote, urlsplit

from smc_transformer.forecaster.folder.files import SavedForecasterError
from smc_transformer.forecaster.folder.lock import LockedError
from smc_transformer.support.durable import sync_folder

WAIT = 10.0
"""Seconds to wait for a database that is busy, or a server that does not answer."""

CACHE_BYTES, LOG_PAGES = 2**26, 2**14
"""Memory for pages of SQLite, and pages (of 4 kB) in its write-ahead log before they are moved to the file itself."""


class StoreError(SavedForecasterError):
    """A store that cannot be used, and why."""


@runtime_checkable
class Database(Protocol):
    """A connection. Calls of several threads take turns."""

    place: str
    """What errors call it."""
    bytes_type: str
    """The type of a column of bytes."""

    def transaction(self) -> contextlib.AbstractContextManager[None]:
        """All or nothing of the statements inside; once it has ended without an error, a loss of power keeps them."""

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows that a statement answers, if it is one that answers."""

    def run_many(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        """A statement for each tuple of values."""

    def has_tables(self) -> bool:
        """Whether a stream has been here."""

    def close(self) -> None:
        """End the connection."""


class SQLite:
    """A file, in WAL mode: readers see the last transaction while a writer is busy."""

    bytes_type = "BLOB"

    def __init__(self, path: Path, *, writing: bool) -> None:
        self.place, self._turn = str(path), threading.RLock()
        is_new = not path.exists()
        with self._refusing():
            self._connection = self._connect(path, writing)
            if writing:
                self._connection.execute("PRAGMA journal_mode = WAL")
                # Every commit is flushed to the disk before it returns: what was answered survives a loss of power.
                self._connection.execute("PRAGMA synchronous = FULL")
                # Rows of many series change many pages: these are kept at hand, and moved from the log in large parts.
                self._connection.execute(f"PRAGMA cache_size = -{CACHE_BYTES // 1024}")
                self._connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
        if is_new:
            sync_folder(path.parent)

    @staticmethod
    def _connect(path: Path, writing: bool) -> sqlite3.Connection:
        def connect(mode: str) -> sqlite3.Connection:
            address = f"file:{quote(str(path.absolute()))}?mode={mode}"
            # Transactions are begun and ended by us; `_turn` keeps threads apart.
            made = sqlite3.connect(address, uri=True, timeout=WAIT, isolation_level=None, check_same_thread=False)
            made.execute("SELECT count(*) FROM sqlite_master")
            return made

        if writing:
            return connect("rwc")
        try:
            return connect("ro")
        except sqlite3.OperationalError:
            if path.with_name(path.name + "-wal").exists():
                raise
            return connect("ro&immutable=1")  # on a disk that is read-only, where nobody can be writing

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.OperationalError, sqlite3.IntegrityError, sqlite3.ProgrammingError) as error:
            raise StoreError(f"{self.place} cannot be used: {error}") from None
        except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
            raise StoreError(f"{self.place} is damaged: {error}") from None

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        with self._turn, self._refusing():
            self._connection.execute("BEGIN")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._turn, self._refusing():
            return self._connection.execute(statement, values).fetchall()

    def run_many(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        with self._turn, self._refusing():
            self._connection.executemany(statement, values)

    def has_tables(self) -> bool:
        return bool(self.run("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'stream'"))

    def fold(self) -> None:
        """Bring the log into the file, which is then all there is; `close` tries to, and says nothing if it fails."""
        ((mode,),) = self.run("PRAGMA journal_mode = DELETE")
        if mode != "delete":
            raise StoreError(f"{self.place} cannot be used: its log could not be brought into the file")

    def close(self) -> None:
        with self._turn:
            self._connection.close()


class PostgreSQL:
    """A server, by its URL; the tables are in the first schema of the search path."""

    bytes_type = "BYTEA"

    def __init__(self, url: str, *, writing: bool) -> None:
        try:
            import psycopg
        except ImportError:
            raise StoreError("a store in PostgreSQL needs psycopg: pip install 'smc-transformer[postgresql]'") from None
        parts = urlsplit(url)
        self.place, self._turn = f"postgresql://{parts.hostname or ''}{parts.path}", threading.RLock()
        self._error: type[Exception] = psycopg.Error
        with self._refusing():
            self._connection = psycopg.connect(url, autocommit=True, connect_timeout=int(WAIT))
            # Rows and the stream's own document must be of the same moment for a reader.
            self._connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            self.run("SET synchronous_commit = on")
        if writing:
            # Held by the connection: processes of other machines are kept out too, and a kill lets go of it.
            ((is_ours,),) = self.run(
                "SELECT pg_try_advisory_lock(hashtext('smc-transformer'), hashtext(current_schema()))"
            )
            if not is_ours:
                self.close()
                raise LockedError(f"another process is writing to {self.place}")

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except self._error as error:
            raise StoreError(f"{self.place} cannot be used: {' '.join(str(error).split())}") from None

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        with self._turn, self._refusing(), self._connection.transaction():
            yield

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._turn, self._refusing():
            cursor = self._connection.execute(statement.replace("?", "%s"), values)
            return cursor.fetchall() if cursor.description else []

    def run_many(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        with self._turn, self._refusing(), self._connection.cursor() as cursor:
            cursor.executemany(statement.replace("?", "%s"), values)

    def has_tables(self) -> bool:
        ((name,),) = self.run("SELECT to_regclass('stream')::text")
        return name is not None

    def close(self) -> None:
        with self._turn:
            self._connection.close()
