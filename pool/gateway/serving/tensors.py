"""Nested lists as tensors of a given dtype: what does not fit is refused, never bent."""

from collections.abc import Callable
from functools import cache
from itertools import chain
from typing import Any

import ml_dtypes
import numpy as np

from pool.gateway.http import Refused
from pool.gateway.serving.binary import B64, as_bytes, is_binary
from pool.wire.tensors import DTYPES, Array

__all__ = ["to_tensor"]

_MOST_AXES = 64  # numpy's bound
_SHOWN_CHARS = 80
_WITH_INFINITY = ("float16", "bfloat16", "float32")  # what is too large becomes it, not the largest number


def to_tensor(value: Any, dtype: str, where: str) -> Array:
    """A value or nested lists of them, as JSON has them. The shape is that of the first elements, and all must have it.

    `dtype`: TensorFlow's name. Integers are taken for floats, floats never for integers; a float is rounded to its
    dtype, but one that is finite stays so. Strings: see `binary`. `where` begins what is refused.

    Raises `Refused`: 400, or 501 for a dtype that JSON cannot say.
    """
    kind = DTYPES.get(dtype)
    if kind is None or kind.kind == "c":
        raise Refused(501, f"{where}: JSON has no form for {dtype}; send it by another protocol")
    flat, shape = _flat(value, where)

    def at(index: int) -> str:
        return f"{where}{_position(index, shape)}"

    if kind.hasobject:
        return _strings(flat, at).reshape(shape)
    if kind == np.bool_:
        _check(flat, frozenset((bool,)), dtype, at)
        return np.array(flat, np.bool_).reshape(shape)
    if "int" in dtype:
        _check(flat, frozenset((int,)), dtype, at)
        return _integers(flat, kind, dtype, at).reshape(shape)
    _check(flat, frozenset((int, float)), dtype, at)
    return _floats(flat, kind, dtype, at).reshape(shape)


def _flat(value: Any, where: str) -> tuple[list[Any], tuple[int, ...]]:
    """The elements in C order, whatever they are, and the shape."""
    shape: list[int] = []
    level = [value]
    while level and type(level[0]) is list:
        width = len(level[0])
        if set(map(type, level)) != {list} or set(map(len, level)) != {width}:
            index = next(index for index, each in enumerate(level) if type(each) is not list or len(each) != width)
            at, first = (f"{where}{_position(each, tuple(shape))}" for each in (index, 0))
            raise Refused(400, f"{at} is {_shown(level[index])}, where {first} is a list of {width}")
        if len(shape) == _MOST_AXES:
            raise Refused(400, f"{where}: its lists are nested deeper than {_MOST_AXES}")
        shape.append(width)
        level = list(chain.from_iterable(level))
    return level, tuple(shape)


def _check(flat: list[Any], kinds: frozenset[type], dtype: str, at: Callable[[int], str]) -> None:
    if kinds.issuperset(map(type, flat)):
        return
    index, wrong = next((index, each) for index, each in enumerate(flat) if type(each) not in kinds)
    raise Refused(400, f"{at(index)} is {_shown(wrong)}, which is not of the expected type {dtype}")


def _strings(flat: list[Any], at: Callable[[int], str]) -> Array:
    for index, each in enumerate(flat):
        if type(each) is not str and not is_binary(each):
            why = f'; bytes are {{"{B64}": TEXT}}' if type(each) is dict else ""
            raise Refused(400, f"{at(index)} is {_shown(each)}, which is not of the expected type string{why}")
    strings = np.empty(len(flat), object)
    strings[:] = [as_bytes(each) for each in flat]
    return strings


def _integers(flat: list[Any], kind: np.dtype[Any], dtype: str, at: Callable[[int], str]) -> Array:
    least, most = _ends(kind)
    if flat and not least <= min(flat) <= max(flat) <= most:
        index = next(index for index, each in enumerate(flat) if not least <= each <= most)
        raise Refused(400, f"{at(index)} is {_shown(flat[index])}; {dtype} has {least} to {most}")
    return np.array(flat, np.int64 if kind.kind == "V" else kind).astype(kind, copy=False)


def _floats(flat: list[Any], kind: np.dtype[Any], dtype: str, at: Callable[[int], str]) -> Array:
    try:
        exact = np.array(flat, np.float64)
    except OverflowError:
        index = next(index for index, each in enumerate(flat) if type(each) is int and abs(each) >= 1 << 1023)
        raise Refused(400, f"{at(index)} is {_shown(flat[index])}, which is too large for {dtype}") from None
    if kind == np.float64:
        return exact
    with np.errstate(all="ignore"):
        made = exact.astype(kind)
        if dtype in _WITH_INFINITY and np.isfinite(made).all():
            return made
        kept = made.astype(np.float64)
    lost = np.isfinite(exact) & (np.abs(exact) > _largest(kind))
    lost |= ~np.isfinite(exact) & ~((exact == kept) | (np.isnan(exact) & np.isnan(kept)))  # some have no infinity
    if lost.any():
        index = int(np.argmax(lost))
        raise Refused(400, f"{at(index)} is {_shown(flat[index])}, which is too large for {dtype}")
    return made


@cache
def _largest(kind: np.dtype[Any]) -> float:
    """What is rounded to the largest number of it."""
    info = ml_dtypes.finfo(kind)  # type: ignore[no-untyped-call]  # it has no hints
    return float(info.max) * (1 + float(info.eps) / 2)


@cache
def _ends(kind: np.dtype[Any]) -> tuple[int, int]:
    info = ml_dtypes.iinfo(kind)  # type: ignore[no-untyped-call]  # it has no hints
    return int(info.min), int(info.max)


def _position(index: int, shape: tuple[int, ...]) -> str:
    """`[2][0]`: where the element with this number is."""
    places = []
    for width in reversed(shape):
        index, place = divmod(index, width)
        places.append(place)
    return "".join(f"[{place}]" for place in reversed(places))


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return f"the text {value!r:.{_SHOWN_CHARS}}"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return "an object"
    return f"{value:.17g}" if isinstance(value, float) else f"{value if abs(value) < 10**40 else 'a huge integer'}"
