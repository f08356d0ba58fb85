"""What several parts give to an input, made one array of rows."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pool.wire.tensors import Array
from workers.inputs import Piece

__all__ = ["join", "rows_differ", "whole"]

_ALIGNED = 64  # bytes; TensorFlow copies a fed array that begins elsewhere

Dtype = np.dtype[Any]


def whole(piece: Piece, dtype: Dtype, shape: tuple[int, ...]) -> Array:
    """What one part gives, as an array over its own memory."""
    flat = piece if isinstance(piece, np.ndarray) else np.frombuffer(piece, dtype)
    return flat.reshape(shape)


def join(pieces: Sequence[Piece], dtype: Dtype, rows: int, pad_to: int, row_shape: tuple[int, ...]) -> Array:
    """The pieces, which have `rows` rows together, as one array of `pad_to` rows of this shape.

    What is padded repeats the first row, which the model can run as well as any. The array is new, and begins where
    TensorFlow takes it as it is, unless there is one piece that needs no padding: copying that is left to TensorFlow.
    """
    if len(pieces) == 1 and rows == pad_to:
        return whole(pieces[0], dtype, (rows, *row_shape))
    row = math.prod(row_shape)
    batch = _fresh(pad_to * row, dtype)
    _fill(batch[: rows * row], pieces)
    if row:
        batch[rows * row :].reshape(-1, row)[:] = batch[:row]
    return batch.reshape(pad_to, *row_shape)


def rows_differ(fetched: Mapping[str, Array], rows: int) -> str | None:
    """What is amiss if an array has not so many rows, else None."""
    for name, array in fetched.items():
        if array.shape[:1] != (rows,):
            found = f"{array.shape[0]} rows" if array.ndim else "no rows"
            return f"output {name!r} came back with {found} where {rows} were fed"
    return None


def _fill(flat: Array, pieces: Sequence[Piece]) -> None:
    arrays = [piece for piece in pieces if isinstance(piece, np.ndarray)]
    if arrays:
        np.concatenate(arrays, out=flat)
        return
    octets, start = flat.view(np.uint8).data, 0  # an array a buffer would cost four times as much
    for piece in pieces:
        stop = start + len(piece)
        octets[start:stop] = piece  # type: ignore[assignment]  # no piece is an array, if not all are
        start = stop


def _fresh(size: int, dtype: Dtype) -> Array:
    if dtype.hasobject:
        return np.empty(size, dtype)
    memory = np.empty(size * dtype.itemsize + _ALIGNED, np.uint8)
    start = -memory.ctypes.data % _ALIGNED
    return memory[start : start + size * dtype.itemsize].view(dtype)
