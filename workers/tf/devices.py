"""The devices that a Session has, and the device strings of a graph and of the functions in it."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from pool.wire.worker_messages import Clear
from workers.tf.library import tf

__all__ = ["Devices", "clear", "missing", "scopes", "short"]

_ONE = re.compile(r"(?:.*/)?(?:device:)?(CPU|GPU):(\d+)", re.IGNORECASE)


class Devices:
    """`str` of it names them as rules do: "/cpu:0, /gpu:0"."""

    def __init__(self, names: Iterable[str]) -> None:
        """`names`: whole ones, such as "/job:localhost/replica:0/task:0/device:CPU:0"."""
        self.names = tuple(names)
        self._fields = [_fields(name) for name in self.names]

    def has(self, wanted: str) -> bool:
        """Whether a device string, which may leave parts out, stands for one of them. False for what is none."""
        fields = _fields(wanted)
        return fields is not None and any(
            all(asked is None or asked == found for asked, found in zip(fields, each, strict=True))
            for each in self._fields
            if each is not None
        )

    def __str__(self) -> str:
        return ", ".join(named for name in self.names if (named := short(name)) is not None)


def short(name: str) -> str | None:
    """ "/gpu:0" of the whole name of a device; None of anything else, such as a stream of one."""
    match = _ONE.fullmatch(name)
    return None if match is None else f"/{match[1].lower()}:{int(match[2])}"


def scopes(graph_def: Any) -> Iterator[tuple[str, Any]]:
    """The nodes of the graph itself, whose scope is "", and of each function, whose scope is its name."""
    yield "", graph_def.node
    for function in graph_def.library.function:
        yield function.signature.name, function.node_def


def clear(graph_def: Any, which: Clear, devices: Devices) -> None:
    """In place. Without a string to clear the graph stays as it is, to the byte.

    TensorFlow's own `clear_devices` leaves functions, which are all that a graph of TensorFlow 2 consists of.
    """
    if which is Clear.OFF:
        return
    known: dict[str, bool] = {"": True}
    for _, nodes in scopes(graph_def):
        for node in nodes:
            if node.device not in known:
                known[node.device] = which is Clear.MISSING and devices.has(node.device)
            if not known[node.device]:
                node.device = ""


def missing(graph_def: Any, devices: Devices) -> Iterator[tuple[str, str, str]]:
    """Scope, node and device string of each node that is to run where there is nothing."""
    known: dict[str, bool] = {"": True}
    for scope, nodes in scopes(graph_def):
        for node in nodes:
            if node.device not in known:
                known[node.device] = devices.has(node.device)
            if not known[node.device]:
                yield scope, node.name, node.device


def _fields(name: str) -> tuple[str | int | None, ...] | None:
    try:
        spec = tf.DeviceSpec.from_string(name)
    except (ValueError, TypeError):
        return None
    kind = None if spec.device_type is None else spec.device_type.upper()
    return spec.job, spec.replica, spec.task, kind, spec.device_index
