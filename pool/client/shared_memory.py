"""The memory that the pool has lent this client, and the parts of it that are in use.

A `Region` is in use as long as anything holds it: the job that lies in it until the pool has released it, the caller's
array that looks at it. Dropped by the last of them it is used again, the lowest first, because memory that was touched
before costs a tenth of what new pages do.
"""

import contextlib
import mmap
import os
import threading
import time
from collections import deque
from collections.abc import Hashable
from pathlib import Path

# Not when it is needed: that is in the I/O thread, and a child that is forked in between would wait for its import.
from pool.client.loan import Loan
from pool.client.space import Space
from pool.wire.lent import rounded_up

__all__ = ["Piece", "Region", "Segment", "SharedMemory"]

GRANT_S = 1.0  # the pool grants at once, unless it is busy: then what is asked for is sent along
PAUSE_S = 5.0  # before a pool that lends nothing is asked again
TRIM_S = 10.0  # memory that nothing has used for so long is given back to the machine
MOST_BYTES = 1 << 60  # more is no size for memory

_forks = 0  # of this process, each counted before and after: a child sees what was in use in between


class Segment:
    """`is_current`: the pool that lent it is still there. Used by many threads, under the lock of `SharedMemory`."""

    def __init__(self, number: int, memory: mmap.mmap) -> None:
        self.number = number
        self.memory = memoryview(memory)
        self.is_current = True
        self.address: int | None = None
        """Where it begins in this process; None until somebody has an array over it."""
        self._mapping = memory
        self._space = Space(len(memory))
        self._returned: deque[tuple[int, int, bool]] = deque()  # by finalizers, which can take no lock
        self._touched = 0  # behind this, nothing has ever been used, or all was given back
        self._used = 0  # the same for the time since the last `trim`

    def take(self, size_bytes: int, call: Hashable = None) -> "Region | None":
        """So many bytes, one at least, if there are any; see `Space.take`."""
        self._collect()
        begin = self._space.take(size_bytes, call)
        if begin is None:
            return None
        self._used = max(self._used, begin + size_bytes)
        self._touched = max(self._touched, self._used)
        return Region(self, begin, size_bytes, self._space.lies_beside(size_bytes, call))

    def give_back(self, offset: int, size_bytes: int, beside: bool = False) -> None:
        """From any thread, at any instant. `beside`: it lay beside others of its call."""
        self._returned.append((offset, offset + size_bytes, beside))

    @property
    def is_touched(self) -> bool:
        """Whether it takes memory of the machine."""
        return self._touched > 0

    def trim(self) -> None:
        """Gives the pages back to the machine that are free, and have been since the last time.

        A page that is free in part is somebody's.
        """
        self._collect()
        self._space.forget()
        in_use = len(self.memory)
        touched = rounded_up(self._touched, mmap.PAGESIZE)
        for begin, end in self._space.free():
            first = rounded_up(max(begin, self._used), mmap.PAGESIZE)
            size_bytes = (min(end, touched) - first) // mmap.PAGESIZE * mmap.PAGESIZE
            if size_bytes > 0:
                with contextlib.suppress(OSError):
                    self._mapping.madvise(mmap.MADV_REMOVE, first, size_bytes)
            if end == in_use:
                in_use = begin
        self._touched, self._used = max(self._used, in_use), 0

    def _collect(self) -> None:
        returned = []
        while self._returned:
            returned.append(self._returned.popleft())
        if returned:
            self._used = max(self._used, *[end for _, end, _ in returned])
            self._space.give_back(returned)


class Region:
    """Some of a segment, used by nobody else as long as this object is held."""

    __slots__ = ("__weakref__", "_beside", "_shown", "offset", "segment", "size_bytes")

    def __init__(self, segment: Segment, offset: int, size_bytes: int, beside: bool = False) -> None:
        """`beside`: it lies beside others of its call."""
        self.segment = segment
        self.offset = offset
        self.size_bytes = size_bytes
        self._beside = beside
        self._shown: int | None = None

    def __del__(self) -> None:
        if self._shown is None or self._shown == _forks:
            self.segment.give_back(self.offset, self.size_bytes, self._beside)

    def show(self) -> None:
        """The caller has an array there. So has, after a fork, the child: then it is never used again here."""
        if self._shown is None:
            self._shown = _forks

    def keep(self, size_bytes: int) -> None:
        """Of no more than so many bytes from its beginning; what is behind them is free again. Nobody looks there."""
        if size_bytes < self.size_bytes:
            behind, self.size_bytes = self.size_bytes - size_bytes, size_bytes
            self.segment.give_back(self.offset + size_bytes, behind, self._beside)

    @property
    def memory(self) -> memoryview:
        return self.segment.memory[self.offset : self.offset + self.size_bytes]


class Piece:
    """The bytes of one tensor in a region: what a payload has in the place of a frame. `offset` is the segment's."""

    __slots__ = ("offset", "region", "size_bytes")

    def __init__(self, region: Region, offset: int, size_bytes: int) -> None:
        self.region = region
        self.offset = offset
        self.size_bytes = size_bytes

    def __len__(self) -> int:
        return self.size_bytes

    @property
    def memory(self) -> memoryview:
        return self.region.segment.memory[self.offset : self.offset + self.size_bytes]


class SharedMemory:
    """Safe for many threads. Before there is a pool, and where it lends nothing, there is no memory here."""

    def __init__(self) -> None:
        self.settled = threading.Event()
        """Set once it is known whether the pool lends anything; one that is away does not."""
        self._lock = threading.Lock()
        self._segments: list[Segment] = []
        self._loan: Loan | None = None
        self._pause_until = 0.0
        self._trim_at = 0.0

    def open(self, path: Path, ticket: bytes) -> None:
        """A pool lends memory to who shows this ticket at its socket. Does not wait."""
        if ticket:
            try:
                loan = Loan(path, ticket)
            except OSError:  # too many at once: tensors are sent along
                pass
            else:
                with self._lock:
                    self._loan, self._pause_until = loan, 0.0
        self.settled.set()

    @property
    def lends(self) -> bool:
        """Whether there is memory here, or may be."""
        return self._loan is not None

    def lose_pool(self) -> None:
        """What is in use stays as it is; nothing of it is used again. Its holder's end is the pool's to see."""
        self.settled.set()
        with self._lock:
            for segment in self._segments:
                segment.is_current = False
            self._segments = []
            loan, self._loan = self._loan, None
        if loan is not None:
            loan.close()

    def place(self, size_bytes: int, call: Hashable = None) -> Region | None:
        """Memory for so many bytes, if there is any. Waits for a pool that is busy, a second at most.

        Those of one `call` lie side by side, where there is place; see `Space.take`.
        """
        with self._lock:
            for segment in self._segments:
                region = segment.take(size_bytes, call)
                if region is not None:
                    return region
            return self._borrowed(size_bytes, call)

    def has(self, region: Region) -> bool:
        """Whether it is memory that this pool has lent: another client's, or a former pool's, means nothing to it."""
        return region.segment in self._segments

    def next_trim(self) -> float | None:
        """When `trim` is to be called at the latest; None while nothing takes any memory."""
        return self._trim_at if any(segment.is_touched for segment in self._segments) else None

    def trim(self, now: float) -> None:
        """Gives back, at its time, what was not used of late. Does not wait."""
        if not self._segments or now < self._trim_at:
            return
        self._trim_at = now + TRIM_S
        if self._lock.acquire(blocking=False):
            try:
                for segment in self._segments:
                    segment.trim()
            finally:
                self._lock.release()

    def abandon_after_fork(self) -> None:
        """In a forked child: the segments are the parent's."""
        self._lock = threading.Lock()
        loan, self._loan = self._loan, None
        self._segments = []
        if loan is not None:
            loan.close()  # the parent has its own

    def _borrowed(self, size_bytes: int, call: Hashable) -> Region | None:
        now = time.monotonic()
        if self._loan is None or now < self._pause_until or size_bytes > MOST_BYTES:
            return None
        for number, memory in self._loan.request(rounded_up(size_bytes, mmap.PAGESIZE), now + GRANT_S):
            segment = Segment(number, memory)
            self._segments.append(segment)
            region = segment.take(size_bytes, call)
            if region is not None:
                return region
        self._pause_until = time.monotonic() + PAUSE_S
        return None


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(before=_count_fork, after_in_parent=_count_fork)
