"""`smct stream`: one observation at a time, each answered with its surprise and a forecast."""

import argparse
import json
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import Any

from smc_transformer.cli.errors import failing
from smc_transformer.cli.model_options import add_horizon, add_levels, add_model
from smc_transformer.cli.options import Commands, percentage, positive
from smc_transformer.support.remark import remark

EXAMPLE = """example:
  echo '{"unique_id": "a", "ds": "2024-01-31 13:00", "y": 1.5}' | smct stream model

answers, one line each:
  {"line": 1, "unique_id": "a", "ds": "2024-01-31T13:00:00",
   "surprise": [{"target": "y", "value": 1.5, "log_density": -1.2, "pit": 0.61, "outside-80": false, ...}],
   "forecast": [{"ds": "2024-01-31T14:00:00", "y": 1.4, "y-lo-80": 0.9, "y-hi-80": 1.9, ...}]}
  {"line": 2, "error": "unknown series 'b'"}
"""


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "stream",
        help="follow series live: JSON lines in, surprise and forecast of each out",
        description=(
            "Reads observations as JSON lines and answers each in one line: how surprising it was, and the forecast of "
            "what comes next. A wrong line (not JSON, an unknown series, a time that is not after the last) is "
            "answered by an error, and the stream goes on. A line is answered once it is in the journal: a process "
            "that is killed at any moment resumes where it stopped when it is started again."
        ),
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model(parser)
    parser.add_argument("--input", type=Path, metavar="FILE", help="JSON lines (default: standard input)")
    parser.add_argument(
        "--state",
        type=Path,
        metavar="FOLDER",
        help="where the state is saved; made as a copy of the model (default: the model's own folder)",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="the input begins with the first line ever: repeat the last answer, and skip the lines answered before",
    )
    add_horizon(parser, default=1)
    parser.add_argument(
        "--save-every",
        type=positive,
        default=500,
        metavar="LINES",
        help="between two saves of all particles; a restart replays the lines since the last save (default: 500)",
    )
    parser.add_argument(
        "--most-steps", type=positive, default=1000, help="that a series may jump ahead of its last row (default: 1000)"
    )
    parser.add_argument(
        "--distrust",
        type=percentage,
        metavar="PERCENT",
        help="treat a value outside its central interval of this level, such as 99.9, as missing, so that an outlier "
        "does not mislead the filter; after a horizon (of the fit) of these in a row they are believed (default: none)",
    )
    add_levels(parser, (80, 95), "central intervals")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    folder = options.model if options.state is None else options.state
    with failing():
        from smc_transformer.forecaster.live import Service

        _begin(options.model, folder)
        service = Service(
            folder,
            horizon=options.horizon,
            levels=options.level,
            n_paths=options.paths,
            save_every=options.save_every,
            most_steps=options.most_steps,
            distrust=options.distrust,
        )
        with closing(service), _input(options.input) as lines:
            before = service.n_taken
            if before:
                remark(f"{before} lines were taken before{_other_distrust(service, options.distrust)}")
            if options.resume and service.last_answer is not None:
                _write(service.last_answer)
            for answer in service.answers(lines, skip=before if options.resume else 0):
                _write(answer)
            remark(f"{service.n_taken - before} lines taken, {service.n_errors} with errors")
    return 0


def _other_distrust(service: Any, distrust: int | float | None) -> str:
    """What to say if the lines before were read with another level of distrust."""
    if service.distrusted_before == distrust:
        return ""
    was, now = (
        "without --distrust" if level is None else f"with --distrust {level:g}"
        for level in (service.distrusted_before, distrust)
    )
    return f", {was}; from now on they are taken {now}"


def _begin(model: Path, state: Path) -> None:
    """Make the state from the model, or check that it is of this model."""
    from smc_transformer.forecaster import Forecaster, SavedForecasterError
    from smc_transformer.forecaster.folder.files import stored_fit

    if not state.exists() and state != model:
        Forecaster.load(model).save(state)
    elif stored_fit(state) != stored_fit(model):
        raise SavedForecasterError(f"the state in {state} is of another fit than {model}: choose another folder")


def _input(path: Path | None) -> "AbstractContextManager[Iterable[bytes]]":
    return nullcontext(sys.stdin.buffer) if path is None else path.open("rb")


def _write(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer, allow_nan=False) + "\n")
    sys.stdout.flush()
