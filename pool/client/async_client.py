"""The client for asyncio."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

from pool.client.async_questions import AsyncQuestions
from pool.client.async_session import AsyncSession
from pool.client.client import Client
from pool.client.connection import Connection
from pool.client.event_loop import EventLoop
from pool.client.peer import CONNECT_S, RECONNECT_S
from pool.client.request import JobOptions, Request, SessionOptions, check_in_flight, request_for
from pool.client.result import JobResult
from pool.keys import KeyFile

__all__ = ["AsyncClient"]


class AsyncResults(list[asyncio.Future[JobResult]]):
    """The jobs of one `submit_many`."""

    async def __aiter__(self) -> AsyncIterator[JobResult]:
        """The result of each, in their order. Raises the error of one that failed in its turn; the others go on."""
        for future in self:
            yield await future


class AsyncClient(AsyncQuestions):
    """`Client`, awaited. Cancelling the task cancels the job."""

    def __init__(
        self,
        endpoint: str | Sequence[str] | None = None,
        *,
        connect_timeout: float = CONNECT_S,
        reconnect_timeout: float = RECONNECT_S,
        key: KeyFile | None = None,
        server_key: KeyFile | None = None,
        impersonate: str | None = None,
    ) -> None:
        """As `Client`."""
        client = Client(
            endpoint,
            connect_timeout=connect_timeout,
            reconnect_timeout=reconnect_timeout,
            key=key,
            server_key=server_key,
            impersonate=impersonate,
        )
        self._begin(client)

    def _begin(self, client: Client) -> None:
        self._client = client
        self._loops: dict[tuple[asyncio.AbstractEventLoop, Connection], EventLoop] = {}
        self._each: dict[Client, AsyncClient] = {}  # of several pools

    @property
    def endpoint(self) -> str:
        return self._client.endpoint

    @property
    def pools(self) -> "tuple[AsyncClient, ...]":
        """As `Client.pools`, awaited."""
        clients = self._client.pools
        if clients == (self._client,):
            return (self,)
        known = self._each
        self._each = {each: known.get(each) or AsyncClient._of(each) for each in clients}
        return tuple(self._each.values())

    @classmethod
    def _of(cls, client: Client) -> "AsyncClient":
        self = cls.__new__(cls)
        self._begin(client)
        return self

    async def submit(
        self,
        model: str,
        inputs: object,
        *,
        block: bool = False,
        **options: Unpack[JobOptions],
    ) -> JobResult:
        """The result of one job; raises what `Client.submit`'s future would.

        `block`: the task waits for room in the pool, where it would get `Overloaded` otherwise. Neither blocks the
        event loop: the job waits, not the caller.
        """
        from pool.client.payload import encode_call  # numpy comes with the first tensor

        began = time.monotonic()
        request = request_for(model, **options)
        loop = self._loop(request)
        rows, payload = encode_call(model, inputs, loop.connection.shared_memory)
        return await loop.run(request, rows, payload, began, patient=block)

    run = submit

    async def submit_payload(
        self,
        model: str,
        *,
        rows: int | None,
        payload: Sequence[bytes],
        **options: Unpack[JobOptions],
    ) -> JobResult:
        """`submit` for inputs that are already encoded: see `Client.submit_payload`."""
        return await asyncio.wrap_future(self._client.submit_payload(model, rows=rows, payload=payload, **options))

    def _loop(self, request: Request) -> EventLoop:
        """The running one, with the connection that there is now for a job of this request."""
        running = asyncio.get_running_loop()
        connection = self._client._connected(request)
        loop = self._loops.get((running, connection))
        if loop is None:
            loop = self._loops[(running, connection)] = EventLoop(running, connection)
            for other in [*self._loops]:  # where another thread's loop may come at any time
                if other[0].is_closed() or other[1].lost:
                    self._loops.pop(other, None)
        return loop

    def submit_many(
        self,
        model: str,
        inputs: Iterable[object],
        *,
        block: bool = False,
        **options: Unpack[JobOptions],
    ) -> AsyncResults:
        """A job for each of the inputs, as `Client.submit_many`: a list of futures, each of which can be awaited.

        `async for` over the list gives their results in this order. REQUIRES a running event loop. Cancelling one
        cancels its job. One that nobody awaits is logged by asyncio when it failed.
        """
        futures = self._client.submit_many(model, inputs, block=block, **options)
        return AsyncResults(map(asyncio.wrap_future, futures))

    def map(
        self,
        model: str,
        inputs: Iterable[object],
        *,
        in_flight: int = 64,
        **options: Unpack[JobOptions],
    ) -> AsyncIterator[JobResult]:
        """As `Client.map`, for `async for`. REQUIRES a running event loop, which waits for each of the inputs."""
        check_in_flight(in_flight)
        from pool.client.bulk.mapping import mapped_in_loop  # numpy comes with the first tensor

        asyncio.get_running_loop()
        return mapped_in_loop(self._client._connected, request_for(model, **options), inputs, in_flight)

    def session(
        self,
        model: str,
        *,
        private: bool = False,
        **options: Unpack[SessionOptions],
    ) -> AsyncSession:
        """As `Client.session`, with a `run` that is awaited; `async with` opens one that is `private`."""
        return AsyncSession(self._client, model, private=private, **options)

    async def empty(self, shape: int | Sequence[int], dtype: "npt.DTypeLike" = "float32") -> "np.ndarray[Any, Any]":
        """An array for the inputs of a job: see `Client.empty`."""
        return await asyncio.to_thread(self._client.empty, shape, dtype)

    def _memory(self, size_bytes: int) -> "np.ndarray[Any, np.dtype[np.uint8]]":
        """As `empty`, uint8 [size_bytes], of what is lent by now: it does not wait for a pool that is away."""
        from pool.client.payload import empty  # numpy comes with the first tensor

        return empty(size_bytes, "uint8", self._client._lent())

    async def _of_each(self, what: str, within_s: float) -> dict[str, Any]:
        """As `Client._of_each`."""
        return await asyncio.to_thread(self._client._of_each, what, within_s)

    async def close(self) -> None:
        await asyncio.to_thread(self._client.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
