"""Instants that the core waits for, by key."""

import heapq
from collections.abc import Hashable
from typing import Protocol, TypeAlias

__all__ = ["Timed", "Timers"]

FEW_VOID = 64


class Timed(Protocol):
    """What a timer may be of that is made for every job: it knows by itself when it is due; None: never."""

    timer: float | None


Entry: TypeAlias = tuple[float, int, Hashable, Timed | None]


class Timers:
    """One instant a key. Setting, clearing and popping cost the logarithm of their number.

    A key is any value, by `set`, `advance` and `clear`; or an object that keeps its own instant, by `watch` and
    `release`.
    """

    def __init__(self) -> None:
        self.heap: list[Entry] = []
        """With entries that count no more, so the first one may be earlier than the earliest instant."""
        self._instants: dict[Hashable, tuple[float, int]] = {}
        self._count = 0
        self._void = 0  # entries of the heap that count no more

    def __contains__(self, key: Hashable) -> bool:
        return key in self._instants

    def set(self, key: Hashable, instant: float) -> None:
        self._count += 1
        if key in self._instants:
            self._void += 1
        self._instants[key] = (instant, self._count)
        heapq.heappush(self.heap, (instant, self._count, key, None))
        self._tidy()

    def advance(self, key: Hashable, instant: float) -> None:
        """Sets an instant that is set already to an earlier one; does nothing otherwise."""
        if key in self._instants and instant < self._instants[key][0]:
            self.set(key, instant)

    def clear(self, key: Hashable) -> None:
        if self._instants.pop(key, None) is not None:
            self._void += 1

    def watch(self, owner: Timed, instant: float) -> None:
        self._count += 1
        if owner.timer is not None:
            self._void += 1
        owner.timer = instant
        heapq.heappush(self.heap, (instant, self._count, None, owner))
        if self._void > FEW_VOID:
            self._tidy()

    def release(self, owner: Timed) -> None:
        if owner.timer is not None:
            owner.timer = None
            self._void += 1

    def next(self) -> float | None:
        """The earliest instant, or None."""
        heap = self.heap
        while heap:
            instant, count, key, owner = heap[0]
            if self._instants.get(key) == (instant, count) if owner is None else owner.timer == instant:
                return instant
            heapq.heappop(heap)
            self._void -= 1
        return None

    def pop_due(self, now: float) -> Hashable | Timed | None:
        """Removes and returns the key with the earliest instant that is not after `now`, or None."""
        instant = self.next()
        if instant is None or instant > now:
            return None
        _, _, key, owner = heapq.heappop(self.heap)
        if owner is None:
            del self._instants[key]
            return key
        owner.timer = None
        return owner

    def _counts(self, entry: Entry) -> bool:
        instant, count, key, owner = entry
        return self._instants.get(key) == (instant, count) if owner is None else owner.timer == instant

    def _tidy(self) -> None:
        """Entries that count no more stay until they surface, or are half of all."""
        if self._void > FEW_VOID and 2 * self._void > len(self.heap):
            self.heap = [entry for entry in self.heap if self._counts(entry)]
            heapq.heapify(self.heap)
            self._void = 0
