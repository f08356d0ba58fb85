"""The TCP connections: how many there are, and what each has sent of a message that has no end yet.

    libzmq ── accepted, disconnected: this descriptor ──► `Gate` ──► `Connections`
    Front  ── a message of it came ─────────────────────────────────┘      │ looks now and then: TCP_INFO
                                                                           └─► shutdown: libzmq forgets what it holds

libzmq bounds a frame, and nothing bounds a message of many: it holds all of it until the last frame has come, before
the handshake, too. The kernel counts what a connection has received, and the pool what it has read of it; the rest is
what libzmq holds. Of a Unix socket the kernel counts nothing.
"""

import contextlib
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import zmq

from pool.clock import Alarm
from pool.serve.refusals import count

__all__ = ["Connections"]

LOOK_S = 0.25
HEARTBEATS = 64.0  # bytes a second at most that are no message; ZeroMQ's take half of it
LONGEST_S = 3600.0  # that a message may take: 2 GiB at 600 KB/s, and what trickles in as heartbeats do has an end
FRAME_BYTES, LARGE_FRAME_BYTES, SMALL_FRAME = 2, 9, 255  # what ZMTP puts before a frame, which may have so many bytes
CURVE_BYTES = 33  # that CURVE adds to a frame: a name, flags, a nonce and an authenticator
FIRST_BYTES = 64 << 10  # of a handshake and the first message, which says who it is
INFO_BYTES = 136  # of `struct tcp_info`, as Linux has it since 4.1 …
RECEIVED = struct.Struct("=128xQ")  # … with tcpi_bytes_received at its end
ENDLESS = "a connection, because its message was too long"
MUTE = "a connection, because it sent much and did not say who it is"


@dataclass(slots=True, eq=False)
class Connection:
    """`read_bytes`: of its messages that the pool has read, as they came. `has_spoken`: there was one.

    `other_bytes`: what else it has sent and is no message, at most: heartbeats and the handshake. `clear_at`: when it
    was last seen to have sent nothing more.
    """

    peer: object
    looked_at: float
    clear_at: float
    read_bytes: int = 0
    other_bytes: float = 0.0
    has_spoken: bool = False

    def held_bytes(self, received: int, now: float) -> float:
        """Of messages that the pool has not read, whole or not, by what it has received until now; or a little less."""
        rest = received - self.read_bytes
        self.other_bytes = min(rest, self.other_bytes + HEARTBEATS * (now - self.looked_at))
        self.looked_at = now
        held = rest - self.other_bytes
        if held <= 0:
            self.clear_at = now
        return held


class Connections:
    """Of all TCP endpoints together. Used from the pool's loop."""

    def __init__(self, most: int, most_bytes: int, has_keys: bool, refused: "Counter[str]", turn: Alarm) -> None:
        """`most`: connections; `most_bytes`: of messages that were not read, of all of them. `turn` calls `look`."""
        self._most_bytes = most_bytes
        self._added_bytes = CURVE_BYTES if has_keys else 0
        self._most = most
        self._refused = refused
        self._turn = turn
        self._open: dict[int, Connection] = {}

    @property
    def is_full(self) -> bool:
        return len(self._open) >= self._most

    def accepted(self, fd: int) -> None:
        now, peer = time.monotonic(), None
        with _socket(fd) as found, contextlib.suppress(OSError):  # it may be gone by now
            peer = None if found is None else found.getpeername()
        self._open[fd] = Connection(peer, now, now)
        self._turn.by(now + LOOK_S)

    def disconnected(self, fd: int) -> None:
        self._open.pop(fd, None)

    def heard(self, frames: Sequence[zmq.Frame]) -> bool:
        """A whole message was read. False where its connection is not known: not yet, or not any more."""
        try:
            connection = self._open.get(frames[0].get(zmq.SRCFD))
        except zmq.ZMQError:
            return True
        if connection is None:
            return False
        connection.has_spoken = True
        for frame in frames:
            size = len(frame) + self._added_bytes
            connection.read_bytes += size + (FRAME_BYTES if size <= SMALL_FRAME else LARGE_FRAME_BYTES)
        return True

    def look(self) -> None:
        """Ends connections that have sent too much that is not read yet, those with most of it first."""
        now = time.monotonic()
        held = {
            fd: connection.held_bytes(received, now)
            for fd, connection in self._open.items()
            if (received := self._received(fd, connection)) is not None
        }
        over = sum(held.values()) - self._most_bytes
        for fd in sorted(held, key=lambda fd: -held[fd]):
            connection = self._open[fd]
            if not connection.has_spoken and held[fd] > FIRST_BYTES:
                self._end(fd, connection, MUTE)
            elif (over > 0 and held[fd] > 0) or now - connection.clear_at > LONGEST_S:
                self._end(fd, connection, ENDLESS)
            else:
                continue
            over -= held[fd]
        if self._open:
            self._turn.by(now + LOOK_S)

    def _received(self, fd: int, connection: Connection) -> int | None:
        """None where it is about to be told as disconnected, or the kernel does not count."""
        with _socket(fd) as found, contextlib.suppress(OSError):
            if found is not None and found.getpeername() == connection.peer:
                info = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, INFO_BYTES)
                if len(info) >= INFO_BYTES:
                    return int(RECEIVED.unpack_from(info)[0])
        return None

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
