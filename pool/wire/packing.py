"""An answer's tensors as frames, those that are small packed together in the first one.

    ┌───────────┬────────────────┬──────────────────────────────────┬─────────────────────────────────┐
    │ u32: size │ packed `Table` │ u32 a tensor: its bytes here, or │ the bytes of the small tensors, │
    │ of table  │                │ 0xFFFFFFFF: a frame of its own   │ one after the other             │
    └───────────┴────────────────┴──────────────────────────────────┴─────────────────────────────────┘
    and then a frame for each of the large ones, in the order of the table

A tensor that was written into the space that its client had reserved is 0xFFFFFFFE among the sizes, and after these a
u64 says at which offset of the segment it begins.

A frame costs every process on the way microseconds, whatever is in it: a hundred gradients are one frame so, and the
answer to a row of features is one, too. The pool never reads an answer.
"""

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise

import numpy as np

from pool.wire.calls import TABLE_BYTES, Table, TensorHeader
from pool.wire.codec import BadFrame, pack, unpack
from pool.wire.dtypes import ITEM_BYTES
from pool.wire.lent import LENT_BYTES, rounded_up
from pool.wire.tensors import Array, decode_tensor, dtype_name, tensor_bytes

__all__ = ["SMALL_BYTES", "AnswerMemory", "pack_answer", "pack_answers", "unpack_answer"]

SMALL_BYTES = 16 << 10  # copying so much costs less than a frame
OWN_FRAME = 0xFFFFFFFF
IN_SPACE = 0xFFFFFFFE

_KEPT = 128  # the tables of one model's answers differ by their rows alone

Buffer = bytes | memoryview
Tensors = tuple[tuple[str, "np.dtype[np.generic]", tuple[int, ...]], ...]
"""Their names, dtypes and shapes."""


@dataclass(frozen=True, slots=True)
class AnswerMemory:
    """Where large tensors of an answer are written; `offset` is that of its first byte in its segment."""

    memory: memoryview
    offset: int


def pack_answer(arrays: Mapping[str, Array], space: AnswerMemory | None = None) -> list[Buffer]:
    """The frames of named arrays, whatever their layout. Large arrays in C order are not copied, but seen by a view.

    Where there is room for them, they are written there instead.
    """
    head = _small_head(tuple([(name, array.dtype, array.shape) for name, array in arrays.items()]))
    if head is not None:
        return [b"".join([head, *[array.tobytes() for array in arrays.values()]])]
    sizes, offsets, packed, own = [], [], [], []
    written = 0
    for array in arrays.values():
        end = written + array.nbytes
        if space is not None and array.nbytes >= LENT_BYTES and end <= len(space.memory) and not array.dtype.hasobject:
            _write(array, space.memory[written:end])
            sizes.append(IN_SPACE)
            offsets.append(space.offset + written)
            written = rounded_up(end)
            continue
        buffer = tensor_bytes(array)
        if len(buffer) < SMALL_BYTES:
            sizes.append(len(buffer))
            packed.append(buffer)
        else:
            sizes.append(OWN_FRAME)
            own.append(buffer)
    table = _table(tuple([(name, array.dtype, array.shape) for name, array in arrays.items()]))
    told = struct.pack(f"<{len(sizes)}I{len(offsets)}Q", *sizes, *offsets)
    return [b"".join([table, told, *packed]), *own]


def pack_answers(
    arrays: Mapping[str, Array], rows: Sequence[int], spaces: Sequence[AnswerMemory | None] = ()
) -> list[list[Buffer]]:
    """The frames of each part of named arrays, whose rows they have one after the other; the rest is left out.

    `spaces`: one a part, or none at all.
    """
    spans = list(pairwise(accumulate(rows, initial=0)))
    if len(rows) > 1:
        tensors = [(name, array.dtype, array.shape[1:]) for name, array in arrays.items()]
        heads = {
            count: _small_head(tuple([(name, dtype, (count, *shape)) for name, dtype, shape in tensors]))
            for count in set(rows)
        }
        if None not in heads.values():
            # Small answers are many: what is done for one of them is a slice a tensor and a `join`.
            columns = [_slices(array, spans) for array in arrays.values()]
            return [[frame] for frame in map(b"".join, zip([heads[count] for count in rows], *columns, strict=True))]
    return [
        pack_answer({name: array[start:stop] for name, array in arrays.items()}, space)
        for (start, stop), space in zip(spans, spaces or [None] * len(spans), strict=True)
    ]


def unpack_answer(frames: Sequence[Buffer], space: Callable[[int, int], Buffer] | None = None) -> dict[str, Array]:
    """The arrays in the frames of an answer, or of one piece of it, over the frames' memory where it is aligned.

    `space` gives so many bytes of what was reserved for the answer, from an offset in its segment on; it may raise
    `BadFrame`. Raises `BadFrame`.
    """
    if not frames:
        raise BadFrame("an answer without a table")
    first = memoryview(frames[0])
    table_end = 4 + int.from_bytes(first[:4], "little")
    if not 4 <= table_end <= len(first):
        raise BadFrame("an answer whose table is cut short")
    headers = _headers(bytes(first[4:table_end]))
    position = table_end + 4 * len(headers)
    if position > len(first):
        raise BadFrame("an answer whose sizes are cut short")
    sizes = struct.unpack(f"<{len(headers)}I", first[table_end:position])
    if len(frames) - 1 != sizes.count(OWN_FRAME):
        raise BadFrame(f"{len(frames) - 1} frames of their own for {sizes.count(OWN_FRAME)} tensors")
    offsets_end = position + 8 * sizes.count(IN_SPACE)
    if offsets_end > len(first):
        raise BadFrame("an answer whose offsets are cut short")
    offsets = iter(struct.unpack(f"<{sizes.count(IN_SPACE)}Q", first[position:offsets_end]))
    position = offsets_end
    own = iter(frames[1:])
    arrays: dict[str, Array] = {}
    for header, size in zip(headers, sizes, strict=True):
        if size == IN_SPACE:
            if space is None:
                raise BadFrame("an answer in a segment where none was reserved")
            array = decode_tensor(header, space(next(offsets), _size_bytes(header)))
        elif size == OWN_FRAME:
            array = decode_tensor(header, next(own))
        else:
            array = decode_tensor(header, first[position : position + size])
            position += size
        arrays[header.name] = array if array.flags.aligned else array.copy()
    if position != len(first):
        raise BadFrame(f"{len(first)} bytes in the first frame of an answer; {position} are declared")
    return arrays


def _write(array: Array, memory: memoryview) -> None:
    np.copyto(np.frombuffer(memory, array.dtype).reshape(array.shape), array)


def _size_bytes(header: TensorHeader) -> int:
    if min(header.shape, default=0) < 0 or header.dtype not in ITEM_BYTES:
        raise BadFrame(f"no tensor for a segment: {header.dtype!r:.40} {header.shape!r:.80}")
    return math.prod(header.shape) * ITEM_BYTES[header.dtype]


def _slices(array: Array, spans: Sequence[tuple[int, int]]) -> Sequence[Buffer]:
    """The bytes of the rows from each start to each stop, of an array of numbers."""
    if not array.size:
        return [b""] * len(spans)
    octets, size = np.asarray(array, order="C").reshape(-1).view(np.uint8).data, array.nbytes // len(array)
    return [octets[start * size : stop * size] for start, stop in spans]


@lru_cache(_KEPT)
def _small_head(tensors: Tensors) -> bytes | None:
    """What precedes the bytes of an answer of such tensors; None where not all are known to be packed."""
    sizes = [math.prod(shape) * dtype.itemsize for _, dtype, shape in tensors]
    if any(dtype.hasobject for _, dtype, _ in tensors) or max(sizes, default=0) >= SMALL_BYTES:
        return None
    return _table(tensors) + struct.pack(f"<{len(sizes)}I", *sizes)


@lru_cache(_KEPT)
def _table(tensors: Tensors) -> bytes:
    headers = tuple(TensorHeader(name, dtype_name(dtype), shape, False) for name, dtype, shape in tensors)
    table = pack(Table(headers))
    return len(table).to_bytes(4, "little") + table


@lru_cache(_KEPT)
def _headers(table: bytes) -> tuple[TensorHeader, ...]:
    return unpack(Table, table, TABLE_BYTES).tensors
