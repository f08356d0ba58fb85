"""The options of a job, checked, as its SUBMIT and its call say them."""

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import NoneType
from typing import TypedDict

from pool.errors import InvalidInput

__all__ = [
    "JobOptions",
    "ReplicaOptions",
    "Request",
    "RunOptions",
    "SessionOptions",
    "check_in_flight",
    "check_name",
    "request_for",
]

LONGEST_TIMEOUT_S = 1e8  # three years
HIGHEST_PRIORITY = 100
NAME_CHARS = 1000
OUTPUTS_BYTES = 32 << 10  # of all names together; the pool reads no SUBMIT whose header is over 64 KiB

_KEPT = 64  # requests of late …
_PLAIN = frozenset((NoneType, int, float, str))  # … of nothing but these: what is equal stays equal
_NAMES = frozenset((str,))


@dataclass(frozen=True, slots=True)
class Request:
    """What a caller asks for, but for the inputs; the fields are those of `Submit`, and of the `Names` of its call."""

    model: str
    signature: str | None = None
    outputs: tuple[str, ...] | None = None
    timeout_s: float | None = None
    priority: int = 0
    device: str | None = None
    version: int | str | None = None


class RunOptions(TypedDict, total=False):
    """Of whatever is run. `priority`: from -100 to 100, higher first."""

    priority: int
    version: str | int | None


class SessionOptions(RunOptions, total=False):
    """Of a session. `timeout`: in seconds, of each run."""

    timeout: float | None
    device: str | int | None


class ReplicaOptions(RunOptions, total=False):
    """Of what runs on several replicas."""

    signature: str | None
    outputs: Sequence[str] | None
    timeout: float | None


class JobOptions(ReplicaOptions, total=False):
    """Of a job; `Client.submit` says what each means."""

    device: str | int | None


def request_for(
    model: str,
    *,
    signature: str | None = None,
    outputs: Sequence[str] | None = None,
    timeout: float | None = None,
    priority: int = 0,
    device: str | int | None = None,
    version: str | int | None = None,
) -> Request:
    """Raises `InvalidInput` for a value that no job can have."""
    if type(outputs) is list:
        outputs = tuple(outputs)
    is_plain = _PLAIN.issuperset(map(type, (model, signature, timeout, priority, device, version)))
    if is_plain and (outputs is None or (type(outputs) is tuple and _NAMES.issuperset(map(type, outputs)))):
        return _known(model, signature, outputs, timeout, priority, device, version)
    return _checked(model, signature, outputs, timeout, priority, device, version)


def _checked(
    model: str,
    signature: str | None,
    outputs: Sequence[str] | None,
    timeout: float | None,
    priority: int,
    device: str | int | None,
    version: str | int | None,
) -> Request:
    check_name("a model's name", model)
    if signature is not None:
        check_name(f"model {model}: a signature's name", signature)
    return Request(
        model,
        signature,
        _outputs(model, outputs),
        _timeout(timeout),
        _priority(priority),
        _device(device),
        _version(model, version),
    )


_known = lru_cache(_KEPT, typed=True)(_checked)


def check_in_flight(in_flight: int) -> None:
    """Raises `TypeError` or `ValueError` for what is no positive number."""
    if operator.index(in_flight) < 1:
        raise ValueError(f"in_flight is {in_flight}; give a positive number")


def check_name(what: str, name: object) -> None:
    """Raises `InvalidInput` for what is no text, or none that can travel."""
    if not isinstance(name, str):
        raise InvalidInput(f"{what} is a str, not {type(name).__name__}")
    if len(name) > NAME_CHARS:
        raise InvalidInput(f"{what} has {len(name)} characters; at most {NAME_CHARS} are allowed")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{what} is not valid unicode: {name!r}") from None


def _outputs(model: str, outputs: object) -> tuple[str, ...] | None:
    if outputs is None:
        return None
    if isinstance(outputs, str) or not isinstance(outputs, Iterable):
        raise InvalidInput(f"model {model}: outputs is a list of names, not the {type(outputs).__name__} {outputs!r}")
    names = tuple(outputs)
    size = 0
    for name in names:
        check_name(f"model {model}: an output's name", name)
        size += len(name.encode()) + 3  # as msgpack has it
    if size > OUTPUTS_BYTES:
        raise InvalidInput(f"model {model}: {len(names)} outputs are more than one job can name")
    return names


def _timeout(timeout: object) -> float | None:
    if timeout is None:
        return None
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not number or not 0 <= timeout <= LONGEST_TIMEOUT_S:  # type: ignore[operator]  # not before it is a number
        raise InvalidInput(f"timeout is {timeout!r:.40}; give seconds, from 0 to {LONGEST_TIMEOUT_S:g}, or None")
    return timeout  # type: ignore[return-value]


def _priority(priority: object) -> int:
    number = _integer(priority)
    if number is None or not -HIGHEST_PRIORITY <= number <= HIGHEST_PRIORITY:
        raise InvalidInput(
            f"priority is {priority!r:.40}; give an integer, higher first,"
            f" from {-HIGHEST_PRIORITY} to {HIGHEST_PRIORITY}"
        )
    return number


def _device(device: object) -> str | None:
    if device is None:
        return None
    if isinstance(device, str) and device:
        check_name("a device's name", device)
        return device
    if (number := _integer(device)) is not None and 0 <= number < 1 << 31:
        return str(number)
    raise InvalidInput(
        f'device is {device!r:.40}; give a name of `pool status`, such as "gpu:0" or "slot:3", or a number'
    )


def _version(model: str, version: object) -> int | str | None:
    if version is None:
        return None
    if isinstance(version, str) and version:
        check_name(f"model {model}: a version's label", version)
        return version
    if (number := _integer(version)) is not None and 0 <= number < 1 << 63:
        return number
    raise InvalidInput(f"model {model}: version is {version!r:.40}; give a number, such as 3, or a label")


def _integer(value: object) -> int | None:
    """numpy's integers too; True is none."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return None
    try:
        return operator.index(value)
    except TypeError:  # an array of several
        return None
