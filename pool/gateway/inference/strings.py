"""BYTES as binary data: of each element its length, 4 bytes little-endian, then its bytes."""

from collections.abc import Iterable
from struct import Struct
from typing import Any

import numpy as np

from pool.gateway.http import Refused
from pool.wire.tensors import Array

__all__ = ["LENGTH_BYTES", "array_of", "join", "split"]

_LENGTH = Struct("<I")
LENGTH_BYTES = _LENGTH.size


def split(name: str, data: bytes, shape: tuple[int, ...], count: int) -> Array:
    """`data`: of `count` elements. Raises `Refused` where the lengths do not add up to it."""
    elements = []
    at, size_bytes, length_at = 0, len(data), _LENGTH.unpack_from
    for number in range(count):
        begin = at + LENGTH_BYTES
        if begin > size_bytes or (at := begin + length_at(data, at)[0]) > size_bytes:
            raise Refused(400, f"input {name!r:.200}: element {number} of {count} ends past its {size_bytes} bytes")
        elements.append(data[begin:at])
    if at != size_bytes:
        raise Refused(400, f"input {name!r:.200}: {size_bytes - at} bytes follow its {count} elements")
    return array_of(elements, shape)


def array_of(elements: list[Any], shape: tuple[int, ...]) -> Array:
    """numpy makes arrays of lists of one size by itself, so it is not asked to."""
    array = np.empty(len(elements), dtype=object)
    array[:] = elements
    return array.reshape(shape)


def join(elements: Iterable[bytes]) -> bytes:
    length = _LENGTH.pack
    return b"".join([part for element in elements for part in (length(len(element)), element)])
