"""The process: listen, and stop after all that was taken is answered."""

import logging
from collections.abc import Sequence
from types import FrameType

import uvicorn

from smc_transformer.forecaster.live import Service
from smc_transformer.serve.access import check_binding
from smc_transformer.serve.app import make_app
from smc_transformer.serve.limits import Limits
from smc_transformer.serve.metrics import Metrics
from smc_transformer.serve.recent import Recent
from smc_transformer.serve.worker import Worker

logger = logging.getLogger(__name__)


class Server(uvicorn.Server):
    """Stops at the first signal: takes nothing more, answers what was taken, saves, and ends."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Not forced by a second signal: what was taken would be written down, but not answered.
        self.should_exit = True


def run(
    service: Service,
    *,
    host: str,
    port: int,
    tokens: Sequence[str] = (),
    limits: Limits | None = None,
    alert: int | float = 99.9,
    save_every: int = 50,
) -> None:
    """Serve until a signal comes (SIGTERM, SIGINT)."""
    check_binding(host, tokens)
    limits = limits or Limits()
    worker = Worker(service, limits, Metrics(), Recent(alert), save_every)
    stopping: list[Server] = []
    app = make_app(worker, limits, tokens, lambda: stopping[0].should_exit)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(limits.seconds) + 5,
        h11_max_incomplete_event_size=64 * 1024,
        ws="none",
    )
    stopping.append(Server(config))
    stopping[0].run()
