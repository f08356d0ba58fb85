"""Tensors as JSON has them: `data`, a list of all elements, or nested lists as the shape is."""

import math
from itertools import chain
from typing import Any

import numpy as np

from pool.gateway.http import Refused
from pool.gateway.inference.datatypes import NO_JSON
from pool.gateway.inference.options import brief
from pool.gateway.inference.strings import array_of
from pool.wire.tensors import Array

__all__ = ["NO_TENSOR", "read", "written"]

NO_TENSOR = "no tensor has the shape"

_TAKEN: dict[str, tuple[frozenset[type], str]] = {
    "b": (frozenset((bool,)), "true or false"),
    "i": (frozenset((int,)), "integers"),
    "u": (frozenset((int,)), "integers"),
    "f": (frozenset((int, float)), "numbers"),
    "O": (frozenset((str,)), "texts"),
}
"""By the kind of a dtype: what its elements are in JSON."""


def read(name: str, datatype: str, dtype: np.dtype[Any], shape: tuple[int, ...], data: object) -> Array:
    """The array of an input's `data`. Raises `Refused`, which says what is wrong."""
    if datatype in NO_JSON:
        text = f"receiving {datatype} data via JSON is not supported"
        raise Refused(400, f"{text}. Please use the binary data format for input {name!r:.200}")
    what = f"input {name!r:.200}"
    if type(data) is not list:
        raise Refused(400, f"{what}: its data is a list")
    elements, nested = _flat(what, data)
    count = math.prod(shape)
    if len(elements) != count:
        raise Refused(400, f"{what}: shape {list(shape)} has {count} elements, its data has {len(elements)}")
    if len(nested) > 1 and _long(nested) != _long(shape):
        raise Refused(400, f"{what}: its nested lists have the shape {brief(nested)}, not {list(shape)}")
    taken, called = _TAKEN[dtype.kind]
    if not taken.issuperset(map(type, elements)):
        raise Refused(400, f"{what}: {datatype} data are {called}")
    try:
        array = _array(dtype, elements)
    except (OverflowError, FloatingPointError):
        raise Refused(400, f"{what}: a number is beyond what {datatype} holds") from None
    except UnicodeEncodeError:
        raise Refused(400, f"{what}: a text is not valid unicode; send it as binary data") from None
    try:
        return array.reshape(shape)
    except ValueError:  # an empty one, whose other axes are longer than memory
        raise Refused(400, f"{what}: {NO_TENSOR} {list(shape)}") from None


def _flat(what: str, data: list[Any]) -> tuple[list[Any], list[int]]:
    """The elements, and the shape of the lists that they are in.

    numpy would find both, but makes all elements as long as the longest text among them.
    """
    nested = [len(data)]
    while data and type(data[0]) is list:
        if set(map(type, data)) != {list} or len(lengths := set(map(len, data))) != 1:
            raise Refused(400, f"{what}: its nested lists do not have one shape")
        nested += lengths
        data = list(chain.from_iterable(data))
    if list in map(type, data):
        raise Refused(400, f"{what}: its nested lists do not have one shape")
    return data, nested


def _long(shape: list[int] | tuple[int, ...]) -> list[int]:
    """Axes of length 1 change the order of no element, and clients leave some out."""
    return [axis for axis in shape if axis != 1]


def _array(dtype: np.dtype[Any], elements: list[Any]) -> Array:
    if dtype.hasobject:
        return array_of([text.encode() for text in elements], (len(elements),))
    if dtype.kind != "f":
        return np.array(elements, dtype)
    with np.errstate(over="raise"):
        return np.array(elements, np.float64).astype(dtype)


def written(name: str, datatype: str, array: Array) -> Any:
    """What `data` is of an output: a list or a flat array. Raises `Refused` for what JSON cannot say."""
    if datatype in NO_JSON:
        text = f"sending {datatype} data via JSON is not supported"
        raise Refused(400, f"{text}. Please use the binary data format for output {name!r:.200}")
    if datatype == "BYTES":
        try:
            return [element.decode() for element in array.reshape(-1).tolist()]
        except UnicodeDecodeError:
            text = f"output {name!r:.200} has bytes that are not UTF-8"
            raise Refused(400, f"{text}. Please use the binary data format for it") from None
    return np.ascontiguousarray(array).reshape(-1)
