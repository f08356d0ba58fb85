"""The two messages of each job between client and pool, with fixed fields: see `pool.wire.hot`."""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from pool.wire.calls import MOST_TENSORS
from pool.wire.codec import BadFrame
from pool.wire.hot import (
    MAGIC,
    PLACE,
    VERSION,
    Buffer,
    bounded,
    found_buffers,
    pack_numbers,
    split,
)
from pool.wire.lent import MOST_LENT, AnswerSpace, Lent
from pool.wire.timeline import Timeline

__all__ = ["MOST_WEIGHT", "Result", "Results", "Submit"]

_SUBMIT = struct.Struct("<4sBB8sHQQdIIIIIHHHbx")
_IN_DOUBT, _HAS_SPACE, _REGISTERS = 1, 2, 4

_RESULTS = struct.Struct("<4sBB8sHIII")
_RESULT = struct.Struct("<QQdddddQIIIIIHBB")

MOST_ROWS = 0xFFFFFFFF
MOST_ATTEMPTS = 0xFFFF
MOST_WEIGHT = 0xFFFF
NO_VERSION = 0xFFFFFFFFFFFFFFFF


@dataclass(slots=True)
class Submit:
    """One job; its payload is a buffer a tensor. `job` is unique for this connection, and `call` says what it is.

    `rows`: the common axis 0 of all its tensors, at least 1, which their shapes leave out; None if its call counts
    none. `priority`: higher first. `attempts`: how many instances of the pool ended unexpectedly while they held it.
    `in_doubt`: it was sent before, to this instance or an older one, and may have started there.

    `names`: packed `Names`, and `table`: a packed `Table`, of the first job of a call; None and empty of all others.

    `weight`: it is a chunk of so many jobs, with one row each at least. It has one answer, or UNPACK in its place.
    `origin`: the number of the chunk that it was in; 0: none.

    `lent`: the buffers that lie in a segment of the client's, and `space` is where its answer may be written. Both are
    the pool's until the RESULT, or else RELEASED.
    """

    kind: ClassVar[int] = 3
    job: int
    call: int
    rows: int | None
    timeout_s: float
    priority: int = 0
    attempts: int = 0
    in_doubt: bool = False
    names: bytes | memoryview | None = None
    table: bytes | memoryview = b""
    lent: tuple[Lent, ...] = ()
    space: AnswerSpace | None = None
    weight: int = 1
    origin: int = 0

    def to_frames(self, instance: bytes, buffers: Sequence[Buffer]) -> list[Buffer]:
        """More rows or attempts than can travel are as many as can: the pool takes fewer of either."""
        lent, rows, attempts = self.lent, self.rows or 0, self.attempts
        sizes, small, own = split(buffers, {each.index for each in lent} if lent else ())
        flags = _IN_DOUBT if self.in_doubt else 0
        names: Buffer = b""
        table: Buffer = b""
        if self.names is not None:
            flags |= _REGISTERS
            names, table = self.names, self.table
        regions: Sequence[Lent | AnswerSpace] = lent
        if self.space is not None:
            flags |= _HAS_SPACE
            regions = (*lent, self.space)
        fixed = _SUBMIT.pack(
            *(MAGIC, VERSION, 3, instance, flags, self.job, self.origin, self.timeout_s, self.call),
            *(rows if rows < MOST_ROWS else MOST_ROWS, len(names), len(table), len(sizes)),
            *(attempts if attempts < MOST_ATTEMPTS else MOST_ATTEMPTS, self.weight, len(lent), self.priority),
        )
        places = [PLACE.pack(each.segment, each.offset, each.size_bytes) for each in regions] if regions else ()
        return [b"".join((fixed, *places, pack_numbers(*sizes), names, table, *small)), *own]

    @classmethod
    def read(cls, first: memoryview, frames: Sequence[Buffer]) -> tuple[Self, list[Buffer]]:
        """With its payload. `first`: of the frames. Raises `BadFrame` or `struct.error` for what nobody says."""
        fields = _SUBMIT.unpack_from(first)
        flags, job, origin, timeout_s, call, rows, names_bytes, table_bytes, tensors = fields[4:13]
        attempts, weight, lent, priority = fields[13:]
        if flags > (_IN_DOUBT | _HAS_SPACE | _REGISTERS):
            raise BadFrame(f"flags {flags:#x}")
        if not weight:
            raise BadFrame("a message of 0 jobs")
        if not 0.0 <= timeout_s < math.inf:  # so that NaN is none either
            raise BadFrame(f"timeout is {timeout_s} s; give a positive number")
        if tensors > MOST_TENSORS or lent > MOST_LENT:
            raise BadFrame(
                f"{tensors} tensors and {lent} lent buffers; at most {MOST_TENSORS} and {MOST_LENT} are allowed"
            )
        if not flags & _REGISTERS and (names_bytes or table_bytes):
            raise BadFrame(f"{names_bytes + table_bytes} bytes of names of a call that is not registered")
        position = _SUBMIT.size
        places: list[tuple[int, int, int]] = []
        space = None
        if lent or flags & _HAS_SPACE:
            end = bounded(first, position, PLACE.size * (lent + bool(flags & _HAS_SPACE)))
            places = list(PLACE.iter_unpack(first[position:end]))
            position = end
            if flags & _HAS_SPACE:
                space = AnswerSpace(*places.pop())
        sizes = struct.unpack_from(f"<{tensors}I", first, position)
        position += 4 * tensors
        names: memoryview | None = None
        table: memoryview | bytes = b""
        if flags & _REGISTERS:  # not copied: they may be as large as their client likes
            middle = bounded(first, position, names_bytes)
            names = first[position:middle]
            position = bounded(first, middle, table_bytes)
            table = first[middle:position]
        buffers, shared, halves = found_buffers(frames, first, position, sizes)
        found: tuple[Lent, ...] = ()
        if lent or shared or halves:
            if halves or len(shared) != lent:
                raise BadFrame(f"{len(shared)} lent buffers where {lent} are declared, and {len(halves)} in halves")
            found = tuple([Lent(index, *place) for index, place in zip(shared, places, strict=True)])
        submit = cls(
            *(job, call, rows or None, timeout_s, priority, attempts, bool(flags & _IN_DOUBT), names, table),
            *(found, space, weight, origin),
        )
        return submit, buffers


@dataclass(slots=True)
class Result:
    """`pieces`: how many payload buffers each piece of the answer has, as `pool.wire.packing` makes them.

    The tensors of several pieces belong together along axis 0, in this order. `released`: nobody else uses any more
    what the job was lent; otherwise RELEASED follows. `chunks`: jobs of its call may travel in chunks.
    """

    job: int
    pieces: tuple[int, ...]
    timeline: Timeline
    released: bool = True
    chunks: bool = False


@dataclass(slots=True)
class Results:
    """Those of one or several jobs, in no order; the payload has the buffers of each in turn.

    `waiting`: jobs that the pool has not answered yet, of all clients.
    """

    kind: ClassVar[int] = 4
    results: Sequence[Result]
    waiting: int = 0

    def to_frames(self, instance: bytes, buffers: Sequence[Buffer]) -> list[Buffer]:
        sizes, small, own = split(buffers)
        sections: list[Buffer] = [
            _RESULTS.pack(MAGIC, VERSION, 4, instance, 0, len(self.results), len(sizes), self.waiting)
        ]
        devices: list[bytes] = []
        pieces: list[int] = []
        for each in self.results:
            line = each.timeline
            device = line.device.encode()
            devices += (device,)
            pieces += each.pieces
            record = _RESULT.pack(
                *(each.job, line.job, line.queue_s, line.batch_wait_s, line.feed_s, line.run_s, line.fetch_s),
                NO_VERSION if line.version is None else line.version,
                *(line.rows, line.batch_rows, line.slot, line.attempts, len(each.pieces), len(device)),
                *(each.released, each.chunks),
            )
            sections += (record,)
        counts = (*pieces, *sizes)
        return [b"".join((*sections, struct.pack(f"<{len(counts)}I", *counts), *devices, *small)), *own]

    @classmethod
    def read(cls, first: memoryview, frames: Sequence[Buffer]) -> tuple[Self, list[Buffer]]:
        """With its payload. `first`: of the frames. Raises `BadFrame` or `struct.error` for what no pool says."""
        *_, flags, count, buffers, waiting = _RESULTS.unpack_from(first)
        position = _RESULTS.size
        if flags or not count:
            raise BadFrame(f"flags {flags:#x} of {count} results")
        end = bounded(first, position, _RESULT.size * count)
        records = list(_RESULT.iter_unpack(first[position:end]))
        position = end
        count = sum([record[12] for record in records])
        all_pieces: tuple[int, ...] = struct.unpack_from(f"<{count}I", first, position)
        position += 4 * len(all_pieces)
        if sum(all_pieces) != buffers or not all(all_pieces):
            raise BadFrame(f"{sum(all_pieces)} buffers in {len(all_pieces)} pieces, where there are {buffers}")
        sizes = struct.unpack_from(f"<{buffers}I", first, position)
        position += 4 * buffers
        results: list[Result] = []
        begin = 0
        for job, number, queue_s, wait_s, feed_s, run_s, fetch_s, version, *counts in records:
            rows, batch_rows, slot, attempts, pieces, device_bytes, released, chunks = counts
            if not math.isfinite(queue_s + wait_s + feed_s + run_s + fetch_s) or released > 1 or chunks > 1:
                raise BadFrame(f"a result after {queue_s}, {wait_s}, {feed_s}, {run_s}, {fetch_s} s")
            end = bounded(first, position, device_bytes)
            try:
                device = str(first[position:end], "utf-8")
            except UnicodeDecodeError:
                raise BadFrame("a device's name that is not UTF-8") from None
            position = end
            line = Timeline(
                *(number, queue_s, wait_s, feed_s, run_s, fetch_s, rows, batch_rows, slot, device, attempts),
                None if version == NO_VERSION else version,
            )
            results += (Result(job, all_pieces[begin : begin + pieces], line, released == 1, chunks == 1),)
            begin += pieces
        payload, lent, halves = found_buffers(frames, first, position, sizes)
        if lent or halves:
            raise BadFrame("a result with a buffer that is lent, or comes in halves")
        return cls(tuple(results), waiting), payload
