"""The results that one event brings about, such as the end of a batch: each client's leave as one message."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pool.router.payload import Payload
from pool.wire import client_messages as wire
from pool.wire.hot import Buffer
from pool.wire.message import Message

__all__ = ["Answers"]

MOST_JOBS = 256  # in one message: a header of some 20 KiB
MOST_BYTES = 1 << 20  # what is larger costs more than a message does, and is better begun to be read


@dataclass(slots=True)
class _Letter:
    """To one client."""

    results: list[wire.Result] = field(default_factory=list)
    payload: list[Buffer] = field(default_factory=list)
    size_bytes: int = 0


class Answers:
    def __init__(self, send: Callable[[bytes, Message, Payload], None]) -> None:
        self._send = send
        self.waiting: dict[bytes, _Letter] = {}
        """By client, what waits for its `leave`."""

    def add(self, client: bytes, result: wire.Result, pieces: Iterable[Payload]) -> None:
        """It leaves with the next `leave`, or at once with those that make a full message."""
        letter = self.waiting.get(client)
        if letter is None:
            letter = self.waiting[client] = _Letter()
        letter.results += (result,)
        for piece in pieces:
            letter.payload += piece
            letter.size_bytes += sum(map(len, piece))
        if letter.size_bytes >= MOST_BYTES or len(letter.results) >= MOST_JOBS:
            self.leave(client)

    def leave(self, client: bytes) -> None:
        """What waits for this client is sent."""
        letter = self.waiting.pop(client, None)
        if letter is not None:
            self._send(client, wire.Results(tuple(letter.results)), letter.payload)

    def all_leave(self) -> None:
        for client in tuple(self.waiting):
            self.leave(client)
