"""POST /rows: observations in, how surprising each was out, once all of them are on the disk."""

from typing import Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from smc_transformer.forecaster.rows import RowError
from smc_transformer.serve.answering import DOCUMENTED, ErrorDocument, Problem, Ready, answered
from smc_transformer.serve.errors import refusal
from smc_transformer.serve.reading import LINES, read_rows

ROW = {
    "type": "object",
    "description": (
        "one observation, with the columns of the fit: series, time (ISO 8601 text or a whole number), a value for "
        "each column, null if it is missing; `future` holds inputs that are known ahead"
    ),
    "example": {"unique_id": "a", "ds": "2024-01-31T13:00:00", "y": 1.5},
}
BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"oneOf": [ROW, {"type": "array", "items": ROW, "minItems": 1}]}},
            **{kind: {"schema": {"type": "string", "description": "one object on each line"}} for kind in LINES[:1]},
        },
    }
}


class RowAnswer(BaseModel):
    """The answer to one row: that of `smct stream`, or why it was refused."""

    model_config = ConfigDict(extra="allow")
    surprise: list[dict[str, Any]] | None = Field(None, description="how surprising each observed value was")
    forecast: list[dict[str, Any]] | None = Field(None, description="the next steps, as the server was told to answer")
    new_series: bool | None = Field(None, description="true: a series has begun with this row, which nothing predicted")
    error: Problem | None = Field(None, description="why this row was refused")


class RowAnswers(BaseModel):
    """What became of the rows of a request."""

    accepted: int = Field(description="rows that are new, and on the disk")
    repeated: int = Field(description="rows that were accepted before: the answer is the same, nothing has changed")
    refused: int
    answers: list[RowAnswer] = Field(description="in the order of the rows")


def routes(ready: Ready) -> APIRouter:
    """The route."""
    router = APIRouter(tags=["rows"])
    statuses: dict[int | str, dict[str, Any]] = {
        **DOCUMENTED,
        400: {"model": ErrorDocument, "description": "the body is not JSON; nothing was taken"},
        409: {"model": RowAnswers, "description": "some rows are of the past or have other values than were accepted"},
        413: {"model": ErrorDocument, "description": "too many rows or bytes; nothing was taken"},
        415: {"model": ErrorDocument, "description": "neither JSON nor NDJSON; nothing was taken"},
        422: {"model": RowAnswers | ErrorDocument, "description": "some rows were refused; the others are taken"},
    }

    @router.post(
        "/rows", response_model=RowAnswers, responses=statuses, openapi_extra=BODY, summary="take observations"
    )
    async def take_rows(
        request: Request, short: bool = Query(False, description="leave out the answers to rows that were accepted")
    ) -> Any:
        """Take one row, a list of rows, or one on each line (NDJSON), and answer how surprising each was.

        The answer comes when all accepted rows are on the disk. Rows are accepted or refused one by one, in order; a
        row that was accepted before is answered as before, so a request may safely be sent again as a whole. A row of
        a series that is not known begins it, as far as the server was told that series may begin.
        """
        rows = await read_rows(request, ready.limits)
        found = await ready.wait(lambda: ready.worker.take(rows))
        answers = [
            refusal(one, row) if isinstance(one, RowError) else {} if short else one.answer
            for row, one in enumerate(found)
        ]
        kinds = {one.kind for one in found if isinstance(one, RowError)}
        n_refused = sum(isinstance(one, RowError) for one in found)
        n_new = sum(not isinstance(one, RowError) and one.is_new for one in found)
        counts = {"accepted": n_new, "repeated": len(found) - n_refused - n_new, "refused": n_refused}
        if short:
            answers = [answer for answer in answers if answer]
        status = 200 if not kinds else 409 if kinds <= {"past", "conflict"} else 422
        return answered({**counts, "answers": answers}, status)

    return router
