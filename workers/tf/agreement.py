"""Whether two runs gave the same, within a tolerance."""

from collections.abc import Mapping

import numpy as np

from pool.wire.tensors import Array

__all__ = ["disagreement", "largest_difference"]


def disagreement(found: Mapping[str, Array], right: Mapping[str, Array], tolerance: float) -> str | None:
    """What is amiss, else None. See `largest_difference`."""
    for name, wanted in right.items():
        got = found[name]
        if got.shape != wanted.shape:
            return f"output {name!r} has the shape {list(got.shape)}, not {list(wanted.shape)}"
        difference = largest_difference(got, wanted)
        if not difference <= tolerance:
            return f"output {name!r} differs by {difference:.1e}, more than {tolerance:g}"
    return None


def largest_difference(found: Array, right: Array) -> float:
    """Of floats relative to the largest finite value of `right`; of all else 0.0 where they are equal, or infinity.

    NaN agrees with NaN, infinity with itself, and with nothing else.
    """
    if right.dtype.hasobject or right.dtype.kind in "biu" or not right.size:
        return 0.0 if np.array_equal(found, right) else np.inf
    wide = np.complex128 if right.dtype.kind == "c" else np.float64
    one, other = found.astype(wide), right.astype(wide)
    finite = np.isfinite(other)
    if not np.array_equal(finite, np.isfinite(one)) or not np.array_equal(one[~finite], other[~finite], equal_nan=True):
        return np.inf
    if not finite.any():
        return 0.0
    scale = float(np.abs(other[finite]).max())
    most = float(np.abs(one[finite] - other[finite]).max())
    return most / scale if scale else (0.0 if most == 0 else np.inf)
