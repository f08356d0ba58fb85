"""`layer_devices = "least-loaded"`: the variables of a model, spread by bytes over the devices of its worker.

    variables ─ the largest first, each on the device with the fewest bytes ─► what runs beside them ─► what reads them

Small ones stay together on the first device. What computes with a variable goes where the variable is, so that a run
moves activations between the devices, and not weights. Constants of a frozen graph count as variables.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

from pool.wire.worker_messages import LayerRule
from workers.tf.calls_in_graph import is_call
from workers.tf.colocation import Colocation, Node
from workers.tf.devices import Devices, scopes, short
from workers.tf.library import tf

__all__ = ["LEAST_LOADED", "SMALL_BYTES", "balance"]

LEAST_LOADED = "least-loaded"
SMALL_BYTES = 64 << 10  # scales and biases: their reader is in another's company

_VARIABLES = frozenset({"VarHandleOp", "Variable", "VariableV2"})


def balance(graph_def: Any, devices: Devices) -> tuple[tuple[LayerRule, ...], Mapping[Node, int]]:
    """As rules, one for each GPU of the worker (each CPU where it has no GPU), and which of them moves each node.

    None where there is one device alone. Whole sets of nodes that share a variable move together. What is no number of
    floating point stays TensorFlow's to place: a GPU has no kernels for much of it.
    """
    group = _group(devices)
    if len(group) < 2:
        return (), {}
    nodes = {(scope, node.name): node for scope, each in scopes(graph_def) for node in each}
    moved = dict(_spread(_sets(graph_def, nodes), len(group)))
    weights = {node: _bytes(nodes[node]) for node in moved}
    moved |= _readers(graph_def, moved, _read_bytes(graph_def, nodes, moved, weights))
    return tuple(LayerRule(LEAST_LOADED, device) for device in group), moved


def _group(devices: Devices) -> Sequence[str]:
    named = [name for each in devices.names if (name := short(each)) is not None]
    return [name for name in named if name.startswith("/gpu:")] or named


def _sets(graph_def: Any, nodes: Mapping[Node, Any]) -> Iterator[tuple[int, list[Node]]]:
    """Bytes and nodes of each set that has variables of numbers; a variable or constant that nobody shares is one."""
    alone = {node for node, each in nodes.items() if each.op in _VARIABLES or each.op == "Const"}
    for together in Colocation(graph_def).together():
        alone.difference_update(together)
        variables = [nodes[node] for node in together if nodes[node].op in _VARIABLES]
        if variables and all(map(_is_numbers, variables)):
            yield sum(map(_bytes, variables)), sorted(together)
    for node in sorted(alone):
        each = nodes[node]
        if _is_numbers(each) and (each.op in _VARIABLES or _bytes(each) >= SMALL_BYTES):
            yield _bytes(each), [node]


def _spread(sets: Iterator[tuple[int, list[Node]]], devices: int) -> Iterator[tuple[Node, int]]:
    loads = [0] * devices
    for size, together in sorted(sets, key=lambda each: (each[0] >= SMALL_BYTES, -each[0], each[1])):
        device = loads.index(min(loads)) if size >= SMALL_BYTES else 0
        loads[device] += size
        yield from ((node, device) for node in together)


def _read_bytes(
    graph_def: Any, nodes: Mapping[Node, Any], moved: Mapping[Node, int], weights: Mapping[Node, int]
) -> Mapping[Node, int]:
    """Of each moved node, how much it gives to who reads it: what its set's variables have."""
    found = dict(weights)
    for together in Colocation(graph_def).together():
        held = sum(weights.get(node, 0) for node in together if nodes[node].op in _VARIABLES)
        found.update({node: held for node in together if node in moved})
    return found


def _readers(graph_def: Any, moved: Mapping[Node, int], gives: Mapping[Node, int]) -> dict[Node, int]:
    """What computes with a large variable goes where the largest of its variables is."""
    functions = {function.signature.name: function for function in graph_def.library.function}
    found: dict[Node, int] = {}
    for scope, each in scopes(graph_def):
        for node in each:
            if (scope, node.name) in moved or node.op == "Const" or is_call(node, functions):
                continue
            given = [(scope, name.split(":")[0]) for name in node.input if not name.startswith("^")]
            large = [giver for giver in given if giver in moved and gives[giver] >= SMALL_BYTES]
            if large:
                found[scope, node.name] = moved[max(large, key=lambda giver: gives[giver])]
    return found


def _is_numbers(node: Any) -> bool:
    dtype = tf.as_dtype(node.attr["dtype"].type)
    return bool(dtype.is_floating or dtype.is_complex)


def _bytes(node: Any) -> int:
    """0 where its shape is not known, and for what holds nothing."""
    if node.op == "Const":
        shape = node.attr["value"].tensor.tensor_shape
    elif node.op in _VARIABLES:
        shape = node.attr["shape"].shape
    else:
        return 0
    sizes = [dimension.size for dimension in shape.dim]
    known = not shape.unknown_rank and all(size >= 0 for size in sizes)
    return prod(sizes) * tf.as_dtype(node.attr["dtype"].type).size if known else 0
