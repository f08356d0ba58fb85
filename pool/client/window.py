"""How far a client runs ahead of the pool's reading.

What waits in sockets is on nobody's books: its time runs unseen, and it is late before the pool hears of it. So at
most a few jobs are sent that the pool is not known to have read; the others wait here, where their timeouts are kept.
An answer shows that all that was sent before its job has been read, and so does a PONG for what came before its PING.
"""

from collections import deque

__all__ = ["Window"]

MOST_UNREAD = 128  # jobs; the pool's loop reads as many in some 20 to 60 ms
PING_AFTER = 32  # unread jobs; before, the answers alone are enough


class Window:
    def __init__(self) -> None:
        self._sent = 0
        self._read = 0
        self._pings: deque[int] = deque()  # how many jobs had been sent at each PING that has no PONG yet

    def is_open(self) -> bool:
        """Whether another job may be sent."""
        return self._sent - self._read < MOST_UNREAD

    def wants_ping(self) -> bool:
        """Whether the pool should be asked how far it has read."""
        return self._sent - max(self._read, self._pings[-1] if self._pings else 0) >= PING_AFTER

    def submitted(self) -> int:
        """A job is sent; its place among those sent."""
        self._sent += 1
        return self._sent

    def answered(self, place: int) -> None:
        self._read = max(self._read, place)

    def pinged(self) -> None:
        self._pings.append(self._sent)

    def ponged(self) -> None:
        """PONGs come in the order of the PINGs."""
        if self._pings:
            self._read = max(self._read, self._pings.popleft())
