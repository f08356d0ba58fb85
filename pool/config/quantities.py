"""Durations and sizes as people write them in `config.toml`.

`Seconds` takes "250ms", "60s", "2m", "1h" or a plain number of seconds; `Bytes` takes "512MiB", "1GB" or a
whole number of bytes. Units are exact: "Gb" would be bits, so it is refused rather than guessed. Each
refusal says what would be right.
"""

import math
import re
from typing import Annotated, Literal

from pydantic import PlainValidator
from pydantic_core import PydanticCustomError

__all__ = [
    "Bytes",
    "BytesOrAuto",
    "CountOrAuto",
    "PositiveSeconds",
    "Seconds",
    "SecondsOrAuto",
    "parse_duration",
    "parse_size",
]

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", re.ASCII)


def _refuse(kind: str, value: object, right: str) -> PydanticCustomError:
    return PydanticCustomError(
        "quantity",
        "{value} is not a {kind}; write {right}",
        {"value": repr(value), "kind": kind, "right": right},
    )


def parse_duration(value: object) -> float:
    """Seconds, finite and not negative. Raises `PydanticCustomError` for anything else."""
    refusal = _refuse("duration", value, 'a number with its unit, such as "60s", "250ms", "2m" or "1h"')
    if isinstance(value, str):
        match = _QUANTITY.fullmatch(value)
        if match is None or match[2] not in _SECONDS:
            raise refusal
        seconds = float(match[1]) * _SECONDS[match[2]]
    elif isinstance(value, int | float) and not isinstance(value, bool):
        try:
            seconds = float(value)
        except OverflowError:
            raise refusal from None
    else:
        raise refusal
    if not (math.isfinite(seconds) and seconds >= 0):
        raise refusal
    return seconds


def parse_positive_duration(value: object) -> float:
    """As `parse_duration`, and more than nothing."""
    seconds = parse_duration(value)
    if seconds == 0:
        raise PydanticCustomError("quantity", 'the duration is zero; write more than that, such as "1s"')
    return seconds


def parse_duration_or_auto(value: object) -> float | Literal["auto"]:
    """A positive duration, or "auto" as it stands."""
    if value == "auto":
        return "auto"
    try:
        return parse_positive_duration(value)
    except PydanticCustomError:
        raise _refuse("duration", value, '"auto", or a duration such as "120s"') from None


def parse_size(value: object) -> int:
    """Bytes, a whole number of at least one. Raises `PydanticCustomError` for anything else."""
    refusal = _refuse("size", value, 'a number with its unit, such as "2GiB", "512MiB" or "1GB", or whole bytes')
    if isinstance(value, str):
        match = _QUANTITY.fullmatch(value)
        if match is None or match[2] not in _BYTES:
            raise refusal
        number = float(match[1]) if "." in match[1] else int(match[1])
        size = round(number * _BYTES[match[2]])
    elif isinstance(value, int) and not isinstance(value, bool):
        size = value
    else:
        raise refusal
    if not 1 <= size < 2**63:
        raise refusal
    return size


def parse_size_or_auto(value: object) -> int | Literal["auto"]:
    """A size, or "auto" as it stands."""
    if value == "auto":
        return "auto"
    try:
        return parse_size(value)
    except PydanticCustomError:
        raise _refuse("size", value, '"auto", or a size such as "512MiB"') from None


def parse_count_or_auto(value: object) -> int | Literal["auto"]:
    """A whole number of at least one, or "auto" as it stands."""
    if value == "auto":
        return "auto"
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _refuse("number of at least one", value, '"auto", or a whole number such as 1000')
    return value


Seconds = Annotated[float, PlainValidator(parse_duration)]
PositiveSeconds = Annotated[float, PlainValidator(parse_positive_duration)]
SecondsOrAuto = Annotated[float | Literal["auto"], PlainValidator(parse_duration_or_auto)]
Bytes = Annotated[int, PlainValidator(parse_size)]
BytesOrAuto = Annotated[int | Literal["auto"], PlainValidator(parse_size_or_auto)]
CountOrAuto = Annotated[int | Literal["auto"], PlainValidator(parse_count_or_auto)]
