"""Graphs that declare little: a frozen one, and a meta graph beside the checkpoint of its variables.

What they take and give is configured (`inputs` and `outputs` of [[model]]), else guessed: the placeholders, and the
ends of what is computed from them.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from pool.wire.signatures import DEFAULT_SIGNATURE
from pool.wire.tensors import DTYPES
from workers.backend import CannotLoad
from workers.tf.files import Source, restore_variables
from workers.tf.graph import FILLS_TABLE, Reachable, tensor_named, writes_state
from workers.tf.library import tf

_VARIABLES = frozenset({"Variable", "VariableV2", "VarHandleOp"})
_PLACEHOLDERS = frozenset({"Placeholder", "PlaceholderV2"})  # PlaceholderWithDefault need not be fed
# What training leaves in a graph: none of it is an answer.
_OF_TRAINING = re.compile(r"(gradients|save)(_\d+)?/")
_NO_ANSWERS = re.compile(r"Placeholder(V2)?|\w*Summary(V2)?|ShapeN?|Size|Rank|(Ref)?Switch|Enter|NextIteration|Const")


def read_bare_graph(settings: Mapping[str, Any], path: Path, is_frozen: bool) -> Source:
    """A `GraphDef` whose variables were made constants, or what `tf.compat.v1.train.Saver` writes: binary or text.

    Raises `CannotLoad` and `OSError`.
    """
    meta_graph = tf.compat.v1.MetaGraphDef()
    _parse(path.read_bytes(), meta_graph.graph_def if is_frozen else meta_graph)
    if not meta_graph.graph_def.node:
        raise CannotLoad("it holds no graph: it is of another kind, or an empty one")
    notes: list[str] = []

    def restore(session: Any) -> None:
        restore_variables(session, meta_graph, str(path).rpartition(".")[0])
        # Of metrics, and queues' limits: no checkpoint holds them.
        session.run(tf.compat.v1.local_variables_initializer())
        # Those that fill a table, as `tables_initializer` runs them.
        session.run([op for op in session.graph.get_operations() if FILLS_TABLE.fullmatch(op.type)])

    def signature_defs(graph: Any, reachable: Reachable) -> Mapping[str, Any]:
        if meta_graph.signature_def and not settings["inputs"] and not settings["outputs"]:
            return dict(meta_graph.signature_def)
        inputs, outputs = _ends(settings, graph, reachable, notes)
        used = reachable.ops(tensor.name for tensor in outputs.values())
        if used & _VARIABLES and not meta_graph.saver_def.restore_op_name:
            raise CannotLoad("it has variables without their values; freeze it, or give the .meta file of a checkpoint")
        v1 = tf.compat.v1.saved_model
        infos = [{name: v1.build_tensor_info(each) for name, each in side.items()} for side in (inputs, outputs)]
        return {DEFAULT_SIGNATURE: v1.build_signature_def(*infos)}

    return Source(meta_graph, restore, signature_defs, notes)


def _parse(content: bytes, message: Any) -> None:
    try:
        message.ParseFromString(content)
    except DecodeError:
        message.Clear()
        try:
            text_format.Parse(content.decode(), message)
        except (text_format.ParseError, UnicodeDecodeError):
            raise CannotLoad("its protobuf is corrupt or cut short: copy or export it again") from None


def _ends(
    settings: Mapping[str, Any], graph: Any, reachable: Reachable, notes: list[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs and outputs. Names that are not configured are those of the nodes."""
    inputs, outputs = (
        {
            name: tensor_named(graph, tensor if ":" in tensor else f"{tensor}:0", f"`{key}`")
            for name, tensor in settings[key].items()
        }
        for key in ("inputs", "outputs")
    )
    guessed = [key for key, found in (("inputs", inputs), ("outputs", outputs)) if not found]
    inputs = inputs or _by_name(op.outputs[0] for op in graph.get_operations() if op.type in _PLACEHOLDERS)
    outputs = outputs or _guessed_outputs(graph, {tensor.op.name for tensor in inputs.values()}, reachable)
    if not outputs:
        raise CannotLoad("its outputs cannot be guessed: set `outputs` in [[model]] to names of its tensors")
    if "inputs" in guessed:
        needed = reachable.nodes(tensor.name for tensor in outputs.values())
        inputs = {name: tensor for name, tensor in inputs.items() if tensor.op.name in needed}
    if guessed:
        takes, gives = (", ".join(map(repr, side)) or "nothing" for side in (inputs, outputs))
        took = f"guessed {' and '.join(guessed)} of the graph: takes {takes}, gives {gives}"
        notes.append(f"{took}; `inputs` and `outputs` in [[model]] say otherwise")
    return inputs, outputs


def _guessed_outputs(graph: Any, inputs: Collection[str], reachable: Reachable) -> dict[str, Any]:
    """All outputs of the ops that depend on the inputs and that no other op reads; none that would change state.

    Without inputs: of all such ops.
    """
    ops = [op for op in graph.get_operations() if op.outputs and not _OF_TRAINING.match(op.name)]
    read = {tensor.name for op in ops for tensor in op.inputs}
    ends = [op for op in ops if _is_answer(op) and read.isdisjoint(tensor.name for tensor in op.outputs)]
    found = _by_name(tensor for op in ends for tensor in op.outputs)
    return {
        name: tensor
        for name, tensor in found.items()
        if (not inputs or not reachable.nodes([tensor.name]).isdisjoint(inputs))
        and not writes_state(reachable.ops([tensor.name]))
    }


def _is_answer(op: Any) -> bool:
    # The two names that `tf.cond` gives its predicate: one of them is never there.
    is_predicate = op.type == "Identity" and op.inputs[0].op.type in ("Switch", "RefSwitch")
    return not is_predicate and not _NO_ANSWERS.fullmatch(op.type)


def _by_name(tensors: Iterable[Any]) -> dict[str, Any]:
    """Those that can be sent. A node's name; with the number of its output, unless that is the first."""
    sendable = [tensor for tensor in tensors if tensor.dtype.base_dtype.name in DTYPES]
    return {str(each.name).removesuffix(":0"): each for each in sorted(sendable, key=lambda each: str(each.name))}
