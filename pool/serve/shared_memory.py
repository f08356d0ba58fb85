"""The memory that is lent to clients, and which jobs lie in it.

A region belongs to the pool from a job's SUBMIT until its `JobRegions` end: the job is answered, and no worker can read
or write there for it any more. What a client writes there meanwhile harms nobody but its own jobs.
"""

import mmap
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pool.wire import segment as wire
from pool.wire.codec import BadFrame
from pool.wire.lent import AnswerSpace, Lent, rounded_up

__all__ = ["JobRegions", "Region", "Segment", "SharedMemory"]

PAGE_BYTES = mmap.PAGESIZE
SMALLEST_BYTES = 16 << 20  # as long as there is so much: each segment costs descriptors and mappings, which are few


class Segment:
    """`memory` is the pool's own mapping of it: for those that have none, and for what outlives the client."""

    def __init__(self, number: int, client: bytes, size_bytes: int) -> None:
        """Raises `OSError`."""
        self.number = number
        self.client = client
        self.size_bytes = size_bytes
        self.fd = wire.create(size_bytes)
        try:
            self.memory = memoryview(wire.attach(self.fd, size_bytes))
        except wire.BadSegment as error:  # there are no mappings left
            os.close(self.fd)
            raise OSError(str(error)) from None

    def close(self) -> None:
        """Nobody is given it any more. What still looks at the memory keeps it."""
        os.close(self.fd)
        self.fd = -1


class Region:
    """Some bytes of a segment, in the place of a payload frame."""

    __slots__ = ("offset", "segment", "size_bytes")

    def __init__(self, segment: Segment, offset: int, size_bytes: int) -> None:
        self.segment = segment
        self.offset = offset
        self.size_bytes = size_bytes

    def __len__(self) -> int:
        return self.size_bytes

    @property
    def buffer(self) -> memoryview:
        """The client can write there at any time."""
        return self.segment.memory[self.offset : self.offset + self.size_bytes]

    def cut(self, start: int, stop: int) -> "Region":
        return Region(self.segment, self.offset + start, stop - start)

    def overlaps(self, other: "Region") -> bool:
        """REQUIRES the same segment."""
        return self.offset < other.offset + other.size_bytes and other.offset < self.offset + self.size_bytes


class JobRegions:
    """The regions that one job lies in, and who may still read or write there.

    The first hold is the job's own, until it is answered; each batch with a part of it has another.
    `quiet`: its client need not be told of its end, having gone, or knowing of it.
    """

    __slots__ = ("_holds", "_over", "_space", "_taken", "quiet", "segments")

    def __init__(self, segments: Sequence[Segment], space: Region | None, over: Callable[["JobRegions"], None]) -> None:
        self.segments = segments
        self.quiet = False
        self._space = space
        self._taken: list[Region] = []  # of the space, by batches that may still write there
        self._holds = 1
        self._over = over

    def hold(self) -> None:
        assert self._holds, "its memory may be another's by now"
        self._holds += 1

    @property
    def is_over(self) -> bool:
        """Whether its memory may be another's by now."""
        return not self._holds

    @property
    def is_last(self) -> bool:
        """Whether one hold is left."""
        return self._holds == 1

    def let_go(self, space: Region | None = None) -> None:
        """`space`: what it had of the space."""
        assert self._holds, "it was let go more often than held"
        if space is not None:
            self._taken.remove(space)
        self._holds -= 1
        if not self._holds:
            self._over(self)

    def space_for(self, start: int, stop: int, rows: int | None) -> Region | None:
        """Where the answer to these of the job's rows may be written, until it is let go; None: nowhere.

        Pieces of one job do not overlap. But a job may start over while pieces of it still run that nobody waits for.
        """
        if self._space is None:
            return None
        size_bytes, share = self._space.size_bytes, (start, stop) if rows and stop else (0, rows or 1)
        begin = rounded_up(size_bytes * share[0] // (rows or 1))
        end = size_bytes * share[1] // (rows or 1)
        space = Region(self._space.segment, self._space.offset + begin, end - begin)
        if end <= begin or any(space.overlaps(other) for other in self._taken):
            return None
        self._taken.append(space)
        return space


class SharedMemory:
    def __init__(self, most_bytes: int, client_most_bytes: int, ended: Callable[[], None] = lambda: None) -> None:
        """`most_bytes` may be lent together, `client_most_bytes` of them to one client.

        `ended` is called when `closed` has something to tell.
        """
        self.lent_bytes = 0
        self._ended = ended
        self.most_bytes = most_bytes
        self._client_most_bytes = client_most_bytes
        self._segments: dict[int, Segment] = {}
        self._users: Counter[int] = Counter()  # by segment
        self._numbers = 0
        self._closed: list[int] = []

    @property
    def segments(self) -> int:
        """How many are lent, or still used."""
        return len(self._segments)

    def adopt(self, most_bytes: int, client_most_bytes: int) -> None:
        """What is lent stays lent."""
        self.most_bytes, self._client_most_bytes = most_bytes, client_most_bytes

    def lend(self, client: bytes, request: wire.MemoryRequest) -> Segment | None:
        """A new segment, if there may be one of a size that serves the client."""
        has = sum(segment.size_bytes for segment in self._segments.values() if segment.client == client)
        left = min(self.most_bytes - self.lent_bytes, self._client_most_bytes - has)
        wanted = max(SMALLEST_BYTES, rounded_up(request.most_bytes, PAGE_BYTES))
        size_bytes = min(wanted, left // PAGE_BYTES * PAGE_BYTES)
        if size_bytes < max(1, request.least_bytes):
            return None
        try:
            segment = Segment(self._numbers + 1, client, size_bytes)
        except OSError:  # no descriptor, or no memory, is left: tensors are sent along
            return None
        self._numbers += 1
        self._segments[segment.number] = segment
        self.lent_bytes += size_bytes
        return segment

    def revoke(self, segment: Segment) -> None:
        """It did not reach its client, so nothing lies in it."""
        self._end(segment)

    def take_back(self, client: bytes) -> None:
        """The client is gone: its segments end as soon as no job lies in them."""
        for segment in [segment for segment in self._segments.values() if segment.client == client]:
            segment.client = b""
            self._end_if_left(segment)

    def closed(self) -> Iterator[int]:
        """The numbers of segments that have ended since this was asked last: workers need them no more."""
        closed, self._closed = self._closed, []
        yield from closed

    def buffer(self, client: bytes, number: int, offset: int, size_bytes: int) -> Region:
        """Raises `BadFrame` for what is not within a segment of the client's."""
        segment = self._segments.get(number)
        if segment is None or segment.client != client:
            raise BadFrame(f"segment {number} is not lent to this client")
        if offset < 0 or size_bytes < 0 or offset + size_bytes > segment.size_bytes:
            raise BadFrame(f"{size_bytes} bytes at {offset} of a segment of {segment.size_bytes}")
        return Region(segment, offset, size_bytes)

    def buffers(
        self, client: bytes, lent: Sequence[Lent], space: AnswerSpace | None, buffers: Sequence[Any]
    ) -> tuple[list[Any], list[Segment], Region | None]:
        """A job's buffers, with those that lie in segments; which segments it lies in; and the space for its answer.

        Raises `BadFrame` as `buffer` does.
        """
        found = list(buffers)
        places = [self.buffer(client, each.segment, each.offset, each.size_bytes) for each in lent]
        for each, place in zip(lent, places, strict=True):
            found[each.index] = place
        answer = None if space is None else self.buffer(client, space.segment, space.offset, space.size_bytes)
        if answer is not None:
            places += (answer,)
        return found, list({place.segment for place in places}), answer

    def regions(self, segments: Sequence[Segment], space: Region | None, over: Callable[[], None]) -> JobRegions:
        """Of a job in these segments; `over` is called when nobody reads or writes there any more."""

        def end(regions: JobRegions) -> None:
            self._users.subtract(segment.number for segment in regions.segments)
            for segment in regions.segments:
                self._end_if_left(segment)
            if not regions.quiet:
                over()

        self._users.update(segment.number for segment in segments)
        return JobRegions(segments, space, end)

    def close(self) -> None:
        for segment in list(self._segments.values()):
            self._end(segment)

    def _end_if_left(self, segment: Segment) -> None:
        if not segment.client and self._users[segment.number] <= 0 and segment.number in self._segments:
            self._end(segment)

    def _end(self, segment: Segment) -> None:
        del self._segments[segment.number]
        self._users.pop(segment.number, None)
        self.lent_bytes -= segment.size_bytes
        self._closed.append(segment.number)
        self._ended()
        segment.close()
