"""`smct stream`: follow series live: JSON lines in, surprise and forecast of each out.

Reads observations as JSON lines and answers each in one line: how surprising it was, and the forecast of what comes
next. A line of a series that is not known begins it. A wrong line (not JSON, a value that is no number, a time that is
not after the last) is answered by an error, and the stream goes on. A line is answered once it is on the disk: a
process that is killed at any moment, or a machine that loses its power, resumes where it stopped. A line that was taken
before is answered as before and changes nothing.

An example:
  echo '{"unique_id": "a", "ds": "2024-01-31 13:00", "y": 1.5}' | smct stream model

answers, one line each:
  {"line": 1, "unique_id": "a", "ds": "2024-01-31T13:00:00",
   "surprise": [{"target": "y", "value": 1.5, "log_density": -1.2, "pit": 0.61, "outside-80": false, ...}],
   "forecast": [{"ds": "2024-01-31T14:00:00", "y": 1.4, "y-lo-80": 0.9, "y-hi-80": 1.9, ...}]}
  {"line": 2, "error": "there is no 'y'; a missing value is null"}
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smc_transformer.cli.errors import CommandError, failing
from smc_transformer.cli.model import add_horizon, add_levels, add_model_command
from smc_transformer.cli.options import Commands, duration, not_negative, percentage, positive
from smc_transformer.support.remark import remark

if TYPE_CHECKING:
    from smc_transformer.forecaster import Forecaster

CHUNK = 2**16
"""Bytes that are read at once."""


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = add_model_command(commands, _run, __doc__, tables=False)
    parser.add_argument("--input", type=Path, metavar="FILE", help="JSON lines (default: standard input)")
    text = "where the state is saved; made as a copy of the model (default: the model's own folder)"
    parser.add_argument("--state", type=Path, metavar="FOLDER", help=text)
    text = "the input begins with the first line ever: repeat the last answers, and skip the lines answered before"
    parser.add_argument("--resume", action="store_true", help=text)
    text = (
        "database for the accepted rows, postgresql://...: written down in the folder (default: SQLite in the folder)"
    )
    parser.add_argument("--store", metavar="URL", help=text)
    add_horizon(parser, default=1)
    text = "between two saves of the states; a restart replays the lines since the last save (default: 500)"
    parser.add_argument("--save-every", type=positive, default=500, metavar="LINES", help=text)
    text = "that a series may jump ahead of its last row (default: 1000)"
    parser.add_argument("--most-steps", type=positive, default=1000, help=text)
    add_appearing(parser)
    text = (
        "treat a value outside its central interval of this level, such as 99.9, as missing, so that an outlier does "
        "not mislead the filter; after a horizon (of the fit) of these in a row they are believed (default: none)"
    )
    parser.add_argument("--distrust", type=percentage, metavar="PERCENT", help=text)
    add_levels(parser, 80, 95)


def add_appearing(parser: argparse.ArgumentParser) -> None:
    """How many series may begin, and when silent ones leave the memory."""
    text = (
        "series that may begin with a row of their own, in the life of the store; each takes 0.2 to 0.4 MB of memory; "
        "0: rows of series that the model does not know are refused (default: 1000)"
    )
    parser.add_argument("--new-series", type=not_negative, default=1000, metavar="MOST", help=text)
    text = (
        "let go of a series that has not been heard of for so long, such as 90s, 30min, 12h or 7d: its state waits in "
        "the store, and is fetched with its next row; answers are the same (default: never)"
    )
    parser.add_argument("--retire-after", type=duration, metavar="TIME", help=text)


def _run(options: argparse.Namespace) -> None:
    folder = options.model if options.state is None else options.state
    names = ("store", "horizon", "save_every", "most_steps", "distrust", "retire_after", "new_series")
    settings = {name: getattr(options, name) for name in names}
    with failing():
        from smc_transformer.forecaster.live import Service

        begin_state(options.model, folder)
        service = Service(folder, levels=options.level, n_paths=options.paths, **settings)
        source = nullcontext(_standard_input()) if options.input is None else options.input.open("rb")
        with closing(service), source as lines:
            _check_names(service.forecaster)
            before = service.n_taken
            if before:
                change = _change_of_distrust(service.distrusted_before, options.distrust)
                remark(f"{before} lines were taken before{change}")
            if options.resume:
                _write(service.last_answers)
            for answers in service.answers(_arriving(lines), skip=before if options.resume else 0):
                _write(answers)
            remark(f"{service.n_taken - before} lines taken, {service.n_errors} with errors")


def _check_names(forecaster: "Forecaster") -> None:
    """That answers, which are numbered, have room for the number."""
    settings = forecaster.fitted.settings
    if "line" in (settings.id_column, settings.time_column):
        raise CommandError("answers are numbered in 'line': call that column of the table otherwise")


def _change_of_distrust(*levels: int | float | None) -> str:
    """What to say if the lines before were read with another level of distrust than those to come."""
    was, now = ("without --distrust" if level is None else f"with --distrust {level:g}" for level in levels)
    return "" if was == now else f", {was}; from now on they are taken {now}"


def begin_state(model: Path, state: Path) -> None:
    """Make the state from the model, or check that it is of this model."""
    from smc_transformer.forecaster import Forecaster, SavedForecasterError
    from smc_transformer.forecaster.folder.access import check_destination
    from smc_transformer.forecaster.folder.files import stored_fit

    if not state.exists() and state != model:
        check_destination(state)  # before the model is read
        Forecaster.load(model).save(state)
    elif stored_fit(state) != stored_fit(model):
        raise SavedForecasterError(f"the state in {state} is of another fit than {model}: choose another folder")


def _arriving(source: Any) -> Iterator[list[bytes]]:
    """Lines in batches: all that have arrived. A sender that waits for an answer before its next line gets it."""
    rest = b""
    while part := source.read1(CHUNK):
        *lines, rest = (rest + part).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]


def _standard_input() -> Any:
    if sys.stdin is None:
        raise CommandError("standard input is closed: give the lines as --input")
    return sys.stdin.buffer


def _write(answers: Sequence[dict[str, Any]]) -> None:
    sys.stdout.write("".join(json.dumps(answer, allow_nan=False) + "\n" for answer in answers))
    sys.stdout.flush()
