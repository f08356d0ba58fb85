"""Arrays to buffers and back, exactly, for every dtype that numpy or ml_dtypes can hold.

Numbers travel as their little-endian bytes in C order. A tensor of strings travels as the end of each element
(8 bytes, little-endian) and then all the bytes, so trailing NULs survive and nothing is ever pickled. The ends count
from wherever the last one is the end of the buffer, so that some rows of a tensor are some of its ends and some of its
bytes.
"""

import sys
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from pool.wire.calls import TensorHeader
from pool.wire.codec import BadFrame

__all__ = [
    "DTYPES",
    "Array",
    "decode_tensor",
    "dtype_name",
    "join_strings",
    "some_strings",
    "tensor_bytes",
    "to_array",
]

Array = NDArray[Any]

if sys.byteorder != "little":
    raise ImportError("tensors travel as little-endian bytes and this machine is big-endian")

_PLAIN = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
_EXTENDED = (
    *("bfloat16", "int2", "uint2", "int4", "uint4", "float4_e2m1fn", "float8_e5m2", "float8_e4m3fn"),
    *("float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2fnuz"),
)
_STRING = np.dtype(object)

DTYPES: Mapping[str, np.dtype[Any]] = {
    **{name: np.dtype(name) for name in _PLAIN},
    **{name: np.dtype(getattr(ml_dtypes, name)) for name in _EXTENDED if hasattr(ml_dtypes, name)},
    "string": _STRING,
}
"""TensorFlow's name of a dtype → numpy's dtype. Strings are arrays of `bytes` objects."""

_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_MAX_RANK = 254  # TensorFlow's own bound


def dtype_name(dtype: np.dtype[Any]) -> str:
    """TensorFlow's name for a numpy dtype of any byte order. Raises `KeyError` for one that it does not have."""
    return _NAMES[dtype.newbyteorder("=")]


def to_array(value: object) -> tuple[Array, bool]:
    """An array that can travel, and whether it is weak (made from Python values, which have no dtype of their own).

    Takes arrays of any byte order and layout, Python scalars, `str`, `bytes`, and nested lists of these. `str` and
    numpy's unicode become UTF-8. Raises `TypeError` or `ValueError`, saying what is wrong, for anything else.
    Copies only where the layout asks for it.
    """
    if isinstance(value, str | bytes):  # numpy's scalars of these too
        return _strings([value], ()), False
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError("a masked array; TensorFlow has no masks, so fill it first")
    weak = not isinstance(value, np.ndarray | np.generic)
    array = np.asarray(value)
    if array.dtype.kind in "SUOT":
        if weak:
            array = np.array(value, dtype=object)  # numpy's own string dtypes drop trailing NULs
        return _strings(array.reshape(-1).tolist(), array.shape), False
    if weak and array.dtype == np.float64 and (np.abs(array) >= 2.0**63).any():
        array = _exact_integers(value, array)
    if array.dtype.newbyteorder("=") not in _NAMES:
        raise TypeError(f"dtype {array.dtype} is not one of TensorFlow's")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return np.asarray(array, order="C"), weak


def tensor_bytes(array: Array) -> bytes | memoryview:
    """The buffer of an array from `to_array` or from TensorFlow; it is a view if possible."""
    if array.dtype.hasobject:
        return _join(array.reshape(-1).tolist())
    flat = np.asarray(array, order="C").reshape(-1)
    return flat.view(np.uint8).data if flat.size else b""


def decode_tensor(header: TensorHeader, buffer: bytes | memoryview) -> Array:
    """The array that a header and a buffer describe, over the buffer if possible. Raises `BadFrame` otherwise."""
    dtype = DTYPES.get(header.dtype)
    if dtype is None:
        raise BadFrame(f"no dtype {header.dtype!r:.40}")
    if len(header.shape) > _MAX_RANK:
        raise BadFrame(f"no shape has {len(header.shape)} axes")
    if any(axis < 0 for axis in header.shape):
        raise BadFrame(f"no shape {header.shape!r:.80}")
    size = 1
    for axis in header.shape:
        size *= axis
    if dtype == _STRING:
        return _reshape(_split(memoryview(buffer), size), header)
    if size * dtype.itemsize != len(buffer):
        raise BadFrame(f"{len(buffer)} bytes for {header.dtype} {list(header.shape)!s:.80}")
    flat = np.frombuffer(buffer, np.uint8).view(dtype) if size else np.empty(0, dtype)
    return _reshape(flat, header)


def _reshape(flat: Array, header: TensorHeader) -> Array:
    try:
        return flat.reshape(header.shape)
    except (ValueError, OverflowError):  # numpy holds 64 axes at most, and no axis beyond its index type
        raise BadFrame(f"no shape {header.shape!r:.80}") from None


def _exact_integers(value: object, rounded: Array) -> Array:
    """numpy makes floats of a list with integers of both int64 and uint64; floats among them stay floats."""
    elements = np.array(value, dtype=object)
    if not all(isinstance(element, int | np.integer) for element in elements.reshape(-1)):
        return rounded
    try:
        return elements.astype(np.uint64)
    except OverflowError:
        raise ValueError("its integers fit neither int64 nor uint64") from None


def _strings(elements: Sequence[object], shape: tuple[int, ...]) -> Array:
    if any(type(element) is int and not -(2**63) <= element < 2**64 for element in elements):
        raise ValueError("an integer does not fit into 64 bits")
    flat = np.empty(len(elements), dtype=object)
    flat[:] = [_to_bytes(element) for element in elements]
    return flat.reshape(shape)


def _to_bytes(element: object) -> bytes:
    if isinstance(element, bytes):
        return element
    if isinstance(element, str):
        return element.encode()
    if isinstance(element, int | float | complex | np.number):
        raise TypeError(f"a number ({type(element).__name__}) among objects: give numbers alone, or strings alone")
    raise TypeError(f"an element is neither a number nor a string: {type(element).__name__}")


def _join(elements: Sequence[object]) -> bytes:
    # TensorFlow gives `bytes`; some of its string outputs come as `str` objects.
    blobs = [_to_bytes(element) for element in elements]
    return np.fromiter(accumulate(map(len, blobs)), "<u8", len(blobs)).tobytes() + b"".join(blobs)


def join_strings(buffers: Sequence[bytes], counts: Sequence[int]) -> bytes:
    """The buffers of string tensors with so many elements each, as `tensor_bytes` makes them, as one tensor's."""
    ends = [np.frombuffer(buffer, "<u8", count) for buffer, count in zip(buffers, counts, strict=True)]
    blobs = [buffer[8 * count :] for buffer, count in zip(buffers, counts, strict=True)]
    starts = accumulate(map(len, blobs[:-1]), initial=0)
    moved = np.concatenate([each + np.uint64(start) for each, start in zip(ends, starts, strict=True)])
    return moved.tobytes() + b"".join(blobs)


def some_strings(buffer: bytes | memoryview, count: int, spans: Sequence[tuple[int, int]]) -> bytes:
    """Those from each start to each stop, of the buffer of so many as `tensor_bytes` makes it, as one tensor's."""
    ends = np.frombuffer(buffer, "<u8", count)
    starts = np.concatenate((np.zeros(1, "<u8"), ends))
    texts = memoryview(buffer)[8 * count :]
    blobs = [bytes(texts[starts[begin] : starts[end]]) for begin, end in spans]
    kept = [np.diff(starts[begin : end + 1]) for begin, end in spans]
    return np.cumsum(np.concatenate(kept), dtype="<u8").tobytes() + b"".join(blobs)


def _split(buffer: memoryview, count: int) -> Array:
    if count * 8 > len(buffer):
        raise BadFrame(f"{len(buffer)} bytes are too few for the strings of its shape")
    ends = np.frombuffer(buffer[: count * 8], "<u8").tolist()
    blob = buffer[count * 8 :]
    start = ends[-1] - len(blob) if ends else -len(blob)
    if start < 0:
        raise BadFrame(f"{-start} bytes belong to no string")
    strings = np.empty(count, dtype=object)
    origin = start
    for index, end in enumerate(ends):
        if not start <= end <= ends[-1]:
            raise BadFrame(f"string {index} ends before it begins, or past the end of its tensor")
        strings[index] = bytes(blob[start - origin : end - origin])
        start = end
    return strings
