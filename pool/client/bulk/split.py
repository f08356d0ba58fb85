"""How the members of a chunk go out again: as smaller chunks, or singly.

the pool says    they go out as
CANCELLED        one chunk, without those that nobody waits for
NOT_TAKEN, LOST  single jobs
FAILED           two halves
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

from pool.client.bulk.members import Chunk
from pool.client.shared_memory import Piece
from pool.wire.calls import TABLE_BYTES, Table
from pool.wire.codec import unpack
from pool.wire.dtypes import STRING
from pool.wire.lent import ALIGNED, LENT_BYTES
from pool.wire.unpacking import Unpacking

if TYPE_CHECKING:
    from pool.client.outstanding import Job

__all__ = ["columns", "narrow", "payload_of_some", "shares", "split"]

_KEPT = 64
WAYS: Mapping[Unpacking, int] = {
    Unpacking.CANCELLED: 1,
    Unpacking.FAILED: 2,
}  # into so many; of the others each by itself

Payload = Sequence[bytes | Piece]


def split(chunk: Job, why: Unpacking) -> list[Job]:
    """Jobs of those members that somebody waits for, none of which is in a book or has been sent."""
    future = chunk.future
    assert isinstance(future, Chunk)
    return [_of(chunk, indices) for indices in shares(future.left, why, len(future.indices))]


def shares(left: Sequence[int], why: Unpacking, came: int) -> list[Sequence[int]]:
    """Which members go out together, of those that are left of so many that came."""
    if not left:
        return []
    ways = WAYS.get(why, len(left))
    if ways == 1 and len(left) == came:
        ways = len(left)  # nobody was cancelled, so the same chunk would come back for ever
    size = -(-len(left) // ways)
    return [left[begin : begin + size] for begin in range(0, len(left), size)]


def narrow(chunk: Job) -> None:
    """Leaves out the members that nobody waits for. REQUIRES that it is in no pool."""
    future = chunk.future
    assert isinstance(future, Chunk)
    left = future.left
    if left and len(left) < len(future.indices):  # where all have just cancelled theirs, that is about to be said
        smaller = _of(chunk, left)
        fields = smaller.future, smaller.rows, smaller.weight, smaller.payload, smaller.size_bytes
        # At once: whoever is interrupted here leaves it as it was, or as it is to be.
        chunk.future, chunk.rows, chunk.weight, chunk.payload, chunk.size_bytes = fields


def _of(chunk: Job, indices: Sequence[int]) -> Job:
    future = chunk.future
    assert isinstance(future, Chunk)
    places = {index: place for place, index in enumerate(future.indices)}
    payload = payload_of_some(chunk.payload, future.rows, [places[index] for index in indices])
    some = Chunk(future.members, indices)
    return replace(
        chunk,
        future=some,
        rows=sum(some.rows),
        weight=len(indices),
        first=chunk.first or chunk.number,
        payload=payload,
        size_bytes=sum(map(len, payload)),
        space=None,
        patient=True,  # what has been on its way once is not refused for want of room
        number=0,
        on_its_way=None,
        sent_at=None,
        call=None,
        place=0,
        in_line=False,
        refusals=0,
        last_refusal=None,
    )


@lru_cache(_KEPT)
def columns(table: bytes) -> tuple[tuple[bool, int], ...]:
    """Of each tensor of a job with rows: whether it is of strings, and how many elements a row has."""
    found = []
    for header in unpack(Table, table, TABLE_BYTES).tensors:
        elements = 1
        for axis in header.shape[1:]:
            elements *= axis
        found.append((header.dtype == STRING, elements))
    return tuple(found)


def payload_of_some(payload: Payload, members: Sequence[int], places: Sequence[int]) -> Payload:
    """Of members with so many rows each, those at these places: what lies in a segment stays there if it can."""
    from pool.wire.tensors import some_strings  # numpy is there, since they were encoded with it

    table, *buffers = payload
    assert isinstance(table, bytes)
    rows, spans = sum(members), list(_spans(members, places))
    some: list[bytes | Piece] = [table]
    for (strings, elements), buffer in zip(columns(table), buffers, strict=True):
        memory = buffer.memory if isinstance(buffer, Piece) else memoryview(buffer)
        if strings:
            cut = [(begin * elements, end * elements) for begin, end in spans]
            some.append(some_strings(memory, rows * elements, cut))
            continue
        row_bytes = len(memory) // rows
        begin, end = spans[0]
        if (
            isinstance(buffer, Piece)
            and len(spans) == 1
            and _may_lie(buffer.offset + begin * row_bytes, row_bytes, end - begin)
        ):
            some.append(Piece(buffer.region, buffer.offset + begin * row_bytes, (end - begin) * row_bytes))
        else:
            some.append(b"".join([memory[begin * row_bytes : end * row_bytes] for begin, end in spans]))
    return some


def _may_lie(offset: int, row_bytes: int, rows: int) -> bool:
    return offset % ALIGNED == 0 and rows * row_bytes >= LENT_BYTES


def _spans(members: Sequence[int], places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First row and last but one of each; neighbours are one."""
    starts = list(accumulate(members, initial=0))
    begin, end = starts[places[0]], starts[places[0]]
    for place in places:
        if starts[place] != end:
            yield begin, end
            begin = starts[place]
        end = starts[place + 1]
    yield begin, end
