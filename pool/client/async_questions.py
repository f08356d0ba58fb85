"""What an `AsyncClient` asks the pool itself, and what it asks of all replicas of a model."""

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

if TYPE_CHECKING:
    import numpy as np

    from pool.client.client import Client

from pool.client.request import ReplicaOptions
from pool.client.result import JobResult
from pool.wire.records import Changes, JobHistory, LogLines, Model, Recent, SlotHistory, Status

__all__ = ["AsyncQuestions"]


class AsyncQuestions:
    """Each is the `Client`'s, awaited in a thread. Cancelling the task takes nothing back."""

    _client: "Client"

    async def status(self) -> Status:
        return await asyncio.to_thread(self._client.status)

    async def models(self) -> tuple[Model, ...]:
        return await asyncio.to_thread(self._client.models)

    @overload
    async def explain(self, job: int) -> JobHistory: ...

    @overload
    async def explain(self, job: None = None, *, slot: int) -> SlotHistory: ...

    @overload
    async def explain(self, job: None = None, *, slot: None = None) -> Recent: ...

    async def explain(self, job: int | None = None, *, slot: int | None = None) -> JobHistory | SlotHistory | Recent:
        ask: Callable[..., JobHistory | SlotHistory | Recent] = self._client.explain
        return await asyncio.to_thread(ask, job, slot=slot)

    async def logs(self, since: int = 0) -> LogLines:
        return await asyncio.to_thread(self._client.logs, since)

    async def restart(self, slot: int, *, rolling: bool = False) -> int:
        return await asyncio.to_thread(self._client.restart, slot, rolling=rolling)

    async def drain(self, slot: int) -> None:
        await asyncio.to_thread(self._client.drain, slot)

    async def reload(self) -> Changes:
        return await asyncio.to_thread(self._client.reload)

    async def load(self, model: str, path: str | os.PathLike[str]) -> Changes:
        return await asyncio.to_thread(self._client.load, model, path)

    async def unload(self, model: str) -> Changes:
        return await asyncio.to_thread(self._client.unload, model)

    async def stop(self) -> None:
        await asyncio.to_thread(self._client.stop)

    async def placement(
        self, model: str, *, timeout: float | None = None, device: str | int | None = None
    ) -> dict[str, Any]:
        return await asyncio.to_thread(self._client.placement, model, timeout=timeout, device=device)

    @overload
    async def scatter(
        self,
        model: str,
        inputs: object,
        *,
        reduce: None = None,
        pieces: int | None = None,
        **options: Unpack[ReplicaOptions],
    ) -> list[JobResult]: ...

    @overload
    async def scatter(
        self,
        model: str,
        inputs: object,
        *,
        reduce: Literal["concat", "sum", "mean"],
        pieces: int | None = None,
        **options: Unpack[ReplicaOptions],
    ) -> "dict[str, np.ndarray[Any, Any]]": ...

    async def scatter(
        self,
        model: str,
        inputs: object,
        *,
        reduce: Literal["concat", "sum", "mean"] | None = None,
        pieces: int | None = None,
        **options: Unpack[ReplicaOptions],
    ) -> "dict[str, np.ndarray[Any, Any]] | list[JobResult]":
        ask: Callable[..., Any] = self._client.scatter
        found: dict[str, Any] | list[JobResult] = await asyncio.to_thread(
            ask, model, inputs, reduce=reduce, pieces=pieces, **options
        )
        return found

    async def broadcast(self, model: str, inputs: object, **options: Unpack[ReplicaOptions]) -> dict[int, JobResult]:
        return await asyncio.to_thread(self._client.broadcast, model, inputs, **options)
