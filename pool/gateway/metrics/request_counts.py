"""How many requests had which response, and after how long: of all processes of a gateway together.

    process 0 ─► section 0 ─┐
    process 1 ─► section 1 ─┼─► a file in memory that all have mapped ─► each process tells the sums
    one that follows ───────┘      a section is one process's; when that ends, the next one counts on in it

A process takes a section by a lock that the kernel ends with it. So no two write to one, and no count is lost.
"""

import contextlib
import fcntl
import mmap
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pool.wire.records import Histogram

__all__ = ["ROUTES", "RequestCounts", "Route"]

OTHER = "other"
ROUTES = (
    *("infer", "predict", "classify", "regress"),
    *("metadata", "ready", "live", "config", "stats", "metrics", "index", OTHER),
)
CODES = (
    *(200, 304, 400, 401, 403, 404, 405, 408, 409, 411, 413, 414, 415, 417, 421, 429, 431, 499),
    *(500, 501, 502, 503, 504, 505),
)
TIMES = 40  # buckets: at most 2^n µs
MICROSECONDS = 1e6 * (1 - 1e-9)  # as the pool's: what lasts exactly 2^n µs is in the bucket that ends there

# In cells of 8 bytes: which layout it is, then the sections. A section: whether it was ever used; then by route the
# requests by code, those with another one, the requests by time, and the sum of their times in microseconds.
TIMES_AT = len(CODES) + 1
SUM_AT = TIMES_AT + TIMES
ROUTE_CELLS = SUM_AT + 1
SECTION_CELLS = 1 + len(ROUTES) * ROUTE_CELLS
SECTIONS = 256  # processes at one time, those that only finish what they have among them
SIZE_BYTES = 8 * (1 + SECTIONS * SECTION_CELLS)  # of which the machine only holds what was written to
LAYOUT = zlib.crc32(repr((ROUTES, CODES, TIMES, SECTIONS)).encode())


@dataclass(frozen=True, slots=True)
class Route:
    """`requests`: by status code, or "other"; those that were never given are left out."""

    name: str
    requests: Mapping[str, int]
    times: Histogram


class RequestCounts:
    def __init__(self, shared_fd: int | None = None) -> None:
        """`shared_fd`: a file in memory that was empty when the first of its processes began. None: it has no others.

        REQUIRES that the process has no other one for the same file, and closes no other descriptor of it.
        """
        section = None
        if shared_fd is not None:
            if os.fstat(shared_fd).st_size < SIZE_BYTES:
                os.ftruncate(shared_fd, SIZE_BYTES)
            self._cells = memoryview(mmap.mmap(shared_fd, SIZE_BYTES)).cast("Q")
            section = self._own_section(shared_fd)
        if section is None:  # it counts for itself alone
            section = 0
            self._cells = memoryview(mmap.mmap(-1, SIZE_BYTES)).cast("Q")
        self._cells[0] = LAYOUT
        start = 1 + section * SECTION_CELLS
        self._cells[start] = 1
        self._routes = {route: start + 1 + place * ROUTE_CELLS for place, route in enumerate(ROUTES)}
        self._codes = {code: place for place, code in enumerate(CODES)}

    def count(self, route: str, status: int, seconds: float | None) -> None:
        """Of a route that is none of `ROUTES`: as "other". A status that is not usual: likewise.

        `seconds` None: it was refused, and is in no histogram.
        """
        routes, codes, cells = self._routes, self._codes, self._cells
        start = routes[route] if route in routes else routes[OTHER]
        cells[start + (codes[status] if status in codes else len(CODES))] += 1
        if seconds is None:
            return
        bucket = int(seconds * MICROSECONDS).bit_length()
        cells[start + TIMES_AT + (bucket if bucket < TIMES else TIMES - 1)] += 1
        cells[start + SUM_AT] += int(seconds * 1e6)

    def routes(self) -> Iterator[Route]:
        """Of all processes: those that were asked for at least once."""
        sums = [0] * (SECTION_CELLS - 1)
        for start in range(1, len(self._cells), SECTION_CELLS):
            if self._cells[start]:
                cells = self._cells[start + 1 : start + SECTION_CELLS].tolist()
                sums = [a + b for a, b in zip(sums, cells, strict=True)]
        for place, name in enumerate(ROUTES):
            found = sums[place * ROUTE_CELLS : (place + 1) * ROUTE_CELLS]
            codes = dict(zip((*map(str, CODES), OTHER), found, strict=False))
            times = Histogram(tuple(found[TIMES_AT:SUM_AT]), found[SUM_AT] / 1e6)
            if any(codes.values()):
                yield Route(name, {code: count for code, count in codes.items() if count}, times)

    def _own_section(self, shared_fd: int) -> int | None:
        """The first that no living process has. None: there is none, or the file is another release's."""
        if self._cells[0] not in (0, LAYOUT):
            return None
        for section in range(SECTIONS):
            with contextlib.suppress(OSError):
                fcntl.lockf(shared_fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, section)
                return section
        return None
