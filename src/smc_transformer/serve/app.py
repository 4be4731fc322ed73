"""The application: routes put together, errors as JSON, times of requests measured."""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from smc_transformer._version import __version__
from smc_transformer.serve import forecasts, rows, watching
from smc_transformer.serve.access import Access
from smc_transformer.serve.answering import DOCUMENTED, ErrorDocument, Ready, answered
from smc_transformer.serve.errors import problem
from smc_transformer.serve.events import Hub
from smc_transformer.serve.limits import Limits
from smc_transformer.serve.metrics import Metrics
from smc_transformer.serve.worker import Worker

PAGE = {
    "/": ("index.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}
# Nothing from elsewhere: the page has to work, and to be trusted, in a room without the internet.
POLICY = {"Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:"}


class Health(BaseModel):
    """How the server is."""

    status: str
    reason: str | None
    series: int
    series_begun: int
    series_retired: int
    rows_taken: int
    rows_queued: int
    saved_seconds_ago: float
    version: str


def make_app(
    worker: Worker,
    limits: Limits | None = None,
    tokens: Sequence[str] = (),
    is_stopping: Callable[[], bool] = lambda: False,
) -> FastAPI:
    """The application around a worker, which it starts and stops."""
    limits = limits or Limits()

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        worker.start()
        yield
        worker.stop()  # answers what was taken

    app = FastAPI(
        title="smc-transformer",
        version=__version__,
        description="Follows time series: rows in, surprises and forecasts out. docs/live.md has the guarantees.",
        lifespan=life,
        redoc_url=None,
    )
    ready, hub, access = Ready(worker, limits), Hub(worker, is_stopping), Depends(Access(tokens))
    for router in (rows.routes(ready), forecasts.routes(ready), watching.routes(ready, hub)):
        app.include_router(router, dependencies=[access])
    _add_errors(app)

    app.add_middleware(Measured, metrics=worker.metrics)

    @app.get("/health", response_model=Health, responses={503: {"model": Health}}, tags=["server"])
    async def health() -> Any:
        """Whether rows can be taken: 200, or 503 and why not."""
        reason = "stopping" if is_stopping() else worker.failure
        document = {
            "status": "ok" if reason is None else "failing",
            "reason": reason,
            "series": worker.service.n_series,
            "series_begun": worker.service.accepted.n_begun,
            "series_retired": len(worker.service.retired.away),
            "rows_taken": worker.service.n_taken,
            "rows_queued": worker.n_queued,
            "saved_seconds_ago": time.time() - worker.saved_at,
            "version": __version__,
        }
        return answered(document, 200 if reason is None else 503)

    text = {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "metrics of Prometheus"}

    @app.get("/metrics", tags=["server"], dependencies=[access], responses={200: text, 401: DOCUMENTED[401]})
    async def metrics() -> Response:
        """Counters for Prometheus."""
        return Response(generate_latest(worker.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    for path, (name, kind) in PAGE.items():
        _add_file(app, path, files("smc_transformer.serve").joinpath("page").joinpath(name).read_text("utf-8"), kind)
    return app


class Measured:
    """Measures how long requests take, by route, until the head of the answer is sent."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.perf_counter()

        async def observed(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", "other")
                labels = (scope["method"] if route != "other" else "other", route, str(message["status"]))
                self._metrics.request_seconds.labels(*labels).observe(time.perf_counter() - begun)
            await send(message)

        await self._app(scope, receive, observed)


def _add_file(app: FastAPI, path: str, text: str, kind: str) -> None:
    @app.get(path, include_in_schema=False)
    async def page() -> Response:
        return Response(text, media_type=kind, headers=POLICY)


def _add_errors(app: FastAPI) -> None:
    """Errors of all routes look the same."""

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        detail: Any = error.detail
        known = detail if isinstance(detail, dict) else problem("refused", str(detail))
        response = answered({"error": known}, error.status_code)
        response.headers.update(error.headers or {})
        return response

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        place = str(first["loc"][1]) if len(first["loc"]) > 1 else None
        return answered({"error": problem("parameter", first["msg"], column=place)}, 422)

    async def unexpected(request: Request, error: Exception) -> Response:
        return answered(
            {"error": problem("internal", "an error that was not expected; the log of the server has it")}, 500
        )

    app.add_exception_handler(Exception, unexpected)
    app.add_exception_handler(HTTPException, refused)
    app.add_exception_handler(RequestValidationError, invalid)


__all__ = ["ErrorDocument", "make_app"]
