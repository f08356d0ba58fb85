"""What the core is told, policies and plans as plain values, which JSON can hold, and back.

    JobArrived(client=b"…", …)  ◄─►  {"JobArrived": {"client": {"bytes": "…"}, …}}

Payloads are left out. Reading makes nothing but the classes that are listed here, whoever wrote the text.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from enum import Enum
from types import ModuleType
from typing import Any

from pool.core import events, policy, versions
from pool.recorder import hot_calls
from pool.wire import faults, independence, optimizations, signatures, worker_messages

__all__ = ["BadTranscript", "read", "written"]

PAYLOAD = "payload"


class BadTranscript(Exception):
    """The text is not what `written` gives."""


def written(value: object) -> Any:
    """REQUIRES values of the classes listed here, and of Python's plain ones."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, tuple | list):
        return [written(each) for each in value]
    if isinstance(value, frozenset | set):
        return {"set": sorted((written(each) for each in value), key=repr)}
    if isinstance(value, Mapping):
        return {"map": [[written(key), written(each)] for key, each in value.items()]}
    if isinstance(value, Enum):
        return {type(value).__name__: value.name}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {type(value).__name__: {key: written(each) for key, each in fields.items() if key != PAYLOAD}}
    raise TypeError(f"{type(value).__name__} cannot be written down")


def read(plain: Any) -> Any:
    """What was written; tuples for all sequences. Raises `BadTranscript`."""
    if plain is None or isinstance(plain, bool | int | float | str):
        return plain
    if isinstance(plain, list):
        return tuple(read(each) for each in plain)
    if not isinstance(plain, dict) or len(plain) != 1:
        raise BadTranscript(f"{plain!r:.80}")
    ((name, inner),) = plain.items()
    try:
        match name:
            case "bytes":
                return bytes.fromhex(inner)
            case "set":
                return frozenset(read(each) for each in inner)
            case "map":
                return {read(key): read(each) for key, each in inner}
        kind = _KINDS[name]
        if issubclass(kind, Enum):
            return kind[inner]
        without = {PAYLOAD: None} if PAYLOAD in _names(kind) else {}
        return kind(**without, **{key: read(each) for key, each in inner.items()})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadTranscript(f"{name}: {type(error).__name__}: {error}") from None


def _names(kind: type) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def _kinds(modules: Iterable[ModuleType]) -> Mapping[str, type]:
    """The dataclasses and enums of these, by name."""
    return {
        name: kind
        for module in modules
        for name, kind in vars(module).items()
        if isinstance(kind, type) and (dataclasses.is_dataclass(kind) or issubclass(kind, Enum)) and kind is not Enum
    }


_KINDS = _kinds((events, hot_calls, policy, versions, faults, independence, signatures, optimizations, worker_messages))
