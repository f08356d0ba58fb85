"""Who waits for the answer of a chunk: each of its members for the rows of it that it gave."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np

    from pool.client.futures import JobFuture
    from pool.client.timeline import JobTimeline

from pool.errors import PoolError

__all__ = ["Chunk", "Futures", "Members", "Result"]

Result: TypeAlias = "Mapping[str, np.ndarray[Any, Any]] | PoolError"


class Members:
    """Those of one chunk, as it was first built. `rows` of each. `carriers`: the numbers of jobs that they are in."""

    def __init__(self, rows: Sequence[int]) -> None:
        self.rows = tuple(rows)
        self.carriers: set[int] = set()

    @abstractmethod
    def waits(self, index: int) -> bool:
        """Whether its caller does: it was neither answered nor cancelled."""

    @abstractmethod
    def finish(self, indices: Sequence[int], result: Result, timeline: JobTimeline | None) -> None:
        """The answer of these together, in this order. For those that have ended it does nothing."""

    @abstractmethod
    def drop(self, index: int) -> None:
        """Its caller has cancelled it."""

    @abstractmethod
    def abandon_after_fork(self, error: PoolError) -> None: ...


class Futures(Members):
    def __init__(self, futures: Sequence[JobFuture], rows: Sequence[int]) -> None:
        super().__init__(rows)
        self._futures = futures
        self._left = set(range(len(futures)))

    def waits(self, index: int) -> bool:
        return index in self._left and self._futures[index].is_pending

    def finish(self, indices: Sequence[int], result: Result, timeline: JobTimeline | None) -> None:
        begin = 0
        timelines = {self.rows[index]: timeline and timeline.of_rows(self.rows[index]) for index in indices}
        for index in indices:
            rows = self.rows[index]
            waits = self.waits(index)
            self._left.discard(index)
            if not waits:
                pass
            elif isinstance(result, PoolError) or len(indices) == 1:  # that of a lone one is whole, whatever it has
                self._futures[index].finish(result if isinstance(result, PoolError) else dict(result), timeline)
            else:
                own = {name: array[begin : begin + rows] for name, array in result.items()}
                self._futures[index].finish(own, timelines[rows])
            begin += rows

    def drop(self, index: int) -> None:
        """Its future knows that already."""

    def abandon_after_fork(self, error: PoolError) -> None:
        for future in self._futures:
            future.abandon_after_fork(error)


class Chunk:
    """What a job waits with that has several members, or one that came in a chunk: it stands in a future's place."""

    __slots__ = ("indices", "members")

    def __init__(self, members: Members, indices: Sequence[int]) -> None:
        """`indices`: which of the members it has, in this order."""
        self.members = members
        self.indices = tuple(indices)

    @property
    def rows(self) -> tuple[int, ...]:
        """Of each that it has."""
        rows = self.members.rows
        return rows if len(self.indices) == len(rows) else tuple([rows[index] for index in self.indices])

    @property
    def left(self) -> list[int]:
        """Those of them that somebody waits for."""
        return [index for index in self.indices if self.members.waits(index)]

    @property
    def is_cancelled(self) -> bool:
        """Whether nobody waits for any of them."""
        return not any(map(self.members.waits, self.indices))

    def finish(self, result: Result, timeline: JobTimeline | None = None) -> None:
        self.members.finish(self.indices, result, timeline)

    def abandon_after_fork(self, error: PoolError) -> None:
        self.members.abandon_after_fork(error)
