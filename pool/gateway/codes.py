"""What an error is in HTTP: one table, and one form of it, for all protocols."""

import math

from pool.errors import (
    DeadlineExceeded,
    Incompatible,
    InvalidInput,
    InvalidState,
    ModelFailed,
    ModelNotFound,
    NotAllowed,
    Overloaded,
    PoolError,
    PoolUnreachable,
    Quarantined,
    QuotaExceeded,
    WorkerLost,
)
from pool.gateway import json_text
from pool.gateway.http import Refused, Response
from pool.wire.texts import legible

__all__ = ["refusal", "refused"]

STATUS: dict[type[PoolError], int] = {
    InvalidInput: 400,
    InvalidState: 409,
    NotAllowed: 403,
    ModelNotFound: 404,
    ModelFailed: 500,
    DeadlineExceeded: 504,
    Overloaded: 503,
    QuotaExceeded: 429,
    WorkerLost: 503,
    Quarantined: 500,
    PoolUnreachable: 503,
    Incompatible: 500,
}


def refused(error: PoolError) -> Refused:
    """With the pool's text."""
    status = next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 500)
    wait_s = None
    if status in (429, 503):
        wait_s = getattr(error, "retry_after", None) or 1.0
    return Refused(status, str(error), wait_s)


def refusal(error: Refused) -> Response:
    """As the clients of both protocols read it."""
    headers = [("Content-Type", "application/json")]
    if error.retry_after_s is not None:
        headers.append(("Retry-After", str(max(1, math.ceil(error.retry_after_s)))))
    if error.status == 401:
        headers.append(("WWW-Authenticate", "Bearer"))
    return Response(error.status, headers, (json_text.write({"error": legible(error.text)}),))
