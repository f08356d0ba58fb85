"""The inputs of a benchmark's jobs: made ones that fit the signature, and recorded ones.

    jobs.npz     an array an input, by the input's name; along its axis 0 are the jobs
    jobs.json    {"data": [{"pixels": [0, 0.5, …], "words": {"content": ["a", "b"], "shape": [2]}}, …]}

The second is what Triton's perf_analyzer reads: an object a job, with an input's values by its name; they may be
flat, and `{"b64": "…"}` has their bytes. A job's array may have its rows on axis 0, or be a single row.
"""

import base64
import json
import math
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pool.wire.signatures import TensorSpec
from pool.wire.tensors import DTYPES, Array, dtype_name, to_array

__all__ = ["made_jobs", "read_input_data"]

_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz     ", np.uint8)
_SHAPE = re.compile(r"(.+):((?:\d{1,9},)*\d{1,9}|)", re.ASCII)
_WHOLE = ("bool", "int", "uint")

Shape = tuple[int, ...]
Specs = Mapping[str, TensorSpec]
Jobs = list[dict[str, Array]]  # the inputs of each, by name


def made_jobs(
    specs: Specs,
    given: Mapping[str, object],
    *,
    rows: int = 1,
    seed: int = 0,
    zero_data: bool = False,
    string_length: int = 24,
    shapes: Sequence[str] = (),
) -> Jobs:
    """The inputs of the one job: those that are given, and made ones, the same for the same seed. Raises `ValueError`.

    Unknown axes are those of `shapes`, each `NAME:1,224,224,3`; else axis 0 has `rows`, and others 1. `string_length`
    is in bytes.
    """
    sizes = _sizes(shapes)
    made = [name for name in specs if name not in given]
    if foreign := [name for name in sizes if name not in made]:
        told = f"{foreign[0]!r} is not a generated input; these are: {', '.join(made) or 'none'}"
        raise ValueError(f"--shape {foreign[0]}: {told}")
    rng = np.random.default_rng(seed)
    job = {name: to_array(value)[0] for name, value in given.items()}
    for name, spec in specs.items():
        if name in made:
            shape = _shape(name, spec, sizes.get(name), rows)
            zero, dtype = b"" if spec.dtype == "string" else 0, DTYPES[spec.dtype]
            job[name] = np.full(shape, zero, dtype) if zero_data else _random(spec, shape, string_length, rng)
        elif spec.shape and spec.shape[0] == -1 and job[name].shape[:1] == (1,):  # one row as a batch of them
            job[name] = np.repeat(job[name], rows, axis=0)
    return [job]


def _sizes(shapes: Sequence[str]) -> dict[str, Shape]:
    sizes: dict[str, Shape] = {}
    for text in shapes:
        if (match := _SHAPE.fullmatch(text)) is None:
            raise ValueError(f"--shape {text:.60}: write NAME:AXIS,AXIS,…, such as image:1,224,224,3")
        if match[1] in sizes:
            raise ValueError(f"--shape {match[1]} is given twice")
        sizes[match[1]] = tuple(map(int, filter(None, match[2].split(","))))
    return sizes


def _random(spec: TensorSpec, shape: Shape, string_length: int, rng: np.random.Generator) -> Array:
    """Floats in [0, 1), integers 0 and 1 (an index or a token id that every model has), texts of letters."""
    if spec.dtype == "string":
        letters = rng.choice(_LETTERS, (math.prod(shape), string_length))
        return np.array([text.tobytes() for text in letters], object).reshape(shape)
    whole = spec.dtype.startswith(_WHOLE)
    return np.asarray(rng.integers(0, 2, shape) if whole else rng.random(shape)).astype(DTYPES[spec.dtype])


def _shape(name: str, spec: TensorSpec, asked: Shape | None, rows: int) -> Shape:
    if spec.shape is None:
        return (rows,) if asked is None else asked
    if asked is None:
        return tuple((1 if at else rows) if axis < 0 else axis for at, axis in enumerate(spec.shape))
    row = asked[1:] if len(asked) == len(spec.shape) and asked[:1] == (1,) else asked
    if spec.shape[:1] == (-1,) and len(row) == len(spec.shape) - 1:
        asked = (rows, *row)
    if not _fits(asked, spec.shape):
        raise ValueError(f"--shape {name}: {list(asked)} does not fit {spec}")
    return asked


def read_input_data(path: Path, specs: Specs, rows: int) -> Jobs:
    """The inputs of each job; where an entry of the file is a single row, `rows` of them in turn are a job.

    Raises `ValueError`: one line that names file, entry and input.
    """
    try:
        entries = _archive(path) if zipfile.is_zipfile(path) else _document(path)
        jobs = [_job(entry, specs, f"entry {number}") for number, entry in enumerate(entries)]
        if not jobs:
            raise ValueError("it has no jobs")
        if rows == 1:
            return jobs
        if not all(spec.shape and len(job[name]) == 1 for job in jobs for name, spec in specs.items()):
            raise ValueError("its entries set their own rows; leave out --rows")
    except (ValueError, OSError) as error:
        raise ValueError(f"--input-data {path.name}: {getattr(error, 'strerror', None) or error}") from None
    parts = [[jobs[(first + n) % len(jobs)] for n in range(rows)] for first in range(0, len(jobs), rows)]
    return [{name: np.concatenate([job[name] for job in part]) for name in specs} for part in parts]


def _archive(path: Path) -> list[Any]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except Exception as error:  # of a foreign file numpy, zipfile and zlib raise whatever they meet first
        why = " ".join(str(error).split()) or type(error).__name__
        if "Object arrays" in why:
            why = "an array of objects; save strings as numpy's own ('S' or 'U')"
        raise ValueError(f"not an archive of arrays: {why:.200}") from None
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) or not array.ndim:
            raise ValueError(f"{name!r} has no axis 0 for its jobs")
    if len({len(array) for array in arrays.values()}) > 1:
        told = ", ".join(f"{name} has {len(array)}" for name, array in arrays.items())
        raise ValueError(f"its arrays have different numbers of jobs: {told}")
    return [dict(zip(arrays, job, strict=True)) for job in zip(*arrays.values(), strict=True)]


def _document(path: Path) -> list[Any]:
    try:
        parsed = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"neither an .npz archive nor JSON: {error}") from None
    data = parsed.get("data") if isinstance(parsed, dict) else None
    if not isinstance(data, list):
        raise ValueError('expected {"data": [{"INPUT": [VALUES]}, …]}')
    # A list within the list is one of perf_analyzer's sequences: its jobs, in their order.
    return [job for entry in data for job in (entry if isinstance(entry, list) else [entry])]


def _job(entry: object, specs: Specs, at: str) -> dict[str, Array]:
    if not isinstance(entry, dict):
        raise ValueError(f"an entry of its data is {type(entry).__name__}, not an object with the inputs")
    if foreign := [name for name in entry if name not in specs]:
        raise ValueError(f"{at}: no input {foreign[0]!r}; there are: {', '.join(specs) or 'none'}")
    if missing := [name for name in specs if name not in entry]:
        raise ValueError(f"{at}: input {missing[0]!r} ({specs[missing[0]]}) is missing")
    job = {}
    for name, spec in specs.items():
        try:
            job[name] = _tensor(entry[name], spec)
        except (TypeError, ValueError, OverflowError) as error:
            why = "its rows differ in length" if "inhomogeneous" in str(error) else " ".join(str(error).split())
            raise ValueError(f"{at}, {name}: {why}") from None
    return job


def _tensor(value: object, spec: TensorSpec) -> Array:
    """With the axes of the input and its dtype; an array has a dtype of its own, of which the worker is the judge."""
    array = to_array(_content(value, spec) if isinstance(value, dict) else value)[0]
    if isinstance(value, dict):
        array = array.reshape(value.get("shape", array.shape))
    alike = array.dtype.hasobject == (spec.dtype == "string")
    if alike and not isinstance(value, np.ndarray | np.generic):
        with np.errstate(all="ignore"):
            cast = array.astype(DTYPES[spec.dtype], copy=False)
        if spec.dtype.startswith(_WHOLE) and not (cast.astype(array.dtype) == array).all():
            raise ValueError(f"its values are not {spec.dtype}")
        array = cast
    shaped = _shaped(array, spec) if alike else None
    if shaped is None:
        raise ValueError(f"expected {spec}, got {dtype_name(array.dtype)} {list(array.shape)}")
    return shaped


def _content(value: Mapping[str, Any], spec: TensorSpec) -> object:
    if "content" in value:
        return value["content"]
    if "b64" not in value:
        raise ValueError('an object that has neither "content" nor "b64"')
    content = base64.b64decode(str(value["b64"]), validate=True)
    return [content] if spec.dtype == "string" else np.frombuffer(content, DTYPES[spec.dtype])


def _shaped(array: Array, spec: TensorSpec) -> Array | None:
    """With the axes of the input, axis 0 of a single row and all of flat values too; None where it does not fit."""
    if not spec.shape:
        return None if spec.shape is not None and array.ndim else array
    row = spec.shape[1:]
    if _fits(array.shape, row):
        return array[np.newaxis]
    if array.ndim == 1 and min(row, default=0) >= 0 and (size := math.prod(row)) and not array.size % size:
        array = array.reshape((-1, *row))
    fits = _fits(array.shape[1:], row) and (len(array) == 1 or spec.shape[0] in (-1, len(array)))
    return array if fits else None


def _fits(shape: Shape, wanted: Shape) -> bool:
    return len(shape) == len(wanted) and all(axis in (-1, size) for size, axis in zip(shape, wanted, strict=True))
