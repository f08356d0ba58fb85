"""What every request passes: whose it is, whether he may, which protocol it is of; and how each of them is refused.

admit   Host and Origin ──► token, or no body                         before the body is read
answer  decompressed ──► the protocol of the path ──► compressed      what it raises becomes a response, too

What the client of a token may do, and how much of it, the pool decides.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pool import AsyncClient
from pool.errors import PoolError
from pool.gateway.accounts import Sum
from pool.gateway.callers import Caller, Callers
from pool.gateway.codes import refusal, refused
from pool.gateway.hosts import Hosts
from pool.gateway.http import Limits, Refused, Request, Response, compressed, decompressed
from pool.gateway.metrics import ROUTES

__all__ = ["Application", "Spoken", "answer_of"]

log = logging.getLogger("pool.gateway")

SHARE = 4  # a token may hold so many times what is free: alone 4/5 of all bytes, two of them 4/9 each, and so on
OPEN = ("/v2/health/live", "/v2/health/ready")  # load balancers have no token, and learn nothing here
WHAT = (
    "a gateway of a TensorFlow worker pool: it answers below /v1 (TensorFlow Serving), /v2 (Open Inference Protocol)"
    " and /metrics"
)


class Spoken(Protocol):
    """One protocol."""

    async def answer(self, request: Request, client: AsyncClient) -> Response:
        """Raises `Refused` and `PoolError`. Its `CancelledError` has cancelled the job."""


async def answer_of(protocol: Spoken, request: Request, client: AsyncClient) -> Response:
    """Raises nothing but `CancelledError`."""
    try:
        return await protocol.answer(request, client)
    except Refused as error:
        return refusal(error)
    except PoolError as error:
        return refusal(refused(error))
    except Exception:
        log.exception("%s %.200s", request.method, request.path)
        return refusal(Refused(500, "the gateway failed at this request"))


class Application:
    """`protocols`: by the first part of the path.

    `bodies`: the account of all bytes of requests.

    `count`: is told of each response its route, its status and, unless it is a refusal, the seconds that it took.
    """

    def __init__(
        self,
        callers: Callers,
        hosts: Hosts,
        protocols: Mapping[str, Spoken],
        limits: Limits,
        bodies: Sum,
        count: Callable[[str, int, float | None], None] = lambda _route, _status, _seconds: None,
    ) -> None:
        self._callers = callers
        self._hosts = hosts
        self._protocols = protocols
        self._limits = limits
        self._bodies = bodies
        self._count = count

    def admit(self, request: Request, size_bytes: int | None) -> Caller:
        self._hosts.check(request)
        if request.path not in OPEN:
            return self._callers.of(request)
        if size_bytes != 0:  # it would take from what all may hold
            raise Refused(413, f"a request for {request.path} has no body")
        return self._callers.anybody

    def place(self, caller: Caller, size_bytes: int) -> NDArray[np.uint8]:
        with contextlib.suppress(PoolError):
            return caller.memory(size_bytes)
        return np.empty(size_bytes, np.uint8)

    def hold(self, caller: Caller, size_bytes: int) -> None:
        own, most = caller.bodies, self._limits.bodies_bytes
        if size_bytes <= 0:
            self._bodies.give(-size_bytes)
            if own is not None:
                own.give(-size_bytes)
            return
        if not self._bodies.take(size_bytes, most):
            raise Refused(503, "the gateway holds as many bytes of requests as it may", 1.0)
        if own is not None and not own.take(size_bytes, SHARE * (most - self._bodies.all)):
            self._bodies.give(size_bytes)
            raise Refused(429, f"the gateway holds as many bytes of {caller.name} as it may beside others", 1.0)

    async def answer(self, request: Request, caller: Caller) -> Response:
        began, grown = time.monotonic(), 0
        try:
            protocol = self._protocols.get(request.path[1:].partition("/")[0])
            if protocol is None:
                raise Refused(404, f"nothing is at {request.path!r:.200}; this is {WHAT}")
            grown = await self._decompressed(request, caller)
            self._check_json(request)
            response = await answer_of(protocol, request, caller.client)
            accepted = request.headers.get("accept-encoding")
            if accepted is not None and _may_shrink(request, response.status):
                response = await compressed(response, accepted)
        except asyncio.CancelledError:  # who has hung up; nginx has this status for that
            self._count(_route(request.path), 499, time.monotonic() - began)
            raise
        finally:
            self.hold(caller, -grown)
        self._count(_route(request.path), response.status, time.monotonic() - began)
        return response

    async def _decompressed(self, request: Request, caller: Caller) -> int:
        """How many bytes more the body has since. They are on the account, until they are given back."""
        came = len(request.body)
        await decompressed(request, self._limits.body_bytes)
        grown = max(0, len(request.body) - came)
        self.hold(caller, grown)
        return grown

    def _check_json(self, request: Request) -> None:
        # In any other protocol the header says nothing: all of the body is read as JSON.
        text = request.headers.get("inference-header-content-length", "") if request.path.startswith("/v2/") else ""
        size_bytes = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else len(request.body)
        if size_bytes > self._limits.json_bytes:
            most = self._limits.json_bytes
            raise Refused(413, f"the request has {size_bytes} bytes of JSON; at most {most} are read")

    def refuse(self, request: Request | None, refused: Refused) -> Response:
        self._count("other" if request is None else _route(request.path), refused.status, None)
        return refusal(refused)


def _may_shrink(request: Request, status: int) -> bool:
    """tritonclient's asyncio client asks for gzip each time, and can read it in the answers of jobs alone."""
    return not request.path.startswith("/v2") or (status == 200 and request.path.endswith("/infer"))


def _route(path: str) -> str:
    """What is counted together: a few names, whatever is asked for."""
    last = path.rsplit("/", 1)[-1].rsplit(":", 1)[-1]
    return last if last in ROUTES else "other"
