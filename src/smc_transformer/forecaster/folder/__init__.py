"""The folder of a saved forecaster: the only place that knows its files, its lock and its journal.

files.py     config.json, model.safetensors and states.safetensors: a `Fitted` on disk
journal.py   stream.jsonl: the rows that a stream has answered since the states were saved
lock.py      one writer at a time
access.py    reading and writing all of these together
"""

from smc_transformer.forecaster.folder.access import Writer, check_destination, read_folder, save_folder
from smc_transformer.forecaster.folder.files import SavedForecasterError, stored_fit
from smc_transformer.forecaster.folder.journal import Journal, JournalError, Seen
from smc_transformer.forecaster.folder.lock import LockedError

__all__ = [
    "Journal",
    "JournalError",
    "LockedError",
    "SavedForecasterError",
    "Seen",
    "Writer",
    "check_destination",
    "read_folder",
    "save_folder",
    "stored_fit",
]
