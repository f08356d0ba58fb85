"""Whether things fit into bins, by trying every way there is: what is left where two greedy attempts have failed. Pure.

Bins with as much room left are alike, so a way that failed is not tried again in another order. That makes it quick for
the few models and devices of one machine; what would take longer than `STEPS` is given up.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

__all__ = ["pack"]

STEPS = 20_000  # some tenths of a second


def pack(
    room: Sequence[int | None], wanted: Sequence[tuple[int, int]], steps: int = STEPS
) -> list[tuple[int, ...]] | None:
    """For each `(size, copies)` the bins that have a copy, all different; None: there is no way, or none was found.

    `room`: of each bin, None for one without a bound. The largest are best named first.
    """
    search = _Search(wanted, steps)
    return search.from_here(0, [float("inf") if each is None else each for each in room])


class _Search:
    def __init__(self, wanted: Sequence[tuple[int, int]], steps: int) -> None:
        self._wanted = wanted
        self._steps = steps
        self._in_vain: set[tuple[int, tuple[float, ...]]] = set()
        self._needed = [0]  # by all from this one on
        for size, copies in reversed(wanted):
            self._needed.insert(0, self._needed[0] + size * copies)

    def from_here(self, number: int, room: list[float]) -> list[tuple[int, ...]] | None:
        if number == len(self._wanted):
            return []
        alike = (number, tuple(sorted(room)))
        if alike in self._in_vain or self._needed[number] > sum(room):
            return None
        size, copies = self._wanted[number]
        for bins in _ways(room, size, copies):
            self._steps -= 1
            if self._steps < 0:
                return None
            for each in bins:
                room[each] -= size
            rest = self.from_here(number + 1, room)
            for each in bins:
                room[each] += size
            if rest is not None:
                return [bins, *rest]
        self._in_vain.add(alike)
        return None


def _ways(room: Sequence[float], size: int, copies: int) -> Iterator[tuple[int, ...]]:
    """The fullest first; of bins that are alike one way alone."""
    tried = set()
    fitting = sorted((bin_ for bin_, left in enumerate(room) if left >= size), key=lambda bin_: (room[bin_], bin_))
    for bins in combinations(fitting, copies):
        rooms = tuple(room[each] for each in bins)
        if rooms not in tried:
            tried.add(rooms)
            yield bins
