"""Inputs that fit a signature, for a benchmark that was given none."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from pool.wire.signatures import TensorSpec
from pool.wire.tensors import DTYPES, Array

__all__ = ["BadInputs", "Making", "made_inputs", "made_jobs", "repeated", "shapes_of"]

_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz     ", np.uint8)
STRING_LENGTH = 24

Shapes = Mapping[str, tuple[int, ...]]


class BadInputs(ValueError):
    """Inputs that cannot be what the signature takes: one line."""


@dataclass(frozen=True, slots=True)
class Making:
    """Unknown axes are those of `shapes`; else axis 0 has `rows`, and others 1. `string_length` is in bytes."""

    rows: int = 1
    seed: int = 0
    zeros: bool = False
    string_length: int = STRING_LENGTH
    shapes: Shapes = field(default_factory=dict)


def made_jobs(given: Mapping[str, object], specs: Mapping[str, TensorSpec], making: Making) -> list[dict[str, object]]:
    """The inputs of the one job: those that are given, and made ones. Raises `BadInputs`."""
    feeds: dict[str, object] = {name: repeated(value, specs[name], making.rows) for name, value in given.items()}
    feeds.update(made_inputs({name: spec for name, spec in specs.items() if name not in feeds}, making))
    return [feeds]


def made_inputs(specs: Mapping[str, TensorSpec], making: Making) -> dict[str, Array]:
    """An array for each input, the same ones for the same seed. Raises `BadInputs` for a shape that does not fit."""
    for name in making.shapes:
        if name not in specs:
            raise BadInputs(f"--shape {name}: no input {name!r} to be made; there are: {', '.join(specs) or 'none'}")
    rng = np.random.default_rng(making.seed)
    return {name: _made(spec, _shape(name, spec, making), making, rng) for name, spec in specs.items()}


def shapes_of(texts: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """Of `--shape NAME:1,224,224,3`. Raises `BadInputs`."""
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, colon, axes = text.rpartition(":")
        sizes = axes.split(",") if axes else []
        if not (colon and name) or not all(size.isascii() and size.isdecimal() and len(size) < 10 for size in sizes):
            raise BadInputs(f"--shape {text:.60}: write NAME:AXIS,AXIS,…, such as image:1,224,224,3")
        if name in shapes:
            raise BadInputs(f"--shape {name} is given twice")
        shapes[name] = tuple(map(int, sizes))
    return shapes


def _made(spec: TensorSpec, shape: tuple[int, ...], making: Making, rng: np.random.Generator) -> Array:
    """Floats in [0, 1), integers 0 and 1 (an index or a token id that every model has), texts of letters."""
    dtype = DTYPES[spec.dtype]
    if spec.dtype == "string":
        texts = np.empty(shape, object)
        for index in np.ndindex(shape):
            texts[index] = b"" if making.zeros else rng.choice(_LETTERS, making.string_length).tobytes()
        return texts
    if making.zeros:
        return np.zeros(shape, dtype)
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


def _shape(name: str, spec: TensorSpec, making: Making) -> tuple[int, ...]:
    asked = making.shapes.get(name)
    if asked is None:
        if spec.shape is None:
            return (making.rows,)
        return tuple(
            (making.rows if number == 0 else 1) if axis < 0 else axis for number, axis in enumerate(spec.shape)
        )
    if spec.shape is None:
        return asked
    if len(asked) == len(spec.shape) - 1 and spec.shape[0] == -1:
        asked = (making.rows, *asked)
    elif asked[:1] == (1,) and spec.shape[:1] == (-1,):
        asked = (making.rows, *asked[1:])
    fits = (axis in (-1, size) for size, axis in zip(asked, spec.shape, strict=False))
    if len(asked) != len(spec.shape) or not all(fits):
        raise BadInputs(f"--shape {name}: {list(asked)} does not fit {spec}")
    return asked
