"""Instants that the core waits for, by key."""

import heapq
from collections.abc import Hashable

__all__ = ["Timers"]


class Timers:
    """One instant a key. Setting, clearing and popping cost the logarithm of their number."""

    def __init__(self) -> None:
        self._instants: dict[Hashable, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, Hashable]] = []
        self._count = 0

    def __contains__(self, key: Hashable) -> bool:
        return key in self._instants

    def set(self, key: Hashable, instant: float) -> None:
        self._count += 1
        self._instants[key] = (instant, self._count)
        heapq.heappush(self._heap, (instant, self._count, key))
        # Cleared entries stay in the heap until they surface; rebuild before they outnumber the live ones.
        if len(self._heap) > 64 + 2 * len(self._instants):
            self._heap = [(instant, count, key) for key, (instant, count) in self._instants.items()]
            heapq.heapify(self._heap)

    def advance(self, key: Hashable, instant: float) -> None:
        """Sets an instant that is set already to an earlier one; does nothing otherwise."""
        if key in self._instants and instant < self._instants[key][0]:
            self.set(key, instant)

    def clear(self, key: Hashable) -> None:
        self._instants.pop(key, None)

    def next(self) -> float | None:
        """The earliest instant, or None."""
        self._drop_cleared()
        return self._heap[0][0] if self._heap else None

    def is_due(self, now: float) -> bool:
        """Whether some instant may have come; whether it counts, `pop_due` finds out."""
        return bool(self._heap) and self._heap[0][0] <= now

    def pop_due(self, now: float) -> Hashable | None:
        """Removes and returns the key with the earliest instant that is not after `now`, or None."""
        self._drop_cleared()
        if not self._heap or self._heap[0][0] > now:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._instants[key]
        return key

    def _drop_cleared(self) -> None:
        while self._heap and self._instants.get(self._heap[0][2]) != self._heap[0][:2]:
            heapq.heappop(self._heap)
