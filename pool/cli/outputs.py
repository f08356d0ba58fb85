"""Output tensors as a person reads them, and as JSON."""

import base64
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from pool.wire.tensors import Array, dtype_name
from pool.wire.texts import printable

__all__ = ["as_text", "as_values"]

_SHOWN_ELEMENTS = 100  # beyond that numpy shows both ends
_EDGE = 4
_SHOWN_CHARACTERS = 200  # of a string among others
_INDENT = "  "


def as_text(outputs: Mapping[str, Array], width: int) -> str:
    """`name dtype [shape]: value`, or the values below it where they take lines. Long arrays are elided.

    A tensor of one element is its bare value, a string then as it is. Terminal codes in strings are made harmless.
    """
    return "\n".join(_shown(name, array, width) for name, array in outputs.items())


def as_values(outputs: Mapping[str, Array]) -> dict[str, Any]:
    """For JSON: nested lists; NaN, infinities and complex numbers are strings.

    Bytes are text where they are UTF-8, otherwise `{"b64": …}`.
    """
    return {
        name: {
            "dtype": dtype_name(array.dtype),
            "shape": list(array.shape),
            "values": np.fromiter(map(_plain, _elements(array)), object, array.size).reshape(array.shape).tolist(),
        }
        for name, array in outputs.items()
    }


def _shown(name: str, array: Array, width: int) -> str:
    title = f"{name} {dtype_name(array.dtype)} {list(array.shape)}"
    if array.size == 1:
        text = _only(array.reshape(-1)[0])
    elif array.size == 0:
        text = "empty"
    else:
        text = np.array2string(
            array,
            max_line_width=max(40, width - len(_INDENT)),
            precision=6,
            threshold=_SHOWN_ELEMENTS,
            edgeitems=_EDGE,
            separator=", ",
            formatter={"object": _quoted},
        )
    if "\n" not in text and len(title) + 2 + len(text) <= width:
        return f"{title}: {text}"
    return f"{title}:\n" + "\n".join(_INDENT + line for line in text.split("\n"))


def _only(element: object) -> str:
    if not isinstance(element, bytes):
        return str(element)
    try:
        text = element.decode()
    except UnicodeDecodeError:
        return repr(element)
    return printable(text, keep="\n\t")


def _quoted(element: object) -> str:
    """A string among others: in quotes, without line breaks, not too long."""
    assert isinstance(element, bytes)
    try:
        text = element.decode()
    except UnicodeDecodeError:
        text = repr(element)
        return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
    cut = json.dumps(text[:_SHOWN_CHARACTERS], ensure_ascii=False)
    safe = printable(cut, keep="")
    return safe if len(text) <= _SHOWN_CHARACTERS else f'{safe[:-1]}…"'


def _elements(array: Array) -> Iterable[object]:
    """As Python's own."""
    if array.dtype.kind in "Obiu" or array.dtype == np.float64:
        return array.reshape(-1).tolist()
    return map(_shortest, array.reshape(-1))


def _shortest(element: Any) -> object:
    """The shortest number that means the same in the element's own dtype: 0.1 rather than 0.10000000149011612."""
    if isinstance(element, np.complexfloating):
        return complex(element)
    text = str(element)  # of ml_dtypes too
    return int(text) if text.lstrip("-").isdigit() else float(text)


def _plain(element: object) -> object:
    if isinstance(element, bytes):
        try:
            return element.decode()
        except UnicodeDecodeError:
            return {"b64": base64.b64encode(element).decode()}
    if isinstance(element, complex):
        return str(element).strip("()")
    if isinstance(element, float) and not math.isfinite(element):
        return "NaN" if math.isnan(element) else "Infinity" if element > 0 else "-Infinity"
    return element
