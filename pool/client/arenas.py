"""The memory that the pool has lent this client, and the parts of it that are in use.

A `Region` is in use as long as anything holds it: the job that lies in it until the pool has released it, the caller's
array that looks at it. Dropped by the last of them it is used again, the lowest first, because memory that was touched
before costs a tenth of what new pages do.

Jobs of one call lie side by side, to the byte: what a worker joins to a batch is one piece of memory then.

    ┌───────┬───────┬───────┬ ─ ─ ─ ─ ─ ─ ─ ─ ─ ┬──────┬──────────────
    │ job 1 │ job 2 │ job 3 │ the call's `Ahead`  │ room │ free …
    └───────┴───────┴───────┴ ─ ─ ─ ─ ─ ─ ─ ─ ─ ┴──────┴──────────────
"""

import contextlib
import mmap
import os
import threading
import time
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path

# Not when it is needed: that is in the I/O thread, and a child that is forked in between would wait for its import.
from pool.client.loan import Loan
from pool.wire.lent import rounded_up

__all__ = ["Arena", "Arenas", "Piece", "Region"]

GRANT_S = 1.0  # the pool grants at once, unless it is busy: then what is asked for is sent along
PAUSE_S = 5.0  # before a pool that lends nothing is asked again
TRIM_S = 10.0  # memory that nothing has used for so long is given back to the machine
MOST_BYTES = 1 << 60  # more is no size for memory
JOINED_BYTES = 4 << 20  # larger ones hardly run together, so each begins where TensorFlow takes it as it is
JOBS_AHEAD = 16  # of a call, at least, for which place is kept behind its last one
MOST_AHEAD = 16  # calls for which place is kept

_forks = 0  # of this process, each counted before and after: a child sees what was in use in between


@dataclass(slots=True)
class Ahead:
    """The bytes behind the last job of a call: its next one begins there. Nobody else is given them meanwhile."""

    begin: int
    end: int


class Arena:
    """`is_current`: the pool that has lent it is still there. Used by many threads, under the lock of `Arenas`."""

    def __init__(self, number: int, memory: mmap.mmap) -> None:
        self.number = number
        self.memory = memoryview(memory)
        self.is_current = True
        self._mapping = memory
        self._free = [(0, len(memory))]  # begin and end, ascending; no two of them adjoin
        self._ahead: dict[Hashable, Ahead] = {}  # by call, the oldest first
        self._returned: deque[tuple[int, int]] = deque()  # by finalizers, which can take no lock
        self._touched = 0  # behind this, nothing has ever been used, or all was given back
        self._used = 0  # the same for the time since the last `trim`

    def take(self, size_bytes: int, call: Hashable = None) -> "Region | None":
        """The lowest part that is free, from a multiple of `ALIGNED` on. REQUIRES a byte at least.

        Of a `call` it begins where the last one of that call ends, while that is in use and there is place behind it.
        """
        self._collect()
        if call is None or size_bytes > JOINED_BYTES:
            begin = self._begin(size_bytes)
        else:
            ahead = self._ahead.get(call)
            if ahead is None or ahead.end - ahead.begin < size_bytes:
                ahead = self._look_ahead(call, size_bytes)
            begin = None if ahead is None else ahead.begin
            if ahead is not None:
                ahead.begin += size_bytes
        if begin is None:
            return None
        self._used = max(self._used, begin + size_bytes)
        self._touched = max(self._touched, self._used)
        return Region(self, begin, size_bytes)

    def give_back(self, offset: int, size_bytes: int) -> None:
        """From any thread, at any instant."""
        self._returned.append((offset, offset + size_bytes))

    @property
    def is_touched(self) -> bool:
        """Whether it takes memory of the machine."""
        return self._touched > 0

    def trim(self) -> None:
        """Gives the pages back to the machine that are free, and have been since the last time.

        A page that is free in part is somebody's.
        """
        self._collect()
        self._forget(list(self._ahead))
        for begin, end in self._free:
            first = rounded_up(max(begin, self._used), mmap.PAGESIZE)
            size_bytes = (min(end, rounded_up(self._touched, mmap.PAGESIZE)) - first) // mmap.PAGESIZE * mmap.PAGESIZE
            if size_bytes > 0:
                with contextlib.suppress(OSError):
                    self._mapping.madvise(mmap.MADV_REMOVE, first, size_bytes)
        in_use = len(self.memory)
        if self._free and self._free[-1][1] == in_use:
            in_use = self._free[-1][0]
        self._touched, self._used = max(self._used, in_use), 0

    def _begin(self, size_bytes: int) -> int | None:
        """Takes the lowest so many bytes; what is kept for calls is given for it, if nothing else is left."""
        found = self._lowest(size_bytes)
        if found is None and self._ahead:
            self._forget(list(self._ahead))
            found = self._lowest(size_bytes)
        return None if found is None else self._cut(found, size_bytes)

    def _look_ahead(self, call: Hashable, size_bytes: int) -> Ahead | None:
        """Place for several jobs of the call, behind its last one if there is some.

        It is as much as is in use: where so much is free lower down, the call goes on there. Jobs end in about the
        order in which they came, so they come round like this, in twice the memory that they need at once.
        """
        last = self._ahead.get(call)
        behind = None if last is None else last.begin
        self._forget([call] if last is not None else ())
        kept = sum([ahead.end - ahead.begin for ahead in self._ahead.values()])
        in_use = len(self.memory) - kept - sum([end - begin for begin, end in self._free])
        wanted = max(size_bytes, min(JOBS_AHEAD * size_bytes, len(self.memory) // 4), in_use)
        found = self._lowest(wanted, behind) or self._largest(size_bytes, behind)
        if found is None and self._ahead:
            self._forget(list(self._ahead))
            found = self._largest(size_bytes, behind)
        if found is None:
            return None
        size_bytes = min(wanted, found[1] - found[0])
        begin = self._cut(found, size_bytes)
        ahead = self._ahead[call] = Ahead(begin, begin + size_bytes)
        if len(self._ahead) > MOST_AHEAD:
            self._forget([next(iter(self._ahead))])
        return ahead

    def _lowest(self, size_bytes: int, behind: int | None = None) -> tuple[int, int] | None:
        """The first free part of so many bytes. It begins at a multiple of `ALIGNED`, or at `behind`."""
        for begin, end in self._free:
            begin = begin if begin == behind else rounded_up(begin)
            if end - begin >= size_bytes:
                return begin, end
        return None

    def _largest(self, least_bytes: int, behind: int | None) -> tuple[int, int] | None:
        parts = [(begin if begin == behind else rounded_up(begin), end) for begin, end in self._free]
        begin, end = max(parts, key=lambda part: part[1] - part[0], default=(0, 0))
        return (begin, end) if end - begin >= least_bytes else None

    def _cut(self, found: tuple[int, int], size_bytes: int) -> int:
        """Where they begin. `found`: all or the end of a free part."""
        begin, end = found
        index = bisect_left(self._free, (begin + 1,)) - 1
        free = self._free[index][0]
        self._free[index : index + 1] = [
            part for part in ((free, begin), (begin + size_bytes, end)) if part[0] < part[1]
        ]
        return begin

    def _collect(self) -> None:
        if not self._returned:
            return
        while self._returned:
            begin, end = self._returned.popleft()
            insort(self._free, (begin, end))
            self._used = max(self._used, end)
        self._join()
        self._forget([call for call, ahead in self._ahead.items() if self._is_free_before(ahead.begin)])

    def _is_free_before(self, offset: int) -> bool:
        index = bisect_left(self._free, (offset,)) - 1
        return index >= 0 and self._free[index][1] == offset

    def _forget(self, calls: Iterable[Hashable]) -> None:
        """Their next job begins anywhere, as one alone does."""
        if not calls:
            return
        for call in calls:
            ahead = self._ahead.pop(call)
            if ahead.begin < ahead.end:
                insort(self._free, (ahead.begin, ahead.end))
        self._join()

    def _join(self) -> None:
        joined: list[tuple[int, int]] = []
        for begin, end in self._free:
            if joined and joined[-1][1] == begin:
                joined[-1] = joined[-1][0], end
            else:
                joined.append((begin, end))
        self._free = joined


class Region:
    """Some of an arena, used by nobody else as long as this object is held."""

    __slots__ = ("__weakref__", "_shown", "arena", "offset", "size_bytes")

    def __init__(self, arena: Arena, offset: int, size_bytes: int) -> None:
        self.arena = arena
        self.offset = offset
        self.size_bytes = size_bytes
        self._shown: int | None = None

    def __del__(self) -> None:
        if self._shown is None or self._shown == _forks:
            self.arena.give_back(self.offset, self.size_bytes)

    def show(self) -> None:
        """The caller has an array there. So has, after a fork, the child: then it is never used again here."""
        if self._shown is None:
            self._shown = _forks

    def keep(self, size_bytes: int) -> None:
        """Of no more than so many bytes from its beginning; what is behind them is free again. Nobody looks there."""
        if size_bytes < self.size_bytes:
            behind, self.size_bytes = self.size_bytes - size_bytes, size_bytes
            self.arena.give_back(self.offset + size_bytes, behind)

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
        """Set once it is known whether the pool lends anything; one that is away does not."""
        self._lock = threading.Lock()
        self._arenas: list[Arena] = []
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
            for arena in self._arenas:
                arena.is_current = False
            self._arenas = []
            loan, self._loan = self._loan, None
        if loan is not None:
            loan.close()

    def place(self, size_bytes: int, call: Hashable = None) -> Region | None:
        """Memory for so many bytes, if there is any. Waits for a pool that is busy, a second at most.

        Those of one `call` lie side by side, where there is place; see `Arena.take`.
        """
        with self._lock:
            for arena in self._arenas:
                region = arena.take(size_bytes, call)
                if region is not None:
                    return region
            return self._borrowed(size_bytes, call)

    def has(self, region: Region) -> bool:
        """Whether it is memory that this pool has lent: another client's, or a former pool's, means nothing to it."""
        return region.arena in self._arenas

    def next_trim(self) -> float | None:
        """When `trim` is to be called at the latest; None while nothing takes any memory."""
        return self._trim_at if any(arena.is_touched for arena in self._arenas) else None

    def trim(self, now: float) -> None:
        """Gives back, at its time, what was not used of late. Does not wait."""
        if not self._arenas or now < self._trim_at:
            return
        self._trim_at = now + TRIM_S
        if self._lock.acquire(blocking=False):
            try:
                for arena in self._arenas:
                    arena.trim()
            finally:
                self._lock.release()

    def abandon_after_fork(self) -> None:
        """In a forked child: the arenas are the parent's."""
        self._lock = threading.Lock()
        loan, self._loan = self._loan, None
        self._arenas = []
        if loan is not None:
            loan.close()  # the parent has its own

    def _borrowed(self, size_bytes: int, call: Hashable) -> Region | None:
        now = time.monotonic()
        if self._loan is None or now < self._pause_until or size_bytes > MOST_BYTES:
            return None
        for number, memory in self._loan.wish(rounded_up(size_bytes, mmap.PAGESIZE), now + GRANT_S):
            arena = Arena(number, memory)
            self._arenas.append(arena)
            region = arena.take(size_bytes, call)
            if region is not None:
                return region
        self._pause_until = time.monotonic() + PAUSE_S
        return None


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(before=_count_fork, after_in_parent=_count_fork)
