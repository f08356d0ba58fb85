"""The TCP connections: how many there are, and what each has sent of a message that has no end yet.

    libzmq ── accepted, disconnected: this descriptor ──► `Gate` ──► `Connections`
    Front  ── a message of it came ─────────────────────────────────┘      │ looks now and then: TCP_INFO
                                                                           └─► shutdown: libzmq forgets what it holds

libzmq bounds a frame, and nothing bounds a message of many: it holds all of it until the last frame has come, before
the handshake, too. The kernel counts what a connection has received, so that is where it is bounded. Of a Unix socket
it counts nothing.
"""

import contextlib
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import zmq

from pool.clock import Alarm
from pool.serve.refusals import count

__all__ = ["Connections"]

LOOK_S = 0.25
FIRST_BYTES = 64 << 10  # of a handshake and the first message, which says who it is
INFO_BYTES = 136  # of `struct tcp_info`, as Linux has it since 4.1 …
RECEIVED = struct.Struct("=128xQ")  # … with tcpi_bytes_received at its end
ENDLESS = "a connection, because its message was too long"
MUTE = "a connection, because it sent much and did not say who it is"


@dataclass(slots=True, eq=False)
class Connection:
    """`began`: the bytes that had been received when its last message was whole, as far as was looked.

    `has_spoken`: one of its messages came; `is_new`: since the last look.
    """

    peer: object
    began: int = 0
    has_spoken: bool = False
    is_new: bool = False


class Connections:
    """Of all TCP endpoints together. Used from the pool's loop."""

    def __init__(self, most: int, most_bytes: int, refused: "Counter[str]", turn: Alarm) -> None:
        """`most`: connections; `most_bytes`: of messages that have no end yet, of all of them. `turn` calls `look`."""
        self.most_bytes = most_bytes
        self._most = most
        self._refused = refused
        self._turn = turn
        self._open: dict[int, Connection] = {}

    @property
    def is_full(self) -> bool:
        return len(self._open) >= self._most

    def accepted(self, fd: int) -> None:
        with _socket(fd) as found:
            self._open[fd] = Connection(None if found is None else found.getpeername())
        self._turn.by(time.monotonic() + LOOK_S)

    def disconnected(self, fd: int) -> None:
        self._open.pop(fd, None)

    def heard(self, frame: zmq.Frame) -> None:
        """A whole message, which begins with this frame."""
        with contextlib.suppress(zmq.ZMQError):
            connection = self._open.get(frame.get(zmq.SRCFD))
            if connection is not None:
                connection.has_spoken = connection.is_new = True

    def look(self) -> None:
        """Ends connections that have sent too much of a message, those with most of it first."""
        held: dict[int, int] = {}
        for fd, connection in self._open.items():
            received = self._received(fd, connection)
            if connection.is_new:
                connection.began, connection.is_new = received, False
            held[fd] = received - connection.began
        over = sum(held.values()) - self.most_bytes
        for fd in sorted(held, key=lambda fd: -held[fd]):
            connection = self._open[fd]
            if not connection.has_spoken and held[fd] > FIRST_BYTES:
                self._end(fd, connection, MUTE)
            elif over > 0 and held[fd]:
                self._end(fd, connection, ENDLESS)
            else:
                continue
            over -= held[fd]
        if self._open:
            self._turn.by(time.monotonic() + LOOK_S)

    def _received(self, fd: int, connection: Connection) -> int:
        with _socket(fd) as found, contextlib.suppress(OSError):
            if found is not None and found.getpeername() == connection.peer:
                info = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, INFO_BYTES)
                if len(info) >= INFO_BYTES:
                    return int(RECEIVED.unpack_from(info)[0])
        return connection.began  # it is about to be told as disconnected

    def _end(self, fd: int, connection: Connection, why: str) -> None:
        """libzmq closes it. Its number may be another's in the same instant, which has another peer."""
        with _socket(fd) as found, contextlib.suppress(OSError):
            if found is not None and found.getpeername() == connection.peer:
                found.shutdown(socket.SHUT_RDWR)
        count(self._refused, why)


@contextlib.contextmanager
def _socket(fd: int) -> Iterator[socket.socket | None]:
    """libzmq's, which stays its own; None where it is none any more, or no TCP."""
    try:
        found = socket.socket(fileno=fd)
    except OSError:
        yield None
        return
    try:
        yield found if found.family in (socket.AF_INET, socket.AF_INET6) else None
    finally:
        found.detach()
