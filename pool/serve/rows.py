"""Some rows of a job, cut from its buffers as they came, without numpy.

Numbers are slices of the memory that they arrived in. Of strings there are two: some of the ends, and the bytes between
them; the ends count from where the last one is the end of the bytes, so they stay as they are. Small ones are copied
into one buffer, which travels more quickly than two. Large ones the worker copies: the pool's loop has no time for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import zmq

from pool.serve.layouts import Column, Layout, memory_of
from pool.serve.shared_memory import JobRegions, Region
from pool.wire.dtypes import END_BYTES

__all__ = ["COPIED_BYTES", "Cut", "Halves", "Inputs", "Whole", "cut_strings"]

COPIED_BYTES = 256 << 10  # of strings, at most, in one buffer


@dataclass(frozen=True, slots=True)
class Halves:
    """Strings in two buffers, which are one when they are joined."""

    ends: memoryview
    blob: memoryview

    def joined(self) -> bytes:
        return b"".join((self.ends, self.blob))


Cut = Region | Halves | bytes | memoryview
Whole = Region | zmq.Frame | memoryview
"""As it came: in a segment, in a frame of its own, or in the first frame of its message."""


@dataclass(slots=True)  # not frozen: one is made for every job, and a frozen one takes five times as long
class Inputs:
    """A job's payload while it is in the pool. `layout` and `rows` are None for one that has no rows.

    `asked`: model, version, signature and outputs as the client named them. `regions`: of one that lies in segments.
    `size_bytes`, `form`: as the core is told of them.
    """

    table: bytes
    buffers: Sequence[Whole]
    layout: Layout | None
    rows: int | None
    asked: tuple[str, int | str | None, str | None, tuple[str, ...] | None] = ("", None, None, None)
    regions: JobRegions | None = None
    size_bytes: int = 0
    form: bytes = b""

    def cut(self, start: int, stop: int) -> "Sequence[zmq.Frame | Cut]":
        """The buffers of these rows; all of them as they came if the job has none. The frames live on in them."""
        if self.layout is None or (start, stop) == (0, self.rows):
            return self.buffers
        assert self.rows is not None
        assert 0 <= start < stop <= self.rows, f"rows {start} to {stop} of {self.rows}"
        return [
            _cut(buffer, column, self.rows, start, stop)
            for column, buffer in zip(self.layout.columns, self.buffers, strict=True)
        ]


def _cut(buffer: Whole, column: Column, rows: int, start: int, stop: int) -> Cut:
    if column.strings:
        return cut_strings(memory_of(buffer), column, rows, start, stop)
    begin, end = start * column.row_bytes, stop * column.row_bytes
    return buffer.cut(begin, end) if isinstance(buffer, Region) else memory_of(buffer)[begin:end]


def cut_strings(buffer: memoryview, column: Column, rows: int, start: int, stop: int) -> Halves | bytes:
    """These rows of so many; copies `COPIED_BYTES` at most.

    Where the ends lie, it is nothing that a worker reads as strings, or strings that lie.
    """
    table_bytes, first, last = rows * column.row_bytes, start * column.row_bytes, stop * column.row_bytes
    if first == last:
        return b""  # rows without elements
    base = _end(buffer, table_bytes) - (len(buffer) - table_bytes)  # what the bytes' begin counts as
    begin = _end(buffer, first) if first else base
    end = _end(buffer, last)
    if not base <= begin <= end <= base + len(buffer) - table_bytes:
        return b""  # too short for its ends, so it is refused
    halves = Halves(buffer[first:last], buffer[table_bytes + begin - base : table_bytes + end - base])
    return halves if last - first + end - begin > COPIED_BYTES else halves.joined()


def _end(buffer: memoryview, position: int) -> int:
    """The end that stands before this position of the table."""
    return int.from_bytes(buffer[position - END_BYTES : position], "little")
