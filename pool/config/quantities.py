"""Durations and sizes as people write them in `config.toml`.

`Seconds` takes "250ms", "60s", "2m", "1h" or a plain number of seconds; `Bytes` takes "512MiB", "1GB" or a
whole number of bytes. Units are exact: "Gb" would be bits, so it is refused rather than guessed. Each
refusal says what would be right.
"""

import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Annotated, Literal, TypeVar

from pydantic import Field, PlainValidator

__all__ = [
    "Bytes",
    "BytesByDefaultAuto",
    "BytesOrAuto",
    "BytesOrOff",
    "BytesOrUnlimited",
    "CountOrAuto",
    "CountOrOff",
    "CountOrUnlimited",
    "FractionOrUnlimited",
    "MicrosecondsOrOff",
    "PositiveSeconds",
    "RateOrUnlimited",
    "Replicas",
    "Seconds",
    "SecondsOrAuto",
    "SecondsOrOff",
    "Weight",
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
_LONGEST_SPIN_US = 10_000

_Number = TypeVar("_Number", int, float)
_Meaning = TypeVar("_Meaning")


def parse_duration(value: object) -> float:
    """Seconds, finite and not negative. Raises `ValueError` for anything else."""
    seconds = _amount(value, _SECONDS)
    if seconds is None or not 0 <= seconds <= sys.float_info.max:
        right = 'a number with its unit, such as "60s", "250ms", "2m" or "1h"'
        raise ValueError(f"{value!r} is not a duration; write {right}")
    return float(seconds)


def parse_positive_duration(value: object) -> float:
    """As `parse_duration`, and more than nothing."""
    seconds = parse_duration(value)
    if seconds == 0:
        raise ValueError('the duration is zero; write more than that, such as "1s"')
    return seconds


def parse_size(value: object) -> int:
    """Bytes, a whole number of at least one. Raises `ValueError` for anything else."""
    size = None if isinstance(value, float) else _amount(value, _BYTES)
    if size is None or not 1 <= size < 2**63:
        right = 'a number with its unit, such as "2GiB", "512MiB" or "1GB", or whole bytes'
        raise ValueError(f"{value!r} is not a size; write {right}")
    return round(size)


def _parse_count(value: object) -> int:
    """A whole number of at least one. Raises `ValueError` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("no count")
    return value


def _parse_microseconds(value: object) -> int:
    """A whole number of at least one, and at most `_LONGEST_SPIN_US`. Raises `ValueError` for anything else."""
    count = _parse_count(value)
    if count > _LONGEST_SPIN_US:
        raise ValueError("too many")
    return count


def _parse_fraction(value: object) -> float:
    """More than nothing, at most all. Raises `ValueError` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ValueError("no part")
    return float(value)


def _parse_rate(value: object) -> float:
    """Such that what is reckoned from it stays a number. Raises `ValueError` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1e-6 <= value <= 1e9:
        raise ValueError("no rate")
    return float(value)


def parse_replicas(value: object) -> int | Literal["auto", "all"]:
    """Raises `ValueError` for anything else."""
    if value in ("auto", "all"):
        return "auto" if value == "auto" else "all"
    try:
        return _parse_count(value)
    except ValueError:
        right = 'a whole number from 1, "auto" or "all"'
        raise ValueError(f"{value!r} is not a number of copies; write {right}") from None


def _amount(value: object, units: Mapping[str, float]) -> float | None:
    """Of a plain number, or of a text with one of the units; None for what is neither."""
    if not isinstance(value, str):
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None
    match = _QUANTITY.fullmatch(value)
    if match is not None and match[2] in units:
        with suppress(ValueError, OverflowError):  # Python has bounds of its own for so many digits
            return (float if "." in match[1] else int)(match[1]) * units[match[2]]
    return None


def _or_word(
    parse: Callable[[object], _Number], word: str, means: _Meaning, right: str
) -> Callable[[object], _Number | _Meaning]:
    """What `parse` takes, or a word that stands for what it means."""

    def parsed(value: object) -> _Number | _Meaning:
        if value == word:
            return means
        try:
            return parse(value)
        except ValueError:
            raise ValueError(f'{value!r} is not {right}; write "{word}", or one such as {_SUCH[right]}') from None

    return parsed


_SUCH = {
    "a duration": '"120s"',
    "a size": '"512MiB"',
    "a whole number from 1": "1000",
    f"a whole number from 1 to {_LONGEST_SPIN_US}": "50",
    "a number above 0, at most 1": "0.5",
    "a number from 1e-6 to 1e9": "50",
}
_Auto = Literal["auto"]
_AUTO: _Auto = "auto"
_Unlimited = Literal["unlimited"]
_UNLIMITED: _Unlimited = "unlimited"
parse_duration_or_auto = _or_word(parse_positive_duration, "auto", _AUTO, "a duration")
_size_or_auto = _or_word(parse_size, "auto", _AUTO, "a size")
_count_or_auto = _or_word(_parse_count, "auto", _AUTO, "a whole number from 1")
_duration_or_off = _or_word(parse_positive_duration, "off", None, "a duration")
_size_or_off = _or_word(parse_size, "off", None, "a size")
_count_or_off = _or_word(_parse_count, "off", None, "a whole number from 1")
_size_or_default = _or_word(parse_size, "auto", None, "a size")
_size_or_unlimited = _or_word(parse_size, "unlimited", None, "a size")
_count_or_unlimited = _or_word(_parse_count, "unlimited", None, "a whole number from 1")
_rate_or_unlimited = _or_word(_parse_rate, "unlimited", None, "a number from 1e-6 to 1e9")
_microseconds_or_off = _or_word(_parse_microseconds, "off", None, f"a whole number from 1 to {_LONGEST_SPIN_US}")
_fraction_or_unlimited = _or_word(_parse_fraction, "unlimited", _UNLIMITED, "a number above 0, at most 1")

Seconds = Annotated[float, PlainValidator(parse_duration)]
PositiveSeconds = Annotated[float, PlainValidator(parse_positive_duration)]
Bytes = Annotated[int, PlainValidator(parse_size)]
Replicas = Annotated[int | Literal["auto", "all"], PlainValidator(parse_replicas)]
SecondsOrAuto = Annotated[float | _Auto, PlainValidator(parse_duration_or_auto)]
BytesOrAuto = Annotated[int | _Auto, PlainValidator(_size_or_auto)]
CountOrAuto = Annotated[int | _Auto, PlainValidator(_count_or_auto)]
FractionOrUnlimited = Annotated[float | _Unlimited, PlainValidator(_fraction_or_unlimited)]
# None: the word in the place of a number.
SecondsOrOff = Annotated[float | None, PlainValidator(_duration_or_off)]
BytesOrOff = Annotated[int | None, PlainValidator(_size_or_off)]
CountOrOff = Annotated[int | None, PlainValidator(_count_or_off)]
MicrosecondsOrOff = Annotated[int | None, PlainValidator(_microseconds_or_off)]
BytesByDefaultAuto = Annotated[int | None, PlainValidator(_size_or_default)]
BytesOrUnlimited = Annotated[int | None, PlainValidator(_size_or_unlimited)]
RateOrUnlimited = Annotated[float | None, PlainValidator(_rate_or_unlimited)]
Weight = Annotated[float, Field(ge=0.001, le=1000)]
"""Bounded, or the time that a client has used by its weight would be infinite, and that of all after it."""
CountOrUnlimited = Annotated[int | None, PlainValidator(_count_or_unlimited)]
