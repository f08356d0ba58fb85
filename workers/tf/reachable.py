"""Which ops a run of some tensors can execute."""

from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["ReachableOps"]


class ReachableOps:
    """Walks a `GraphDef` back from tensors, over data and control inputs, into the bodies of functions.

    A body counts as a whole: what writes state in it is there for its effect, not for its outputs, and runs
    whether or not an output needs it. Both branches of a conditional count.
    """

    def __init__(self, graph_def: Any) -> None:
        self._nodes = {node.name: node for node in graph_def.node}
        self._functions = {function.signature.name: function for function in graph_def.library.function}

    def from_tensors(self, names: Iterable[str], fed: Iterable[str] = ()) -> frozenset[str]:
        """The types of all ops that fetching the tensors `names` ("node:0"), or running operations, may run.

        What only leads to tensors that are `fed` does not run.
        """
        nodes = [self._nodes[name] for name in self.nodes_of(names, fed) if name in self._nodes]
        called = {function for node in nodes for function in _functions_named_by(node)}
        return frozenset({node.op for node in nodes} | self._inside(called))

    def nodes_of(self, names: Iterable[str], fed: Iterable[str] = ()) -> set[str]:
        """The names of all nodes that they may run, those in functions apart."""
        given = {name.removesuffix(":0") for name in fed}  # as inputs name them
        pending = [_node_name(name) for name in names if ":" not in name or name.removesuffix(":0") not in given]
        seen = set(pending)
        while pending:
            node = self._nodes.get(pending.pop())
            if node is None:
                continue
            inputs = {_node_name(name) for name in node.input if name not in given} - seen
            seen |= inputs
            pending.extend(inputs)
        return seen

    def _inside(self, names: Iterable[str]) -> set[str]:
        ops: set[str] = set()
        pending = [name for name in names if name in self._functions]
        seen = set(pending)
        while pending:
            body = self._functions[pending.pop()]
            for node in body.node_def:
                ops.add(node.op)
                called = {name for name in _functions_named_by(node) if name in self._functions} - seen
                seen |= called
                pending.extend(called)
        return ops


def _node_name(tensor: str) -> str:
    return tensor.removeprefix("^").partition(":")[0]


def _functions_named_by(node: Any) -> Iterator[str]:
    """If and While name theirs in attributes; TensorFlow 1's own calls are ops of the function's name."""
    yield node.op
    for value in node.attr.values():
        kind = value.WhichOneof("value")
        if kind == "func":
            yield value.func.name
        elif kind == "list":
            yield from (function.name for function in value.list.func)
