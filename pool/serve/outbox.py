"""What the pipes of slow readers did not take yet, in order and counted."""

from collections import deque
from collections.abc import Callable

from pool.serve.payload import Payload, held_bytes

__all__ = ["RETRY_S", "Outboxes"]

RETRY_S = 0.01  # a full pipe is tried again after this: ZeroMQ does not say when one of a ROUTER's pipes has room
LONGEST_RETRY_S = 0.1  # … and later each time that none took anything


class _Outbox:
    """Of one client. `moved`: how many messages all pipes had taken when its own last took one."""

    __slots__ = ("moved", "size_bytes", "waiting")

    def __init__(self, moved: int) -> None:
        self.moved = moved
        self.size_bytes = 0
        self.waiting: deque[tuple[int, Payload]] = deque()  # with what each was counted as


class Outboxes:
    """Bounded for each client, and in bytes for all of them together. One answer may always wait, however large."""

    def __init__(self, most_messages: int, most_bytes: int, in_pipe: Callable[[bytes], int] = lambda _: 0) -> None:
        """`in_pipe` tells how many bytes a client's pipe holds; they count as its own."""
        self._in_pipe = in_pipe
        self._most_messages = most_messages
        self._most_bytes = most_bytes
        self._boxes: dict[bytes, _Outbox] = {}
        self._retry_s = RETRY_S
        self._next_try = 0.0
        self._moves = 0
        self.size_bytes = 0

    def adopt(self, most_messages: int, most_bytes: int) -> None:
        """Other bounds, for what is to wait from now on."""
        self._most_messages, self._most_bytes = most_messages, most_bytes

    def __bool__(self) -> bool:
        return bool(self._boxes)

    def __contains__(self, client: bytes) -> bool:
        return client in self._boxes

    def clients(self) -> list[bytes]:
        """Those with messages that wait."""
        return list(self._boxes)

    def waiting(self, client: bytes) -> int:
        """How many of its messages wait."""
        return len(self._boxes[client].waiting) if client in self._boxes else 0

    def add(self, client: bytes, frames: Payload) -> list[bytes]:
        """A client's pipe is full, or others of its messages wait. Returns whose outboxes were given up for it.

        Where it is too much for all together, the one goes whose reader has taken nothing for longest.
        """
        box = self._boxes.get(client)
        if box is None:
            box = self._boxes[client] = _Outbox(self._moves)
            self._retry_s, self._next_try = RETRY_S, 0.0
        size_bytes = held_bytes(frames)
        box.waiting.append((size_bytes, frames))
        box.size_bytes += size_bytes
        self.size_bytes += size_bytes
        given_up = []
        unread = box.size_bytes + self._in_pipe(client)
        if len(box.waiting) > self._most_messages or (len(box.waiting) > 1 and unread > self._most_bytes):
            given_up.append(client)
            self.forget(client)
        while self.size_bytes > self._most_bytes and len(self._boxes) > 1:
            stuck = min(self._boxes, key=lambda client: self._boxes[client].moved)
            given_up.append(stuck)
            self.forget(stuck)
        return given_up

    def forget(self, client: bytes) -> None:
        box = self._boxes.pop(client, None)
        if box is not None:
            self.size_bytes -= box.size_bytes

    def next_try(self) -> float | None:
        """When `flush` is to be called at the latest."""
        return self._next_try if self._boxes else None

    def hurry(self) -> None:
        """A pipe has room: the next `flush` is at once."""
        self._next_try = 0.0

    def flush(self, try_send: Callable[[bytes, Payload], bool], now: float) -> bool:
        """Tries the pipes again, if it is time; whether any took a message."""
        if now < self._next_try:
            return False
        moved = False
        for client, box in list(self._boxes.items()):
            while box.waiting and try_send(client, box.waiting[0][1]):
                size_bytes, _ = box.waiting.popleft()
                box.size_bytes -= size_bytes
                self.size_bytes -= size_bytes
                self._moves += 1
                box.moved, moved = self._moves, True
            if not box.waiting:
                del self._boxes[client]
        self._retry_s = RETRY_S if moved else min(LONGEST_RETRY_S, 2 * self._retry_s)
        self._next_try = now + self._retry_s
        return moved
