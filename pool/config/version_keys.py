"""The keys of `[[model]]` that choose among the numbered versions of its folder."""

import re
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from pool.config.section import Section
from pool.wire.versions import MOST_VERSIONS

__all__ = ["VersionKeys"]

_LABEL = re.compile(r"[A-Za-z0-9_.-]*[A-Za-z_.-][A-Za-z0-9_.-]*", re.ASCII)  # which is no number
_LARGEST = (1 << 63) - 1


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST


def _choice(value: Any) -> Any:
    if value in ("newest", "all"):
        return value
    if not isinstance(value, list | tuple) or not value or not all(map(_is_number, value)):
        right = '"newest", "all", or a list of numbers such as [1, 3]'
        raise ValueError(f"{value!r} does not name versions; write {right}")
    if len(set(value)) < len(value):
        raise ValueError(f"{list(value)} has a number twice; write each number once")
    if len(value) > MOST_VERSIONS:
        raise ValueError(f"has {len(value)} versions; write at most {MOST_VERSIONS}")
    return tuple(sorted(value))


def _labels(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is not a table; write one such as {_EXAMPLE}")
    for label, number in value.items():
        if not isinstance(label, str) or _LABEL.fullmatch(label) is None:
            raise ValueError(f"{label!r} is not a label; write letters, digits, '_', '.' and '-', and not digits alone")
        if not _is_number(number):
            raise ValueError(f"{label} = {number!r} is not a version number; write one, such as {label} = 3")
    return value


_EXAMPLE = "{ stable = 1, canary = 3 }"
Choice: TypeAlias = Annotated[Literal["newest", "all"] | tuple[int, ...], BeforeValidator(_choice)]


class VersionKeys(Section):
    """`versions`: the newest alone, all that are there, or these numbers, which rise. `labels`: numbers by label."""

    versions: Choice = "newest"
    labels: Annotated[dict[str, int], BeforeValidator(_labels)] = Field(default_factory=dict)

    @field_validator("labels")
    @classmethod
    def _several_are_served(cls, value: dict[str, int], info: ValidationInfo) -> dict[str, int]:
        if value and info.data.get("versions") == "newest":
            raise ValueError(
                'needs fixed versions, but versions is "newest"; write versions = "all" or a list, or leave labels out'
            )
        return value
