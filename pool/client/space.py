"""Which bytes of a segment are free, and where the next job of each call is to lie. Numbers alone: no memory, no lock.

Jobs of one call lie side by side, to the byte: what a worker joins to a batch is one piece of memory then.

    ┌───────┬───────┬───────┬ ─ ─ ─ ─ ─ ─ ─ ─ ─ ┬──────┬──────────────
    │ job 1 │ job 2 │ job 3 │ the call's `Ahead`  │ room │ free …
    └───────┴───────┴───────┴ ─ ─ ─ ─ ─ ─ ─ ─ ─ ┴──────┴──────────────
"""

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pool.wire.lent import rounded_up

__all__ = ["Space"]

JOINED_BYTES = 4 << 20  # larger ones hardly run together, so each begins where TensorFlow takes it as it is
FEW_JOBS = 4  # in use: their lane runs them one by one, and one by one TensorFlow takes them where that is aligned
JOBS_AHEAD = 16  # of a call, at least, for which place is kept behind its last one
MOST_AHEAD = 16  # calls for which place is kept


@dataclass(slots=True)
class Ahead:
    """The bytes behind the last job of a call: its next one begins there. Nobody else is given them meanwhile."""

    begin: int
    end: int


class Space:
    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._free = [(0, size_bytes)]  # begin and end, ascending; no two of them adjoin
        self._ahead: dict[Hashable, Ahead] = {}  # by call, the oldest first
        self._beside_bytes = 0  # in use, of what lies side by side

    def take(self, size_bytes: int, call: Hashable) -> int | None:
        """Where so many bytes begin: the lowest that are free, at a multiple of `ALIGNED`. REQUIRES one at least.

        Of a `call` they begin where its last ones end, while those are in use and there is place behind them; or a few
        bytes behind that, at such a multiple too, while few jobs are in use.
        """
        if self.lies_beside(size_bytes, call):
            begin = self._beside(call, size_bytes)
            self._beside_bytes += 0 if begin is None else size_bytes
            return begin
        found = self._lowest(size_bytes)
        if found is None and self._ahead:
            self.forget()
            found = self._lowest(size_bytes)
        return None if found is None else self._cut(found, size_bytes)

    @staticmethod
    def lies_beside(size_bytes: int, call: Hashable) -> bool:
        """Whether so much of a `call` lies beside its others."""
        return call is not None and size_bytes <= JOINED_BYTES

    def give_back(self, parts: Iterable[tuple[int, int, bool]]) -> None:
        """Each from its begin to its end, and whether it lay beside others.

        A call whose last job was there begins anywhere, as one alone does.
        """
        for begin, end, beside in parts:
            insort(self._free, (begin, end))
            self._beside_bytes -= end - begin if beside else 0
        self._join()
        self._forget([call for call, ahead in self._ahead.items() if self._is_free_before(ahead.begin)])

    def forget(self) -> None:
        """Nothing is kept for any call."""
        self._forget(list(self._ahead))

    def free(self) -> Iterator[tuple[int, int]]:
        """From begin to end, ascending; without what is kept for calls."""
        return iter(self._free)

    def _beside(self, call: Hashable, size_bytes: int) -> int | None:
        ahead = self._ahead.get(call)
        if ahead is not None and self._beside_bytes < FEW_JOBS * size_bytes:
            aligned = min(rounded_up(ahead.begin), ahead.end)
            if ahead.begin < aligned:
                # In this order: what an interrupt leaves between the two is lost, and never given twice.
                skipped, ahead.begin = ahead.begin, aligned
                insort(self._free, (skipped, aligned))
        if ahead is None or ahead.end - ahead.begin < size_bytes:
            ahead = self._look_ahead(call, size_bytes)
            if ahead is None:
                return None
        begin = ahead.begin
        ahead.begin += size_bytes
        return begin

    def _look_ahead(self, call: Hashable, size_bytes: int) -> Ahead | None:
        """Place for several jobs of the call, behind its last one if there is some.

        It is as much as such jobs use: where so much is free lower down, the call goes on there. Jobs end in about the
        order in which they came, so they come round like this, in twice the memory that they need at once.
        """
        last = self._ahead.get(call)
        behind = None if last is None else last.begin
        self._forget([] if last is None else [call])
        wanted = max(size_bytes, min(JOBS_AHEAD * size_bytes, self._size_bytes // 4), self._beside_bytes)
        found = self._lowest(wanted, behind) or self._largest(size_bytes, behind)
        if found is None and self._ahead:
            self.forget()
            found = self._largest(size_bytes, behind)
        if found is None:
            return None
        size_bytes = min(wanted, found[1] - found[0])
        begin = self._cut(found, size_bytes)
        ahead = self._ahead[call] = Ahead(begin, begin + size_bytes)
        if len(self._ahead) > MOST_AHEAD:
            self._forget([next(iter(self._ahead))])
        return ahead

    def _lowest(self, size_bytes: int, behind: int | None = None) -> tuple[int, int] | None:
        """The first free part of so many bytes. It begins at a multiple of `ALIGNED`, or at `behind`."""
        for begin, end in self._free:
            begin = begin if begin == behind else rounded_up(begin)
            if end - begin >= size_bytes:
                return begin, end
        return None

    def _largest(self, least_bytes: int, behind: int | None) -> tuple[int, int] | None:
        parts = [(begin if begin == behind else rounded_up(begin), end) for begin, end in self._free]
        begin, end = max(parts, key=lambda part: part[1] - part[0], default=(0, 0))
        return (begin, end) if end - begin >= least_bytes else None

    def _cut(self, found: tuple[int, int], size_bytes: int) -> int:
        """Where they begin. `found`: all or the end of a free part."""
        begin, end = found
        index = bisect_left(self._free, (begin + 1,)) - 1
        free = self._free[index][0]
        self._free[index : index + 1] = [
            part for part in ((free, begin), (begin + size_bytes, end)) if part[0] < part[1]
        ]
        return begin

    def _is_free_before(self, offset: int) -> bool:
        index = bisect_left(self._free, (offset,)) - 1
        return index >= 0 and self._free[index][1] == offset

    def _forget(self, calls: Sequence[Hashable]) -> None:
        if not calls:
            return
        for call in calls:
            ahead = self._ahead.pop(call)
            if ahead.begin < ahead.end:
                insort(self._free, (ahead.begin, ahead.end))
        self._join()

    def _join(self) -> None:
        joined: list[tuple[int, int]] = []
        for begin, end in self._free:
            if joined and joined[-1][1] == begin:
                joined[-1] = joined[-1][0], end
            else:
                joined.append((begin, end))
        self._free = joined
