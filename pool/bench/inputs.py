"""The inputs of a benchmark's jobs: made ones that fit the signature, and recorded ones.

    jobs.npz     an array an input, by the input's name; along its axis 0 are the jobs
    jobs.json    {"data": [{"pixels": [0, 0.5, …], "words": {"content": ["a", "b"], "shape": [2]}}, …]}

The second is what Triton's perf_analyzer reads: an object a job, with an input's values by its name; they may be
flat, and `{"b64": "…"}` has their bytes. A job's array may have its rows on axis 0, or be a single row.
"""

import base64
import json
import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pool.wire.signatures import TensorSpec
from pool.wire.tensors import DTYPES, Array, dtype_name, to_array

__all__ = ["BadInputs", "Making", "made_inputs", "made_jobs", "read_input_data", "repeated", "shapes_of"]

_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz     ", np.uint8)

Specs = Mapping[str, TensorSpec]


class BadInputs(ValueError):
    """Inputs that cannot be what the signature takes: one line."""


@dataclass(frozen=True, slots=True)
class Making:
    """Unknown axes are those of `shapes`; else axis 0 has `rows`, and others 1. `string_length` is in bytes."""

    rows: int = 1
    seed: int = 0
    zeros: bool = False
    string_length: int = 24
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def made_jobs(given: Mapping[str, object], specs: Specs, making: Making) -> list[dict[str, object]]:
    """The inputs of the one job: those that are given, and made ones. Raises `BadInputs`."""
    feeds: dict[str, object] = {name: repeated(value, specs[name], making.rows) for name, value in given.items()}
    return [feeds | made_inputs({name: spec for name, spec in specs.items() if name not in feeds}, making)]


def made_inputs(specs: Specs, making: Making) -> dict[str, Array]:
    """An array for each input, the same ones for the same seed. Raises `BadInputs` for a shape that does not fit."""
    for name in making.shapes:
        if name not in specs:
            raise BadInputs(
                f"--shape {name}: {name!r} is not a generated input; these are: {', '.join(specs) or 'none'}"
            )
    rng = np.random.default_rng(making.seed)
    return {name: _made(spec, _shape(name, spec, making), making, rng) for name, spec in specs.items()}


def shapes_of(texts: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """Of `--shape NAME:1,224,224,3`. Raises `BadInputs`."""
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, _, axes = text.rpartition(":")
        sizes = axes.split(",") if axes else []
        if not name or not all(size.isascii() and size.isdecimal() and len(size) < 10 for size in sizes):
            raise BadInputs(f"--shape {text:.60}: write NAME:AXIS,AXIS,…, such as image:1,224,224,3")
        if name in shapes:
            raise BadInputs(f"--shape {name} is given twice")
        shapes[name] = tuple(map(int, sizes))
    return shapes


def repeated(value: object, spec: TensorSpec, rows: int) -> object:
    """A value of one row as a batch of `rows`; other values stay as they are."""
    if not spec.shape or spec.shape[0] != -1 or not isinstance(value, np.ndarray | list) or len(value) != 1:
        return value
    return np.repeat(value, rows, axis=0) if isinstance(value, np.ndarray) else value * rows


def _made(spec: TensorSpec, shape: tuple[int, ...], making: Making, rng: np.random.Generator) -> Array:
    """Floats in [0, 1), integers 0 and 1 (an index or a token id that every model has), texts of letters."""
    if spec.dtype == "string":
        texts = np.empty(shape, object)
        for index in np.ndindex(shape):
            texts[index] = b"" if making.zeros else rng.choice(_LETTERS, making.string_length).tobytes()
        return texts
    if making.zeros:
        return np.zeros(shape, DTYPES[spec.dtype])
    whole = spec.dtype.startswith(("bool", "int", "uint"))
    return np.asarray(rng.integers(0, 2, shape) if whole else rng.random(shape)).astype(DTYPES[spec.dtype])


def _shape(name: str, spec: TensorSpec, making: Making) -> tuple[int, ...]:
    asked, declared = making.shapes.get(name), spec.shape
    if asked is None:
        axes = (-1,) if declared is None else declared
        return tuple((1 if at else making.rows) if axis < 0 else axis for at, axis in enumerate(axes))
    if declared is None:
        return asked
    if declared[:1] == (-1,) and len(asked) == len(declared) - 1:
        asked = (making.rows, *asked)
    elif declared[:1] == (-1,) and asked[:1] == (1,):
        asked = (making.rows, *asked[1:])
    if not _fits(asked, declared):
        raise BadInputs(f"--shape {name}: {list(asked)} does not fit {spec}")
    return asked


def read_input_data(path: Path, specs: Specs, rows: int) -> list[dict[str, object]]:
    """The inputs of each job; where an entry of the file is a single row, `rows` of them in turn are a job.

    Raises `BadInputs`: one line that names file, entry and input.
    """
    where = f"--input-data {path.name}"
    try:
        own = zipfile.is_zipfile(path)
        entries = _archive(path, where) if own else _document(path, where)
    except OSError as error:
        raise BadInputs(f"{where}: {error.strerror or error}") from None
    if not entries:
        raise BadInputs(f"{where}: it has no jobs")
    jobs = []
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict):
            kind = type(entry).__name__
            raise BadInputs(f"{where}: an entry of its data is {kind}, not an object with the inputs")
        at = f"{where}, entry {number}"
        if foreign := [name for name in entry if name not in specs]:
            raise BadInputs(f"{at}: no input {foreign[0]!r}; there are: {', '.join(specs) or 'none'}")
        if missing := [name for name in specs if name not in entry]:
            raise BadInputs(f"{at}: input {missing[0]!r} ({specs[missing[0]]}) is missing")
        jobs.append({name: _tensor(entry[name], spec, own, f"{at}, {name}") for name, spec in specs.items()})
    if rows > 1 and not all(_is_row(job[name], spec) for job in jobs for name, spec in specs.items()):
        raise BadInputs(f"{where}: its entries set their own rows; leave out --rows")
    parts = [[jobs[(first + n) % len(jobs)] for n in range(rows)] for first in range(0, len(jobs), rows)]
    return [
        {
            name: np.stack([job[name] for job in part]) if _is_row(part[0][name], spec) else part[0][name]
            for name, spec in specs.items()
        }
        for part in parts
    ]


def _archive(path: Path, where: str) -> list[Any]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except OSError:
        raise
    except Exception as error:  # of a foreign file numpy, zipfile and zlib raise whatever they meet first
        why = " ".join(str(error).split()) or type(error).__name__
        if "Object arrays" in why:
            why = "an array of objects; save strings as numpy's own ('S' or 'U')"
        raise BadInputs(f"{where}: not an archive of arrays: {why:.200}") from None
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) or not array.ndim:
            raise BadInputs(f"{where}: {name!r} has no axis 0 for its jobs")
    if len({len(array) for array in arrays.values()}) > 1:
        told = ", ".join(f"{name} has {len(array)}" for name, array in arrays.items())
        raise BadInputs(f"{where}: its arrays have different numbers of jobs: {told}")
    return [dict(zip(arrays, job, strict=True)) for job in zip(*arrays.values(), strict=True)]


def _document(path: Path, where: str) -> list[Any]:
    try:
        parsed = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise BadInputs(f"{where}: neither an .npz archive nor JSON: {error}") from None
    data = parsed.get("data") if isinstance(parsed, dict) else None
    if not isinstance(data, list):
        raise BadInputs(f'{where}: expected {{"data": [{{"INPUT": [VALUES]}}, …]}}')
    # A list within the list is one of perf_analyzer's sequences: its jobs, in their order.
    return [job for entry in data for job in (entry if isinstance(entry, list) else [entry])]


def _tensor(value: object, spec: TensorSpec, own: bool, where: str) -> Array:
    """Fits the input; a single row is still without axis 0.

    `own`: the array has a dtype of its own, of which the worker is the judge; JSON's numbers take the input's.
    """
    try:
        array = _array(value, spec)
    except (TypeError, ValueError, OverflowError) as error:
        why = "its rows differ in length" if "inhomogeneous" in str(error) else " ".join(str(error).split())
        raise BadInputs(f"{where}: not a tensor: {why}") from None
    alike = array.dtype.hasobject == (spec.dtype == "string")
    if alike and not own:
        with np.errstate(all="ignore"):
            cast = array.astype(DTYPES[spec.dtype], copy=False)
        if spec.dtype.startswith(("int", "uint", "bool")) and not (cast.astype(array.dtype) == array).all():
            raise BadInputs(f"{where}: its values are not {spec.dtype}")
        array = cast
    shaped = _shaped(array, spec) if alike else None
    if shaped is None:
        raise BadInputs(f"{where}: expected {spec}, got {dtype_name(array.dtype)} {list(array.shape)}")
    return shaped


def _array(value: object, spec: TensorSpec) -> Array:
    """Raises `ValueError`, `TypeError` or `OverflowError`."""
    if not isinstance(value, dict):
        return to_array(value)[0]
    if "content" in value:
        array = to_array(value["content"])[0]
    elif "b64" in value:
        content = base64.b64decode(str(value["b64"]), validate=True)
        if spec.dtype != "string" and len(content) % DTYPES[spec.dtype].itemsize:
            raise ValueError(f"{len(content)} bytes are not a whole number of {spec.dtype} values")
        array = to_array([content])[0] if spec.dtype == "string" else np.frombuffer(content, DTYPES[spec.dtype])
    else:
        raise ValueError('an object that has neither "content" nor "b64"')
    shape = value.get("shape", array.shape)
    if not isinstance(shape, list | tuple) or not all(isinstance(axis, int) and axis >= 0 for axis in shape):
        raise ValueError(f"{shape!r:.80} is not a shape")
    if math.prod(shape) != array.size:
        raise ValueError(f"{array.size} values do not make the shape {shape}")
    return array.reshape(shape)


def _shaped(array: Array, spec: TensorSpec) -> Array | None:
    """With the axes of the input, or all but axis 0; flat values get them."""
    if spec.shape is None or _fits(array.shape, spec.shape) or _fits(array.shape, spec.shape[1:]):
        return array
    row = spec.shape[1:]
    size = math.prod(row)
    if array.ndim != 1 or not spec.shape or min(row, default=0) < 0 or not size or array.size % size:
        return None
    if array.size == size:
        return array.reshape(row)
    return array.reshape((-1, *row)) if spec.shape[0] in (-1, array.size // size) else None


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    return len(shape) == len(wanted) and all(axis in (-1, size) for size, axis in zip(shape, wanted, strict=True))


def _is_row(array: Array, spec: TensorSpec) -> bool:
    """Whether it is without the axis 0 that the input has."""
    return bool(spec.shape) and array.ndim == len(spec.shape or ()) - 1
