"""What `pool submit` reads and prints: texts as what a model's input takes, outputs as text or JSON.

Nothing is ever unpickled.
"""

import base64
import io
import json
import math
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import numpy as np

from pool.log import printable
from pool.wire.signatures import Signature, TensorInfo, choice
from pool.wire.tensors import DTYPE_NAMES, DTYPES


def made_up(signature: Signature, rows: int) -> dict[str, Any]:
    """Numbers from 0 to 2, whole ones 0 or 1, and short texts. `rows`: of an axis 0 of any size; other axes have 1."""
    draw, made = np.random.default_rng(), {}
    for name in signature.inputs.keys() - signature.defaults:
        dtype, shape = signature.inputs[name]
        axes = enumerate((-1,) if shape is None else shape)
        numbers = np.asarray(2 * draw.random([rows if axis == 0 and size < 0 else abs(size) for axis, size in axes]))
        made[name] = numbers.astype(str).astype(object) if dtype == "string" else numbers.astype(DTYPES[dtype])
    return made


def read_inputs(texts: Sequence[str], infos: Mapping[str, TensorInfo]) -> dict[str, Any]:
    """By input name. A value of one rank less than its input is a batch of one. Raises `click.UsageError`."""
    values: dict[str, Any] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in infos and len(infos) == 1:  # the name may be left out
            name, value = next(iter(infos)), text
        if name not in infos:
            raise click.UsageError(f"--input {text:.60}: no input {name!r:.40}; {choice(name, infos)}")
        info = infos[name]
        try:
            read = read_value(value, info.dtype == "string")
            is_row = info.shape is not None and np.ndim(read) == len(info.shape) - 1 and info.shape[0] in (-1, 1)
        except (ValueError, OSError, EOFError, RecursionError) as error:
            told = f"--input {name}: {value[:40]!r}: {error}; write {info} as JSON, @FILE or -"
            raise click.UsageError(told) from None
        batch = read[np.newaxis] if isinstance(read, np.ndarray) else [read]  # a list's numbers take the input's dtype
        values[name] = batch if is_row else read
    return values


def read_value(text: str, is_string: bool) -> Any:
    if text == "-" or text.startswith("@"):
        content = sys.stdin.buffer.read() if text == "-" else Path(text[1:]).read_bytes()
        if content.startswith(b"\x93NUMPY"):
            return np.load(io.BytesIO(content), allow_pickle=False)
        return content if is_string and not text.endswith(".json") else json.loads(content)
    if not is_string:
        return json.loads(text)
    with suppress(ValueError, RecursionError):
        if isinstance(value := json.loads(text), str | list):
            return value
    return os.fsencode(text)  # what is no JSON string or list is itself, code that looks like JSON too


def as_text(name: str, array: Any) -> str:
    """`name dtype [shape]: value`, or the value below it where it takes lines. Long arrays are shortened."""
    width = max(40, shutil.get_terminal_size().columns - 2)
    style: Any = {"precision": 6, "threshold": 100, "separator": ", ", "formatter": {"object": quoted}}
    value = np.array2string(array, width, prefix="  ", **style)
    gap = "\n  " if "\n" in value else " "
    return f"{printable(name)} {DTYPE_NAMES[array.dtype]} {list(array.shape)}:{gap}{value}"


def quoted(element: bytes) -> str:
    text = element.decode(errors="backslashreplace")
    return repr(text if len(text) <= 200 else f"{text[:200]}…")


def as_json_values(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Nested lists. NaN, infinities and complex numbers are strings; bytes that are no UTF-8 are {"b64": …}."""
    return {
        name: {"dtype": DTYPE_NAMES[array.dtype], "shape": list(array.shape), "values": plain(array.tolist())}
        for name, array in outputs.items()
    }


def plain(value: Any) -> object:
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"b64": base64.b64encode(value).decode()}
    is_number = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    return value if is_number else str(value)
