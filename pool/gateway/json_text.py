"""JSON as both protocols read and write it: NaN and Infinity are numbers. Nothing that is read can end the process."""

import json
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
        why = error
    # NaN, Infinity, and numbers beyond a double, which are rare: orjson knows none of them.
    try:
        return json.loads(bytes(view).decode())
    except (ValueError, RecursionError):
        raise Refused(400, f"the body is not JSON: {why}") from None


def write(value: Any, *, is_finite: bool = True) -> bytes:
    """Of dicts, lists, texts, numbers, and numpy arrays of numbers and bools that are C-contiguous.

    Unless all numbers are finite, `is_finite` must be False: arrays are to be lists then, and it takes longer.
    """
    if is_finite:
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
