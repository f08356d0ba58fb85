"""Which workers have which segments, and which of their batches lie there."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import zmq

from pool.core import Part
from pool.core.fleet import WorkerId
from pool.serve.rows import Cut, Inputs
from pool.serve.shared_memory import JobRegions, Region, Segment
from pool.wire.lent import NO_SPACE, AnswerSpace, Lent

__all__ = ["Handouts"]

Buffers: TypeAlias = "list[zmq.Frame | Cut]"


class Handouts:
    def __init__(self, hand: Callable[[int, int, Segment], bool], end: Callable[[int, int, int], bool]) -> None:
        """`hand` gives a segment to a worker; False where that cannot be: then what lies in it is sent along.

        `end` tells a worker that there is no such segment any more; False where that has to be tried again.
        """
        self._hand = hand
        self._end = end
        self._handed: dict[WorkerId, dict[int, bool]] = {}  # by segment, whether the worker has it
        self._over: dict[WorkerId, list[int]] = {}  # segments that have ended, of which a worker was not told yet
        self.regions: dict[WorkerId, dict[int, list[tuple[JobRegions, Region | None]]]] = {}  # by batch
        """To be read: of which workers a batch may lie in segments."""

    def begun(
        self, worker: WorkerId, batch: int, parts: Sequence[Part], buffers: "Buffers"
    ) -> tuple[tuple[Lent, ...], tuple[AnswerSpace, ...]]:
        """What a RUN of these parts says of segments. What is lent is empty in `buffers` then.

        Until the batch has `ended`, nobody else may use the memory. REQUIRES that a part lies in a segment: few do.
        """
        inside: list[Inputs] = [part.job.payload for part in parts]  # type: ignore[misc]  # as `Front` gave them to the core
        regions = []
        spaces = []
        for inputs, part in zip(inside, parts, strict=True):
            space = None
            if inputs.regions is not None:
                inputs.regions.hold()
                space = inputs.regions.space_for(part.start, part.stop, inputs.rows)
                regions.append((inputs.regions, space))
            if space is None or not self._has(worker, space.segment):
                spaces.append(NO_SPACE)
            else:
                spaces.append(AnswerSpace(space.segment.number, space.offset, space.size_bytes))
        self.regions.setdefault(worker, {})[batch] = regions
        lent = []
        for index, buffer in enumerate(buffers):
            if not isinstance(buffer, Region):
                continue
            if self._has(worker, buffer.segment):
                lent.append(Lent(index, buffer.segment.number, buffer.offset, buffer.size_bytes))
                buffers[index] = b""
            else:
                buffers[index] = buffer.buffer
        return tuple(lent), tuple(spaces) if any(space.size_bytes for space in spaces) else ()

    def ended(self, worker: WorkerId, batch: int) -> None:
        """It does not run any more, or never did."""
        batches = self.regions.get(worker)
        if batches is not None:
            for regions, space in batches.pop(batch, ()):
                regions.let_go(space)

    def exited(self, worker: WorkerId) -> None:
        """The worker's exit was seen: it reads and writes nothing any more."""
        for batch in list(self.regions.get(worker, ())):
            self.ended(worker, batch)
        self.regions.pop(worker, None)
        self._handed.pop(worker, None)
        self._over.pop(worker, None)

    def closed(self, segments: Iterable[int]) -> None:
        """These have ended, and a worker's mapping is memory, too. To be called again where `is_behind` is true."""
        for segment in segments:
            for worker, handed in self._handed.items():
                if handed.pop(segment, False):
                    self._over.setdefault(worker, []).append(segment)
        if self._over:
            left = {
                worker: [segment for segment in over if not self._end(*worker, segment)]
                for worker, over in self._over.items()
            }
            self._over = {worker: over for worker, over in left.items() if over}

    @property
    def is_behind(self) -> bool:
        """Whether a worker is still to be told of a segment's end."""
        return bool(self._over)

    def _has(self, worker: WorkerId, segment: Segment) -> bool:
        handed = self._handed.setdefault(worker, {})
        has = handed.get(segment.number)
        if has is None:
            has = handed[segment.number] = self._hand(*worker, segment)
        return has
