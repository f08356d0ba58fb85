"""Which nodes of a graph run on one device because they use one variable, table or other resource.

TensorFlow runs what is given a resource, or a reference to a variable, where that is, and what names another node in
its `_class` attribute where that one is. A resource goes from the graph into functions and on into theirs, so what
uses it may be in any of them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from workers.tf.calls_in_graph import is_call, passed_to
from workers.tf.devices import scopes
from workers.tf.library import op_def, tf

__all__ = ["Colocation", "Node"]

Node = tuple[str, str]
"""Scope (`workers.tf.devices.scopes`) and name. An argument of a function counts as a node of it."""

_RESOURCE = tf.resource.as_datatype_enum
_BESIDE = b"loc:@"


class Colocation:
    """Sets of nodes that run together; a node that is in none is a set of its own."""

    def __init__(self, graph_def: Any) -> None:
        self._parent: dict[Node, Node] = {}
        self._functions = {function.signature.name: function for function in graph_def.library.function}
        self._nodes = {(scope, node.name): node for scope, nodes in scopes(graph_def) for node in nodes}
        for (scope, _), node in self._nodes.items():
            self._join_node(scope, node)

    def together(self) -> Iterator[list[Node]]:
        """Each set of more than one node, without arguments of functions."""
        sets: dict[Node, list[Node]] = {}
        for node in self._parent:
            if node in self._nodes:
                sets.setdefault(self._root(node), []).append(node)
        return iter([each for each in sets.values() if len(each) > 1])

    def _join_node(self, scope: str, node: Any) -> None:
        for beside in node.attr["_class"].list.s if "_class" in node.attr else ():
            other = scope, beside.removeprefix(_BESIDE).decode(errors="replace")
            if beside.startswith(_BESIDE) and other in self._nodes:
                self._join((scope, node.name), other)
        inputs = [name for name in node.input if not name.startswith("^")]
        for number, (name, follows) in enumerate(zip(inputs, self._followed(node), strict=False)):
            if follows:
                for giver in self._givers(scope, name):
                    self._hand(giver, scope, node, number)

    def _hand(self, giver: Node, scope: str, node: Any, number: int) -> None:
        """Input `number` of `node` is what `giver` gives."""
        if not is_call(node, self._functions):
            if not any(value.WhichOneof("value") == "func" for value in node.attr.values()):
                self._join(giver, (scope, node.name))
            return
        for _, function, first in passed_to(node, self._functions):
            arguments = self._functions[function].signature.input_arg
            if 0 <= number - first < len(arguments):
                self._join(giver, (function, arguments[number - first].name))

    def _followed(self, node: Any) -> Iterator[bool]:
        """Of each data input, whether it is a resource or a reference."""
        function = self._functions.get(node.op)
        definition = op_def(node.op) if function is None else function.signature
        if definition is None:
            return
        for argument in definition.input_arg:
            if argument.type_list_attr:
                types = _attribute(node, definition, argument.type_list_attr).list.type
            else:
                one = argument.type or _attribute(node, definition, argument.type_attr).type
                count = _attribute(node, definition, argument.number_attr).i if argument.number_attr else 1
                types = [one] * count
            yield from (argument.is_ref or each == _RESOURCE for each in types)

    def _givers(self, scope: str, name: str) -> Iterator[Node]:
        """The nodes or arguments whose output this is; where it comes out of a call, those in the functions."""
        base, *rest = name.split(":")
        node = self._nodes.get((scope, base))
        if node is None or not is_call(node, self._functions):
            yield scope, base
            return
        position = int(rest[-1]) if rest and rest[-1].isdecimal() else 0
        for attribute, function, _ in passed_to(node, self._functions):
            outputs = self._functions[function].signature.output_arg
            if attribute != "cond" and position < len(outputs):
                returned = self._functions[function].ret.get(outputs[position].name, "")
                yield from self._givers(function, returned)

    def _join(self, one: Node, other: Node) -> None:
        self._parent[self._root(one)] = self._root(other)

    def _root(self, node: Node) -> Node:
        parent = self._parent.setdefault(node, node)
        while parent != self._parent[parent]:
            self._parent[parent] = self._parent[self._parent[parent]]
            parent = self._parent[parent]
        self._parent[node] = parent
        return parent


def _attribute(node: Any, definition: Any, name: str) -> Any:
    """Its value, or the default where the node leaves it out."""
    if name in node.attr:
        return node.attr[name]
    defaults: Mapping[str, Any] = {attribute.name: attribute.default_value for attribute in definition.attr}
    return defaults[name]
