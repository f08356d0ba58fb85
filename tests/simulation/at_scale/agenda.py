"""What is going to happen, in the order of virtual time."""

import heapq
from collections.abc import Callable
from typing import Any

__all__ = ["Agenda"]


class Agenda:
    """Things to do at their instants; those of one instant in the order in which they were set."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_at(self) -> float:
        """When the next thing is due. There is one."""
        return self._heap[0][0]

    def put(self, at: float, what: Callable[..., None], *arguments: Any) -> None:
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, what, arguments))

    def take(self) -> tuple[float, Callable[..., None], tuple[Any, ...]]:
        at, _, what, arguments = heapq.heappop(self._heap)
        return at, what, arguments
