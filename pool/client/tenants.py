"""What of the arenas the pool may use.

From a job's SUBMIT until the pool has released it, however the job ended here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pool.client.arenas import Piece, Region
from pool.client.outstanding import Job
from pool.wire.lent import Lent, Room

__all__ = ["Tenants"]


@dataclass(eq=False, slots=True)
class _Tenant:
    """`sent`: how often, which is how many releases are to come."""

    payload: Sequence[bytes | Piece]
    room: Region | None
    sent: int = 0


class Tenants:
    """Used by the I/O thread alone. Holds the regions, which are used again when nobody does."""

    def __init__(self) -> None:
        self._tenants: dict[int, _Tenant] = {}

    def begun(self, job: Job) -> tuple[Sequence[bytes | memoryview], tuple[Lent, ...], Room | None]:
        """The buffers of a job's tensors, and what its SUBMIT says of arenas.

        What lies in one of a former pool's is sent along.
        """
        frames: list[bytes | memoryview] = []
        lent = []
        for index, buffer in enumerate(job.payload[1:]):  # the table is no tensor
            if not isinstance(buffer, Piece):
                frames.append(buffer)
            elif buffer.region.arena.is_current:
                lent.append(Lent(index, buffer.region.arena.number, buffer.offset, len(buffer)))
                frames.append(b"")
            else:
                frames.append(buffer.memory)
        room = None
        if job.room is not None and job.room.arena.is_current:
            room = Room(job.room.arena.number, job.room.offset, job.room.size_bytes)
        if lent or room is not None:
            tenant = self._tenants.setdefault(job.number, _Tenant(job.payload, job.room))
            tenant.sent += 1
        return frames, tuple(lent), room

    def released(self, number: int) -> None:
        tenant = self._tenants.get(number)
        if tenant is not None:
            tenant.sent -= 1
            if not tenant.sent:
                del self._tenants[number]

    def clear(self) -> None:
        """The pool is gone, and with it the arenas: nothing in them is used for anything else."""
        self._tenants.clear()
