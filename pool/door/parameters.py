"""The Open Inference Protocol's parameters, as HTTP and gRPC share them."""

from typing import Any, TypeVar

from pool.client.inputs import Options
from pool.errors import InvalidInput

KINDS = {bool: "true or false", int: "a whole number", str: "a text", list: "a list", dict: "a JSON object"}
Kind = TypeVar("Kind", bool, int, str, list[Any], dict[str, Any])


def member(what: str, told: object, key: str, kind: type[Kind], default: Kind | None = None) -> Kind:
    """Of an object that somebody sent. Raises `InvalidInput`."""
    if not isinstance(told, dict):
        raise InvalidInput(f"{what} is {told!r:.40}; give a JSON object")
    value = told.get(key, default)
    if type(value) is not kind:
        raise InvalidInput(f"{what}: {key} is {value!r:.40}; give {KINDS[kind]}")
    return value


def options_of(parameters: dict[str, Any]) -> Options:
    """A job's options. Parameters that are not known are for models of other servers. Raises `InvalidInput`."""
    what = "the parameters"
    microseconds, level = (member(what, parameters, name, int, 0) for name in ("timeout", "priority"))
    if microseconds < 0 or level < 0:
        raise InvalidInput(f"{what}: timeout is {microseconds}, priority {level}; give 1 or more, or 0 for the default")
    if parameters.get("sequence_id", 0) not in (0, ""):
        raise InvalidInput(f"{what}: there are no sequences, for all jobs share a model's state; leave sequence_id out")
    for name in parameters:
        if name.startswith("triton_"):
            raise InvalidInput(f"{what}: {name!r:.80} is reserved, as all that begins with triton_; leave it out")
    timeout_s, priority = min(microseconds, 1 << 62) / 1e6 or None, max(-100, 101 - level) if level else 0
    signature = member(what, parameters, "signature", str, "") or None
    return Options(timeout=timeout_s, priority=priority, signature=signature)
