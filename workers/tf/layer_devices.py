"""Where the nodes of a model run: device strings that its graph came with, and the rules of `[[model]] layer_devices`.

    graph ─ clear device strings ─► rules, the first that matches ─► what shares a variable follows ─► graph

With `layer_devices = "least-loaded"` the middle is `workers.tf.balancing`.

A variable, a table and what reads or writes them stay together: the first rule that matches any of these moves all.
"""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import DecodeError

from pool.wire.worker_messages import LayerRule, ModelSettings
from workers.backend import CannotLoad
from workers.tf.balancing import balance
from workers.tf.colocation import Colocation, Node
from workers.tf.devices import Devices, clear, missing, scopes, short
from workers.tf.library import RewriterConfig, tf

__all__ = ["Placed", "place"]

_PLAIN = re.compile(r"[A-Za-z0-9_./-]*[A-Za-z0-9_]")  # of a pattern, what may be the beginning of a name
_MOST_COMPARED = 20_000


@dataclass(frozen=True, slots=True)
class Placed:
    """Which rule moved each node; "" is the scope of the graph itself, a function's name that of its nodes."""

    rules: tuple[LayerRule, ...] = ()
    moved: Mapping[Node, int] = field(default_factory=dict)


def place(graph_def: Any, settings: ModelSettings, devices: Devices, soft: bool) -> Placed:
    """Writes device strings into the graph, in place; without rules and strings to clear nothing is another after it.

    `soft`: TensorFlow may run a node elsewhere than its string says. Raises `CannotLoad` for a rule that matches no
    node or names a device that there is not, and, unless `soft`, for any other string that does.
    """
    for rule in settings.layer_devices:
        if not devices.has(rule.device):
            raise CannotLoad(f"layer_devices: this worker has no {rule.device} for {rule.layers!r}; it has {devices}")
    clear(graph_def, settings.clear_devices, devices)
    placed = Placed()
    if settings.least_loaded:
        placed = Placed(*balance(graph_def, devices))
    elif settings.layer_devices:
        placed = Placed(settings.layer_devices, _follow(graph_def, _matched(graph_def, settings.layer_devices)))
    if placed.rules:
        for scope, nodes in scopes(graph_def):
            for node in nodes:
                number = placed.moved.get((scope, node.name))
                if number is not None:
                    node.device = _written(placed.rules[number].device)
                _keep_from_remapper(node)
    if not soft:
        _refuse_missing(graph_def, devices)
    return placed


def _matched(graph_def: Any, rules: Sequence[LayerRule]) -> dict[Node, int]:
    """The first rule that matches each node by its whole name."""
    patterns = [re.compile(rule.layers) for rule in rules]
    unmatched = set(range(len(rules)))
    found: dict[Node, int] = {}
    for scope, nodes in scopes(graph_def):
        for node in nodes:
            matching = [number for number, pattern in enumerate(patterns) if pattern.fullmatch(node.name)]
            unmatched.difference_update(matching)
            if matching:
                found[scope, node.name] = matching[0]
    for number in sorted(unmatched):
        names = {node.name for _, nodes in scopes(graph_def) for node in nodes}
        raise CannotLoad(
            f"layer_devices: {rules[number].layers!r} matches no node; {_near(rules[number].layers, names)}"
        )
    return found


def _follow(graph_def: Any, matched: Mapping[Node, int]) -> dict[Node, int]:
    moved = dict(matched)
    for together in Colocation(graph_def).together():
        number = min((matched[node] for node in together if node in matched), default=None)
        if number is not None:
            moved.update(dict.fromkeys(together, number))
    return moved


def _keep_from_remapper(node: Any) -> None:
    """A function that is not inlined is optimised as its call says, and not as the Session's config does."""
    if "config_proto" in node.attr:
        config = tf.compat.v1.ConfigProto()
        try:
            config.ParseFromString(node.attr["config_proto"].s)
        except DecodeError:
            return
        config.graph_options.rewrite_options.remapping = RewriterConfig.OFF
        node.attr["config_proto"].s = config.SerializeToString()


def _written(device: str) -> str:
    kind, _, number = device.removeprefix("/").partition(":")
    return f"/device:{kind.upper()}:{number}"


def _refuse_missing(graph_def: Any, devices: Devices) -> None:
    found = list(missing(graph_def, devices))
    if found:
        scope, name, device = found[0]
        inside = f" of function {scope!r}" if scope else ""
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        where = f"device {short(device) or repr(device)}, which this worker does not have (it has {devices})"
        raise CannotLoad(
            f"node {name!r}{inside}{more} must run on {where}, and allow_soft_placement is false;"
            ' write advanced = { clear_devices = "all" } or "missing", or a rule in layer_devices'
        )


def _near(pattern: str, names: Iterable[str]) -> str:
    """Names that have the pattern's own words in them, else those most like it."""
    words = sorted((match[0].strip("/.") for match in _PLAIN.finditer(pattern)), key=len)
    wanted = words[-1] if words else pattern
    ordered = sorted(names, key=lambda name: (len(name), name))
    near = [name for name in ordered if wanted.lower() in name.lower()][:3]
    if not near:
        beginnings = {"/".join(name.split("/")[:depth]) for name in ordered[:_MOST_COMPARED] for depth in (1, 2, 3)}
        near = difflib.get_close_matches(wanted, sorted(beginnings), n=3, cutoff=0.4)
    if not near:
        return f"it has, for instance, {', '.join(map(repr, ordered[:3]))}"
    return f"the whole name must match; near are {', '.join(map(repr, near))}"
