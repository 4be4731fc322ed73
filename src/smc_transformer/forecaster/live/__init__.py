"""A forecaster in service: one observation at a time, each answered, and nothing lost when the process is killed.

    rows.py      what a line of JSON says, or what is wrong with it
    journal.py   what has been taken since the state was last saved, line by line
    lock.py      one writer at a time
    service.py   takes lines, gives answers

docs/command_line.md tells how lines and answers look.
"""

from smc_transformer.forecaster.live.journal import Journal, JournalError
from smc_transformer.forecaster.live.service import Service, recover

__all__ = ["Journal", "JournalError", "Service", "recover"]
