"""Which nodes of a graph run on one device, because they use the same variable, table or other resource.

TensorFlow runs what takes a resource, or a reference to a variable, where that is; and what names another node in its
`_class` attribute beside that one. A resource goes from the graph into functions and on into theirs.
"""

from collections.abc import Iterator
from typing import Any

from workers.tf.graph import called_by, scopes
from workers.tf.library import tf
from workers.tf.row_rules import op_def

Node = tuple[str, str]
"""A scope (`workers.tf.graph.scopes`) and a name. An argument of a function counts as a node of it."""

_RESOURCE = tf.resource.as_datatype_enum
_BESIDE = b"loc:@"
_UNSET = tf.compat.v1.AttrValue()  # no default is a resource


class Colocation:
    """Joins the nodes that run together, over the graph and its functions."""

    def __init__(self, graph_def: Any) -> None:
        self._functions = {function.signature.name: function for function in graph_def.library.function}
        self.nodes = {(scope, node.name): node for scope, nodes in scopes(graph_def) for node in nodes}
        self._parent: dict[Node, Node] = {}
        for (scope, _), node in self.nodes.items():
            self._join_node(scope, node)

    def sets(self) -> Iterator[list[Node]]:
        """Each set of nodes that run together. What is in none runs wherever it is put."""
        found: dict[Node, list[Node]] = {}
        for node in self._parent:
            if node in self.nodes:
                found.setdefault(self._root(node), []).append(node)
        yield from found.values()

    def _join_node(self, scope: str, node: Any) -> None:
        if "_class" in node.attr:
            for beside in node.attr["_class"].list.s:
                if beside.startswith(_BESIDE):
                    self._join((scope, node.name), (scope, beside.removeprefix(_BESIDE).decode(errors="replace")))
        if "shared_name" in node.attr and (shared := node.attr["shared_name"].s):  # another handle of one resource
            self._join((scope, node.name), (node.op, f"shared {node.attr['container'].s!r} {shared!r}"))
        called = called_by(node, self._functions)
        definition = self._functions[node.op].signature if node.op in self._functions else op_def(node.op)
        inputs = [(scope, text.split(":")[0]) for text in node.input if not text.startswith("^")]
        for at, (source, follows) in enumerate(zip(inputs, _followed(definition, node), strict=False)):
            for name, first in called:
                arguments = self._functions[name].signature.input_arg
                if follows and 0 <= at - first < len(arguments):
                    self._join(source, (name, arguments[at - first].name))
            # What else names functions, such as a dataset, does not run them on its own device.
            if follows and not called and not any(value.HasField("func") for value in node.attr.values()):
                self._join(source, (scope, node.name))

    def _join(self, one: Node, other: Node) -> None:
        self._parent[self._root(one)] = self._root(other)

    def _root(self, node: Node) -> Node:
        parent = self._parent.setdefault(node, node)
        while parent != self._parent[parent]:
            self._parent[parent] = self._parent[self._parent[parent]]
            parent = self._parent[parent]
        return parent


def _followed(definition: Any, node: Any) -> Iterator[bool]:
    """Of each data input, whether it is a resource or a reference."""
    for argument in definition.input_arg if definition else ():
        if argument.type_list_attr:
            types = node.attr.get(argument.type_list_attr, _UNSET).list.type
        else:
            count = node.attr.get(argument.number_attr, _UNSET).i if argument.number_attr else 1
            types = [argument.type or node.attr.get(argument.type_attr, _UNSET).type] * count
        yield from (argument.is_ref or each == _RESOURCE for each in types)
