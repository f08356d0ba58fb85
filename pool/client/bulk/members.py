"""Who waits for the answer of a chunk: each of its members for the rows of it that it gave."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, repeat
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from pool.client.driver import Driver

from pool.client.futures import JobFuture
from pool.client.result import JobResult
from pool.client.wait import Ending, Wait
from pool.errors import PoolError

__all__ = ["Answers", "Chunk", "Futures", "Members", "Result"]

Result: TypeAlias = JobResult | PoolError


class Members(ABC):
    """Those of one chunk, as it was first built. `rows` of each. `carriers`: the numbers of jobs that they are in.

    `withdraw` tells that nobody waits for one of them any more or, called with None, for any.
    """

    def __init__(self, rows: Sequence[int]) -> None:
        self.rows = tuple(rows)
        self.carriers: set[int] = set()
        self.withdraw: Callable[[int | None], object] = lambda _: None
        self._left = set(range(len(self.rows)))

    def waits(self, index: int) -> bool:
        """Whether its caller does: it was neither answered nor cancelled."""
        return index in self._left

    def drop(self, index: int) -> None:
        """Its caller has cancelled it."""
        self._left.discard(index)

    @abstractmethod
    def finish(self, indices: Sequence[int], result: Result) -> None:
        """The answer of these together, in this order. For those that have ended it does nothing."""

    def _shares(self, indices: Sequence[int], result: Result) -> Iterable[tuple[int, Result]]:
        """What each of these gets of it."""
        if isinstance(result, PoolError):
            return zip(indices, repeat(result), strict=False)
        return zip(indices, _cut(result, [self.rows[index] for index in indices]), strict=True)

    @abstractmethod
    def tell(self) -> None:
        """Those who wait, once more, what is over."""

    @abstractmethod
    def abandon_after_fork(self, error: PoolError) -> None: ...


class Futures(Members):
    """Each has one, or another ending of its own."""

    def __init__(self, futures: Sequence[Ending], rows: Sequence[int]) -> None:
        super().__init__(rows)
        self.futures = futures

    @classmethod
    def made(cls, rows: Sequence[int], driver: Driver | None) -> tuple[Futures, list[JobFuture]]:
        """With futures that withdraw them when they are cancelled."""
        members = cls((), rows)
        futures = [JobFuture(partial(members._withdraw, index), driver) for index in range(len(rows))]
        members.futures = futures
        return members, futures

    def _withdraw(self, index: int) -> None:
        self.withdraw(index)

    def waits(self, index: int) -> bool:
        return index in self._left and not self.futures[index].is_over

    def finish(self, indices: Sequence[int], result: Result) -> None:
        for index, own in self._shares(indices, result):
            if index not in self._left:
                continue
            try:
                self.futures[index].finish(own)
            except Exception:
                self._left.discard(index)  # one that fails over it ends no more than itself
                raise
            self._left.discard(index)  # after it: whoever is interrupted in between has forgotten none

    def tell(self) -> None:
        for future in self.futures:
            if future.is_over:
                future.tell()

    def abandon_after_fork(self, error: PoolError) -> None:
        for future in self.futures:
            future.abandon_after_fork(error)


class Answers(Members):
    """Their caller reads one after the other: none is cut out of the whole before."""

    def __init__(self, rows: Sequence[int], attend: Callable[[Wait], object]) -> None:
        """`attend` receives until such a wait is over: the connection's that they are sent by."""
        super().__init__(rows)
        self.some_failed = False
        self._attend = attend
        self._over = Wait()
        self._parts: list[tuple[Sequence[int], Result]] = []  # who ended together, and how

    @property
    def all_ended(self) -> bool:
        return not self._left

    def finish(self, indices: Sequence[int], result: Result) -> None:
        if not self._left.isdisjoint(indices):
            self._parts.append((indices, result))
            self.some_failed = self.some_failed or isinstance(result, PoolError)
            self._left.difference_update(indices)
        self.tell()

    def tell(self) -> None:
        if not self._left:
            self._over.finish(True)

    def abandon_after_fork(self, error: PoolError) -> None:
        self.finish(sorted(self._left), error)

    def results(self) -> Iterator[JobResult]:
        """Of each in turn; waits for all of them. Raises the `PoolError` of one that has failed in its place."""
        if self._left:
            self._attend(self._over)
        whole = self._parts[0][1]
        if len(self._parts) == 1 and not isinstance(whole, PoolError):
            yield from _cut(whole, self.rows)
            return
        each: dict[int, Result] = {}
        for indices, result in self._parts:
            each.update(self._shares(indices, result))
        for index in range(len(self.rows)):
            if isinstance(own := each[index], PoolError):
                raise own
            yield own


def _cut(whole: JobResult, rows: Sequence[int]) -> Iterable[JobResult]:
    """What each gets that gave so many rows. A lone one gets all, whatever it has."""
    names, height = list(whole), rows[0]
    if len(rows) == 1:
        return (whole,)
    if rows.count(height) < len(rows) or not names:
        ends = zip(accumulate(rows, initial=0), accumulate(rows), strict=False)
        return _measured(
            whole, rows, ({name: array[begin:end] for name, array in whole.items()} for begin, end in ends)
        )
    # numpy cuts them in its own loop, twice as quick as one by one.
    columns = [array.reshape(len(rows), height, *array.shape[1:]) for array in whole.values()]
    if len(names) == 1:
        return _measured(whole, rows, ({names[0]: each} for each in columns[0]))
    return _measured(whole, rows, (zip(names, each, strict=True) for each in zip(*columns, strict=True)))


def _measured(
    whole: JobResult, rows: Sequence[int], answers: Iterable[Mapping[str, Any] | Iterable[tuple[str, Any]]]
) -> Iterator[JobResult]:
    measured = whole.measured
    for count, answer in zip(rows, answers, strict=True):
        one = JobResult(answer)
        one.measured, one.own_rows = measured, count
        yield one


class Chunk:
    """What a job waits with that has several members, or one that came in a chunk: it stands in a future's place."""

    __slots__ = ("__weakref__", "indices", "members")

    def __init__(self, members: Members, indices: Sequence[int]) -> None:
        """`indices`: which of the members it has, in this order."""
        self.members = members
        self.indices = tuple(indices)

    @property
    def rows(self) -> list[int]:
        """Of each that it has."""
        return [self.members.rows[index] for index in self.indices]

    @property
    def left(self) -> list[int]:
        """Those of them that somebody waits for."""
        return [index for index in self.indices if self.members.waits(index)]

    @property
    def is_over(self) -> bool:
        """Whether nobody waits for any of them."""
        return not any(map(self.members.waits, self.indices))

    @property
    def is_cancelled(self) -> bool:
        return self.is_over

    def tell(self) -> None:
        self.members.tell()

    def finish(self, result: Result) -> None:
        self.members.finish(self.indices, result)

    def abandon_after_fork(self, error: PoolError) -> None:
        self.members.abandon_after_fork(error)
