"""Reading and writing a whole folder: states, journal and lock together, so that no answered row is lost."""

import contextlib
import os
import shutil
from pathlib import Path

from smc_transformer.forecaster.fitted import Fitted
from smc_transformer.forecaster.folder import files
from smc_transformer.forecaster.folder.files import SavedForecasterError
from smc_transformer.forecaster.folder.journal import Journal, JournalError, Seen
from smc_transformer.forecaster.folder.lock import locked


class Writer(contextlib.AbstractContextManager["Writer"]):
    """The only process that writes to a folder, until it is closed; a `LockedError` is raised if there is another."""

    def __init__(self, folder: Path) -> None:
        files.stored_fit(folder)  # says what is wrong with a folder that holds no forecaster
        self.folder = folder
        with contextlib.ExitStack() as held:
            held.enter_context(locked(folder))
            self.journal = Journal(folder)
            self._held = held.pop_all()

    def save(self, fitted: Fitted) -> None:
        """Save the states, which hold the journal's rows by now, and empty the journal.

        A process killed between the two leaves rows in the journal that the states hold too: their times tell.
        """
        if files.stored_fit(self.folder) != self.journal.fit:
            raise JournalError(f"{self.folder} holds another fit now: the rows since the last save are lost")
        files.save_states(self.folder, fitted, self.journal.fit)
        if self.journal.path.exists():
            self.journal.begin_anew()

    def close(self) -> None:
        """Let others write. Rows in the journal are safe there."""
        self._held.close()

    def __exit__(self, *error: object) -> None:
        self.close()


def read_folder(path: Path) -> tuple[Fitted, Journal]:
    """What was saved, and the journal of the rows since then, also while a stream is writing.

    The journal is read first. States that are saved meanwhile hold all of its rows, which are then recognised by their
    times; in the other order, rows could have moved from the journal to the states unseen.
    """
    path = files.present(path)
    journal = Journal(path)
    return files.load_fitted(path), journal


def save_folder(path: Path, fitted: Fitted, seen: Seen | None) -> Seen:
    """Save a forecaster; what its folder's stream has answered is in it, or nothing is written.

    `seen` is what the forecaster has seen of this stream, before and, as the answer, after. None: it was fitted anew,
    and replaces a forecaster that is there, with its stream.
    """
    number = files.fit_number(fitted)
    if seen is None or not files.holds_fit(path, number):
        check_destination(path)
        with locked(path) if (path / files.CONFIG).exists() else contextlib.nullcontext():
            files.replace_folder(path, fitted, number)
        return Seen()
    with Writer(path) as writer:
        answered = writer.journal.seen
        if answered.n_lines and answered != seen:
            raise SavedForecasterError(
                f"the stream of {path} has answered {answered.n_lines} lines, of which this forecaster has seen "
                f"{seen.n_lines}: load it again, or save it to another folder"
            )
        writer.save(fitted)
        return answered


def check_destination(path: Path, n_bytes: int = 0) -> None:
    """That a forecaster may be saved there: nothing, an empty folder, or a forecaster without another writer.

    And that, as far as one can tell, there is room for so many bytes beside it, where a new folder is made first.
    """
    above = path.absolute().parent
    while not above.exists():
        above = above.parent
    if not above.is_dir() or not os.access(above, os.W_OK):
        reason = "permission denied" if above.is_dir() else f"{above} is no folder"
        raise SavedForecasterError(f"{path} cannot be written: {reason}")
    if (free := shutil.disk_usage(above).free) < n_bytes:
        raise SavedForecasterError(
            f"{path} cannot be written: it needs about {n_bytes / 1e6:.0f} MB, and {free / 1e6:.0f} MB are free"
        )
    if (path / files.CONFIG).exists():
        with locked(path):
            return
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise SavedForecasterError(f"{path} is something else than a saved forecaster: nothing was written")
