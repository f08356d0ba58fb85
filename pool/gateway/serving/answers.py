"""What a job gave, as JSON: numbers in the fewest digits that name them, and NaN and Infinity as these words."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson

from pool.gateway.http import Refused
from pool.gateway.json_text import write
from pool.gateway.serving.binary import as_text
from pool.gateway.serving.columns import Format
from pool.wire.tensors import Array, dtype_name

__all__ = ["classifications", "predictions", "regressions"]

_BYTES_SUFFIX = "_bytes"  # an output with such a name has bytes, where any other has texts
_NO_NUMBER = b"null"  # as orjson writes what JSON has no number for


def predictions(outputs: Mapping[str, Array], form: Format) -> bytes:
    """In the format of the request: a list with an element a row, or each output whole. One alone has no name.

    Raises `Refused`: 400 where the outputs have no rows in common, 501 for a dtype that JSON cannot say.
    """
    if form is Format.COLUMN:
        whole = {name: _column(name, array) for name, array in outputs.items()}
        return write({"outputs": next(iter(whole.values())) if len(whole) == 1 else whole})
    heights = {array.shape[0] if array.ndim else None for array in outputs.values()}
    if len(heights) != 1 or None in heights:
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in outputs.items())
        raise Refused(400, f"the outputs have no rows in common: {shapes:.500}; give 'inputs' in place of 'instances'")
    if len(outputs) == 1:
        ((name, array),) = outputs.items()
        return write({"predictions": _column(name, array)})
    columns = [_rows(name, array) for name, array in outputs.items()]
    return write({"predictions": [dict(zip(outputs, row, strict=True)) for row in zip(*columns, strict=True)]})


def regressions(outputs: Mapping[str, Array], examples: int) -> bytes:
    """Of the output "outputs", [examples] or [examples, 1]. Raises `Refused` (400) for another shape or dtype."""
    found = outputs["outputs"]
    if found.dtype.kind != "f" or found.shape not in ((examples,), (examples, 1)):
        raise Refused(400, f"a regression is float [{examples}] or [{examples}, 1], not {_said(found)}")
    return write({"results": _column("", found.reshape(-1))})


def classifications(outputs: Mapping[str, Array], examples: int) -> bytes:
    """Pairs of label and score, of the outputs "classes" and "scores", [examples, k] each, or of the one that is there.

    A class without a label has "", one without a score 0. Raises `Refused` (400) for other shapes and dtypes.
    """
    classes, scores = outputs.get("classes"), outputs.get("scores")
    for name, found in (("classes", classes), ("scores", scores)):
        right = "O" if name == "classes" else "f"
        if found is not None and (found.dtype.kind != right or found.ndim != 2 or len(found) != examples):
            wanted = "string" if name == "classes" else "float"
            raise Refused(400, f"the {name} of a classification are {wanted} [{examples}, k], not {_said(found)}")
    if classes is not None and scores is not None and classes.shape != scores.shape:
        raise Refused(400, f"a classification has classes {list(classes.shape)} and scores {list(scores.shape)}")
    if classes is None:
        assert scores is not None, "one of both is there"
        classes = np.full(scores.shape, b"", object)
    elif scores is None:
        scores = np.zeros(classes.shape, np.float32)
    pairs = zip(_rows("", classes.reshape(-1)), _rows("", scores.reshape(-1)), strict=True)
    width = classes.shape[1]
    return write({"results": [[next(pairs) for _ in range(width)] for _ in range(examples)]})


def _column(name: str, array: Array) -> Any:
    """A tensor as `write` takes it."""
    if array.dtype.hasobject:
        return _texts(array.tolist(), name.endswith(_BYTES_SUFFIX))
    numbers = _numbers(name, array)
    if not numbers.ndim:
        return _rows(name, numbers.reshape(1))[0]
    return numbers if _is_finite(numbers) else orjson.Fragment(_with_words(numbers))


def _rows(name: str, array: Array) -> list[Any]:
    """Each of a tensor's rows as `write` takes it."""
    if array.dtype.hasobject:
        return [_texts(each, name.endswith(_BYTES_SUFFIX)) for each in array.tolist()]
    numbers = _numbers(name, array)
    if _is_finite(numbers):
        return list(numbers)
    if numbers.ndim > 1:
        return [orjson.Fragment(_with_words(each)) for each in numbers]
    return [orjson.Fragment(_with_words(numbers[index : index + 1])[1:-1]) for index in range(len(numbers))]


def _numbers(name: str, array: Array) -> Array:
    """Of a dtype and layout that orjson writes. Raises `Refused` (501)."""
    if array.dtype.kind == "c":
        raise Refused(501, f"output {name!r:.80}: JSON has no form for {dtype_name(array.dtype)}")
    if array.dtype.isbuiltin != 1:  # of ml_dtypes
        array = array.astype(np.int8 if "int" in dtype_name(array.dtype) else np.float32)
    return np.require(array, requirements=("C_CONTIGUOUS", "ALIGNED"))


def _is_finite(numbers: Array) -> bool:
    return numbers.dtype.kind != "f" or bool(np.isfinite(numbers).all())


def _with_words(numbers: Array) -> bytes:
    """Floats, of which some are no number of JSON: those become the words that JavaScript and Python have for them."""
    flat = numbers.reshape(-1)
    others = flat[~np.isfinite(flat)].tolist()
    first, *rest = write(numbers).split(_NO_NUMBER)
    words = [b"NaN" if each != each else b"Infinity" if each > 0 else b"-Infinity" for each in others]
    return first + b"".join(word + piece for word, piece in zip(words, rest, strict=True))


def _texts(value: Any, is_bytes: bool) -> Any:
    if isinstance(value, list):
        return [_texts(each, is_bytes) for each in value]
    return as_text(value, is_bytes)


def _said(array: Array) -> str:
    return f"{dtype_name(array.dtype)} {list(array.shape)}"
