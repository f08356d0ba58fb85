"""The values of `--input`, as texts of the command line become what a model's input takes, and outputs as text.

    [1, 2, 3]  3.5  "text"     JSON
    any text                   itself, for a string input
    @seven.json  @image.npy    a file: JSON is parsed, numpy's array loaded; else its bytes, for a string input
    -                          standard input: bytes for a string input, otherwise JSON or .npy

Nothing is ever unpickled.
"""

import base64
import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import click
import numpy as np

from pool.cli.screen import printable
from pool.wire.signatures import TensorInfo, choice

__all__ = ["as_json_values", "as_text", "read_inputs"]

NPY = b"\x93NUMPY"


def read_inputs(texts: Sequence[str], infos: Mapping[str, TensorInfo], stdin: BinaryIO) -> dict[str, Any]:
    """By input name. A value of one rank less than its input is a batch of one. Raises `click.UsageError`."""
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        only = next(iter(infos)) if len(infos) == 1 else ""
        if only and name not in infos and (not equals or infos[only].dtype == "string"):  # the name may be left out
            name, value = only, text
        if name not in infos:
            raise click.UsageError(f"--input {text:.60}: no input {name!r:.40}; {choice(name, infos)}")
        if name in values:
            raise click.UsageError(f"--input {name} is given twice")
        try:
            values[name] = batched(read(value, infos[name], stdin), infos[name])
        except (ValueError, OSError, EOFError, RecursionError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error).partition("\n")[0]
            raise click.UsageError(f"--input {name}: {value[:40]!r}: {why}; the input takes {infos[name]}") from None
    return values


def read(text: str, info: TensorInfo, stdin: BinaryIO) -> Any:
    is_text = info.dtype == "string"
    if text != "-" and not text.startswith("@"):
        return strings(text) if is_text else parsed(text)
    content = stdin.read() if text == "-" else Path(text[1:]).read_bytes()
    suffix = Path(text).suffix.lower()
    if suffix == ".npy" or (not is_text and content.startswith(NPY)):
        return np.load(io.BytesIO(content), allow_pickle=False)
    if suffix == ".json" or not is_text:
        return parsed(content.decode())
    return content


def parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise ValueError("is not JSON") from None


def strings(text: str) -> Any:
    """A JSON string or list of strings as such. Any other text is itself, code that looks like JSON too."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return os.fsencode(text)
    if isinstance(value, list) and all(isinstance(each, str) for each in np.array(value, object).flat):
        return value
    return value if isinstance(value, str) else os.fsencode(text)


def batched(value: Any, info: TensorInfo) -> Any:
    rank = np.ndim(value)
    if info.shape is None or rank != len(info.shape) - 1 or info.shape[0] not in (-1, 1):
        return value
    return value[np.newaxis] if isinstance(value, np.ndarray) else [value]  # a list's numbers take the input's dtype


def as_text(name: str, array: Any, width: int) -> str:
    """`name dtype [shape]: value`, or the value below it where it takes lines. Long arrays are shortened."""
    dtype = "string" if array.dtype == object else str(array.dtype)
    title = f"{printable(name)} {dtype} {list(array.shape)}:"
    if array.size == 1:
        text = quoted(array.item()) if array.dtype == object else str(array.reshape(-1)[0])
    else:
        text = np.array2string(
            array,
            max_line_width=max(40, width - 2),
            precision=6,
            threshold=100,
            edgeitems=4,
            separator=", ",
            formatter={"object": quoted},
        )
    if "\n" not in text and len(title) + 1 + len(text) <= width:
        return f"{title} {text}"
    return f"{title}\n" + "\n".join(f"  {line}" for line in text.split("\n"))


def quoted(element: object) -> str:
    text = element.decode(errors="backslashreplace") if isinstance(element, bytes) else str(element)
    return json.dumps(printable(text if len(text) <= 200 else f"{text[:200]}…"), ensure_ascii=False)


def as_json_values(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Nested lists. NaN, infinities and complex numbers are strings; bytes that are no UTF-8 are {"b64": …}."""
    return {
        name: {
            "dtype": "string" if array.dtype == object else str(array.dtype),
            "shape": list(array.shape),
            "values": np.array([*map(plain, array.reshape(-1)), None], object)[:-1].reshape(array.shape).tolist(),
        }
        for name, array in outputs.items()
    }


def plain(element: Any) -> object:
    if isinstance(element, bytes):
        try:
            return element.decode()
        except UnicodeDecodeError:
            return {"b64": base64.b64encode(element).decode()}
    if isinstance(element, np.bool_):
        return bool(element)
    text = str(element)  # the shortest that means the same in the element's own dtype: 0.1, not 0.10000000149011612
    try:
        return int(text)
    except ValueError:
        return float(text) if "j" not in text and math.isfinite(float(text)) else text.strip("()")
