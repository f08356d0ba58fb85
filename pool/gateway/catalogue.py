"""What the pools tell a client of their models and their state, at most a second ago.

However many ask at once, one question is under way. Nothing else in the gateway knows whether there are several pools:
a pool that gives no answer is left out while another one does, and of one alone its error is raised.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from pool import AsyncClient
from pool.errors import PoolError, PoolUnreachable
from pool.gateway.http import Refused
from pool.wire.records import Metrics, Model, Status

__all__ = ["Catalogue", "Catalogues", "Models", "answered", "numbers"]

FRESH_S = 1.0
WAIT_S = 5.0  # who probes a gateway waits no longer
ANSWERS_S = 4.0  # one of several pools that has not answered by then is left out

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


@dataclass(frozen=True, slots=True)
class Models:
    """`all`: each once, as the pool tells it that serves it. `by_pool`: as each pool tells them.

    A pool that gives no answer has those that it told last, none of them in a slot. `unknown`: pools that have never
    told theirs.
    """

    all: Sequence[Model]
    by_pool: Mapping[str, Sequence[Model]]
    unknown: Sequence[str] = ()

    @classmethod
    def of(cls, by_pool: Mapping[str, Sequence[Model]], unknown: Sequence[str] = ()) -> "Models":
        return cls(_merged(by_pool.values()), by_pool, unknown)


class Catalogue:
    """Of one client. Each raises `PoolError`, and `Refused` where no pool answers in time.

    Answers by pool have the `PoolError` of one that gives none. A pool alone is called "".
    """

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._statuses: _Kept[Mapping[str, Status | PoolError]] = _Kept(lambda: self._ask("status"))
        self._metrics: _Kept[Mapping[str, Metrics | PoolError]] = _Kept(lambda: self._ask("metrics"))
        self._models = _Kept(self.ask_models)
        self._last: Mapping[str, Sequence[Model]] = {}
        """What each pool has told last of its models."""

    def _ask(self, what: str) -> "Awaitable[Mapping[str, Any]]":
        return self._client._of_each(what, ANSWERS_S)

    def forget(self) -> None:
        """What is known is old, for somebody has just changed it."""
        for kept in (self._statuses, self._models, self._metrics):
            kept.forget()

    async def statuses(self) -> Mapping[str, Status | PoolError]:
        return await self._statuses.get()

    async def metrics(self) -> Mapping[str, Metrics | PoolError]:
        return await self._metrics.get()

    async def models(self) -> Models:
        return await self._models.get()

    async def ask_models(self) -> Models:
        """Now, and as long as it takes."""
        told: Mapping[str, Sequence[Model] | PoolError] = await self._ask("models")
        known = answered(told)
        self._last = {pool: self._last[pool] for pool in told if pool in self._last} | known
        by_pool = {
            pool: models if pool in known else [replace(each, slots=(), ready_slots=()) for each in models]
            for pool, models in self._last.items()
        }
        return Models.of(by_pool, [pool for pool in told if pool not in by_pool])

    async def versions(self, name: str, version: int | str | None = None) -> Sequence[Model]:
        """A model, or its versions beside each other; with `version` that one.

        Raises `Refused`: 404 for none, and 503 where a pool that has never answered may have it.
        """
        models = await self.models()
        found = [each for each in models.all if each.model == name]
        if found and version is not None:
            found = [each for each in found if version in numbers(each) or version in each.labels]
            what = f"model {name!r:.200} has no version {version!r:.80}"
        else:
            what = f"no model {name!r:.200} is served here"
        if not found and models.unknown:
            raise Refused(503, f"{what}; but {', '.join(models.unknown)} has not answered yet", 1.0)
        if not found:
            raise Refused(404, what)
        return found

    async def model(self, name: str, version: int | str | None) -> Model:
        """What a job with this name and version would reach. Raises as `versions`."""
        return max(await self.versions(name, version), key=lambda each: (each.default, bool(each.ready_slots)))

    async def is_numbered(self, name: str) -> bool:
        """Whether there are versions of it, or no such model."""
        found = [each for each in (await self.models()).all if each.model == name]
        return not found or any(each.version is not None or each.versions for each in found)


def answered(told: Mapping[str, T | PoolError]) -> dict[str, T]:
    """The pools that have answered. Raises `PoolError` where none has."""
    found = {pool: answer for pool, answer in told.items() if not isinstance(answer, PoolError)}
    errors = [answer for answer in told.values() if isinstance(answer, PoolError)]
    if not found and len(errors) == 1:
        raise errors[0]
    if not found:
        raise PoolUnreachable("; ".join(map(str, errors)) or "there is no pool")
    return found


def _merged(pools: Collection[Sequence[Model]]) -> Sequence[Model]:
    if len(pools) == 1:
        return next(iter(pools))
    same: dict[str, list[Model]] = {}
    for models in pools:
        for each in models:
            same.setdefault(each.name, []).append(each)
    # A number that one pool has beside others is told by that one, before a pool that has this number alone.
    return sorted(map(_one_of, same.values()), key=lambda each: each.version is None)


def _one_of(told: Sequence[Model]) -> Model:
    """Of what several pools tell of a model: what the best one says, with the versions of all that serve it as well."""
    best = max(told, key=lambda each: (bool(each.ready_slots), bool(each.signatures), not each.scheduling.leaving))
    alike = [each for each in told if bool(each.ready_slots) == bool(best.ready_slots)]
    versions = sorted({number for each in alike for number in each.versions})
    labels = dict.fromkeys(label for each in (best, *alike) for label in each.labels)
    return replace(best, versions=tuple(versions), labels=tuple(labels))


def numbers(model: Model) -> Sequence[int]:
    """Of its versions: of one beside others its own, of one that the next replaces those that its workers serve.

    Never empty: a model without versions has the number 1 in both protocols.
    """
    return (model.version,) if model.version is not None else model.versions or (1,)
