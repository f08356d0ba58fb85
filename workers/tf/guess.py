"""What a graph that declares nothing probably takes and gives: its placeholders, and where its computation ends."""

import re
from collections.abc import Collection, Iterable
from typing import Any

from pool.wire.tensors import DTYPES
from workers.tf.reachable import ReachableOps
from workers.tf.statefulness import writes_state

__all__ = ["guessed_inputs", "guessed_outputs"]

_PLACEHOLDERS = frozenset({"Placeholder", "PlaceholderV2"})  # PlaceholderWithDefault need not be fed
# What training leaves in a graph: none of it is an answer.
_OF_TRAINING = re.compile(r"(gradients|save)(_\d+)?/")
_NO_ANSWERS = re.compile(r"\w*Summary(V2)?|Shape|ShapeN|Size|Rank|Switch|RefSwitch|Enter|NextIteration")


def guessed_inputs(graph: Any) -> list[Any]:
    """The placeholders, in the order of their names."""
    found = [op.outputs[0] for op in graph.get_operations() if op.type in _PLACEHOLDERS and _travels(op.outputs[0])]
    return sorted(found, key=lambda tensor: str(tensor.name))


def guessed_outputs(graph: Any, inputs: Collection[Any], reachable: ReachableOps) -> list[Any]:
    """All outputs of the ops that hang on the inputs and that no other op reads; none that would change state.

    Where there are no inputs: of all such ops. In the order of their names.
    """
    hanging = _hanging_on(inputs) if inputs else graph.get_operations()
    ends = [op for op in hanging if op.outputs and _is_answer(op) and not any(map(_readers, op.outputs))]
    found = [tensor for op in ends for tensor in op.outputs if _travels(tensor)]
    pure = [tensor for tensor in found if not writes_state(reachable.from_tensors([tensor.name]))]
    return sorted(pure, key=lambda tensor: str(tensor.name))


def _hanging_on(tensors: Iterable[Any]) -> list[Any]:
    found: dict[str, Any] = {}
    pending = [op for tensor in tensors for op in _readers(tensor)]
    while pending:
        op = pending.pop()
        if op.name not in found:
            found[op.name] = op
            pending.extend(reader for tensor in op.outputs for reader in _readers(tensor))
    return list(found.values())


def _readers(tensor: Any) -> list[Any]:
    """The ops that make something of it."""
    return [op for op in tensor.consumers() if not _OF_TRAINING.match(op.name) and op.outputs]


def _is_answer(op: Any) -> bool:
    if op.type in _PLACEHOLDERS or op.type == "Const":
        return False
    if _NO_ANSWERS.fullmatch(op.type) or _OF_TRAINING.match(op.name):
        return False
    # The two names that `tf.cond` gives its predicate: one of them is never there.
    return op.type != "Identity" or op.inputs[0].op.type not in ("Switch", "RefSwitch")


def _travels(tensor: Any) -> bool:
    return tensor.dtype.base_dtype.name in DTYPES
