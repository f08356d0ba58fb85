"""What one client's pipe did not take yet, in order and counted."""

from collections import deque

from pool.router.payload import Payload, held_bytes

__all__ = ["Outbox"]


class Outbox:
    def __init__(self) -> None:
        self.size_bytes = 0
        self._waiting: deque[tuple[int, Payload]] = deque()  # with what each was counted as

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def first(self) -> Payload:
        return self._waiting[0][1]

    def append(self, frames: Payload) -> None:
        size_bytes = held_bytes(frames)
        self.size_bytes += size_bytes
        self._waiting.append((size_bytes, frames))

    def pop_first(self) -> None:
        self.size_bytes -= self._waiting.popleft()[0]
