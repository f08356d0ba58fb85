"""What a request asks for, as its verb and path say it."""

import enum
import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from pool.gateway.http import Refused, Request

__all__ = ["Asked", "Method", "asked"]

_MODEL = r"/v1/models/(?P<model>[^/:]+)(?:/versions/(?P<version>[0-9]+)|/labels/(?P<label>[^/:]+))?"
_POST = re.compile(rf"{_MODEL}:(?P<method>predict|classify|regress)")
_GET = re.compile(rf"{_MODEL}(?:/(?P<method>metadata))?")
_DIGITS = 19  # of the largest number that a version can have


class Method(enum.Enum):
    PREDICT = "predict"
    CLASSIFY = "classify"
    REGRESS = "regress"
    METADATA = "metadata"
    STATUS = "status"


@dataclass(frozen=True, slots=True)
class Asked:
    """`version`: a number, a label, or None where the request names neither."""

    method: Method
    model: str
    version: int | str | None


def asked(request: Request) -> Asked:
    """Raises `Refused` (400) for what is no request of this protocol, in the words of TensorFlow Serving."""
    pattern = {"POST": _POST, "GET": _GET}.get(request.method)
    found = pattern.fullmatch(request.path) if pattern is not None else None
    if found is None:
        if request.method == "GET" and request.path == "/v1/models":
            raise Refused(400, "Missing model name in request.")
        raise Refused(400, f"Malformed request: {request.method} {request.path:.1000}")
    version: int | str | None = None
    if (number := found["version"]) is not None:
        digits = number.lstrip("0") or "0"
        if len(digits) > _DIGITS or int(digits) >= 1 << 63:
            raise Refused(400, f"Failed to convert version: {number:.40} to numeric.")
        version = int(digits)
    elif found["label"] is not None:
        version = _decoded(found["label"])
    return Asked(Method(found["method"] or "status"), _decoded(found["model"]), version)


def _decoded(name: str) -> str:
    try:
        return unquote_to_bytes(name).decode()
    except UnicodeDecodeError:
        raise Refused(400, f"the name {name!r:.200} is not UTF-8 text") from None
