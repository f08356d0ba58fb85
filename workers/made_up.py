"""Values made of a seed, to try a model with before anybody has asked for anything. Zeros hide too much."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pool.wire.signatures import Signature
from pool.wire.tensors import DTYPES, Array

__all__ = ["made_up", "made_up_rows"]

_SEED = 20261121
_WORDS = (b"", b"a", b"word", b"two words", b"0", b"1.5", b"import os\n")
# Integers from and below, and what floats are multiplied by: first some, then such as an index or a flag may be, then
# those of both signs.
_KINDS = ((0, 10, 1.0), (0, 2, 30.0), (-5, 5, 0.1))
_MOST_VALUES = 1 << 21  # that are made up for an input's rows: a tenth of a second
_UNKNOWN = (3, 1)  # how long an axis of unknown size is, other than axis 0


def made_up(zeros: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
    """Values of these dtypes and shapes."""
    for least, below, _ in _KINDS[:2]:
        numbers = np.random.default_rng(_SEED)
        yield {name: _values(array, numbers, least, below, 1.0) for name, array in zeros.items()}


def made_up_rows(signature: Signature, rows: int) -> Iterator[dict[str, Array]]:
    """So many rows for a signature that has some: of both signs, small and large, the last one as the first.

    Of large ones only a few are made up, and repeated: random numbers take their time.
    """
    for unknown in _UNKNOWN if any(-1 in (spec.shape or ())[1:] for spec in signature.inputs.values()) else (1,):
        shapes = {
            name: tuple([unknown if axis < 0 else axis for axis in (spec.shape or ())[1:]])
            for name, spec in signature.inputs.items()
        }
        made_of = max(2, min(rows, _MOST_VALUES // max(1, sum(map(math.prod, shapes.values())))))
        zeros = {
            name: np.zeros((made_of, *shapes[name]), DTYPES[spec.dtype]) for name, spec in signature.inputs.items()
        }
        for kind in _KINDS:
            numbers = np.random.default_rng(_SEED)
            made = {name: _values(array, numbers, *kind) for name, array in zeros.items()}
            made = {name: array[np.arange(rows) % made_of] for name, array in made.items()} if made_of < rows else made
            for array in made.values():
                array[-1] = array[0]
            yield made


def _values(zeros: Array, numbers: np.random.Generator, least: int, below: int, scale: float) -> Array:
    if zeros.dtype.hasobject:
        flat = np.empty(zeros.size, object)
        flat[:] = [_WORDS[index] for index in numbers.integers(0, len(_WORDS), zeros.size)]
        return flat.reshape(zeros.shape)
    made: Any = scale * numbers.standard_normal(zeros.shape)
    if zeros.dtype.kind in "biu" or "int" in zeros.dtype.name:
        unsigned = zeros.dtype.kind == "b" or zeros.dtype.name.startswith("uint")
        made = numbers.integers(max(least, 0) if unsigned else least, below, zeros.shape)
        made = made % 2 if zeros.dtype.kind == "b" else made
    array = np.copy(zeros)
    array[...] = np.asarray(made).astype(zeros.dtype)
    return array
