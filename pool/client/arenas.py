"""The memory that the pool has lent this client, and the parts of it that are in use.

A `Region` is in use as long as anything holds it: the job that lies in it until the pool has released it, the caller's
array that looks at it. Dropped by the last of them it is used again, the lowest first, because memory that was touched
before costs a tenth of what new pages do.
"""

import contextlib
import mmap
import select
import socket
import threading
import time
from bisect import insort
from collections import deque
from pathlib import Path

from pool.wire.arena import BadArena, Wish, attach, receive_grant
from pool.wire.codec import BadFrame
from pool.wire.lent import rounded_up

__all__ = ["Arena", "Arenas", "Piece", "Region"]

USUAL_BYTES = 256 << 20  # of one arena; what is never touched takes no memory
GRANT_S = 1.0  # the pool grants at once, unless it is busy: then what is asked for is sent along
PAUSE_S = 5.0  # before a pool that lends nothing is asked again
IDLE_S = 10.0  # after which the memory of an arena that nothing uses is given back


class Arena:
    """`is_current`: the pool that has lent it is still there. Used by many threads, under the lock of `Arenas`."""

    def __init__(self, number: int, memory: mmap.mmap) -> None:
        self.number = number
        self.memory = memoryview(memory)
        self.is_current = True
        self._mapping = memory
        self._free = [(0, len(memory))]
        self._returned: deque[tuple[int, int]] = deque()  # by finalizers, which can take no lock
        self._touched = 0
        self._idle_since: float | None = None

    def take(self, size_bytes: int) -> "Region | None":
        """The lowest part that is free."""
        self._collect()
        size_bytes = rounded_up(size_bytes, mmap.PAGESIZE)
        for index, (offset, free_bytes) in enumerate(self._free):
            if free_bytes >= size_bytes:
                if free_bytes == size_bytes:
                    del self._free[index]
                else:
                    self._free[index] = offset + size_bytes, free_bytes - size_bytes
                self._touched = max(self._touched, offset + size_bytes)
                self._idle_since = None
                return Region(self, offset, size_bytes)
        return None

    def give_back(self, offset: int, size_bytes: int) -> None:
        """From any thread, at any instant."""
        self._returned.append((offset, size_bytes))

    def trim(self, now: float) -> None:
        """Gives the pages of one that has not been used for a while back to the machine."""
        self._collect()
        if not self._touched or self._free != [(0, len(self.memory))]:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        elif now - self._idle_since >= IDLE_S:
            with contextlib.suppress(OSError):
                self._mapping.madvise(mmap.MADV_REMOVE, 0, rounded_up(self._touched, mmap.PAGESIZE))
            self._touched, self._idle_since = 0, None

    def _collect(self) -> None:
        while self._returned:
            insort(self._free, self._returned.popleft())
            if not self._returned:
                self._join()

    def _join(self) -> None:
        joined: list[tuple[int, int]] = []
        for offset, size_bytes in self._free:
            if joined and sum(joined[-1]) == offset:
                joined[-1] = joined[-1][0], joined[-1][1] + size_bytes
            else:
                joined.append((offset, size_bytes))
        self._free = joined


class Region:
    """Some of an arena, used by nobody else as long as this object is held."""

    __slots__ = ("__weakref__", "arena", "offset", "size_bytes")

    def __init__(self, arena: Arena, offset: int, size_bytes: int) -> None:
        self.arena = arena
        self.offset = offset
        self.size_bytes = size_bytes

    def __del__(self) -> None:
        self.arena.give_back(self.offset, self.size_bytes)

    @property
    def memory(self) -> memoryview:
        return self.arena.memory[self.offset : self.offset + self.size_bytes]


class Piece:
    """The bytes of one tensor in a region: what a payload has in the place of a frame. `offset` is the arena's."""

    __slots__ = ("offset", "region", "size_bytes")

    def __init__(self, region: Region, offset: int, size_bytes: int) -> None:
        self.region = region
        self.offset = offset
        self.size_bytes = size_bytes

    def __len__(self) -> int:
        return self.size_bytes

    @property
    def memory(self) -> memoryview:
        return self.region.arena.memory[self.offset : self.offset + self.size_bytes]


class Arenas:
    """Safe for many threads. Before there is a pool, and where it lends nothing, there is no memory here."""

    def __init__(self) -> None:
        self.settled = threading.Event()
        """Set while it is known whether the pool lends anything."""
        self._lock = threading.Lock()
        self._arenas: list[Arena] = []
        self._loan: socket.socket | None = None
        self._pause_until = 0.0

    def open(self, path: Path, ticket: bytes) -> None:
        """A pool lends memory to who shows this ticket at its socket. Does not wait."""
        if ticket:
            loan = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
            loan.setblocking(False)
            try:
                loan.connect(str(path))
                loan.send(ticket, socket.MSG_NOSIGNAL)
            except OSError:  # too many at once: tensors are sent along
                loan.close()
            else:
                with self._lock:
                    self._loan, self._pause_until = loan, 0.0
        self.settled.set()

    def lose_pool(self) -> None:
        """What is in use stays as it is; nothing of it is used again. Its holder's end is the pool's to see."""
        self.settled.clear()
        with self._lock:
            for arena in self._arenas:
                arena.is_current = False
            self._arenas = []
            loan, self._loan = self._loan, None
        if loan is not None:
            loan.close()

    def place(self, size_bytes: int) -> Region | None:
        """Memory for so many bytes, if there is any. Waits for a pool that is busy, a second at most."""
        with self._lock:
            for arena in self._arenas:
                region = arena.take(size_bytes)
                if region is not None:
                    return region
            return self._borrowed(size_bytes)

    def trim(self, now: float) -> None:
        """To be called now and then."""
        if self._arenas and self._lock.acquire(blocking=False):
            try:
                for arena in self._arenas:
                    arena.trim(now)
            finally:
                self._lock.release()

    def abandon_after_fork(self) -> None:
        """In a forked child: the arenas are the parent's."""
        self._lock = threading.Lock()
        self._loan = None
        self._arenas = []

    def _borrowed(self, size_bytes: int) -> Region | None:
        now = time.monotonic()
        if self._loan is None or now < self._pause_until:
            return None
        least = rounded_up(size_bytes, mmap.PAGESIZE)
        try:
            self._loan.send(Wish(least, max(USUAL_BYTES, 4 * least)).pack(), socket.MSG_NOSIGNAL)
            poll = select.poll()
            poll.register(self._loan, select.POLLIN)
            # A grant that came too late for the last wish is one for this.
            while poll.poll(max(0.0, now + GRANT_S - time.monotonic()) * 1000):
                arena = _granted(self._loan)
                if arena is None:
                    break
                self._arenas.append(arena)
                region = arena.take(size_bytes)
                if region is not None:
                    return region
        except (OSError, BadFrame, BadArena):
            pass
        self._pause_until = time.monotonic() + PAUSE_S
        return None


def _granted(loan: socket.socket) -> Arena | None:
    with receive_grant(loan) as received:
        if received is None or received[1] is None:
            return None
        grant, fd = received
        assert fd is not None
        return Arena(grant.arena, attach(fd, grant.size_bytes))
