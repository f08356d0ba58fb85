"""The link to a pool, and where a client finds the next pool when its own has gone."""

import os
import socket
import threading
import time
import weakref
from collections import deque
from contextlib import suppress
from math import inf

from pool.client.arena import Arena
from pool.client.inputs import Planner
from pool.endpoint import ipc_path, sought
from pool.errors import Incompatible, PoolUnreachable
from pool.wire import RELEASE, WIRE
from pool.wire.bodies import Kind, plain
from pool.wire.link import Link
from pool.wire.specs import BadMessage

MOST_ARENAS = 128  # the pool cuts off who lends more than 256
CONNECT_S = 5.0  # for a pool that takes the link and says nothing


class Connection:
    """The link to a pool, one for all channels of a client. Thread-safe once the pool has greeted."""

    join: bytes  # what a channel says first
    timeout_s: float

    def __init__(self, endpoint: str) -> None:
        """Never waits. Raises `BlockingIOError` if the pool is to be asked again, and `PoolUnreachable`."""
        self.endpoint = endpoint
        self.pid = os.getpid()
        self._greets_until = time.monotonic() + CONNECT_S
        self._lent: set[int] = set()  # numbers of arenas, until the pool was told that they are dropped
        self._dropped: deque[int] = deque()
        self.link = Link(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK))
        try:
            self.link.socket.connect(endpoint.removeprefix("ipc://") + ".link")
        except BlockingIOError:
            raise
        except OSError as error:
            raise PoolUnreachable(f"no pool answers at {endpoint} ({error.strerror}); start one: pool start") from None

    def greet(self) -> None:
        """Reads what a pool says first. Raises `BlockingIOError` before that, `PoolUnreachable` and `Incompatible`."""
        try:
            said = self.link.receive()
        except BlockingIOError:
            if time.monotonic() > self._greets_until:
                raise PoolUnreachable(f"the pool at {self.endpoint} does not answer: it may be stopped") from None
            raise
        match said:
            case None:
                raise PoolUnreachable(f"the pool at {self.endpoint} takes no more clients, or ended just now")
            case {"wire": wire, "release": release}, _ if wire != WIRE:
                versions = f"the pool at {self.endpoint} is release {release}, this client {RELEASE}"
                raise Incompatible(f"{versions}: install the same release for both, and restart the pool")
            case {"token": bytes(token), "timeout_s": float() | int() as timeout_s}, _:
                self.join, self.timeout_s = plain(Kind.JOIN, data=token), float(timeout_s)
            case _:
                raise Incompatible(f"what listens at {self.endpoint} says nothing that release {RELEASE} knows")

    @property
    def is_gone(self) -> bool:
        """Whether the pool has ended. It says nothing after its greeting."""
        try:
            return self.link.receive() is None
        except (BlockingIOError, BadMessage):
            return False

    def arena(self, size: int) -> Arena | None:
        """Lent to the pool as long as it is used here. None: no more now, tensors travel in their bodies."""
        self._tell_dropped()
        with suppress(OSError):  # a pool that is gone is noticed elsewhere
            if len(self._lent) < MOST_ARENAS:
                arena = Arena(size, self.link)
                weakref.finalize(arena, self._drop, arena.number).atexit = False
                self._lent.add(arena.number)
                return arena
        return None

    def _drop(self, number: int) -> None:
        """From any thread, a finalizer's too: it takes no lock."""
        self._dropped.append(number)
        self._tell_dropped()

    def _tell_dropped(self) -> None:
        """What does not fit now is told by whoever comes next. Another thread may tell the same: twice does no harm."""
        with suppress(OSError, IndexError, ValueError):
            while self._dropped:
                number = self._dropped[0]
                self.link.send({"drop": number})
                self._lent.discard(number)
                self._dropped.remove(number)

    def close(self) -> None:
        """Ends all channels too: who waits there sees the link's end."""
        with suppress(OSError):
            self.link.socket.shutdown(socket.SHUT_RDWR)
        self.link.socket.close()

    def __del__(self) -> None:
        if hasattr(self, "link"):
            self.link.socket.close()


class Connector:
    """The pool that a client talks to, and the next one. Any thread may ask, and none waits for another."""

    def __init__(self, endpoint: str | None, patience_s: float) -> None:
        """`endpoint`: None is where pools of this user and this machine are.

        `patience_s`: how long after its pool has gone a client looks for the next one. Raises `InvalidConfig`.
        """
        self.planner = Planner()
        self.timeout_s = inf
        self._patience_s = patience_s
        self._places = sought(os.environ, os.getuid()) if endpoint is None else [f"ipc://{ipc_path(endpoint)}"]
        self._current: Connection | None = None
        self._greeting: Connection | None = None
        self._seen_at = -inf
        self._is_closed = False
        self._lock = threading.Lock()

    def connection(self) -> Connection | None:
        """The connection to a live pool; None: ask again a little later.

        Raises `PoolUnreachable` if there is no pool to hope for, and `Incompatible`.
        """
        with self._lock:
            if self._is_closed:
                raise PoolUnreachable("the client was closed")
            if self._current is not None:
                if not self._current.is_gone:
                    return self._current
                self._current.close()
                self._current, self._seen_at = None, time.monotonic()
                self.planner = Planner()  # models may have become other ones
            return self._greeted()

    def _greeted(self) -> Connection | None:
        refusals: list[str] = []
        # Whatever has taken the link is the pool, so the places after it are not asked.
        for place in [self._greeting.endpoint] if self._greeting is not None else self._places:
            try:
                found = self._greeting = self._greeting or Connection(place)
                found.greet()
            except BlockingIOError:
                return None
            except (PoolUnreachable, Incompatible) as error:
                self._greeting = None
                if isinstance(error, Incompatible):
                    raise
                refusals.append(str(error))
            else:
                self._current, self._greeting, self.timeout_s = found, None, found.timeout_s
                return found
        if time.monotonic() < self._seen_at + self._patience_s:
            return None
        raise PoolUnreachable("; ".join(refusals))

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._current is not None:
                self._current.close()

    def forked(self) -> None:
        """In the child: the sockets are the parent's, which must see no other end of them than its own."""
        self._lock = threading.Lock()
        for connection in (self._current, self._greeting):
            if connection is not None:
                connection.link.socket.close()
        self._current = self._greeting = None
