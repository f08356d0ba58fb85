"""JSON as both protocols read and write it: NaN and Infinity are numbers. Nothing that is read can end the process."""

import json
import math
from typing import Any

import orjson

from pool.gateway.http import Refused
from pool.wire.hot import Buffer

__all__ = ["read", "write"]


def read(text: Buffer) -> Any:
    """Raises `Refused` (400) for what is no JSON text in UTF-8. Deeper than 1,024 is refused by either parser."""
    view = memoryview(text)
    try:
        return orjson.loads(view)
    except orjson.JSONDecodeError as error:
        why: object = error
    raw = bytes(view)
    if b"NaN" in raw or b"Infinity" in raw:  # which are rare, and orjson does not know them
        try:
            return json.loads(raw.decode(), parse_float=_finite)
        except (ValueError, RecursionError) as error:
            why = error
    raise Refused(400, f"the body is not JSON: {why!s:.200}")


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise ValueError(f"the number {number:.40} is too large for a double")
    return value


def write(value: Any, *, is_finite: bool = True) -> bytes:
    """Of dicts, lists, texts, numbers, and numpy arrays of numbers and bools that are C-contiguous.

    Unless all numbers are finite, `is_finite` must be False: arrays are to be lists then, and it takes longer.
    """
    if is_finite:
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
