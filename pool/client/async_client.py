"""The client for asyncio."""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

from pool.client.async_session import AsyncSession
from pool.client.client import Client
from pool.client.event_loop import EventLoop
from pool.client.peer import CONNECT_S, RECONNECT_S
from pool.client.request import JobOptions, SessionOptions, request_for
from pool.client.result import JobResult
from pool.wire.records import Changes, JobHistory, Model, Recent, SlotHistory, Status

__all__ = ["AsyncClient"]


class AsyncClient:
    """`Client`, awaited. Cancelling the task cancels the job."""

    def __init__(
        self, endpoint: str | None = None, *, connect_timeout: float = CONNECT_S, reconnect_timeout: float = RECONNECT_S
    ) -> None:
        self._client = Client(endpoint, connect_timeout=connect_timeout, reconnect_timeout=reconnect_timeout)
        self._loops: dict[asyncio.AbstractEventLoop, EventLoop] = {}

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
        loop = self._loop()
        rows, payload = encode_call(model, inputs, loop.connection.shared_memory)
        return await loop.run(request, rows, payload, began, patient=block)

    def _loop(self) -> EventLoop:
        """The running one, with the connection that there is now."""
        running = asyncio.get_running_loop()
        connection = self._client._connected()
        loop = self._loops.get(running)
        if loop is None or loop.connection is not connection:
            loop = self._loops[running] = EventLoop(running, connection)
            for other in [*self._loops]:  # where another thread's loop may come at any time
                if other.is_closed():
                    self._loops.pop(other, None)
        return loop

    def submit_many(
        self,
        model: str,
        inputs: Iterable[object],
        *,
        block: bool = False,
        **options: Unpack[JobOptions],
    ) -> list[asyncio.Future[JobResult]]:
        """A job for each of the inputs, as `Client.submit_many`; to be awaited each, or by `asyncio.gather`.

        REQUIRES a running event loop. Cancelling one cancels its job. One that nobody awaits is logged by asyncio when
        it failed.
        """
        futures = self._client.submit_many(model, inputs, block=block, **options)
        return [asyncio.wrap_future(future) for future in futures]

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

    async def status(self) -> Status:
        return await asyncio.to_thread(self._client.status)

    async def models(self) -> tuple[Model, ...]:
        return await asyncio.to_thread(self._client.models)

    async def placement(
        self, model: str, *, timeout: float | None = None, device: str | int | None = None
    ) -> dict[str, Any]:
        return await asyncio.to_thread(self._client.placement, model, timeout=timeout, device=device)

    async def load(self, model: str, path: str | os.PathLike[str]) -> Changes:
        """See `Client.load`. Cancelling the task does not take it back."""
        return await asyncio.to_thread(self._client.load, model, path)

    async def unload(self, model: str) -> Changes:
        """See `Client.unload`. Cancelling the task does not take it back."""
        return await asyncio.to_thread(self._client.unload, model)

    @overload
    async def explain(self, job: int) -> JobHistory: ...

    @overload
    async def explain(self, job: None = None, *, slot: int) -> SlotHistory: ...

    @overload
    async def explain(self, job: None = None, *, slot: None = None) -> Recent: ...

    async def explain(self, job: int | None = None, *, slot: int | None = None) -> JobHistory | SlotHistory | Recent:
        ask: Callable[..., JobHistory | SlotHistory | Recent] = self._client.explain
        return await asyncio.to_thread(ask, job, slot=slot)

    async def close(self) -> None:
        await asyncio.to_thread(self._client.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
