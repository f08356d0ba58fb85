"""The results that one event brings about, such as the end of a batch: each client's leave as one message."""

from collections.abc import Callable
from itertools import chain

from pool.router.payload import Payload, held_bytes
from pool.wire import client_messages as wire
from pool.wire.message import Message

__all__ = ["Answers"]

MOST_JOBS = 256  # in one message: a header of some 20 KiB
MOST_BYTES = 1 << 20  # what is larger costs more than a message does, and is better begun to be read


class Answers:
    def __init__(self, send: Callable[[bytes, Message, Payload], None]) -> None:
        self._send = send
        self._waiting: dict[bytes, list[tuple[wire.Result, Payload]]] = {}
        self._bytes: dict[bytes, int] = {}

    def __contains__(self, client: bytes) -> bool:
        """Whether something waits for the client's `leave`."""
        return client in self._waiting

    def add(self, client: bytes, result: wire.Result, frames: Payload) -> None:
        """It leaves with the next `leave`, or at once with those that make a full message."""
        waiting = self._waiting.setdefault(client, [])
        waiting.append((result, frames))
        size_bytes = self._bytes[client] = self._bytes.get(client, 0) + held_bytes(frames)
        if len(waiting) >= MOST_JOBS or size_bytes >= MOST_BYTES:
            self.leave(client)

    def leave(self, client: bytes) -> None:
        """What waits for this client is sent."""
        waiting = self._waiting.pop(client, None)
        if waiting is None:
            return
        del self._bytes[client]
        whole = list(chain.from_iterable([frames for _, frames in waiting]))
        self._send(client, wire.Results(tuple([result for result, _ in waiting])), whole)

    def all_leave(self) -> None:
        for client in list(self._waiting):
            self.leave(client)
