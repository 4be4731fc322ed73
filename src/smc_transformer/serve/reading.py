"""Rows in the body of a request: one JSON object, a list of them, or one on each line (NDJSON)."""

from typing import Any

from fastapi import HTTPException, Request
from starlette.requests import ClientDisconnect

from smc_transformer.forecaster.rows import read_json
from smc_transformer.serve.errors import problem
from smc_transformer.serve.limits import Limits

LINES = ("application/x-ndjson", "application/ndjson", "application/jsonl")


async def read_body(request: Request, limits: Limits) -> bytes:
    """The body, which is not read beyond the limit."""
    reason = f"the body has more than {limits.body_bytes} bytes: send fewer rows at once"
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and len(declared) < 20 and int(declared) > limits.body_bytes:
        raise HTTPException(413, problem("too large", reason))
    found = bytearray()
    try:
        async for part in request.stream():
            found += part
            if len(found) > limits.body_bytes:
                raise HTTPException(413, problem("too large", reason))
    except ClientDisconnect:  # nobody is there to be told, but the log need not hold a traceback
        raise HTTPException(400, problem("not JSON", "the request has ended before its body")) from None
    return bytes(found)


async def read_rows(request: Request, limits: Limits) -> list[Any]:
    """The rows: values of JSON, or lines that are still to be read."""
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json" and kind not in LINES:
        reason = f"expected application/json or application/x-ndjson, got {kind[:100]!r}"
        raise HTTPException(415, problem("content type", reason))
    body = await read_body(request, limits)
    if kind in LINES:
        rows: list[Any] = [line for line in body.split(b"\n") if line.strip()]
    else:
        try:
            found = read_json(body)
        except ValueError as error:
            reason = f"the body is not JSON: {' '.join(str(error).split())}"
            raise HTTPException(400, problem("not JSON", reason)) from None
        rows = found if isinstance(found, list) else [found]
    if not rows:
        raise HTTPException(422, problem("empty", "there is no row in the body"))
    if len(rows) > limits.rows:
        reason = f"{len(rows)} rows in one request, at most {limits.rows} may be"
        raise HTTPException(413, problem("too large", reason))
    return rows
