"""Whose the answer of a pack is: each of its jobs has the rows of it that it gave."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np

    from pool.client.timeline import JobTimeline

from pool.errors import PoolError

__all__ = ["Ending", "Members"]


class Ending(Protocol):
    """What waits for one answer."""

    @property
    def is_cancelled(self) -> bool:
        """Whether nobody waits for it any more."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether it has its outcome."""
        ...

    def finish(
        self, result: "dict[str, np.ndarray[Any, Any]] | PoolError", timeline: "JobTimeline | None" = None
    ) -> None:
        """Any but the first does nothing."""

    def tell(self) -> None:
        """Those who wait, once more, that it is over: who finished it may have been interrupted."""

    def abandon_after_fork(self, error: PoolError) -> None: ...


class Members:
    """Used by the I/O thread alone, like the futures that it finishes."""

    def __init__(self, endings: Sequence[Ending], rows: Sequence[int]) -> None:
        """`rows` of each."""
        self.rows = tuple(rows)
        self.withdraw: Callable[[int | None], object] = lambda _: None
        """Says that nobody wants the answer of one of them, or of all."""
        self._endings = endings
        self._left = set(range(len(endings)))

    @property
    def left(self) -> Sequence[int]:
        """Those that were neither answered nor cancelled."""
        return sorted(self._left)

    @property
    def all_ended(self) -> bool:
        return not self._left

    @property
    def is_cancelled(self) -> bool:
        return self.all_ended

    @property
    def is_over(self) -> bool:
        return self.all_ended

    def tell(self) -> None:
        for ending in self._endings:
            if ending.is_over:
                ending.tell()

    def finish(
        self, result: "Mapping[str, np.ndarray[Any, Any]] | PoolError", timeline: "JobTimeline | None" = None
    ) -> None:
        """The answer of all that have none yet. That of a lone one is whole, whatever rows it has."""
        if len(self.rows) == 1:
            self.finish_one(0, result if isinstance(result, PoolError) else dict(result), timeline)
            return
        timelines = {rows: None if timeline is None else timeline.of_rows(rows) for rows in set(self.rows)}
        start = 0
        for index, rows in enumerate(self.rows):
            if index in self._left:
                own = result if isinstance(result, PoolError) else _cut(result, start, rows)
                self.finish_one(index, own, timelines[rows])
            start += rows

    def finish_one(
        self,
        index: int,
        result: "dict[str, np.ndarray[Any, Any]] | PoolError",
        timeline: "JobTimeline | None" = None,
    ) -> None:
        if index in self._left:
            try:
                self._endings[index].finish(result, timeline)
            except Exception:
                self._left.discard(index)
                raise
            self._left.discard(index)  # after it: who is interrupted in between has forgotten none

    def drop(self, index: int) -> None:
        """Its caller has cancelled it."""
        self._left.discard(index)

    def drop_cancelled(self) -> None:
        """Their callers have cancelled them, and it may not have been said here yet."""
        self._left = {index for index in self._left if not self._endings[index].is_cancelled}

    def some(self, indices: Sequence[int]) -> "Members":
        """These alone, in this order. They end here no more, but there."""
        return Members([self._endings[index] for index in indices], [self.rows[index] for index in indices])

    def abandon_after_fork(self, error: PoolError) -> None:
        for ending in self._endings:
            ending.abandon_after_fork(error)


def _cut(arrays: "Mapping[str, np.ndarray[Any, Any]]", start: int, rows: int) -> "dict[str, np.ndarray[Any, Any]]":
    return {name: array[start : start + rows] for name, array in arrays.items()}
