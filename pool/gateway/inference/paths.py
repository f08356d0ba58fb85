"""What a path below /v2 names."""

from dataclasses import dataclass
from urllib.parse import parse_qs

from pool.gateway.http import Refused, Request

__all__ = ["Place", "allow", "asked_signature", "of_model", "to_infer"]

_NEWEST = "-1"  # as Triton has it
_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Place:
    """`action`: "" for the model itself."""

    name: str
    version: int | str | None
    action: str


def allow(request: Request, *methods: str) -> None:
    """Raises `Refused` (405) for any other."""
    if request.method not in methods:
        raise Refused(405, f"{request.path!r:.200} takes {' and '.join(methods)}, not {request.method:.20}")


def asked_signature(request: Request) -> str | None:
    """Of `?signature=NAME`."""
    return parse_qs(request.query).get("signature", [None])[-1]


def of_model(parts: list[str]) -> Place | None:
    """`parts`: behind `v2/models`. None for what is no path of a model."""
    match parts:
        case [name, "versions", version, *action] if version:
            pass
        case [name, *action]:
            version = _NEWEST
        case _:
            return None
    if not name or len(action) > 1:
        return None
    return Place(name, _version(version), *(action or [""]))


def _version(text: str) -> int | str | None:
    """A number, or a label of one."""
    if text == _NEWEST:
        return None
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS else text


def to_infer(request: Request) -> Place:
    """Of a path that ends with `/infer`. Raises `Refused`."""
    parts = request.segments()
    place = of_model(parts[2:]) if parts[1:2] == ["models"] else None
    if place is None or place.action != "infer":
        raise Refused(404, f"nothing is at {request.path!r:.200}")
    return place
