"""The Open Inference Protocol's tensors, as doors and their clients share them.

A tensor is bytes in C order, little-endian. An element of BYTES is its length in 4 bytes, and its bytes.
"""

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from pool.errors import InvalidInput
from pool.wire.signatures import TensorInfo
from pool.wire.specs import MOST_BYTES, MOST_RANK
from pool.wire.tensors import DTYPE_NAMES, DTYPES, Array, strings_of

MOST_KNOWN = 256

_INTS = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
_PLAIN = ["bool", *_INTS, "float16", "float32", "float64"]
DATATYPE_OF = {"bfloat16": "BF16", "string": "BYTES"} | {name: name.upper().replace("FLOAT", "FP") for name in _PLAIN}
DATATYPES = {datatype: name for name, datatype in DATATYPE_OF.items()}


def tensor_info(what: str, datatype: str, shape: list[Any]) -> TensorInfo:
    """Raises `InvalidInput`."""
    if datatype not in DATATYPES:
        raise InvalidInput(f"{what}: no datatype {datatype!r:.40}; there are {', '.join(DATATYPES)}")
    if len(shape) > MOST_RANK or not all(type(axis) is int and 0 <= axis <= MOST_BYTES for axis in shape):
        raise InvalidInput(f"{what}: its shape is {shape!r:.80}; give up to {MOST_RANK} lengths from 0")
    return TensorInfo(DATATYPES[datatype], tuple(shape))


@lru_cache(MOST_KNOWN)
def described(name: str, dtype: "np.dtype[Any]", shape: tuple[int, ...], **more: int) -> str:
    """A tensor in JSON, with more parameters. Raises `InvalidInput`."""
    datatype = DATATYPE_OF.get(DTYPE_NAMES[dtype])
    if datatype is None:
        raise InvalidInput(f"{name!r:.80} is {dtype}, which the protocol does not have; leave it out")
    return json.dumps({"name": name, "datatype": datatype, "shape": shape, "parameters": more})


def arrays_of(kind: str, told: Mapping[str, tuple[TensorInfo, int]], body: bytearray, at: int) -> dict[str, Array]:
    """Of inputs or outputs that follow each other, each of so many bytes. Raises `InvalidInput`."""
    arrays = {}
    for name, (info, nbytes) in told.items():
        arrays[name] = unpacked(f"{kind} {name!r:.80}", info, body, at, nbytes)
        at += nbytes
    if at != len(body):
        raise InvalidInput(f"{len(body) - at} bytes follow that belong to no {kind}")
    return arrays


def unpacked(what: str, info: TensorInfo, memory: Any, at: int, nbytes: int) -> Array:
    """A tensor of so many bytes, as a view of the memory; strings are copied. Raises `InvalidInput`."""
    dtype, shape = DTYPES[info.dtype], info.shape or ()
    try:
        if dtype.hasobject and nbytes >= 0:
            return _strings(bytes(memoryview(memory)[at : at + nbytes]), shape)
        if (takes := math.prod(shape) * dtype.itemsize) != nbytes:
            raise ValueError(f"that takes {takes}")
        array = np.ndarray(shape, dtype, memory, at)  # raises for an empty one, too, with axes longer than memory
        if dtype.kind == "b" and nbytes and array.view(np.uint8).max() > 1:
            raise ValueError("an element of BOOL is a byte of 0 or 1")
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{what}: expected {info}, got {nbytes} bytes: {error}") from None
    return array


def _strings(data: bytes, shape: tuple[int, ...]) -> Array:
    texts, end = [], 0
    while end < len(data):
        begin = end + 4
        end = begin + int.from_bytes(data[end:begin], "little")
        texts.append(data[begin:end])
    if end > len(data) or len(texts) != math.prod(shape):
        raise ValueError(f"by their lengths, these are {len(texts)} elements of {end} bytes")
    return np.array(texts, object).reshape(shape)


def encoded(array: Array) -> Any:
    """A view of its bytes; of strings, a copy. Raises `TypeError` for an element that is none."""
    if array.dtype.hasobject:
        return b"".join([part for text in strings_of(array) for part in (len(text).to_bytes(4, "little"), text)])
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
