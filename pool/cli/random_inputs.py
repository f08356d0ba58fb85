"""Inputs that fit a signature, for a benchmark that was given none."""

from collections.abc import Mapping

import numpy as np

from pool.wire.signatures import TensorSpec
from pool.wire.tensors import DTYPES, Array

__all__ = ["random_input", "random_inputs", "repeated", "rows_of"]

_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz     ", np.uint8)
_TEXT_BYTES = 24


def random_inputs(specs: Mapping[str, TensorSpec], rows: int, seed: int = 0) -> dict[str, Array]:
    """An array for each input, the same ones for the same seed. An unknown axis 0 has `rows`, other unknown axes 1."""
    rng = np.random.default_rng(seed)
    return {name: random_input(spec, rows, rng) for name, spec in specs.items()}


def random_input(spec: TensorSpec, rows: int, rng: np.random.Generator) -> Array:
    """Floats in [0, 1), integers 0 and 1 (an index or a token id that every model has), short texts."""
    shape = _shape(spec, rows)
    dtype = DTYPES[spec.dtype]
    if spec.dtype == "string":
        texts = np.empty(shape, object)
        for index in np.ndindex(shape):
            texts[index] = rng.choice(_LETTERS, _TEXT_BYTES).tobytes()
        return texts
    if spec.dtype.startswith(("bool", "int", "uint")):
        return np.asarray(rng.integers(0, 2, shape)).astype(dtype)
    return np.asarray(rng.random(shape)).astype(dtype)


def repeated(value: object, spec: TensorSpec, rows: int) -> object:
    """A value of one row as a batch of `rows`; other values stay as they are."""
    if rows == 1 or spec.shape is None or not spec.shape or spec.shape[0] != -1:
        return value
    if isinstance(value, np.ndarray):
        return np.repeat(value, rows, axis=0) if len(value) == 1 else value
    return value * rows if isinstance(value, list) and len(value) == 1 else value


def rows_of(specs: Mapping[str, TensorSpec], inputs: Mapping[str, object]) -> int:
    """The size of axis 0 of the first input that has one, otherwise 1."""
    for name in specs:
        value = inputs.get(name)
        if isinstance(value, list) or (isinstance(value, np.ndarray) and value.ndim):
            return len(value)
    return 1


def _shape(spec: TensorSpec, rows: int) -> tuple[int, ...]:
    if spec.shape is None:
        return (rows,)
    return tuple((rows if number == 0 else 1) if axis < 0 else axis for number, axis in enumerate(spec.shape))
