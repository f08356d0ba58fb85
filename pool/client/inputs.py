"""Arrays of what callers give: lists, numbers, strings, arrays of any layout and byte order."""

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from pool.errors import InvalidInput
from pool.wire.signatures import Signature, TensorInfo, choice, shape_fits
from pool.wire.tensors import DTYPE_NAMES, DTYPES

__all__ = ["arrays_of"]

Array = NDArray[Any]

OF_PYTHON = frozenset(map(np.dtype, (np.int64, np.float64, np.complex128, np.bool_)))
"""What numpy makes of Python's numbers: an array of these goes where a list of them goes."""


def arrays_of(inputs: Any, signature: Signature, where: str) -> dict[str, Array]:
    """In the order of their names, of the signature's dtypes, in C order. Raises `InvalidInput`.

    `inputs` may be a single value if the signature has one input.
    """
    if not isinstance(inputs, Mapping):
        if len(signature.inputs) != 1:
            raise InvalidInput(f"{where}: give a mapping of its inputs: {', '.join(sorted(signature.inputs))}")
        inputs = {next(iter(signature.inputs)): inputs}
    found: dict[str, Array] = {}
    for name in sorted(inputs, key=str):
        wanted = signature.inputs.get(name)
        if wanted is None:
            raise InvalidInput(f"{where}: no input {name!r:.80}; {choice(str(name), signature.inputs)}")
        try:
            found[name] = _array(inputs[name], wanted)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidInput(f"{where}: input {name!r}: expected {wanted}: {error}") from None
    return found


def _array(value: Any, wanted: TensorInfo) -> Array:
    """Raises `TypeError` and `ValueError` with what is wrong."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError("a masked array; TensorFlow has no masks, so fill it first")
    if wanted.dtype not in DTYPES:
        raise TypeError(f"this client's libraries have no dtype {wanted.dtype}")
    array = _strings(value) if wanted.dtype == "string" else _numbers(value, DTYPES[wanted.dtype])
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    if not shape_fits(array.shape, wanted.shape):
        got = TensorInfo(DTYPE_NAMES[array.dtype], array.shape)
        hint = ""
        if wanted.shape and wanted.shape[0] in (-1, 1) and shape_fits((1, *array.shape), wanted.shape):
            hint = ": add an axis (`array[None]`)"
        raise ValueError(f"got {got}{hint}")
    return array


def _strings(value: Any) -> Array:
    """`bytes` in an array of objects; `str` becomes UTF-8. numpy's own texts lose trailing NULs before they come."""
    if isinstance(value, np.ndarray) and value.dtype == object:
        return value
    array = np.array(value, dtype=object)
    if isinstance(value, str | bytes):
        array = np.empty((), object)
        array[()] = value
    for element in array.ravel().tolist():
        if not isinstance(element, str | bytes):
            raise TypeError(f"got {type(element).__name__}, where strings go")
    return array


def _numbers(value: Any, target: "np.dtype[Any]") -> Array:
    array = np.asarray(value)
    if array.dtype == target:
        return array
    if array.dtype.kind in "SUOT":
        raise TypeError(f"got {'objects' if array.dtype.kind == 'O' else 'strings'}, where numbers go")
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    if native.dtype == target:
        return native
    if not native.size and not isinstance(value, np.ndarray):
        return np.empty(native.shape, target)  # an empty list has no dtype
    weak = native.dtype in OF_PYTHON or not isinstance(value, np.ndarray | np.generic)
    made = _cast(native, target, weak)
    if made is None:
        name = DTYPE_NAMES.get(native.dtype, str(native.dtype))
        raise TypeError(f"got {name}, whose values it does not hold" if weak else f"got {name}; cast it yourself")
    return made


def _cast(array: Array, target: "np.dtype[Any]", may_round: bool) -> Array | None:
    """The array in another dtype if its values survive: numbers of Python up to rounding, all others exactly.

    numpy's own casts wrap and saturate in silence, so the values are compared afterwards.
    """
    with np.errstate(all="ignore"):
        if array.dtype.kind == "c" and target.kind != "c":
            return None
        made = array.astype(target)
        back = made.astype(array.dtype)
        if _is_real(target) and array.dtype.kind == "f" and may_round:
            is_kept = np.isfinite(back.astype(np.float64)) == np.isfinite(array)
            info = ml_dtypes.finfo(target)
            is_kept &= ~np.isfinite(array) | (np.abs(array) <= float(info.max) * (1 + float(info.eps) / 2))
            return made if bool(is_kept.all()) else None
        if target.kind == "c" and array.dtype.kind in "fc" and may_round:
            return made if bool((np.isfinite(made) == np.isfinite(array)).all()) else None
        same = (back == array) | ((back != back) & (array != array))  # NaN is itself here
        if array.dtype.kind in "iu" and target.kind in "iu":
            same &= (made < 0) == (array < 0)
        return made if bool(np.all(same)) else None


def _is_real(dtype: "np.dtype[Any]") -> bool:
    return dtype.kind == "f" or "float" in DTYPE_NAMES[dtype]
