"""The answers of a chunk whose reader comes for one after the other: none is cut out of the whole before."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate

from pool.client.bulk.members import Members, Result
from pool.client.futures import PoolFuture
from pool.client.timeline import JobTimeline
from pool.errors import PoolError
from pool.wire.tensors import Array

__all__ = ["Answers"]


class Answers(Members):
    """Finished by the I/O thread, read by its caller's."""

    def __init__(self, io_thread: threading.Thread) -> None:
        super().__init__(())
        self.over: PoolFuture[None] = PoolFuture(io_thread)
        """Done when all are there."""
        self.some_failed = False
        self.withdraw: Callable[[int | None], object] = lambda _: None
        self._whole: Mapping[str, Array] | None = None  # of all that came back together
        self._singles: dict[int, Result] = {}  # of the others
        self._dropped = False

    def begin(self, rows: Sequence[int]) -> None:
        """So many rows has each; it is sent now."""
        self.rows = tuple(rows)

    @property
    def all_ended(self) -> bool:
        return self._whole is not None or 0 < len(self.rows) == len(self._singles)

    def waits(self, index: int) -> bool:
        return self._whole is None and index not in self._singles and not self._dropped

    def finish(
        self,
        indices: Sequence[int],
        result: Result,
        timeline: JobTimeline | None = None,  # noqa: ARG002  # `map` shows none
    ) -> None:
        if self._whole is not None or len(self._singles) == len(self.rows):
            return
        if isinstance(result, PoolError):
            self.some_failed = True
            self._singles.update((index, result) for index in indices if index not in self._singles)
        elif len(indices) == len(self.rows) and not self._singles:
            self._whole = result
        elif len(indices) == 1:  # that of a lone one is whole, whatever it has
            self._singles.setdefault(indices[0], result)
        else:
            ends = accumulate((self.rows[index] for index in indices), initial=0)
            for index, begin in zip(indices, ends, strict=False):
                own = {name: array[begin : begin + self.rows[index]] for name, array in result.items()}
                self._singles.setdefault(index, own)
        if self.all_ended:
            self.over.set_result(None)

    def drop(self, index: int) -> None:  # noqa: ARG002
        """They are cancelled together."""
        self._dropped = True

    def abandon_after_fork(self, error: PoolError) -> None:
        self.some_failed = True
        for index in range(len(self.rows)):
            self._singles.setdefault(index, error)

    def results(self) -> Iterator[dict[str, Array]]:
        """Of each in turn; waits for all of them. Raises the `PoolError` of one that has failed in its place."""
        if not self.all_ended:
            self.over.result()
        whole, height = self._whole, self.rows[0]
        if whole is None:
            yield from map(self._single, range(len(self.rows)))
        elif len(self.rows) == 1:
            yield dict(whole)
        elif set(self.rows) != {height}:
            for begin, rows in zip(accumulate(self.rows, initial=0), self.rows, strict=False):
                yield {name: array[begin : begin + rows] for name, array in whole.items()}
        else:
            # numpy cuts them in its own loop, twice as quick as one by one.
            columns = [array.reshape(len(self.rows), height, *array.shape[1:]) for array in whole.values()]
            names = list(whole)
            if len(names) == 1:
                yield from ({names[0]: each} for each in columns[0])
            else:
                yield from (dict(zip(names, each, strict=True)) for each in zip(*columns, strict=True))

    def _single(self, index: int) -> dict[str, Array]:
        found = self._singles[index]
        if isinstance(found, PoolError):
            raise found
        return dict(found)
