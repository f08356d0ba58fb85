"""What the pool tells a client of its models and its state, at most a second ago.

However many ask at once, one question is under way.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from pool import AsyncClient
from pool.gateway.http import Refused
from pool.wire.records import Metrics, Model, Status

__all__ = ["Catalogue", "Catalogues", "numbers"]

FRESH_S = 1.0
WAIT_S = 5.0  # who probes a gateway waits no longer

T = TypeVar("T")


class _Kept(Generic[T]):
    """One kind of answer. Who is cancelled while he waits takes it from nobody else."""

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask = ask
        self._task: asyncio.Task[T] | None = None
        self._ended = 0.0

    async def get(self) -> T:
        """Raises what the question does, and `Refused` where there is no answer in time."""
        task = self._task
        if task is None or (task.done() and time.monotonic() >= self._ended + FRESH_S):
            task = self._task = asyncio.ensure_future(self._asked())
            task.add_done_callback(_seen)
        try:
            return await asyncio.wait_for(asyncio.shield(task), WAIT_S)
        except TimeoutError:
            if task.done() and not task.cancelled():
                raise  # it is the question's own
            raise Refused(503, f"the pool has not answered within {WAIT_S:g} s", 1.0) from None

    def forget(self) -> None:
        self._task = None

    async def _asked(self) -> T:
        try:
            return await self._ask()
        finally:
            self._ended = time.monotonic()


def _seen(task: asyncio.Task[T]) -> None:
    """asyncio need not log what those who waited are told, or did not wait for."""
    if not task.cancelled():
        task.exception()


class Catalogues:
    """One for each client of the pool, of which there is one for each token."""

    def __init__(self) -> None:
        self._of: dict[AsyncClient, Catalogue] = {}

    def of(self, client: AsyncClient) -> "Catalogue":
        if (found := self._of.get(client)) is None:
            found = self._of[client] = Catalogue(client)
        return found


class Catalogue:
    """Of one client. Each raises `PoolError`, and `Refused` where the pool does not answer in time."""

    def __init__(self, client: AsyncClient) -> None:
        self._status = _Kept(client.status)
        self._models = _Kept(client.models)
        self._metrics = _Kept(client.metrics)

    def forget(self) -> None:
        """What is known is old, for somebody has just changed it."""
        for kept in (self._status, self._models, self._metrics):
            kept.forget()

    async def status(self) -> Status:
        return await self._status.get()

    async def metrics(self) -> Metrics:
        return await self._metrics.get()

    async def models(self) -> Sequence[Model]:
        return await self._models.get()

    async def versions(self, name: str, version: int | str | None = None) -> Sequence[Model]:
        """A model, or its versions beside each other; with `version` that one. Raises `Refused` (404) for none."""
        found = [each for each in await self.models() if each.model == name]
        if not found:
            raise Refused(404, f"no model {name!r:.200} is served here")
        if version is not None:
            found = [each for each in found if version in numbers(each) or version in each.labels]
        if not found:
            raise Refused(404, f"model {name!r:.200} has no version {version!r:.80}")
        return found

    async def model(self, name: str, version: int | str | None) -> Model:
        """What a job with this name and version would reach. Raises as `versions`."""
        found = await self.versions(name, version)
        return next((each for each in found if each.default), found[0])

    async def is_numbered(self, name: str) -> bool:
        """Whether there are versions of it, or no such model."""
        found = [each for each in await self.models() if each.model == name]
        return not found or any(each.version is not None or each.versions for each in found)


def numbers(model: Model) -> Sequence[int]:
    """Of its versions: of one beside others its own, of one that the next replaces those that its workers serve.

    Never empty: a model without versions has the number 1 in both protocols.
    """
    return (model.version,) if model.version is not None else model.versions or (1,)
