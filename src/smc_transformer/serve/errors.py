"""Errors as JSON: {"error": {"kind": ..., "reason": ..., ...}}, the same for all routes."""

from typing import Any

from fastapi import HTTPException

from smc_transformer.forecaster.rows import RowError


def problem(kind: str, reason: str, **more: Any) -> dict[str, Any]:
    """What is wrong with a request."""
    return {"kind": kind, "reason": reason, **{key: value for key, value in more.items() if value is not None}}


def refusal(error: RowError, row: int) -> dict[str, Any]:
    """What is wrong with a row of a request, counted from 0."""
    return {"error": problem(error.kind, str(error), row=row, column=error.column)}


def busy(reason: str, retry_after: int, status: int = 429) -> HTTPException:
    """Come again later."""
    return HTTPException(status, problem("busy", reason), {"Retry-After": str(retry_after)})
