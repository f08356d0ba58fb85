"""A request's members and `parameters`: their types, and the job's options that come of them."""

from collections.abc import Mapping
from reprlib import Repr
from typing import Any

from pool.gateway.http import Refused

__all__ = ["brief", "flag", "members", "options_of", "text_of"]

HIGHEST, LOWEST = 100, -100  # as a job has them

_short = Repr()
_short.maxstring = _short.maxother = _short.maxlong = 40
_short.maxlist = _short.maxdict = _short.maxlevel = 4
brief = _short.repr
"""What somebody sent, in a message: a few of its elements, whatever its size."""


def members(what: str, value: object) -> Mapping[str, Any]:
    """Those of an object that may be left out."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Refused(400, f"{what} is {brief(value)}; give a JSON object")
    return value


def text_of(what: str, told: object, key: str) -> str:
    if not isinstance(told, dict):
        raise Refused(400, f"{what} is {brief(told)}; give a JSON object")
    found = told.get(key)
    if not isinstance(found, str):
        raise Refused(400, f"{what}: its {key} is {brief(found)}; give a text")
    return found


def flag(what: str, parameters: Mapping[str, Any], key: str, default: bool) -> bool:
    found = parameters.get(key, default)
    if not isinstance(found, bool):
        raise Refused(400, f"{what}: {key} is {brief(found)}; give true or false")
    return found


def options_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Of a job. A parameter that is not known is for a model of Triton's own, and says nothing here."""
    options: dict[str, Any] = {}
    for key, value in parameters.items():
        if key == "timeout":
            if microseconds := _whole(key, value):
                options[key] = microseconds / 1e6
        elif key == "priority":
            if level := _whole(key, value):
                options[key] = max(LOWEST, HIGHEST + 1 - level)
        elif key == "signature":
            if not isinstance(value, str):
                raise Refused(400, f"parameter signature is {brief(value)}; give a text")
            options[key] = value
        elif key == "sequence_id":
            if value not in (0, "") or isinstance(value, bool):
                text = "there are no sequences here: a stateful model has one state, which all of its jobs share"
                raise Refused(400, f"sequence_id is {brief(value)}, but {text}; leave it out")
        elif key.startswith("triton_"):
            raise Refused(400, f"parameter {key!r:.80}: names that begin with triton_ are reserved")
    return options


def _whole(key: str, value: object) -> int:
    if type(value) is not int or not 0 <= value < 1 << 64:
        raise Refused(400, f"parameter {key} is {brief(value)}; give an integer from 0")
    return value
