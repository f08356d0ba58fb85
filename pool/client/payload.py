"""A job's arrays as payload frames, and an answer's frames as arrays. Here numpy is imported."""

import math
import operator
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from pool.client.request import check_name
from pool.client.shared_memory import Piece, Region, SharedMemory
from pool.client.spans import array_over, piece_of
from pool.errors import InvalidInput
from pool.wire.calls import MOST_TENSORS, ROWS, TABLE_BYTES, Table, TensorHeader
from pool.wire.codec import BadFrame, pack
from pool.wire.hot import Buffer
from pool.wire.lent import LENT_BYTES, MOST_LENT
from pool.wire.packing import unpack_answer
from pool.wire.tensors import Array, dtype_name, tensor_bytes, to_array

__all__ = ["Inputs", "concatenated", "decode_answer", "empty", "encode_call", "to_inputs"]

UNEVEN = "its rows differ in length; for a ragged input, give the inputs `pool.Ragged.from_rows(rows).parts(NAME)`"
_KEPT = 256  # tables of late …
_SMALL = 64  # … of so many tensors at most


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a job is given, as arrays; with each, whether it is weak (see `TensorHeader`).

    `rows`: the axis 0 that all of them have in common, at least 1; None if there is none.
    """

    tensors: Mapping[str, tuple[Array, bool]]
    rows: int | None

    def cut(self, start: int, stop: int) -> "Inputs":
        """Some of the rows, over the same memory. `rows` must not be None."""
        return Inputs({name: (array[start:stop], weak) for name, (array, weak) in self.tensors.items()}, stop - start)


def to_inputs(model: str, inputs: object) -> Inputs:
    """`inputs` maps input names to anything array-like, or is the only input itself. Raises `InvalidInput`."""
    if isinstance(inputs, Inputs):
        return inputs
    # Most are dicts, and asking an abstract class takes a microsecond.
    is_named = type(inputs) is dict or isinstance(inputs, Mapping)
    named: Mapping[object, object] = inputs if is_named else {"": inputs}  # type: ignore[assignment]
    tensors: dict[str, tuple[Array, bool]] = {}
    for name, value in named.items():
        check_name(f"model {model}: an input's name", name)
        try:
            tensors[str(name)] = to_array(value)
        except Exception as error:  # numpy runs the `__array__` of anything
            why = UNEVEN if "inhomogeneous" in str(error) else error
            raise InvalidInput(f"model {model}, input {name!r}: cannot be sent as a tensor: {why}") from None
    heights = {array.shape[0] if array.ndim else 0 for array, _ in tensors.values()}
    rows = heights.pop() if len(heights) == 1 else 0
    return Inputs(tensors, rows or None)


def encode_call(
    model: str, inputs: object, shared_memory: SharedMemory | None = None
) -> tuple[int | None, list[bytes | Piece]]:
    """The rows and the payload of a SUBMIT: a `Table` and a buffer a tensor, large ones in a segment if there is one.

    All of it are copies, so the caller may change its arrays, but for those that lie in a segment already.
    `inputs` as in `to_inputs`. Raises `InvalidInput`.
    """
    prepared = to_inputs(model, inputs)
    counted = prepared.rows is not None
    tensors = []
    buffers: list[bytes | Piece] = []
    lent = 0
    for name, (array, weak) in prepared.tensors.items():
        buffer = tensor_bytes(array)
        shape = (ROWS, *array.shape[1:]) if counted else array.shape
        tensors.append((name, array.dtype, shape, weak))
        piece = None
        if shared_memory is not None and lent < MOST_LENT and len(buffer) >= LENT_BYTES:
            piece = _placed(
                array, buffer, shared_memory, (model, name, array.dtype, array.shape[1:]) if counted else None
            )
        lent += piece is not None
        buffers.append(piece or bytes(buffer))
    read = _table if len(tensors) <= _SMALL else _table.__wrapped__
    table = read(tuple(tensors))
    if len(table) > TABLE_BYTES or len(tensors) > MOST_TENSORS:
        raise InvalidInput(f"model {model}: {len(tensors)} inputs are more than one job can have")
    return prepared.rows, [table, *buffers]


@lru_cache(_KEPT)
def _table(tensors: "tuple[tuple[str, np.dtype[Any], tuple[int, ...], bool], ...]") -> bytes:
    """The same bytes for all jobs of a call."""
    headers = [TensorHeader(name, dtype_name(dtype), shape, weak) for name, dtype, shape, weak in tensors]
    return pack(Table(tuple(headers)))


def _placed(array: Array, buffer: bytes | memoryview, shared_memory: SharedMemory, call: Hashable) -> Piece | None:
    if (piece := piece_of(array)) is not None and shared_memory.has(piece.region):
        return piece
    region = shared_memory.place(len(buffer), call)
    if region is None:
        return None
    region.memory[: len(buffer)] = buffer
    return Piece(region, region.offset, len(buffer))


def decode_answer(pieces: Sequence[int], payload: Sequence[Buffer], space: Region | None = None) -> dict[str, Array]:
    """The arrays of a RESULT; of a single piece over the memory they arrived in. Raises `BadFrame`.

    `pieces`: how many of the buffers belong to each. `space`: what was reserved for it.
    """

    def in_space(offset: int, size_bytes: int) -> memoryview:
        if space is None or not space.offset <= offset <= offset + size_bytes <= space.offset + space.size_bytes:
            raise BadFrame(f"{size_bytes} bytes at {offset}, outside the space that was reserved for the answer")
        return array_over(space, offset, size_bytes).data

    if not pieces or min(pieces) < 0 or sum(pieces) != len(payload):
        raise BadFrame(f"{len(payload)} buffers in pieces of {list(pieces)!s:.80}")
    buffers = [memoryview(buffer) for buffer in payload]
    answers = []
    start = 0
    for count in pieces:
        answers.append(unpack_answer(buffers[start : start + count], in_space))
        start += count
    if len(answers) == 1:
        return answers[0]
    try:
        return concatenated(answers)
    except ValueError as error:
        raise BadFrame(f"its {len(answers)} pieces do not belong together: {error}") from None


def empty(shape: int | Sequence[int], dtype: DTypeLike, shared_memory: SharedMemory) -> Array:
    """An array of any values, in a segment if there is room."""
    kind = np.dtype(dtype)
    axes = tuple(map(operator.index, shape if isinstance(shape, Sequence) else (shape,)))
    size_bytes = math.prod(axes) * kind.itemsize
    lendable = not kind.hasobject and min(axes, default=0) >= 0 and size_bytes >= LENT_BYTES
    if not lendable or (region := shared_memory.place(size_bytes)) is None:
        return np.empty(axes, kind)
    return array_over(region, region.offset, size_bytes).view(kind).reshape(axes)


def concatenated(answers: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Answers of the same names joined along axis 0. Raises `ValueError`, which says why, where they cannot be."""
    first = answers[0]
    for answer in answers:
        if answer.keys() != first.keys():
            raise ValueError(f"one has the outputs {', '.join(first)}, another has {', '.join(answer)}")
        for name, array in answer.items():
            if not array.ndim:
                raise ValueError(f"output {name!r} has no axis 0")
            if (array.dtype, array.shape[1:]) != (first[name].dtype, first[name].shape[1:]):
                raise ValueError(
                    f"output {name!r} is {dtype_name(first[name].dtype)} {list(first[name].shape)} in one,"
                    f" {dtype_name(array.dtype)} {list(array.shape)} in another"
                )
    return {name: np.concatenate([answer[name] for answer in answers]) for name in first}
