"""Which workers have which arenas, and which of their batches lie there."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import zmq

from pool.core import Part
from pool.serve.arenas import Arena, LentBuffer, Tenancy
from pool.serve.rows import Cut, Inputs
from pool.wire.lent import NO_ROOM, Lent, Room

__all__ = ["Handouts"]

Seat = tuple[int, int]  # slot, incarnation
Buffers: TypeAlias = "list[zmq.Frame | Cut]"


class Handouts:
    def __init__(self, hand: Callable[[int, int, Arena], bool], end: Callable[[int, int, int], bool]) -> None:
        """`hand` gives an arena to a worker; False where that cannot be: then what lies in it is sent along.

        `end` tells a worker that there is no such arena any more; False where that has to be tried again.
        """
        self._hand = hand
        self._end = end
        self._handed: dict[Seat, dict[int, bool]] = {}  # by arena, whether the worker has it
        self._over: dict[Seat, list[int]] = {}  # arenas that have ended, of which a worker was not told yet
        self.tenants: dict[Seat, dict[int, list[tuple[Tenancy, LentBuffer | None]]]] = {}  # by batch
        """To be read: of which workers a batch may lie in arenas."""

    def begun(
        self, seat: Seat, batch: int, parts: Sequence[Part], buffers: "Buffers"
    ) -> tuple[tuple[Lent, ...], tuple[Room, ...]]:
        """What a RUN of these parts says of arenas. What is lent is empty in `buffers` then.

        Until the batch has `ended`, nobody else may use the memory. REQUIRES that a part lies in an arena: few do.
        """
        inside: list[Inputs] = [part.job.payload for part in parts]  # type: ignore[misc]  # as `Front` gave them to the core
        tenants = []
        rooms = []
        for inputs, part in zip(inside, parts, strict=True):
            room = None
            if inputs.tenancy is not None:
                inputs.tenancy.hold()
                room = inputs.tenancy.room_for(part.start, part.stop, inputs.rows)
                tenants.append((inputs.tenancy, room))
            has = room is not None and self._has(seat, room.arena)
            rooms.append(Room(room.arena.number, room.offset, room.size_bytes) if has and room is not None else NO_ROOM)
        self.tenants.setdefault(seat, {})[batch] = tenants
        lent = []
        for index, buffer in enumerate(buffers):
            if not isinstance(buffer, LentBuffer):
                continue
            if self._has(seat, buffer.arena):
                lent.append(Lent(index, buffer.arena.number, buffer.offset, buffer.size_bytes))
                buffers[index] = b""
            else:
                buffers[index] = buffer.buffer
        return tuple(lent), tuple(rooms) if any(room.size_bytes for room in rooms) else ()

    def ended(self, seat: Seat, batch: int) -> None:
        """It does not run any more, or never did."""
        tenants = self.tenants.get(seat)
        if tenants is not None:
            for tenancy, room in tenants.pop(batch, ()):
                tenancy.let_go(room)

    def exited(self, seat: Seat) -> None:
        """The worker's exit was seen: it reads and writes nothing any more."""
        for batch in list(self.tenants.get(seat, ())):
            self.ended(seat, batch)
        self.tenants.pop(seat, None)
        self._handed.pop(seat, None)
        self._over.pop(seat, None)

    def closed(self, arenas: Iterable[int]) -> None:
        """These have ended, and a worker's mapping is memory, too. To be called again where `is_behind` is true."""
        for arena in arenas:
            for seat, handed in self._handed.items():
                if handed.pop(arena, False):
                    self._over.setdefault(seat, []).append(arena)
        if self._over:
            left = {seat: [arena for arena in over if not self._end(*seat, arena)] for seat, over in self._over.items()}
            self._over = {seat: over for seat, over in left.items() if over}

    @property
    def is_behind(self) -> bool:
        """Whether a worker is still to be told of an arena's end."""
        return bool(self._over)

    def _has(self, seat: Seat, arena: Arena) -> bool:
        handed = self._handed.setdefault(seat, {})
        has = handed.get(arena.number)
        if has is None:
            has = handed[arena.number] = self._hand(*seat, arena)
        return has
