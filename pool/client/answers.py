"""The answers to a pack whose reader comes for one after the other: none is cut out of the whole before."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate

from pool.client.members import Members
from pool.client.timeline import JobTimeline
from pool.client.wait import Wait
from pool.errors import PoolError
from pool.wire.tensors import Array

__all__ = ["Answers"]


class Answers(Members):
    """Finished by the I/O thread, read by its caller's."""

    def __init__(self) -> None:
        super().__init__((), ())
        self.attend: Callable[[Wait], object] = lambda _: None
        """Receives until they are over: the connection's that they are sent by."""
        self.over = Wait()
        """Over when all are there."""
        self.some_failed = False
        self._starts: Sequence[int] = ()
        self._whole: Mapping[str, Array] | PoolError | None = None
        self._singles: dict[int, dict[str, Array] | PoolError] = {}  # of those that were answered by themselves

    def begin(self, rows: Sequence[int]) -> None:
        """So many rows has each; it is sent now."""
        self.rows = tuple(rows)
        self._starts = tuple(accumulate(rows, initial=0))

    @property
    def left(self) -> Sequence[int]:
        if self._whole is not None:
            return ()
        return [index for index in range(len(self.rows)) if index not in self._singles]

    @property
    def all_ended(self) -> bool:
        return self._whole is not None or 0 < len(self.rows) == len(self._singles)

    def finish(self, result: Mapping[str, Array] | PoolError, timeline: JobTimeline | None = None) -> None:  # noqa: ARG002
        if not self.all_ended:
            self.some_failed = self.some_failed or isinstance(result, PoolError)
            self._whole = result
            self.over.finish(True)

    def finish_one(
        self,
        index: int,
        result: dict[str, Array] | PoolError,
        timeline: JobTimeline | None = None,  # noqa: ARG002  # `map` shows none
    ) -> None:
        if index in self._singles or self.all_ended:
            return
        self.some_failed = self.some_failed or isinstance(result, PoolError)
        self._singles[index] = result
        if len(self._singles) == len(self.rows):
            self.over.finish(True)

    def tell(self) -> None:
        self.over.finish(True)

    def drop_cancelled(self) -> None:
        """They are cancelled together, see `withdraw`."""

    def some(self, indices: Sequence[int]) -> Members:
        return Members([_One(self, index) for index in indices], [self.rows[index] for index in indices])

    def abandon_after_fork(self, error: PoolError) -> None:
        if not self.all_ended:
            self._whole, self.some_failed = error, True
        self.over.finish(error)

    def results(self) -> Iterator[dict[str, Array]]:
        """Of each in turn, as `result`."""
        if not self.all_ended:
            self.attend(self.over)
        found, height = self._whole, self.rows[0]
        lone = len(self.rows) == 1
        if found is None or isinstance(found, PoolError) or self._singles or lone or set(self.rows) != {height}:
            yield from map(self.result, range(len(self.rows)))
            return
        columns = [array.reshape(len(self.rows), height, *array.shape[1:]) for array in found.values()]
        names = list(found)
        # numpy cuts them in its own loop, twice as quick as one by one.
        if len(names) == 1:
            yield from ({names[0]: each} for each in columns[0])
        else:
            yield from (dict(zip(names, each, strict=True)) for each in zip(*columns, strict=True))

    def result(self, index: int) -> dict[str, Array]:
        """Waits for all of them; raises the `PoolError` of this one."""
        if not self.all_ended:
            self.attend(self.over)
        found = self._singles.get(index, self._whole)
        if found is None:
            found = self.over.outcome
        if isinstance(found, PoolError):
            raise found
        if index in self._singles or len(self.rows) == 1:
            return dict(found)
        start, stop = self._starts[index], self._starts[index + 1]
        return {name: array[start:stop] for name, array in found.items()}


class _One:
    """Waits for the answer of one of them, where not all are in one job any more."""

    is_cancelled = False

    def __init__(self, answers: Answers, index: int) -> None:
        self._answers = answers
        self._index = index

    @property
    def is_over(self) -> bool:
        return self._index not in self._answers.left

    def tell(self) -> None:
        if self._answers.all_ended:
            self._answers.tell()

    def finish(self, result: dict[str, Array] | PoolError, timeline: JobTimeline | None = None) -> None:
        self._answers.finish_one(self._index, result, timeline)

    def abandon_after_fork(self, error: PoolError) -> None:
        self._answers.abandon_after_fork(error)
