"""Arrays made here to be fed."""

import math

import numpy as np

from pool.wire.signatures import TensorSpec
from pool.wire.tensors import DTYPES, Array
from workers.memory import aligned

__all__ = ["blank", "private", "same"]


def blank(spec: TensorSpec, rows: int = 1) -> Array:
    """Zeros, or empty strings; axis 0 is `rows` where its size is unknown, and each other such axis 1."""
    shape = tuple(axis if axis >= 0 else 1 if at else rows for at, axis in enumerate(spec.shape or ()))
    dtype = DTYPES[spec.dtype]
    if dtype.hasobject:
        return np.full(shape, b"", dtype)
    memory = aligned(math.prod(shape) * dtype.itemsize)
    memory[:] = 0
    return memory.view(dtype).reshape(shape)


def private(array: Array) -> Array:
    """A copy that TensorFlow may keep or write: aligned, so that it is the only one. Strings it never keeps."""
    if array.dtype.hasobject:
        return array
    copy = aligned(array.nbytes).view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def same(one: Array, other: Array) -> bool:
    """Bytes, not values: NaN is the same as NaN here, and 0.0 is not -0.0."""
    if one is other:
        return True
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(np.array_equal(one, other)) if one.dtype.hasobject else one.tobytes() == other.tobytes()
