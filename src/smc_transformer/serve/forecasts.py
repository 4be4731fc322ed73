"""GET /forecasts and GET /paths: the future of some series, as they are followed now."""

from typing import Annotated, Any, Literal

import pandas as pd
from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from smc_transformer.forecaster.forecast import Forecast, Number
from smc_transformer.forecaster.live import Service
from smc_transformer.forecaster.rows import read_json
from smc_transformer.forecaster.table import Name
from smc_transformer.forecaster.times import parse_times
from smc_transformer.serve.answering import DOCUMENTED, ErrorDocument, Ready, answered
from smc_transformer.serve.errors import problem
from smc_transformer.serve.limits import Limits
from smc_transformer.serve.naming import find_series
from smc_transformer.support.as_json import records

Form = Literal["json", "csv"]
Names = Annotated[list[str], Query(description="which series, by name; may be given several times")]
Steps = Annotated[int | None, Query(ge=1, description="steps ahead (default: the horizon of the fit)")]
Drawn = Annotated[int, Query(ge=1, description="sampled futures behind the numbers")]
Seed = Annotated[int | None, Query(ge=0, le=2**62, description="of the paths (default: the model's own)")]
Format = Annotated[Form | None, Query(alias="format", description="json or csv (default: as Accept says, or json)")]
Future = Annotated[
    str | None,
    Query(description="future inputs at the times ahead, as a JSON list of rows; needed if the model has any"),
]
TABLE: dict[int | str, dict[str, Any]] = {
    **DOCUMENTED,
    200: {"content": {"text/csv": {"schema": {"type": "string"}}}, "description": "a table, a row for each step"},
    404: {"model": ErrorDocument, "description": "a series is not followed"},
    422: {"model": ErrorDocument, "description": "beyond a limit, or cannot be computed"},
}


class Table(BaseModel):
    """Rows of a table."""

    rows: list[dict[str, Any]] = Field(description="columns as `Forecaster.predict` and `simulate` have them")


def routes(ready: Ready) -> APIRouter:
    """The routes."""
    router = APIRouter(tags=["forecasts"])

    async def forecast(names: list[str], h: int | None, n_paths: int, seed: int | None, future: str | None) -> Forecast:
        def draw(service: Service) -> Forecast:
            forecaster = service.forecaster
            chosen: list[Name] = [find_series(service, name) for name in names]
            if len(set(chosen)) != len(chosen):
                raise HTTPException(422, problem("refused", "a series is named twice", column="series"))
            steps = forecaster.settings.horizon if h is None else h
            check_size(ready.limits, len(chosen), steps, n_paths, len(forecaster.settings.targets))
            given = None if future is None else read_future(future, forecaster.settings.time_column)
            return forecaster.forecast(h=steps, series=chosen, future=given, n_paths=n_paths, seed=seed)

        return await ready.wait(lambda: ready.worker.ask(draw))

    @router.get("/forecasts", response_model=Table, responses=TABLE, summary="means, intervals and quantiles")
    async def forecasts(
        request: Request,
        series: Names,
        h: Steps = None,
        level: Annotated[list[float] | None, Query(description="percentages of central intervals (80, 95)")] = None,
        quantile: Annotated[list[float] | None, Query(description="probabilities of further columns")] = None,
        n_paths: Drawn = 1000,
        seed: Seed = None,
        form: Format = None,
        future: Future = None,
    ) -> Any:
        """The next steps of some series: the mean, central intervals, quantiles."""
        levels: list[Number] = [80, 95] if level is None else read_levels(level)
        for one in quantile or ():
            if not 0 < one < 1:
                raise HTTPException(
                    422, problem("refused", f"a quantile is between 0 and 1, got {one}", column="quantile")
                )
        drawn = await forecast(series, h, n_paths, seed, future)
        return table_answer(request, drawn.table(levels, quantile), form)

    @router.get("/paths", response_model=Table, responses=TABLE, summary="joint sample paths")
    async def paths(
        request: Request,
        series: Names,
        h: Steps = None,
        n_paths: Drawn = 100,
        seed: Seed = None,
        form: Format = None,
        future: Future = None,
    ) -> Any:
        """Joint sample paths of some series, one row for each path and step."""
        drawn = await forecast(series, h, n_paths, seed, future)
        return table_answer(request, drawn.sample(), form)

    return router


def read_levels(given: list[float]) -> list[Number]:
    """Percentages; whole ones as such, for the names of columns."""
    for one in given:
        if not 1 <= one < 100:
            reason = f"a level is a percentage, such as 80, from 1 to below 100, got {one}"
            raise HTTPException(422, problem("refused", reason, column="level"))
    return [int(one) if one == int(one) else one for one in given]


def check_size(limits: Limits, n_series: int, steps: int, n_paths: int, n_targets: int) -> None:
    """That a forecast can be drawn in a moment."""
    numbers = n_series * steps * n_paths * n_targets
    for what, found, most in (
        ("series", n_series, limits.series),
        ("steps", steps, limits.steps),
        ("paths", n_paths, limits.n_paths),
        ("numbers (series * steps * paths * targets)", numbers, limits.numbers),
    ):
        if found > most:
            raise HTTPException(422, problem("too large", f"{found} {what} in one forecast, at most {most} may be"))


def read_future(text: str, time_column: str) -> pd.DataFrame:
    """A table of future inputs."""
    try:
        rows = read_json(text)
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ValueError("expected a list of objects")
        table = pd.DataFrame(rows)
        if time_column in table and not pd.api.types.is_numeric_dtype(table[time_column].dtype):
            table[time_column] = parse_times(table[time_column], time_column, None, ValueError)
        return table
    except (ValueError, TypeError, RecursionError) as error:
        reason = f"future cannot be read: {' '.join(str(error).split())}"
        raise HTTPException(422, problem("refused", reason, column="future")) from None


def table_answer(request: Request, table: pd.DataFrame, form: Form | None) -> Response:
    """A table as JSON or CSV."""
    if form is None:
        form = "csv" if "text/csv" in request.headers.get("accept", "") else "json"
    if form == "csv":
        return Response(table.to_csv(index=False), media_type="text/csv")
    return answered({"rows": records(table)})
