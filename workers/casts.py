"""An array in another dtype, if nothing is lost by it.

numpy's own answer is not enough: it calls casts of ml_dtypes' types safe that are not (float8 → int4, int8 → float8),
takes float64 for exact on int64, and its casts wrap (2**63 as int64 is negative) or saturate in silence.
"""

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from pool.wire.tensors import Array, dtype_name

__all__ = ["cast"]

Dtype = np.dtype[Any]

_INTEGERS = frozenset({np.dtype(np.int64), np.dtype(np.uint64)})
_OF_PYTHON = _INTEGERS | {np.dtype(np.float64), np.dtype(np.complex128)}  # and bool, which fits everywhere


def cast(array: Array, target: Dtype, weak: bool) -> Array | None:
    """The array as `target`, or None where that would lose something. The array itself, if it is that already.

    A dtype that holds every value of the array's is always taken. Python's numbers, and arrays of the dtypes that numpy
    gives these, take any dtype in which their values survive, floats up to rounding: `np.array([0.1])` goes where
    `[0.1]` goes. `weak`: made of Python's numbers, so one without elements has no dtype.
    """
    source = array.dtype
    if source == target:
        return array
    if weak and not array.size:
        return np.empty(array.shape, target)
    if source.hasobject or target.hasobject:
        return None
    if _holds_all(source, target):
        if source.kind == "V" and _kind(source) == "integer":  # ml_dtypes does not cast int4 to uint4, for one
            array = array.astype(np.int8)
        with np.errstate(invalid="ignore"):  # a signalling NaN
            return array.astype(target)
    if source in _OF_PYTHON:
        return _converted(array, target, rounding=True)
    return None


@cache
def _holds_all(source: Dtype, target: Dtype) -> bool:
    """Whether `target` has every value of `source`: tried with each, where they are 65,536 at most."""
    if source.itemsize > 2:
        return np.can_cast(source, target, "safe") and not (source in _INTEGERS and _kind(target) != "integer")
    count = 2 if source == np.bool_ else 1 << 8 * source.itemsize
    values = np.arange(count).astype(f"u{source.itemsize}").view(source)
    return _converted(values, target, rounding=False) is not None


def _converted(array: Array, target: Dtype, rounding: bool) -> Array | None:
    """The cast array if every value survived; with `rounding`, floats may have lost digits, but not their size."""
    given, wanted = _kind(array.dtype), _kind(target)
    if given == "complex" and wanted != "complex":
        return None
    with np.errstate(all="ignore"):
        flat = array.reshape(-1).astype(_widest(array.dtype), copy=False)
        if wanted == "integer":
            made = _as_integers(flat, target)
        elif given == "integer":
            made = _as_exact_floats(flat, target)
        else:
            made = _as_floats(flat, target, rounding)
    return None if made is None else made.reshape(array.shape)


def _as_integers(flat: Array, target: Dtype) -> Array | None:
    info = ml_dtypes.iinfo(np.uint8 if target == np.bool_ else target)  # type: ignore[no-untyped-call]  # it has no hints
    past = 2 if target == np.bool_ else int(info.max) + 1  # a power of two, which a float holds exactly
    if not ((flat >= int(info.min)) & (flat < past)).all():
        return None
    if flat.dtype.kind == "f":
        if (np.trunc(flat) != flat).any():
            return None
        flat = flat.astype(np.uint64 if target == np.uint64 else np.int64)
    return flat.astype(target)


def _as_exact_floats(flat: Array, target: Dtype) -> Array | None:
    made = flat.astype(target)
    back = made.astype(np.complex128).real
    past = float(2 ** (64 if flat.dtype == np.uint64 else 63))  # beyond it the way back is undefined
    return made if ((back < past) & (back.astype(flat.dtype) == flat)).all() else None


def _as_floats(flat: Array, target: Dtype, rounding: bool) -> Array | None:
    made = flat.astype(target)
    asked, got = flat.astype(np.complex128).view(np.float64), made.astype(np.complex128).view(np.float64)
    if not rounding:
        return made if np.array_equal(asked, got, equal_nan=True) else None
    info = ml_dtypes.finfo(target)  # type: ignore[no-untyped-call]  # it has no hints
    largest = float(info.max) * (1 + float(info.eps) / 2)  # float4 saturates where others become infinite
    kept = np.where(np.isfinite(asked), np.isfinite(got) & (np.abs(asked) <= largest), np.isnan(asked) == np.isnan(got))
    return made if (kept & (np.isfinite(asked) == np.isfinite(got))).all() else None


def _kind(dtype: Dtype) -> str:
    name = dtype_name(dtype)
    if name.startswith(("bool", "int", "uint")):
        return "integer"
    return "complex" if name.startswith("complex") else "real"


def _widest(dtype: Dtype) -> Dtype:
    """The dtype of Python's numbers that holds all of `dtype`."""
    if _kind(dtype) == "integer":
        return np.dtype(np.uint64 if dtype == np.uint64 else np.int64)
    return np.dtype(np.complex128 if _kind(dtype) == "complex" else np.float64)
