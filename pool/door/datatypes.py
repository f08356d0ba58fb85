"""The Open Inference Protocol's tensors and parameters, as HTTP and gRPC share them.

A tensor is bytes in C order, little-endian. An element of BYTES is its length in 4 bytes, and its bytes.
"""

import math
from typing import Any, TypeVar

import numpy as np

from pool.client.inputs import Options
from pool.errors import InvalidInput
from pool.wire.signatures import TensorInfo
from pool.wire.specs import MOST_BYTES, MOST_RANK
from pool.wire.tensors import DTYPES, Array, strings_of

_INTS = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
_PLAIN = ["bool", *_INTS, "float16", "float32", "float64"]
DATATYPE_OF = {"bfloat16": "BF16", "string": "BYTES"} | {name: name.upper().replace("FLOAT", "FP") for name in _PLAIN}
DATATYPES = {datatype: name for name, datatype in DATATYPE_OF.items()}

KINDS = {bool: "true or false", int: "a whole number", str: "a text", list: "a list", dict: "a JSON object"}
Kind = TypeVar("Kind", bool, int, str, list[Any], dict[str, Any])


def member(what: str, told: object, key: str, kind: type[Kind], default: Kind | None = None) -> Kind:
    """Of an object that somebody sent. Raises `InvalidInput`."""
    if not isinstance(told, dict):
        raise InvalidInput(f"{what} is {told!r:.40}; give a JSON object")
    value = told.get(key, default)
    if type(value) is not kind:
        raise InvalidInput(f"{what}: {key} is {value!r:.40}; give {KINDS[kind]}")
    return value


def options_of(parameters: dict[str, Any]) -> Options:
    """A job's options. Parameters that are not known are for models of other servers. Raises `InvalidInput`."""
    what = "the parameters"
    microseconds, level = (member(what, parameters, name, int, 0) for name in ("timeout", "priority"))
    if microseconds < 0 or level < 0:
        raise InvalidInput(f"{what}: timeout is {microseconds}, priority {level}; give 1 or more, or 0 for the default")
    if parameters.get("sequence_id", 0) not in (0, ""):
        raise InvalidInput(f"{what}: there are no sequences, for all jobs share a model's state; leave sequence_id out")
    for name in parameters:
        if name.startswith("triton_"):
            raise InvalidInput(f"{what}: {name!r:.80} is reserved, as all that begins with triton_; leave it out")
    timeout_s, priority = min(microseconds, 1 << 62) / 1e6 or None, max(-100, 101 - level) if level else 0
    signature = member(what, parameters, "signature", str, "") or None
    return Options(timeout=timeout_s, priority=priority, signature=signature)


def tensor_info(what: str, datatype: str, shape: list[Any]) -> TensorInfo:
    """Raises `InvalidInput`."""
    if datatype not in DATATYPES:
        raise InvalidInput(f"{what}: no datatype {datatype!r:.40}; there are {', '.join(DATATYPES)}")
    if len(shape) > MOST_RANK or not all(type(axis) is int and 0 <= axis <= MOST_BYTES for axis in shape):
        raise InvalidInput(f"{what}: its shape is {shape!r:.80}; give up to {MOST_RANK} lengths from 0")
    return TensorInfo(DATATYPES[datatype], tuple(shape))


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


def packed_strings(array: Array) -> bytes:
    return b"".join([part for text in strings_of(array) for part in (len(text).to_bytes(4, "little"), text)])
