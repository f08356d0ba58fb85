"""What of the segments the pool may use.

From a job's SUBMIT until the pool has released it, however the job ended here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pool.client.outstanding import Job
from pool.client.shared_memory import Piece, Region
from pool.wire.lent import AnswerSpace, Lent

__all__ = ["RegionsInUse"]


@dataclass(eq=False, slots=True)
class _InUse:
    """`sent`: how often, which is how many releases are to come."""

    payload: Sequence[bytes | Piece]
    space: Region | None
    sent: int = 0


class RegionsInUse:
    """Used by the I/O thread alone. Holds the regions, which are used again when nobody does."""

    def __init__(self) -> None:
        self._regions: dict[int, _InUse] = {}

    def begun(self, job: Job) -> tuple[Sequence[bytes | memoryview], tuple[Lent, ...], AnswerSpace | None]:
        """The buffers of a job's tensors, and what its SUBMIT says of segments.

        What lies in one of a former pool's is sent along.
        """
        frames: list[bytes | memoryview] = []
        lent = []
        for index, buffer in enumerate(job.payload[1:]):  # the table is no tensor
            if not isinstance(buffer, Piece):
                frames.append(buffer)
            elif buffer.region.segment.is_current:
                lent.append(Lent(index, buffer.region.segment.number, buffer.offset, len(buffer)))
                frames.append(b"")
            else:
                frames.append(buffer.memory)
        space = None
        if job.space is not None and job.space.segment.is_current:
            space = AnswerSpace(job.space.segment.number, job.space.offset, job.space.size_bytes)
        if lent or space is not None:
            in_use = self._regions.setdefault(job.number, _InUse(job.payload, job.space))
            in_use.sent += 1
        return frames, tuple(lent), space

    def released(self, number: int) -> None:
        in_use = self._regions.get(number)
        if in_use is not None:
            in_use.sent -= 1
            if not in_use.sent:
                del self._regions[number]

    def clear(self) -> None:
        """The pool is gone, and with it the segments: nothing in them is used for anything else."""
        self._regions.clear()
