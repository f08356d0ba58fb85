"""Arrays made here to be fed."""

import math
from typing import Any

import numpy as np

from pool.wire.signatures import TensorSpec
from pool.wire.tensors import DTYPES, Array

__all__ = ["blank", "private", "same"]

_ALIGNED = 64  # bytes: TensorFlow takes an array that begins at a multiple as it is, and copies any other


def blank(spec: TensorSpec, rows: int = 1) -> Array:
    """Zeros, or empty strings; axis 0 is `rows` where its size is unknown, and each other such axis 1."""
    shape = tuple(axis if axis >= 0 else 1 if at else rows for at, axis in enumerate(spec.shape or ()))
    dtype = DTYPES[spec.dtype]
    if dtype.hasobject:
        return np.full(shape, b"", dtype)
    array = _empty(shape, dtype)
    array[...] = np.zeros((), dtype)
    return array


def private(array: Array) -> Array:
    """A copy that TensorFlow may keep or write: aligned, so that it is the only one. Strings it never keeps."""
    if array.dtype.hasobject:
        return array
    copy = _empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def same(one: Array, other: Array) -> bool:
    """Bytes, not values: NaN is the same as NaN here, and 0.0 is not -0.0."""
    if one is other:
        return True
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(np.array_equal(one, other)) if one.dtype.hasobject else one.tobytes() == other.tobytes()


def _empty(shape: tuple[int, ...], dtype: "np.dtype[Any]") -> Array:
    size_bytes = math.prod(shape) * dtype.itemsize
    memory = np.empty(size_bytes + _ALIGNED, np.uint8)
    start = -memory.ctypes.data % _ALIGNED
    return memory[start : start + size_bytes].view(dtype).reshape(shape)
