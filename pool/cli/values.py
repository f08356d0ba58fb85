"""The VALUE of `--input NAME=VALUE`: from a text of the command line to what a model's input takes.

    [1, 2, 3]  3.5  "text"     JSON
    any text                   itself, for a string input
    @seven.json  @image.npy    a file: JSON parsed, numpy's array loaded, anything else its bytes for a string input
    @-                         standard input: bytes for a string input, otherwise JSON or .npy

Nothing is ever unpickled.
"""

import difflib
import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import click
import numpy as np

from pool.wire.signatures import TensorSpec
from pool.wire.tensors import to_array

__all__ = ["BadValue", "read_inputs"]

_PLAIN_NAME = re.compile(r"[\w./:-]+")
_NPY_MAGIC = b"\x93NUMPY"


class BadValue(click.ClickException):
    """A value that cannot be what the input takes, whatever the pool would say: one line, exit status 2."""

    exit_code = 2

    def show(self, file: Any = None) -> None:  # noqa: ARG002  # click's signature
        click.echo(f"pool: {self.message}", err=True)


def read_inputs(texts: Sequence[str], specs: Mapping[str, TensorSpec] | None, stdin: BinaryIO) -> dict[str, object]:
    """What to submit for the `--input` options, by input name.

    `specs` are the signature's inputs. Without them the pool will refuse the job, and say why, whatever each value is
    taken for. A value of one rank less than its input gets a leading axis of 1: one image is a batch of one.
    Raises `BadValue`.
    """
    values: dict[str, object] = {}
    for text in texts:
        name, value = _split(text, specs)
        if name in values:
            raise BadValue(f"--input {name} is given twice")
        spec = None if specs is None else specs.get(name)
        where = f"--input {name}" if name else "--input"
        values[name] = _batched(_read(value, spec, stdin, where), spec, where)
    return values


def _split(text: str, specs: Mapping[str, TensorSpec] | None) -> tuple[str, str]:
    """The input's name and the value; the name may be left out where there is one input."""
    name, equals, value = text.partition("=")
    if specs is None:
        return (name, value) if equals and _PLAIN_NAME.fullmatch(name) else ("", text)
    if equals and name in specs:
        return name, value
    if equals and _PLAIN_NAME.fullmatch(name):
        near = difflib.get_close_matches(name, list(specs), n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(specs) or 'none'}"
        if len(specs) == 1 and next(iter(specs.values())).dtype == "string":
            hint += f" (a text with = in it needs the name: --input {next(iter(specs))}=…)"
        raise BadValue(f"--input {text:.60}: no input {name!r}; {hint}")
    if len(specs) != 1:
        raise BadValue(f"--input {text:.60}: write NAME=VALUE with one of these names: {', '.join(specs) or 'none'}")
    return next(iter(specs)), text


def _read(text: str, spec: TensorSpec | None, stdin: BinaryIO, where: str) -> object:
    wants_text = spec is None or spec.dtype == "string"
    if text.startswith("@"):
        return _from_file(text[1:], wants_text, spec, stdin, where)
    if spec is None:
        return _guessed(text)
    if wants_text:
        return _text_or_strings(text, where)
    return _json(text, spec, where)


def _from_file(name: str, wants_text: bool, spec: TensorSpec | None, stdin: BinaryIO, where: str) -> object:
    suffix = Path(name).suffix.lower()
    try:
        content = stdin.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise BadValue(f"{where}: {name}: {error.strerror or error}") from None
    if suffix == ".npy" or (not wants_text and content.startswith(_NPY_MAGIC)):
        return _npy(content, f"{where}: {name}")
    if suffix == ".json" or not wants_text:
        try:
            return _json(content.decode(), spec, f"{where}: {name}")
        except UnicodeDecodeError:
            kinds = "give JSON, or an array in .npy"
            raise BadValue(f"{where}: {name}: holds bytes, but the input takes {spec}; {kinds}") from None
    return content


def _npy(content: bytes, where: str) -> object:
    try:
        return np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise BadValue(f"{where}: not an array of numbers in .npy: {str(error).splitlines()[0]}") from None


def _guessed(text: str) -> object:
    """Never a complaint: what is wrong is not the value."""
    try:
        value = json.loads(text)
        to_array(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return os.fsencode(text)
    return value


def _text_or_strings(text: str, where: str) -> object:
    """A JSON string or list of strings as such; any other text is itself, code that looks like JSON too."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return os.fsencode(text)
    if isinstance(parsed, str):
        return parsed
    if isinstance(parsed, list):
        if not _all_strings(parsed):
            raise BadValue(
                f"{where}: a string input takes a list of strings; to send the text itself, write {json.dumps(text)}"
            )
        return parsed
    return os.fsencode(text)


def _all_strings(values: list[Any]) -> bool:
    return all(_all_strings(value) if isinstance(value, list) else isinstance(value, str) for value in values)


def _json(text: str, spec: TensorSpec | None, where: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        takes = "" if spec is None else f"; the input takes {spec}"
        raise BadValue(f"{where}: {_shortened(text)} is not JSON{takes}") from None


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= 40 else f"{line[:39]}…")


def _batched(value: object, spec: TensorSpec | None, where: str) -> object:
    try:
        array, _ = to_array(value)
    except (TypeError, ValueError, OverflowError) as error:
        reason = "its rows differ in length" if "inhomogeneous" in str(error) else " ".join(str(error).split())
        raise BadValue(f"{where}: not a tensor: {reason}") from None
    if spec is None or spec.shape is None:
        return value
    if array.ndim == len(spec.shape) - 1 and spec.shape[0] in (-1, 1):
        # A list stays a list: Python's numbers take the input's dtype, which an array's do not.
        return value[np.newaxis] if isinstance(value, np.ndarray) else [value]
    return value
