"""`smct serve`: follow series live over HTTP, with a page for people on duty.

Follows the series of a model over HTTP: POST /rows takes observations and answers how surprising each was, GET
/forecasts and /paths answer what comes next, / is a page that shows what is surprising now, /docs describes all routes.
A row of a series that is not known begins it. A row is answered once it is on the disk; SIGTERM stops the server after
all that it has taken is answered.

An example:
  smct serve model --port 8000
  curl localhost:8000/rows --json '{"unique_id": "a", "ds": "2024-01-31 13:00", "y": 1.5}'
  curl 'localhost:8000/forecasts?series=a&level=90&format=csv'
"""

import argparse
from contextlib import closing
from pathlib import Path

from smc_transformer.cli.commands.stream import add_appearing, begin_state
from smc_transformer.cli.errors import CommandError, failing
from smc_transformer.cli.model import add_horizon, add_levels, add_model_command
from smc_transformer.cli.options import Commands, percentage, port, positive
from smc_transformer.support.remark import remark


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = add_model_command(commands, _run, __doc__, tables=False)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=port, default=8000, help="(default: 8000)")
    text = "file of bearer tokens, one on each line; needed unless the host is this machine's own"
    parser.add_argument("--tokens", type=Path, metavar="FILE", help=text)
    text = "where the state is saved; made as a copy of the model (default: the model's own folder)"
    parser.add_argument("--state", type=Path, metavar="FOLDER", help=text)
    text = (
        "database for the accepted rows, postgresql://...: written down in the folder (default: SQLite in the folder)"
    )
    parser.add_argument("--store", metavar="URL", help=text)
    add_horizon(parser, default=1, paths=200)
    text = "answer rows without a forecast: faster, but the page has no past forecasts to show"
    parser.add_argument("--no-forecasts", dest="horizon", action="store_const", const=0, help=text)
    text = "an accepted value outside its central interval of this level is an alert (default: 99.9)"
    parser.add_argument("--alert", type=percentage, default=99.9, metavar="PERCENT", help=text)
    text = "rows of a series between two saves of its state; a restart replays the rows since then (default: 50)"
    parser.add_argument("--save-every", type=positive, default=50, metavar="ROWS", help=text)
    parser.add_argument("--queue", type=positive, default=50_000, metavar="ROWS", help="that may wait (default: 50000)")
    text = "that a series may jump ahead of its last row (default: 1000)"
    parser.add_argument("--most-steps", type=positive, default=1000, help=text)
    add_appearing(parser)
    text = "treat a value outside its central interval of this level as missing, as `smct stream` does"
    parser.add_argument("--distrust", type=percentage, metavar="PERCENT", help=text)
    add_levels(parser, 80, 95)


def _run(options: argparse.Namespace) -> None:
    folder = options.model if options.state is None else options.state
    names = ("store", "horizon", "most_steps", "distrust", "retire_after", "new_series")
    settings = {name: getattr(options, name) for name in names}
    with failing():
        try:
            from smc_transformer.serve.access import TokenError, check_binding, read_tokens
            from smc_transformer.serve.limits import Limits
            from smc_transformer.serve.running import run
        except ImportError as error:
            reason = f"needs {error.name}: pip install 'smc-transformer[serve]'"
            raise CommandError(f"smct serve {reason}") from None
        from smc_transformer.forecaster.live import Service

        try:
            tokens = () if options.tokens is None else read_tokens(options.tokens)
            check_binding(options.host, tokens)
        except (TokenError, UnicodeDecodeError) as error:
            raise CommandError(str(error)) from None
        begin_state(options.model, folder)
        service = Service(folder, levels=options.level, n_paths=options.paths, **settings)
        with closing(service):
            remark(f"{service.n_series} series, {service.n_taken} rows taken before")
            remark(f"listening on http://{options.host}:{options.port}")
            limits = Limits(queued_rows=options.queue)
            run(
                service,
                host=options.host,
                port=options.port,
                tokens=tokens,
                limits=limits,
                alert=options.alert,
                save_every=options.save_every,
            )
            remark(f"stopped, {service.n_taken} rows taken in all")
