"""What several parts give to an input, made one array of rows."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from pool.wire.faults import Fault
from pool.wire.packing import SMALL_BYTES
from pool.wire.signatures import Refused
from pool.wire.tensors import Array
from workers.inputs import Piece
from workers.memory import BatchMemory

__all__ = ["following", "join", "own", "rows_differ", "whole"]

Dtype = np.dtype[Any]


def whole(piece: Piece, dtype: Dtype, shape: tuple[int, ...]) -> Array:
    """What one part gives, as an array over its own memory."""
    return piece.reshape(shape) if type(piece) is np.ndarray else np.ndarray(shape, dtype, piece)


def join(
    pieces: Sequence[Piece],
    dtype: Dtype,
    rows: int,
    pad_to: int,
    row_shape: tuple[int, ...],
    memory: BatchMemory,
    adopted: bool = True,
) -> Array:
    """The pieces, which have `rows` rows together, as one array of `pad_to` rows of this shape.

    What is padded repeats the first row, which the model can run as well as any. The array lies in `memory`, unless
    there is one piece that needs no padding and may be `adopted`: if TensorFlow cannot take that as it is, copying it
    is left to TensorFlow.
    """
    if adopted and len(pieces) == 1 and rows == pad_to:
        return whole(pieces[0], dtype, (rows, *row_shape))
    row = math.prod(row_shape)
    batch = memory.take(pad_to * row, dtype)
    _fill(batch[: rows * row], pieces)
    if row:
        batch[rows * row :].reshape(-1, row)[:] = batch[:row]
    return batch.reshape(pad_to, *row_shape)


def own(fetched: dict[str, Array], feeds: Collection[Array], least_bytes: int = 0) -> dict[str, Array]:
    """The fetched arrays, those that look at what was fed copied: that is another batch's, or another job's, next.

    `least_bytes`: smaller ones are let be, for whoever asks copies them at once.
    """
    copied = {}
    for name, array in fetched.items():
        if array.nbytes >= least_bytes:
            for feed in feeds:
                if np.may_share_memory(array, feed):
                    copied[name] = array.copy()
                    break
    return {**fetched, **copied} if copied else fetched


def following(runs: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """What several runs of a batch gave, one after another. Raises `Refused` where it is no array together."""
    joined = {}
    for name, first in runs[0].items():
        arrays = [fetched[name] for fetched in runs]
        for array in arrays:
            if (array.dtype, array.shape[1:]) != (first.dtype, first.shape[1:]):
                shapes = f"{list(first.shape[1:])} for some rows and {list(array.shape[1:])} for others"
                raise Refused(f"output {name!r} came back with rows of {shapes}", Fault.MODEL_FAILED)
        joined[name] = np.concatenate(arrays)
    return joined


def rows_differ(fetched: Mapping[str, Array], rows: int) -> str | None:
    """What is amiss if an array has not so many rows, else None."""
    for name, array in fetched.items():
        if array.shape[:1] != (rows,):
            found = f"{array.shape[0]} rows" if array.ndim else "no rows"
            return f"output {name!r} came back with {found} where {rows} were fed"
    return None


def _fill(flat: Array, pieces: Sequence[Piece]) -> None:
    if type(pieces[0]) is np.ndarray:  # and so are all: they are pieces of one input
        np.concatenate(pieces, out=flat)
        return
    # Buffers, then; an array a buffer would cost four times as much.
    octets, start = flat.view(np.uint8).data, 0
    if flat.nbytes <= SMALL_BYTES:
        octets[:] = b"".join(pieces)  # type: ignore[arg-type]
        return
    for piece in pieces:
        stop = start + len(piece)
        octets[start:stop] = piece  # type: ignore[assignment]
        start = stop
