"""What people on duty look at: surprises, alerts, one series with the forecasts that it had, and events."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from smc_transformer.forecaster.live import Service
from smc_transformer.forecaster.table import Name
from smc_transformer.serve.answering import DOCUMENTED, ErrorDocument, Ready, answered
from smc_transformer.serve.errors import busy
from smc_transformer.serve.events import Hub, summary
from smc_transformer.serve.health import particle_health
from smc_transformer.serve.naming import find_series
from smc_transformer.support.as_json import plain

FOUND: dict[int | str, dict[str, Any]] = {
    **DOCUMENTED,
    404: {"model": ErrorDocument, "description": "the series is not followed"},
    422: {"model": ErrorDocument, "description": "a parameter is not what it should be"},
}
Most = Annotated[int, Query(ge=1, le=1000, description="at most so many")]
Seconds = Annotated[float, Query(gt=0, le=10**7, description="of the last so many seconds")]


class SurpriseDocument(BaseModel):
    """How far out an accepted value was."""

    number: int
    received: float = Field(description="when it was accepted, in seconds since 1970; 0: before the server was started")
    series: str | int
    time: str | int
    target: str
    value: float
    pit: float | None = Field(description="probability of a value at most this large, as it was predicted")
    log_density: float | None
    tail: float = Field(description="probability of a value at least as far out, on either side")


class Surprises(BaseModel):
    """The newest first, or the farthest out first."""

    surprises: list[SurpriseDocument]


class SeriesDocument(BaseModel):
    """A series that is followed."""

    series: str | int
    last_time: str | int
    retired: bool = Field(description="whether it is out of memory until the next row, or a question about it")


class SeriesList(BaseModel):
    """Series that are followed."""

    total: int
    series: list[SeriesDocument]


class History(BaseModel):
    """The last rows of a series, with what was forecast before and how surprising each was."""

    model_config = ConfigDict(extra="allow")
    series: str | int
    last_time: str | int
    targets: list[str]
    rows: list[dict[str, Any]]
    particles: dict[str, float]


def routes(ready: Ready, hub: Hub) -> APIRouter:
    """The routes."""
    router, worker = APIRouter(tags=["watching"]), ready.worker

    async def named(text: str | None) -> Name | None:
        return (
            None
            if text is None
            else await ready.wait(lambda: worker.ask(lambda service: find_series(service, text, fetching=False)))
        )

    @router.get("/surprises", response_model=Surprises, responses=FOUND, summary="the last values, and how far out")
    async def surprises(
        most: Most = 100,
        series: str | None = None,
        seconds: Annotated[
            float | None, Query(gt=0, le=10**7, description="of each series the farthest out in the last seconds")
        ] = None,
    ) -> Any:
        """The newest values first; with `seconds` the farthest out of each series, of the values since then."""
        name = await named(series)
        found = worker.recent.newest(most, series=name)
        if seconds is not None:
            found = [one for one in worker.recent.most_surprising(most, seconds) if name in (None, one.series)]
        return answered({"surprises": [one.document() for one in found]})

    @router.get("/alerts", response_model=Surprises, responses=FOUND, summary="values outside the level of alerts")
    async def alerts(most: Most = 100, series: str | None = None) -> Any:
        """Values that lay outside the central interval of the level of alerts, the newest first."""
        name = await named(series)
        found = worker.recent.newest(most, series=name, alerts=True)
        return answered({"surprises": [one.document() for one in found]})

    @router.get("/series", response_model=SeriesList, responses=FOUND, summary="which series are followed")
    async def series_list(contains: str = "", most: Most = 100, skip: Annotated[int, Query(ge=0, le=10**9)] = 0) -> Any:
        """The series whose names contain a text."""

        def listed(service: Service) -> dict[str, Any]:
            known, away = service.last_times(), service.retired.away
            names = [name for name in known if contains.lower() in str(name).lower()]
            chosen = [
                {"series": name, "last_time": plain(known[name]), "retired": name in away}
                for name in names[skip : skip + most]
            ]
            return {"total": len(names), "series": chosen}

        return answered(await ready.wait(lambda: worker.ask(listed)))

    @router.get("/history", response_model=History, responses=FOUND, summary="one series and its particles")
    async def history(series: str, most: Most = 100) -> Any:
        """The last rows of a series, what was forecast and how surprising each was; and how its particles are."""

        def read(service: Service) -> dict[str, Any]:
            name, settings = find_series(service, series), service.forecaster.settings
            rows = [
                {
                    "time": one.answer.get(settings.time_column),
                    "values": {target: one.cells.get(target) for target in settings.targets},
                    "surprise": one.answer.get("surprise", []),
                    "forecast": one.answer.get("forecast"),
                }
                for one in service.accepted.last(name, most)
            ]
            return {
                "series": name,
                "last_time": plain(service.forecaster.fitted.following.last_time(name)),
                "time_column": settings.time_column,
                "targets": list(settings.targets),
                "horizon": settings.horizon,
                "rows": rows,
                "particles": particle_health(service.forecaster.fitted, name),
            }

        return answered(await ready.wait(lambda: worker.ask(read)))

    @router.get("/summary", responses=FOUND, summary="what the page shows first")
    async def whole(most: Most = 30, seconds: Seconds = 900) -> dict[str, Any]:
        """Which series were surprising in the last seconds, and how the server is."""
        return summary(worker, seconds, most)

    @router.get(
        "/events",
        responses={**FOUND, 200: {"content": {"text/event-stream": {}}, "description": "events, without end"}},
        response_class=StreamingResponse,
        summary="server-sent events",
    )
    async def events(series: str | None = None, most: Most = 30, seconds: Seconds = 900) -> StreamingResponse:
        """A `summary` every second, an `alert` for each, and a `row` for each row of one series."""
        if hub.n_listeners >= ready.limits.listeners:
            raise busy(f"{hub.n_listeners} listen already", ready.limits.retry_after)
        name = await named(series)
        stream = hub.listen(name, seconds, most)
        return StreamingResponse(stream, media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    return router
