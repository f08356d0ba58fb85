"""The memory that is lent to clients, and which jobs lie in it.

A part of an arena belongs to the pool from a job's SUBMIT until its `Tenancy` ends: the job is answered, and no worker
can read or write there for it any more. What a client writes there meanwhile harms nobody but its own jobs.
"""

import mmap
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pool.wire import arena as wire
from pool.wire.codec import BadFrame
from pool.wire.lent import Lent, Room, rounded_up

__all__ = ["Arena", "Arenas", "LentBuffer", "Tenancy"]

PAGE_BYTES = mmap.PAGESIZE
SMALLEST_BYTES = 16 << 20  # as long as there is so much: each arena costs descriptors and mappings, which are few


class Arena:
    """`memory` is the pool's own mapping of it: for those that have none, and for what outlives the client."""

    def __init__(self, number: int, client: bytes, size_bytes: int) -> None:
        """Raises `OSError`."""
        self.number = number
        self.client = client
        self.size_bytes = size_bytes
        self.fd = wire.create(size_bytes)
        try:
            self.memory = memoryview(wire.attach(self.fd, size_bytes))
        except wire.BadArena as error:  # there are no mappings left
            os.close(self.fd)
            raise OSError(str(error)) from None

    def close(self) -> None:
        """Nobody is given it any more. What still looks at the memory keeps it."""
        os.close(self.fd)
        self.fd = -1


class LentBuffer:
    """Some bytes of an arena, in the place of a payload frame."""

    __slots__ = ("arena", "offset", "size_bytes")

    def __init__(self, arena: Arena, offset: int, size_bytes: int) -> None:
        self.arena = arena
        self.offset = offset
        self.size_bytes = size_bytes

    def __len__(self) -> int:
        return self.size_bytes

    @property
    def buffer(self) -> memoryview:
        """The client can write there at any time."""
        return self.arena.memory[self.offset : self.offset + self.size_bytes]

    def cut(self, start: int, stop: int) -> "LentBuffer":
        return LentBuffer(self.arena, self.offset + start, stop - start)

    def overlaps(self, other: "LentBuffer") -> bool:
        """REQUIRES the same arena."""
        return self.offset < other.offset + other.size_bytes and other.offset < self.offset + self.size_bytes


class Tenancy:
    """The parts of arenas that one job lies in, and who may still read or write there.

    The first hold is the job's own, until it is answered; each batch with a part of it has another.
    `quiet`: its client need not be told of its end, having gone, or knowing of it.
    """

    __slots__ = ("_holds", "_over", "_room", "_taken", "arenas", "quiet")

    def __init__(self, arenas: Sequence[Arena], room: LentBuffer | None, over: Callable[["Tenancy"], None]) -> None:
        self.arenas = arenas
        self.quiet = False
        self._room = room
        self._taken: list[LentBuffer] = []  # of the room, by batches that may still write there
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

    def let_go(self, room: LentBuffer | None = None) -> None:
        """`room`: what it had of the room."""
        assert self._holds, "it was let go more often than held"
        if room is not None:
            self._taken.remove(room)
        self._holds -= 1
        if not self._holds:
            self._over(self)

    def room_for(self, start: int, stop: int, rows: int | None) -> LentBuffer | None:
        """Where the answer to these of the job's rows may be written, until it is let go; None: nowhere.

        Pieces of one job do not overlap. But a job may start over while pieces of it still run that nobody waits for.
        """
        if self._room is None:
            return None
        size_bytes, share = self._room.size_bytes, (start, stop) if rows and stop else (0, rows or 1)
        begin = rounded_up(size_bytes * share[0] // (rows or 1))
        end = size_bytes * share[1] // (rows or 1)
        room = LentBuffer(self._room.arena, self._room.offset + begin, end - begin)
        if end <= begin or any(room.overlaps(other) for other in self._taken):
            return None
        self._taken.append(room)
        return room


class Arenas:
    def __init__(self, most_bytes: int, client_most_bytes: int, ended: Callable[[], None] = lambda: None) -> None:
        """`most_bytes` may be lent together, `client_most_bytes` of them to one client.

        `ended` is called when `closed` has something to tell.
        """
        self.lent_bytes = 0
        self._ended = ended
        self._most_bytes = most_bytes
        self._client_most_bytes = client_most_bytes
        self._arenas: dict[int, Arena] = {}
        self._tenants: Counter[int] = Counter()  # by arena
        self._numbers = 0
        self._closed: list[int] = []

    def adopt(self, most_bytes: int, client_most_bytes: int) -> None:
        """What is lent stays lent."""
        self._most_bytes, self._client_most_bytes = most_bytes, client_most_bytes

    def lend(self, client: bytes, wished: wire.Wish) -> Arena | None:
        """A new arena, if there may be one of a size that serves the client."""
        has = sum(arena.size_bytes for arena in self._arenas.values() if arena.client == client)
        left = min(self._most_bytes - self.lent_bytes, self._client_most_bytes - has)
        wanted = max(SMALLEST_BYTES, rounded_up(wished.most_bytes, PAGE_BYTES))
        size_bytes = min(wanted, left // PAGE_BYTES * PAGE_BYTES)
        if size_bytes < max(1, wished.least_bytes):
            return None
        try:
            arena = Arena(self._numbers + 1, client, size_bytes)
        except OSError:  # no descriptor, or no memory, is left: tensors are sent along
            return None
        self._numbers += 1
        self._arenas[arena.number] = arena
        self.lent_bytes += size_bytes
        return arena

    def revoke(self, arena: Arena) -> None:
        """It did not reach its client, so nothing lies in it."""
        self._end(arena)

    def take_back(self, client: bytes) -> None:
        """The client is gone: its arenas end as soon as no job lies in them."""
        for arena in [arena for arena in self._arenas.values() if arena.client == client]:
            arena.client = b""
            self._end_if_left(arena)

    def closed(self) -> Iterator[int]:
        """The numbers of arenas that have ended since this was asked last: workers need them no more."""
        closed, self._closed = self._closed, []
        yield from closed

    def buffer(self, client: bytes, number: int, offset: int, size_bytes: int) -> LentBuffer:
        """Raises `BadFrame` for what is not within an arena of the client's."""
        arena = self._arenas.get(number)
        if arena is None or arena.client != client:
            raise BadFrame(f"arena {number} is not lent to this client")
        if offset < 0 or size_bytes < 0 or offset + size_bytes > arena.size_bytes:
            raise BadFrame(f"{size_bytes} bytes at {offset} of an arena of {arena.size_bytes}")
        return LentBuffer(arena, offset, size_bytes)

    def buffers(
        self, client: bytes, lent: Sequence[Lent], room: Room | None, buffers: Sequence[Any]
    ) -> tuple[list[Any], list[Arena], LentBuffer | None]:
        """A job's buffers, with those that lie in arenas; which arenas it lies in; and the room for its answer.

        Raises `BadFrame` as `buffer` does.
        """
        found = list(buffers)
        places = [self.buffer(client, each.arena, each.offset, each.size_bytes) for each in lent]
        for each, place in zip(lent, places, strict=True):
            found[each.index] = place
        answer = None if room is None else self.buffer(client, room.arena, room.offset, room.size_bytes)
        if answer is not None:
            places += (answer,)
        return found, list({place.arena for place in places}), answer

    def tenancy(self, arenas: Sequence[Arena], room: LentBuffer | None, over: Callable[[], None]) -> Tenancy:
        """Of a job in these arenas; `over` is called when nobody reads or writes there any more."""

        def end(tenancy: Tenancy) -> None:
            self._tenants.subtract(arena.number for arena in tenancy.arenas)
            for arena in tenancy.arenas:
                self._end_if_left(arena)
            if not tenancy.quiet:
                over()

        self._tenants.update(arena.number for arena in arenas)
        return Tenancy(arenas, room, end)

    def close(self) -> None:
        for arena in list(self._arenas.values()):
            self._end(arena)

    def _end_if_left(self, arena: Arena) -> None:
        if not arena.client and self._tenants[arena.number] <= 0 and arena.number in self._arenas:
            self._end(arena)

    def _end(self, arena: Arena) -> None:
        del self._arenas[arena.number]
        self._tenants.pop(arena.number, None)
        self.lent_bytes -= arena.size_bytes
        self._closed.append(arena.number)
        self._ended()
        arena.close()
