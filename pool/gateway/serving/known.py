"""What the pool has told of its models, kept for a moment: a request needs it before its tensors can be made."""

import asyncio
import time
from dataclasses import replace

from pool import AsyncClient
from pool.errors import ModelNotFound, Overloaded
from pool.gateway.catalogue import numbers
from pool.wire.records import Model, said_of

__all__ = ["Known"]

_FRESH_S = 1.0


class Known:
    """Of one client of the pool. Used in one event loop.

    A job waits for no question: it is made of what was told last, which is asked anew behind it. What has changed
    meanwhile is refused by the worker; then `again` has what is true now.
    """

    def __init__(self) -> None:
        self._models: tuple[Model, ...] = ()
        self._asked_at = -_FRESH_S
        self._question: asyncio.Task[None] | None = None

    @property
    def is_fresh(self) -> bool:
        return time.monotonic() - self._asked_at < _FRESH_S

    async def model(self, client: AsyncClient, name: str, version: int | str | None) -> Model:
        """The one that a job reaches, with its signatures, as it was told last.

        Raises `ModelNotFound`, `Overloaded` for one that no worker has loaded yet, and what a question raises.
        """
        found = said_of(self._models, name, version)
        if found is None or not found.signatures:
            await self._refresh(client)
            found = said_of(self._models, name, version)
        if found is None:
            raise self._missing(name, version)
        if not found.signatures:
            raise Overloaded(f"model {name} is being loaded: no worker has told yet what it takes", 1.0)
        return found

    async def versions(self, client: AsyncClient, name: str, version: int | str | None) -> list[Model]:
        """All of a model, or the one with this number or label, as they are now or were a second ago.

        Raises `ModelNotFound`, and what a question raises.
        """
        await self._refresh(client)
        found = [each for each in self._models if name in (each.name, each.model) and _has(each, version)]
        if not found:
            raise self._missing(name, version)
        return found

    async def again(self, client: AsyncClient) -> None:
        """Asks now, together with all who want to know. Raises what a question raises."""
        question = self._ask(client)
        await asyncio.wait([question])  # which goes on if one of them is cancelled
        question.result()

    def renew(self, client: AsyncClient) -> None:
        """Asks soon, if it is time. Does not wait, and raises nothing."""
        if not self.is_fresh:
            self._ask(client)

    async def _refresh(self, client: AsyncClient) -> None:
        if not self.is_fresh:
            await self.again(client)

    def _missing(self, name: str, version: int | str | None) -> ModelNotFound:
        there = ", ".join(each.name for each in self._models)
        which = "" if version is None else f" of version {version!r:.80}"
        return ModelNotFound(f"no model {name!r:.100}{which}; there are: {there:.1000}")

    def _ask(self, client: AsyncClient) -> "asyncio.Task[None]":
        if self._question is None or self._question.done():
            self._question = asyncio.ensure_future(self._asked(client))
            self._question.add_done_callback(_seen)
        return self._question

    async def _asked(self, client: AsyncClient) -> None:
        told = await client.models()
        before = {each.name: each.signatures for each in self._models}
        # While its only worker is replaced nobody tells what a model takes; its jobs wait for the next one.
        self._models = tuple(replace(each, signatures=each.signatures or before.get(each.name, {})) for each in told)
        self._asked_at = time.monotonic()


def _has(model: Model, version: int | str | None) -> bool:
    return version is None or version in numbers(model) or version in model.labels


def _seen(question: "asyncio.Task[None]") -> None:
    """One that nobody waits for may fail: the next one who needs to know asks again."""
    if not question.cancelled():
        question.exception()
