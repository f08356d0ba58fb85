"""Whether two runs gave a row the same values, as closely as its dtype lets two orders of summation agree."""

from collections.abc import Mapping

import numpy as np

from pool.wire.tensors import Array

__all__ = ["difference"]

# Relative to the row. Another batch size takes other kernels and another order of sums. On GPUs a float32 product may
# be one of 10 bits (TF32) for some sizes and not for others, so less than that is no sign of a neighbour.
# Floats of 64 bits are often made of such of 32.
_TOLERANCES = {
    "float64": 1e-5,
    "complex128": 1e-5,
    "float32": 2e-3,
    "complex64": 2e-3,
    "float16": 2e-2,
    "bfloat16": 5e-2,
}
_COARSE = 0.3  # of the floats of 8 bits
_ENOUGH = 4  # rows, to know how large the values of a column are
_COLUMN = 10.0  # times the largest value of its column: more than that of the row is not allowed
_SHOWN = 4  # values of a row, in a text
_SHOWN_CHARS = 80
_SMALL = 1e-3  # a row that is so small beside the batch's largest value is what is left of larger ones that cancelled


def difference(found: Mapping[str, Array], right: Mapping[str, Array], known: Mapping[str, Array]) -> str:
    """What of the rows is not the same, in a few words, or "". Numbers of all but floats must be equal.

    Both have the same rows in the same order. NaN agrees with NaN, infinity with itself, and with nothing else.
    `known`: rows of these outputs that show how large their values are, so that no large one hides a score beside it.
    """
    for name, wanted in right.items():
        got = found[name]
        if got.shape[1:] != wanted.shape[1:]:
            shapes = f"rows of shape {list(got.shape[1:])} among other rows, not {list(wanted.shape[1:])}"
            return f"output {name!r} has {shapes}"
        if got.dtype != wanted.dtype:
            return f"output {name!r} has dtype {got.dtype} among other rows, not {wanted.dtype}"
        row = _first_apart(got, wanted, known[name])
        if row is not None:
            return f"output {name!r} gave {_shown(got, row)} for a row that gave {_shown(wanted, row)} among other rows"
    return ""


def _first_apart(got: Array, wanted: Array, known: Array) -> int | None:
    """The number of the first row that is not the same."""
    if not wanted.size:
        return None
    one, other = got.reshape(len(got), -1), wanted.reshape(len(wanted), -1)
    if wanted.dtype.hasobject or wanted.dtype.kind in "biuSU" or "int" in wanted.dtype.name:
        apart = (one != other).any(axis=1)
    else:
        columns = known.reshape(len(known), -1) if len(known) >= _ENOUGH and known.shape[1:] == got.shape[1:] else None
        apart = _floats_apart(one, other, columns, _TOLERANCES.get(wanted.dtype.name, _COARSE))
    found = np.flatnonzero(apart)
    return int(found[0]) if len(found) else None


def _floats_apart(got: Array, wanted: Array, known: Array | None, tolerance: float) -> Array:
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    one, other = got.astype(wide), wanted.astype(wide)
    finite = np.isfinite(other) & np.isfinite(one)
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    sizes = np.where(finite, np.abs(other), 0.0)
    rows = sizes.max(axis=1, keepdims=True)
    scale = np.maximum(rows, _SMALL * rows.max())
    if known is not None:
        columns = np.abs(np.where(np.isfinite(known), known, 0).astype(wide)).max(axis=0)
        scale = np.minimum(scale, _COLUMN * np.maximum(columns, sizes))
    allowed = tolerance * scale
    with np.errstate(invalid="ignore"):
        near = finite & (np.abs(np.where(finite, one - other, 0.0)) <= allowed)
    return np.asarray(~(same | near).all(axis=1))


def _shown(array: Array, row: int) -> str:
    values = array[row : row + 1].reshape(-1)
    text = " ".join(str(values[:_SHOWN].tolist() if array.ndim > 1 else values.tolist()[0]).split())
    return text[:_SHOWN_CHARS] + (" …" if values.size > _SHOWN or len(text) > _SHOWN_CHARS else "")
