"""Reading and writing a whole folder: states, store and lock together, so that no answered row is lost."""

import contextlib
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from smc_transformer.forecaster.fitted import Fitted, Following
from smc_transformer.forecaster.folder import files
from smc_transformer.forecaster.folder.files import SavedForecasterError
from smc_transformer.forecaster.folder.journal import NAME as JOURNAL
from smc_transformer.forecaster.folder.journal import read_journal
from smc_transformer.forecaster.folder.lock import locked
from smc_transformer.forecaster.folder.packed import pack_series, unpack_series
from smc_transformer.forecaster.folder.recorded import Recorded, Seen
from smc_transformer.forecaster.folder.store.accepted import STATES_AT_ONCE, SavedState, Store
from smc_transformer.forecaster.folder.store.databases import StoreError
from smc_transformer.forecaster.folder.store.opening import find_store, make_store
from smc_transformer.forecaster.table import Name
from smc_transformer.inference.state import ParticleState
from smc_transformer.support.durable import existing_above, why_not_made


class Writer(contextlib.AbstractContextManager["Writer"]):
    """The only process that writes to a folder, until it is closed; a `LockedError` is raised if there is another."""

    def __init__(self, folder: Path, url: str | None = None) -> None:
        self.folder, self.fit = folder, files.stored_fit(folder)  # says what is wrong if it holds no forecaster
        self._url = url
        if reason := why_not_made(folder / files.STATES):
            raise SavedForecasterError(f"{folder} cannot be written: {reason}")
        with contextlib.ExitStack() as held:
            held.enter_context(locked(folder))
            self.store = find_store(folder, self.fit, writing=True, url=url)
            if self.store is not None:
                held.callback(self.store.close)
            self._held = held.pop_all()

    def open_store(self, fitted: Fitted) -> Store:
        """The store that a stream writes to, made if there is none; `fitted` holds all that was answered before."""
        if self.store is None:
            recorded = read_journal(self.folder, self.fit)
            if recorded.rounds:
                files.save_states(self.folder, fitted, self.fit)
            self.store = make_store(self.folder, self.fit, recorded, self._url)
            self._held.callback(self.store.close)
        # A journal is empty or superseded by now. A kill before this line leaves one that nobody reads.
        (self.folder / JOURNAL).unlink(missing_ok=True)
        return self.store

    def save(self, fitted: Fitted, states: str = files.EXACT) -> None:
        """Save all states in the folder, and say in the store that they hold the accepted rows.

        A process killed between the two leaves rows and states in the store that are older: their times tell.
        """
        self._check()
        files.save_states(self.folder, fitted, self.fit, states)
        if self.store is not None:
            self.store.mark_saved()
        elif (self.folder / JOURNAL).exists():
            self.open_store(fitted)

    def save_fresh(self, fitted: Fitted, *, at_least: int = 1, most: int | None = None) -> None:
        """Save in the store the states of series that have got so many rows since they were saved, at most so many."""
        assert self.store is not None
        self._check()
        names = self.store.fresh(at_least, most)
        for start in range(0, max(1, len(names)), STATES_AT_ONCE):  # once also if there were lines with errors only
            self.put_states(fitted, names[start : start + STATES_AT_ONCE])

    def put_states(self, fitted: Fitted, names: Sequence[Name]) -> None:
        """Save the states of some series in the store."""
        assert self.store is not None
        # The round is in the bytes too, under their checksum: a wrong one would hide rows, or replay them.
        now = self.store.round
        self.store.put_states({name: pack_series(fitted, self.fit, name, round=now) for name in names})

    def fetch_states(self, fitted: Fitted, names: Iterable[Name]) -> list[Following]:
        """The states of some series, as `put_states` has saved them."""
        assert self.store is not None
        found = [self.store.state(name) for name in names]
        return [own for _, own, _ in _unpacked(found, self.store, fitted, self.fit)]

    def _check(self) -> None:
        if not files.holds_fit(self.folder, self.fit):
            raise StoreError(f"{self.folder} holds another fit now: the rows since the last save are lost")

    def close(self) -> None:
        """Let others write. Rows in the store are safe there."""
        self._held.close()

    def __exit__(self, *error: object) -> None:
        self.close()


def read_folder(path: Path) -> tuple[Fitted, Recorded]:
    """The forecaster as it was saved, and the rows that a stream has accepted since then, also while it is running.

    If the states in the folder are replaced between reading them and reading the store, both are read again.
    """
    path = files.present(path)
    while True:
        before = _version(path / files.STATES)
        fitted = files.load_fitted(path)
        recorded = read_recorded(path, files.stored_fit(path), fitted)
        if _version(path / files.STATES) == before:
            return fitted, recorded


def read_recorded(path: Path, fit: str, fitted: Fitted | None = None) -> Recorded:
    """What the stream of a folder has answered; the states in its store become those of `fitted`."""
    store = find_store(path, fit, writing=False)
    if store is None:
        return read_journal(path, fit)

    def use(states: Sequence[SavedState]) -> None:
        if fitted is not None:
            go_on(fitted, _unpacked(states, store, fitted, fit))

    with contextlib.closing(store):
        return store.recorded(use)


def _unpacked(
    states: Sequence[SavedState], store: Store, fitted: Fitted, fit: str
) -> list[tuple[Name, Following, dict[str, Any]]]:
    unpacked = [unpack_series(state.packed, fitted, fit) for state in states]
    for state, (name, _, more) in zip(states, unpacked, strict=True):
        if (name, more.get("round")) != (state.name, state.round):
            raise StoreError(f"{store.place} is damaged or was edited: a state is not that of its series and round")
    return unpacked


def go_on(fitted: Fitted, unpacked: Sequence[tuple[Name, Following, dict[str, Any]]]) -> None:
    """Go on from states that are later than those of a forecaster, and of series that have begun since."""
    fleet, known = fitted.following
    begun = [own for name, own, _ in unpacked if name not in known]
    later = {
        name: own for name, own, _ in unpacked if name in known and own.series[name].last_time > known[name].last_time
    }
    for numbers in fleet.groups(list(later)):
        alike: dict[Any, tuple[list[Name], list[ParticleState]]] = {}
        for name in (list(later)[number] for number in numbers):
            state = later[name].fleet.take([name])
            names, states = alike.setdefault(state.layout, ([], []))
            names.append(name)
            states.append(state)
        for names, states in alike.values():
            fleet.put(names, ParticleState.cat(states))
    known.update({name: own.series[name] for name, own in later.items()})
    fitted.following.add(begun)


def _version(path: Path) -> tuple[int, int]:
    """What changes when a file is replaced."""
    try:
        found = path.stat()
        return found.st_ino, found.st_mtime_ns
    except OSError:
        return 0, 0


def save_folder(path: Path, fitted: Fitted, seen: Seen | None, states: str = files.EXACT) -> Seen:
    """Save a forecaster; what its folder's stream has answered is in it, or nothing is written.

    `seen` is what the forecaster has seen of this stream, before and, as the answer, after. None: it was fitted anew,
    and replaces a forecaster that is there, with its stream.
    """
    number = files.fit_number(fitted)
    if seen is None or not files.holds_fit(path, number):
        check_destination(path)
        with _permitted(path), locked(path) if (path / files.CONFIG).exists() else contextlib.nullcontext():
            files.replace_folder(path, fitted, number, states)
        return Seen()
    with _permitted(path), Writer(path) as writer:
        answered = read_recorded(path, number).seen if writer.store is None else writer.store.seen
        if answered.n_lines and answered != seen:
            raise SavedForecasterError(
                f"the stream of {path} has answered {answered.n_lines} lines, of which this forecaster has seen "
                f"{seen.n_lines}: load it again, or save it to another folder"
            )
        writer.save(fitted, states)
        files.forget_replaced(path)
        return answered


def check_destination(path: Path, n_bytes: int = 0) -> None:
    """That a forecaster may be saved there: nothing, an empty folder, or a forecaster without another writer.

    And that, as far as one can tell, there is room for so many bytes beside it, where a new folder is made first.
    """
    if reason := why_not_made(path):
        raise SavedForecasterError(f"{path} cannot be written: {reason}")
    if (free := shutil.disk_usage(existing_above(path)).free) < n_bytes:
        raise SavedForecasterError(
            f"{path} cannot be written: it needs about {n_bytes / 1e6:.1f} MB, and {free / 1e6:.1f} MB are free"
        )
    with _permitted(path):
        if path.is_symlink() and not path.exists():
            raise SavedForecasterError(f"{path} cannot be written: it is a link that leads nowhere")
        if (path / files.CONFIG).exists():
            with locked(path):
                return
        if path.exists() and not (path.is_dir() and not any(path.iterdir())):
            raise SavedForecasterError(f"{path} is something else than a saved forecaster: nothing was written")


@contextlib.contextmanager
def _permitted(path: Path) -> Iterator[None]:
    """Say of a folder that is another user's that it cannot be written."""
    try:
        yield
    except PermissionError as error:
        raise SavedForecasterError(f"{path} cannot be written: permission denied ({error.filename})") from None
