"""What all protocols share: the client of the pool, who may ask, and what an error is in each of them."""

import asyncio
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, TypeVar, Unpack

import grpc
from starlette.exceptions import HTTPException

from pool import AsyncClient, Result, errors
from pool.client.inputs import Options, requested
from pool.config.sections import Door as Settings
from pool.door.tokens import Tokens
from pool.wire.records import ModelRecord

STATUS: Mapping[type[errors.PoolError], tuple[int, grpc.StatusCode]] = {
    errors.InvalidInput: (400, grpc.StatusCode.INVALID_ARGUMENT),
    errors.NotAllowed: (403, grpc.StatusCode.PERMISSION_DENIED),
    errors.ModelNotFound: (404, grpc.StatusCode.NOT_FOUND),
    errors.DeadlineExceeded: (504, grpc.StatusCode.DEADLINE_EXCEEDED),
    errors.Overloaded: (503, grpc.StatusCode.RESOURCE_EXHAUSTED),
    errors.OutOfMemory: (500, grpc.StatusCode.RESOURCE_EXHAUSTED),
    errors.PoolUnreachable: (503, grpc.StatusCode.UNAVAILABLE),
}
FAILED = 500, grpc.StatusCode.INTERNAL
"""In HTTP and in gRPC: STATUS, and FAILED for all others. Proxies send again what is 503 or UNAVAILABLE."""
SLOW_BYTES, MOST_JSON_BYTES = 64 << 10, 16 << 20
HEADERS: ContextVar[Iterable[tuple[str | bytes, str | bytes]]] = ContextVar("HEADERS", default=())  # of the request
Refused = HTTPException
"""A request that gets no further: the HTTP status, one line for the caller, and more headers."""
ASK_S = 3.0  # load balancers and Prometheus wait longer
T = TypeVar("T")


async def aside(is_slow: bool, function: Callable[..., Any], *arguments: Any) -> Any:
    """In a thread, if it would hold up the event loop."""
    return await asyncio.to_thread(function, *arguments) if is_slow else function(*arguments)


def json_of(text: bytes | bytearray, **options: Any) -> Any:
    """Raises `InvalidInput`, and `Refused` for so much that all others would wait: a thread is no help, for the GIL."""
    if len(text) > MOST_JSON_BYTES:
        raise Refused(413, f"{len(text)} bytes of JSON, of which {MOST_JSON_BYTES} are read; send tensors as bytes")
    try:
        return json.loads(text, **options)
    except (ValueError, RecursionError) as error:
        raise errors.InvalidInput(f"JSON Parse error: {error!s:.200}") from None


def number_of(version: str) -> str:
    """A model without numbered versions is its own version 1. Behind a + is what its files are since a change."""
    return version.partition("+")[0] or "1"


class Door:
    def __init__(self, client: AsyncClient, settings: Settings) -> None:
        self.client, self.settings = client, settings
        self.tokens = Tokens(settings.tokens) if settings.tokens else None
        self.held_bytes = 0  # of requests' bodies
        self.history: deque[dict[str, float]] = deque(maxlen=120)  # by `page.sample`, of ten minutes
        self.told: list[Callable[[str, str, str, float, Result | None], None]] = []
        """Are told of each job: its protocol, its model, its outcome, its seconds, and its result."""

    async def status(self) -> Any:
        """As `Client.status`. Raises `PoolError`, and within ASK_S, whatever the pool does."""
        try:
            async with asyncio.timeout(ASK_S):  # `wait_for` may swallow the cancellation of its caller
                return await self.client.status()
        except TimeoutError:
            raise errors.PoolUnreachable(f"the pool has not answered for {ASK_S:g} s") from None

    async def is_ready(self) -> bool:
        """Whether each model is served. False within ASK_S, whatever the pool does."""
        try:
            async with asyncio.timeout(ASK_S):
                return bool(await self.client.is_ready())
        except (errors.PoolError, TimeoutError):
            return False

    async def run(self, protocol: str, model: str, inputs: Any, **options: Unpack[Options]) -> Result:
        """One job. Raises what `Client.run` raises. Cancelling it withdraws the job."""
        began, outcome, result = time.monotonic(), "cancelled", None
        try:
            result = await self._of_version(self.client.submit, options, model, inputs)
            outcome = "ok"
            for name, value in HEADERS.get():
                if name in (b"traceparent", "traceparent"):
                    text = value if isinstance(value, str) else value.decode("latin-1")
                    result.timeline = result.timeline._replace(traceparent=text)
            return result
        except errors.PoolError as error:
            outcome = type(error).__name__
            raise
        finally:
            for tell in self.told:
                tell(protocol, model, outcome, time.monotonic() - began, result)

    async def record(self, model: str, version: str | None = None) -> ModelRecord:
        """What the pool says of a model that is loaded, as `Client.model` has it.

        Raises `ModelNotFound`, `ModelFailed`, and `PoolUnreachable` while it is being loaded.
        """
        try:
            record: ModelRecord = await self._of_version(self._record, {"version": version}, model)
            return record
        except errors.DeadlineExceeded:
            raise errors.PoolUnreachable(f"model {model!r:.80} is being loaded, or the pool is stopped") from None

    async def _record(self, model: str, version: str | None) -> Any:
        return await self.client.model(requested(model, version=version).model, 0.0)

    async def _of_version(self, ask: Callable[..., Awaitable[T]], options: Options, model: str, *inputs: Any) -> T:
        """A model without numbered versions is its own version 1: the protocols know no other."""
        try:
            return await ask(model, *inputs, **options)
        except errors.ModelNotFound:
            if str(options.get("version")) != "1" or (await self._record(model, None))["version"]:
                raise
        return await ask(model, *inputs, **{**options, "version": None})
