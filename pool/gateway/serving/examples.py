"""The examples of `:classify` and `:regress` as serialized `tf.Example`s.

    Example   1: Features        Features   1: map<string, Feature>, an entry each: 1: name, 2: Feature
    Feature   1: BytesList   2: FloatList   3: Int64List        each of these   1: repeated value, numbers packed

Two examples one after the other are one with the features of both, of which the later ones count.
"""

from typing import Any

import numpy as np

from pool.gateway.http import Refused
from pool.gateway.serving.binary import as_bytes, is_binary
from pool.wire.tensors import Array

__all__ = ["examples_of"]

_LARGEST = float(np.finfo(np.float32).max)
_BYTES, _FLOATS, _INTEGERS = b"\x0a", b"\x12", b"\x1a"  # the tags of a Feature's three kinds
_KINDS = {_BYTES: "strings", _FLOATS: "floats", _INTEGERS: "integers"}


def examples_of(body: dict[str, Any]) -> Array:
    """A string [n]: one example each, with what "context" has for all. Raises `Refused` (400)."""
    context = _example(body["context"], "context") if "context" in body else b""
    if "examples" not in body:
        raise Refused(400, "the request has no 'examples'")
    found = body["examples"]
    if type(found) is not list:
        raise Refused(400, "'examples' is not a list")
    if not found:
        raise Refused(400, "'examples' is an empty list")
    examples = np.empty(len(found), object)
    examples[:] = [context + _example(each, f"examples[{index}]") for index, each in enumerate(found)]
    return examples


def _example(value: Any, where: str) -> bytes:
    if type(value) is not dict:
        raise Refused(400, f"{where} is not an object of features")
    entries = [
        _field(b"\x0a", _field(b"\x0a", as_bytes(name)) + _field(b"\x12", _feature(each, f"{where}[{name!r:.80}]")))
        for name, each in value.items()
    ]
    return _field(b"\x0a", b"".join(entries))


def _feature(value: Any, where: str) -> bytes:
    """A value or a list. A decimal number makes it one of floats, a whole one or a bool one of integers."""
    values = value if type(value) is list else [value]
    if not values:
        return b""
    kinds = [_kind(each, where) for each in values]
    if len(set(kinds)) > 1:
        first, other = kinds[0], next(kind for kind in kinds if kind != kinds[0])
        raise Refused(400, f"{where} has {_KINDS[other]} among {_KINDS[first]}")
    return _field(kinds[0], _values(kinds[0], values, where))


def _kind(value: Any, where: str) -> bytes:
    if type(value) is float:
        return _FLOATS
    if type(value) in (int, bool):
        return _INTEGERS
    if type(value) is str or is_binary(value):
        return _BYTES
    what = "null" if value is None else "a list in a list" if type(value) is list else "an object"
    raise Refused(400, f"{where} has {what}, which is no value of a feature")


def _values(kind: bytes, values: list[Any], where: str) -> bytes:
    if kind == _BYTES:
        return b"".join(_field(b"\x0a", as_bytes(each)) for each in values)
    if kind == _FLOATS:
        exact = np.array(values, np.float64)
        if (np.isfinite(exact) & (np.abs(exact) > _LARGEST)).any():
            raise Refused(400, f"{where} has a number that is too large for a float")
        return _field(b"\x0a", exact.astype("<f4").tobytes())
    if not all(-(1 << 63) <= each < 1 << 63 for each in values):
        raise Refused(400, f"{where} has an integer that is no int64")
    return _field(b"\x0a", b"".join(_varint(each % (1 << 64)) for each in map(int, values)))


def _field(tag: bytes, content: bytes) -> bytes:
    """One of a protobuf message, of bytes."""
    return tag + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)
