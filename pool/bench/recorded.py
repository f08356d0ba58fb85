"""Recorded inputs, from `--input-data FILE`.

    jobs.npz     an array an input, by the input's name; along its axis 0 are the jobs
    jobs.json    {"data": [{"pixels": [0, 0.5, …], "words": {"content": ["a", "b"], "shape": [2]}}, …]}

The second is what Triton's perf_analyzer reads: an object a job, with an input's values by its name; they may be
flat, and `{"b64": "…"}` has their bytes. A job's array may have its rows on axis 0, or be a single row.
"""

import base64
import binascii
import json
import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from pool.bench.made import BadInputs
from pool.wire.calls import TensorHeader
from pool.wire.codec import BadFrame
from pool.wire.signatures import TensorSpec
from pool.wire.tensors import DTYPES, Array, decode_tensor, dtype_name, to_array

__all__ = ["read_input_data"]

Job = Mapping[str, object]
Specs = Mapping[str, TensorSpec]


def read_input_data(path: Path, specs: Specs, rows: int) -> list[dict[str, object]]:
    """The inputs of each job; where an entry of the file is a single row, `rows` of them in turn are a job.

    Arrays of the file's own dtype, lists of Python's. Raises `BadInputs`: one line that names file, entry and input.
    """
    where = f"--input-data {path.name}"
    try:
        own = zipfile.is_zipfile(path)
        entries = _from_npz(path, where) if own else _from_json(path, where, specs)
    except OSError as error:
        raise BadInputs(f"{where}: {error.strerror or error}") from None
    if not entries:
        raise BadInputs(f"{where}: there is no job in it")
    fitted = [_fitted(entry, specs, own, f"{where}, entry {number}") for number, entry in enumerate(entries)]
    return _joined(fitted, specs, rows, where)


def _from_npz(path: Path, where: str) -> list[Job]:
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
        if not isinstance(array, np.ndarray):
            raise BadInputs(f"{where}: {name} is not an array in .npy")
        if not array.ndim:
            raise BadInputs(f"{where}: array {name!r} has no axis 0, along which the jobs are")
    if len({len(array) for array in arrays.values()}) > 1:
        told = ", ".join(f"{name} has {len(array)}" for name, array in arrays.items())
        raise BadInputs(f"{where}: its arrays are not of the same number of jobs: {told}")
    return [dict(zip(arrays, job, strict=True)) for job in zip(*arrays.values(), strict=True)]


def _from_json(path: Path, where: str, specs: Specs) -> list[Job]:
    try:
        parsed = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise BadInputs(f"{where}: neither an .npz archive nor JSON: {error}") from None
    data = parsed.get("data") if isinstance(parsed, dict) else None
    if not isinstance(data, list):
        raise BadInputs(f'{where}: expected {{"data": [{{"INPUT": [VALUES]}}, …]}}')
    return [
        {name: _value(value, specs.get(name), f"{where}, entry {number}, {name}") for name, value in job.items()}
        for number, job in enumerate(_jobs(data, where))
    ]


def _jobs(data: Sequence[object], where: str) -> Iterator[Mapping[str, object]]:
    """A list within the list is one of perf_analyzer's sequences: its jobs, in their order."""
    for each in data:
        if isinstance(each, list):
            yield from _jobs(each, where)
        elif isinstance(each, dict):
            yield each
        else:
            raise BadInputs(f"{where}: an entry of its data is {type(each).__name__}, not an object with the inputs")


def _value(value: object, spec: TensorSpec | None, where: str) -> object:
    if not isinstance(value, dict):
        return value
    found = value["content"] if "content" in value else _bytes(value, spec, where)
    shape = value.get("shape")
    if shape is None or spec is None:
        return found
    if not isinstance(shape, list) or not all(isinstance(axis, int) and axis >= 0 for axis in shape):
        raise BadInputs(f"{where}: {shape!r:.80} is no shape")
    array = _array(found, where)
    if math.prod(shape) != array.size:
        raise BadInputs(f"{where}: {array.size} values do not make the shape {shape}")
    return array.reshape(shape)


def _bytes(value: Mapping[str, object], spec: TensorSpec | None, where: str) -> object:
    try:
        content = base64.b64decode(str(value.get("b64", "!")), validate=True)
    except binascii.Error:
        raise BadInputs(f'{where}: an object that has neither "content" nor "b64" with base64') from None
    if spec is None or spec.dtype == "string":
        return [content]
    count = len(content) // DTYPES[spec.dtype].itemsize
    try:
        return decode_tensor(TensorHeader("", spec.dtype, (count,), False), content)
    except BadFrame:
        raise BadInputs(f"{where}: {len(content)} bytes are no whole number of {spec.dtype} values") from None


def _array(value: object, where: str) -> Array:
    try:
        return to_array(value)[0]
    except (TypeError, ValueError, OverflowError) as error:
        reason = "its rows differ in length" if "inhomogeneous" in str(error) else " ".join(str(error).split())
        raise BadInputs(f"{where}: not a tensor: {reason}") from None


def _fitted(entry: Job, specs: Specs, own: bool, where: str) -> dict[str, Array]:
    """An entry whose names, dtypes and shapes are those of the inputs; a single row is still without axis 0.

    `own`: the arrays have dtypes of their own, of which the worker is the judge; JSON's numbers take the input's.
    """
    foreign = next((name for name in entry if name not in specs), None)
    if foreign is not None:
        raise BadInputs(f"{where}: no input {foreign!r}; there are: {', '.join(specs) or 'none'}")
    fitted = {}
    for name, spec in specs.items():
        if name not in entry:
            raise BadInputs(f"{where}: input {name!r} ({spec}) is missing")
        array = _array(entry[name], f"{where}, {name}")
        alike = array.dtype.hasobject == (spec.dtype == "string")
        if alike and not own:
            array = _typed(array, spec, f"{where}, {name}")
        shaped = _shaped(array, spec) if alike else None
        if shaped is None:
            got = f"{dtype_name(array.dtype)} {list(array.shape)}"
            raise BadInputs(f"{where}, {name}: expected {spec}, got {got}")
        fitted[name] = shaped
    return fitted


def _shaped(array: Array, spec: TensorSpec) -> Array | None:
    """With the axes of the input, or all but axis 0; flat values get them."""
    if spec.shape is None or any(_fits(array.shape, wanted) for wanted in (spec.shape, spec.shape[1:])):
        return array
    row = spec.shape[1:]
    size = math.prod(row)
    if array.ndim != 1 or not spec.shape or min(row, default=0) < 0:
        return None
    if array.size == size:
        return array.reshape(row)
    whole = size > 0 and array.size % size == 0 and spec.shape[0] in (-1, array.size // size)
    return array.reshape((-1, *row)) if whole else None


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    return len(shape) == len(wanted) and all(axis in (-1, size) for size, axis in zip(shape, wanted, strict=True))


def _typed(array: Array, spec: TensorSpec, where: str) -> Array:
    with np.errstate(all="ignore"):
        cast = array.astype(DTYPES[spec.dtype], copy=False)
    if spec.dtype.startswith(("int", "uint", "bool")) and not (cast.astype(array.dtype) == array).all():
        raise BadInputs(f"{where}: its values are no {spec.dtype}")
    return cast


def _joined(entries: list[dict[str, Array]], specs: Specs, rows: int, where: str) -> list[dict[str, object]]:
    if rows > 1 and not all(_is_row(entry[name], spec) for entry in entries for name, spec in specs.items()):
        raise BadInputs(f"{where}: its entries have their own rows: leave out --rows")
    parts = [[entries[(first + n) % len(entries)] for n in range(rows)] for first in range(0, len(entries), rows)]
    return [
        {
            name: np.stack([entry[name] for entry in part]) if _is_row(part[0][name], spec) else part[0][name]
            for name, spec in specs.items()
        }
        for part in parts
    ]


def _is_row(array: Array, spec: TensorSpec) -> bool:
    """Whether it is without the axis 0 that the input has."""
    return bool(spec.shape) and array.ndim == len(spec.shape or ()) - 1
