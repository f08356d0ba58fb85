"""From the names that TensorFlow traces to the nodes of the graph and its functions.

A function that was inlined leaves its nodes behind the name of its call ("call/node"), behind those of all calls on the
way where they are nested, and those of a branch or a loop behind a number besides ("while/body/_26/node"). The nodes of
one that was not inlined have their own names alone.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from workers.tf.calls_in_graph import is_call, passed_to
from workers.tf.colocation import Node
from workers.tf.devices import scopes
from workers.tf.reachable import ReachableOps

__all__ = ["GraphNames"]

_INLINED = re.compile(r"([^/]+)/_\d+/(.+)")
_PLAIN_CALL = ("", "f")
_ATTRIBUTES = {"then": "then_branch", "else": "else_branch"}
# What runs as it is, or never, whatever a rule says: their absence from a trace tells nothing.
_SILENT = frozenset({"Const", "Identity", "IdentityN", "NoOp", "Placeholder", "PlaceholderWithDefault", "VarHandleOp"})


class GraphNames:
    """Of one graph, which it keeps."""

    def __init__(self, graph_def: Any) -> None:
        functions = {function.signature.name: function for function in graph_def.library.function}
        self._ops: dict[str, dict[str, str]] = {}
        self._calls: dict[Node, list[tuple[str, str]]] = {}
        for scope, nodes in scopes(graph_def):
            self._ops[scope] = {node.name: node.op for node in nodes}
            for node in nodes:
                if is_call(node, functions):
                    self._calls[scope, node.name] = [(key, name) for key, name, _ in passed_to(node, functions)]
        self._reachable = ReachableOps(graph_def).nodes_of

    def op(self, node: Node) -> str:
        """Its type."""
        return self._ops[node[0]][node[1]]

    def nodes(self, traced: str, called: Iterable[str]) -> list[Node]:
        """The node that a traced name stands for; several where it may be one of some of the functions `called`.

        None for what TensorFlow itself has added, and for calls.
        """
        found = self._inlined("", traced)
        inside = (self._inlined(function, traced) for function in called)
        candidates = [found] if found is not None else [node for node in inside if node is not None]
        return [node for node in dict.fromkeys(candidates) if node not in self._calls]

    def called(self, fetches: Iterable[str], *, surely: bool = False) -> set[str]:
        """The functions that a run for these tensors may call; `surely`: without those of branches and loops."""
        pending = [("", name) for name in self._reachable(fetches)]
        found: set[str] = set()
        while pending:
            for key, function in self._calls.get(pending.pop(), ()):
                if function not in found and (not surely or key in _PLAIN_CALL):
                    found.add(function)
                    pending += [(function, name) for name in self._ops[function]]
        return found

    def expected(self, fetches: Sequence[str]) -> Iterator[Node]:
        """The nodes that a run for these tensors executes, unless TensorFlow makes something else of them.

        Without what runs under a condition, or in a loop.
        """
        nodes = [("", name) for name in self._reachable(fetches) if name in self._ops[""]]
        for function in self.called(fetches, surely=True):
            nodes += [(function, name) for name in self._ops[function]]
        return iter([node for node in nodes if node not in self._calls and self.op(node) not in _SILENT])

    def _inlined(self, scope: str, name: str) -> Node | None:
        if name in self._ops[scope]:
            return scope, name
        end = name.rfind("/")
        while end > 0:
            for key, function in self._calls.get((scope, name[:end]), ()):
                rest = name[end + 1 :]
                numbered = _INLINED.fullmatch(rest)
                if key not in _PLAIN_CALL:
                    if numbered is None or _ATTRIBUTES.get(numbered[1], key) != key:
                        continue
                    rest = numbered[2]
                found = self._inlined(function, rest)
                if found is not None:
                    return found
            end = name.rfind("/", 0, end)
        return None
