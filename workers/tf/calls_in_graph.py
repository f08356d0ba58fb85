"""Which functions a node of a graph calls, and with which of its inputs.

`If` and `While` name theirs in attributes, TensorFlow 1's own calls are ops of the function's name.
"""

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["is_call", "passed_to"]

_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_LOOPS = frozenset({"While", "StatelessWhile"})
_BRANCHES = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})


def is_call(node: Any, functions: Mapping[str, Any]) -> bool:
    """Whether running it is running functions, whose nodes run in its place."""
    return node.op in _CALLS or node.op in _LOOPS or node.op in _BRANCHES or node.op in functions


def passed_to(node: Any, functions: Mapping[str, Any]) -> Iterator[tuple[str, str, int]]:
    """Of each function that it calls: the attribute that names it ("" for none), its name, its first input."""
    if node.op in functions:
        yield "", node.op, 0
    elif node.op in _CALLS or node.op in _LOOPS or node.op in _BRANCHES:
        first = 1 if node.op in _BRANCHES else 0
        for key in sorted(node.attr):
            value = node.attr[key]
            named = [value.func] if value.WhichOneof("value") == "func" else list(value.list.func)
            for function in named:
                if function.name in functions:
                    yield key, function.name, first
