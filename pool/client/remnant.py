"""What is left of a pack: the rows of some of its members, as its payload has them."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate

from pool.client.arenas import Piece
from pool.wire.calls import TABLE_BYTES, Table
from pool.wire.codec import unpack
from pool.wire.dtypes import STRING

__all__ = ["columns", "payload_of_some"]

_KEPT = 64

Payload = Sequence[bytes | Piece]


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


def payload_of_some(payload: Payload, members: Sequence[int], indices: Sequence[int]) -> Payload:
    """Of members with so many rows each, these: copies of their rows."""
    from pool.wire.tensors import some_strings  # numpy is there, since they were encoded with it

    table, *buffers = payload
    assert isinstance(table, bytes)
    rows, spans = sum(members), list(_spans(members, indices))
    some: list[bytes | Piece] = [table]
    for (strings, elements), buffer in zip(columns(table), buffers, strict=True):
        memory = buffer.memory if isinstance(buffer, Piece) else memoryview(buffer)
        if strings:
            cut = [(begin * elements, end * elements) for begin, end in spans]
            some.append(some_strings(memory, rows * elements, cut))
        else:
            row_bytes = len(memory) // rows
            some.append(b"".join([memory[begin * row_bytes : end * row_bytes] for begin, end in spans]))
    return some


def _spans(members: Sequence[int], indices: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First row and last but one of each; neighbours are one."""
    starts = list(accumulate(members, initial=0))
    begin, end = starts[indices[0]], starts[indices[0]]
    for index in indices:
        if starts[index] != end:
            yield begin, end
            begin = starts[index]
        end = starts[index + 1]
    yield begin, end
