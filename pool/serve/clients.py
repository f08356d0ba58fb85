"""The clients: their links, what they lent, and what they have not read yet."""

import os
import secrets
import socket
from collections import deque
from contextlib import suppress
from pathlib import Path

from pool.core.jobs import Account
from pool.wire import RELEASE, WIRE
from pool.wire.bodies import TOKEN_BYTES
from pool.wire.link import Link, credentials, sealed_bytes
from pool.wire.specs import BadMessage

__all__ = ["Client", "Entrance", "Outbox"]

MOST_ARENAS = 256
MOST_CHANNELS = 128
MOST_UNREAD_BYTES = 64 << 20
MOST_UNREAD_S = 30.0
BACKLOG = 128


class Outbox:
    """Answers that a channel does not take yet."""

    __slots__ = ("nbytes", "since", "waiting")

    def __init__(self, now: float) -> None:
        self.waiting: deque[list[bytes]] = deque()
        self.nbytes = 0
        self.since = now

    def add(self, bodies: list[bytes]) -> None:
        self.waiting.append(bodies)
        self.nbytes += sum(map(len, bodies))

    def is_past_bounds(self, now: float) -> bool:
        return self.nbytes > MOST_UNREAD_BYTES or now - self.since > MOST_UNREAD_S


class Client:
    """One process that holds a link. Its channels share its bounds and its place in the queue."""

    def __init__(self, connection: socket.socket) -> None:
        self.pid, self.uid, _ = credentials(connection)
        self.link = Link(connection)
        self.token = secrets.token_bytes(TOKEN_BYTES)
        self.account = Account()
        self.routes: set[bytes] = set()
        self.arenas: dict[int, tuple[int, int]] = {}
        """Descriptor and size of what it lent. The numbers are secret: to name one is to own it."""
        self.is_gone = False

    @property
    def is_owner(self) -> bool:
        """Whether it may change the pool, by the kernel's word."""
        return self.uid in (0, os.getuid())

    def welcome(self, timeout_s: float) -> None:
        self.link.send(
            {"wire": WIRE, "release": RELEASE, "token": self.token, "pid": os.getpid(), "timeout_s": timeout_s}
        )

    def lend(self, arena: object, descriptor: int) -> None:
        """Raises `BadMessage` for what cannot be lent; takes the descriptor in any case."""
        try:
            if type(arena) is not int or not 0 <= arena < 1 << 63 or arena in self.arenas:
                raise BadMessage("lent memory needs a number of its own")
            if len(self.arenas) >= MOST_ARENAS:
                raise BadMessage(f"more than {MOST_ARENAS} arenas")
            self.arenas[arena] = descriptor, sealed_bytes(descriptor)
        except BadMessage:
            os.close(descriptor)
            raise

    def check_part(self, part: tuple[int, int, int, int, int]) -> str:
        """Why the region of a job is none of the client's; "" if it is."""
        arena, offset, length, out_offset, room = part
        lent = self.arenas.get(arena)
        if lent is None:
            return "it names shared memory that was not lent"
        if offset % 64 or out_offset % 64 or offset + length > lent[1] or out_offset + room > lent[1]:
            return "its region is not within the shared memory"
        if offset < out_offset + room and out_offset < offset + length:
            return "its inputs and the room for its answer overlap"
        return ""

    def close(self) -> None:
        self.is_gone = True
        self.link.close()
        for descriptor, _ in self.arenas.values():
            os.close(descriptor)


class Entrance:
    """Where clients come in."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        with suppress(FileNotFoundError):
            path.unlink()
        self.socket.bind(str(path))
        path.chmod(0o600)
        self.socket.listen(BACKLOG)
        self._path = path

    def accept(self) -> Client | None:
        """None: nobody is there, or he has gone already. Raises `OSError` where no descriptor is left."""
        try:
            connection, _ = self.socket.accept()
        except (BlockingIOError, ConnectionError):
            return None
        connection.setblocking(False)
        try:
            return Client(connection)
        except OSError:
            connection.close()
            return None

    def close(self) -> None:
        self.socket.close()
        self._path.unlink(missing_ok=True)
