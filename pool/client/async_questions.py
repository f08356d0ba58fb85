"""What an `AsyncClient` asks the pool itself, and what it asks of all replicas of a model."""

import asyncio
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

if TYPE_CHECKING:
    import numpy as np

    from pool.client.client import Client
    from pool.wire.records import (
        Changes,
        JobHistory,
        LogLines,
        Metrics,
        Model,
        Placement,
        Recent,
        SlotHistory,
        Status,
    )

from pool.client.questions import TIMEOUT_S, OnWait
from pool.client.request import ReplicaOptions
from pool.client.result import JobResult
from pool.client.waits import LOOK_S

__all__ = ["AsyncQuestions"]


class AsyncQuestions:
    """Each is the `Client`'s, awaited in a thread. Cancelling the task takes nothing back."""

    _client: "Client"

    async def status(self) -> "Status":
        return await asyncio.to_thread(self._client.status)

    async def metrics(self) -> "Metrics":
        return await asyncio.to_thread(self._client.metrics)

    async def models(self) -> "tuple[Model, ...]":
        return await asyncio.to_thread(self._client.models)

    async def is_ready(self, model: str | None = None) -> bool:
        return await asyncio.to_thread(self._client.is_ready, model)

    async def wait_ready(
        self, model: str | None = None, timeout: float = TIMEOUT_S, *, on_wait: OnWait | None = None
    ) -> None:
        await _await(self._client._until_ready(model, timeout), on_wait)

    async def wait_updated(self, timeout: float = TIMEOUT_S, *, on_wait: OnWait | None = None) -> None:
        await _await(self._client._until_updated(timeout), on_wait)

    @overload
    async def explain(self, job: int) -> "JobHistory": ...

    @overload
    async def explain(self, job: None = None, *, slot: int) -> "SlotHistory": ...

    @overload
    async def explain(self, job: None = None, *, slot: None = None) -> "Recent": ...

    async def explain(self, job: int | None = None, *, slot: int | None = None) -> "JobHistory | SlotHistory | Recent":
        ask: Callable[..., JobHistory | SlotHistory | Recent] = self._client.explain
        return await asyncio.to_thread(ask, job, slot=slot)

    async def logs(self, since: int = 0) -> "LogLines":
        return await asyncio.to_thread(self._client.logs, since)

    async def restart(self, slot: int, *, rolling: bool = False) -> int:
        return await asyncio.to_thread(self._client.restart, slot, rolling=rolling)

    async def drain(self, slot: int) -> None:
        await asyncio.to_thread(self._client.drain, slot)

    async def reload(self) -> "Changes":
        return await asyncio.to_thread(self._client.reload)

    async def load(
        self,
        model: str,
        path: str | os.PathLike[str] = "",
        *,
        wait: bool = True,
        timeout: float = TIMEOUT_S,
        **keys: object,
    ) -> "Changes":
        found = await asyncio.to_thread(self._client.load, model, path, wait=False, timeout=timeout, **keys)
        if wait:
            await self.wait_updated(timeout)
        return found

    async def unload(self, model: str) -> "Changes":
        return await asyncio.to_thread(self._client.unload, model)

    async def stop(self) -> None:
        await asyncio.to_thread(self._client.stop)

    async def placement(
        self, model: str, *, timeout: float | None = None, device: str | int | None = None
    ) -> "Placement":
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


async def _await(steps: Iterator[str], on_wait: OnWait | None) -> None:
    """Each look is in a thread: whoever is cancelled meanwhile leaves none behind for longer than that."""
    while (why := await asyncio.to_thread(next, steps, None)) is not None:
        if on_wait is not None:
            on_wait(why)
        await asyncio.sleep(LOOK_S)
