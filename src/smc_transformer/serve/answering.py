"""What all routes share: waiting for the worker, and how answers and errors look."""

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from fastapi import HTTPException
from fastapi.responses import Response
from pydantic import BaseModel, Field

from smc_transformer.forecaster.folder.files import SavedForecasterError
from smc_transformer.serve.errors import busy, problem
from smc_transformer.serve.limits import Limits
from smc_transformer.serve.worker import FullError, StoppedError, Worker


class Problem(BaseModel):
    """What is wrong."""

    kind: str
    reason: str
    row: int | None = Field(None, description="which row of the request, counted from 0")
    column: str | None = Field(None, description="which of its columns")


class ErrorDocument(BaseModel):
    """An error."""

    error: Problem


DOCUMENTED: dict[int | str, dict[str, Any]] = {
    401: {"model": ErrorDocument, "description": "a token is needed"},
    429: {"model": ErrorDocument, "description": "too much is waiting: come again after Retry-After seconds"},
    503: {"model": ErrorDocument, "description": "not now: stopping, too slow, or the disk is full; send it again"},
}


def answered(document: Any, status: int = 200) -> Response:
    """An answer as JSON."""
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    return Response(text, status_code=status, media_type="application/json")


@dataclass(frozen=True)
class Ready:
    """What routes work with."""

    worker: Worker
    limits: Limits

    async def wait(self, begin: Callable[[], "Future[Any]"]) -> Any:
        """What the worker answers, or an error that says whether and when to come again."""
        seconds, again = self.limits.seconds, self.limits.retry_after
        try:
            future = asyncio.wrap_future(begin())
            # Shielded: what was taken is answered and written down, also if nobody waits any more.
            return await asyncio.wait_for(asyncio.shield(future), seconds)
        except FullError as error:
            raise busy(str(error), again) from None
        except StoppedError as error:
            raise busy(str(error), again, 503) from None
        except asyncio.TimeoutError:
            reason = f"no answer within {seconds:g} seconds; rows may have been taken: to send them again is safe"
            raise busy(reason, again, 503) from None
        except SavedForecasterError:
            raise busy("the store cannot be used, and no row of this request was taken", again, 503) from None
        except HTTPException:
            raise
        except ValueError as error:
            raise HTTPException(422, problem("refused", " ".join(str(error).split()))) from None
