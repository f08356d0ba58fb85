"""Graphs that declare little: a frozen one, and a meta graph beside the checkpoint of its variables.

What they take and give is configured (`inputs` and `outputs` of [[model]]), else guessed: the placeholders, and the
ends of what is computed from them.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from pool.wire.signatures import DEFAULT_SIGNATURE
from pool.wire.tensors import DTYPES
from workers.backend import CannotLoad
from workers.tf.files import CORRUPT, Source, checkpoint_prefix
from workers.tf.graph import Reachable, fills_table, writes_state
from workers.tf.library import MetaGraphDef, SignatureDef, TensorInfo, tf
from workers.tf.saved_model import restore_variables

__all__ = ["read_checkpoint", "read_frozen_graph"]

_VARIABLES = frozenset({"Variable", "VariableV2", "VarHandleOp"})
# They cannot be looked into before they are filled. Mutable ones begin empty.
_NEEDS_FILLING = frozenset({"HashTable", "HashTableV2"})
_PLACEHOLDERS = frozenset({"Placeholder", "PlaceholderV2"})  # PlaceholderWithDefault need not be fed
# What training leaves in a graph: none of it is an answer.
_OF_TRAINING = re.compile(r"(gradients|save)(_\d+)?/")
_NO_ANSWERS = re.compile(r"\w*Summary(V2)?|Shape|ShapeN|Size|Rank|Switch|RefSwitch|Enter|NextIteration|Const")
_MOST_SAID = 12


def read_frozen_graph(settings: Mapping[str, Any], path: Path) -> Source:
    """A `GraphDef`, binary or as text, whose variables were made constants. Raises `CannotLoad` and `OSError`."""
    graph_def = _parsed(path.read_bytes(), tf.compat.v1.GraphDef, path.name.lower().endswith(".pbtxt"))
    if not graph_def.node:
        raise CannotLoad("it holds no graph: it is not a GraphDef, or an empty one")
    meta_graph = MetaGraphDef(graph_def=graph_def)
    reachable = Reachable(meta_graph.graph_def)
    notes: list[str] = []

    def signature_defs(graph: Any) -> Mapping[str, Any]:
        found = _interface(settings, graph, reachable, notes)
        if reachable.ops(info.name for each in found.values() for info in each.outputs.values()) & _VARIABLES:
            raise CannotLoad(
                "it is not frozen: it has variables without their values; give the .meta file of a checkpoint"
            )
        return found

    return Source(meta_graph, lambda session: _fill_tables(session, notes), signature_defs, notes=notes)


def read_checkpoint(settings: Mapping[str, Any], path: Path) -> Source:
    """What `tf.compat.v1.train.Saver` writes; its signatures are configured, else declared, else guessed.

    Raises `CannotLoad` and `OSError`.
    """
    content = path.read_bytes()
    try:
        meta_graph = _parsed(content, MetaGraphDef, is_text=False)
    except CannotLoad:
        meta_graph = _parsed(content, MetaGraphDef, is_text=True)
    if not meta_graph.graph_def.node:
        raise CannotLoad("it holds no graph: it is not a MetaGraphDef, or an empty one")
    notes: list[str] = []

    def restore(session: Any) -> None:
        restore_variables(session, meta_graph, checkpoint_prefix(path))
        # Of metrics, and queues' limits: no checkpoint holds them.
        session.run(tf.compat.v1.local_variables_initializer())
        _fill_tables(session, notes)

    def signature_defs(graph: Any) -> Mapping[str, Any]:
        declared: Mapping[str, Any] = meta_graph.signature_def
        if declared and not settings["inputs"] and not settings["outputs"]:
            return declared
        return _interface(settings, graph, Reachable(meta_graph.graph_def), notes)

    return Source(meta_graph, restore, signature_defs, notes=notes)


def _parsed(content: bytes, kind: Any, is_text: bool) -> Any:
    try:
        return text_format.Parse(content.decode(), kind()) if is_text else kind.FromString(content)
    except (DecodeError, text_format.ParseError, UnicodeDecodeError):
        raise CannotLoad(CORRUPT) from None


def _fill_tables(session: Any, notes: list[str]) -> None:
    """Runs every op that fills a table, as `tables_initializer` would."""
    ops = session.graph.get_operations()
    filling = [op for op in ops if fills_table(op.type)]
    if filling:
        session.run(filling)
    filled = {op.inputs[0].op.name for op in filling}
    empty = [op.name for op in ops if op.type in _NEEDS_FILLING and op.name not in filled]
    notes += [f"table {name!r} is not filled: keep its initializer when you freeze the graph" for name in empty]


def _interface(settings: Mapping[str, Any], graph: Any, reachable: Reachable, notes: list[str]) -> dict[str, Any]:
    """One signature. Names that are not configured are those of the nodes."""
    inputs = {name: _tensor(graph, tensor, "inputs") for name, tensor in settings["inputs"].items()}
    outputs = {name: _tensor(graph, tensor, "outputs") for name, tensor in settings["outputs"].items()}
    guessed = [key for key, found in (("inputs", inputs), ("outputs", outputs)) if not found]
    if not inputs:
        inputs = _by_name(_guessed_inputs(graph))
    if not outputs:
        outputs = _by_name(_guessed_outputs(graph, [*inputs.values()], reachable))
        if not outputs:
            raise CannotLoad("its outputs cannot be guessed: set `outputs` in [[model]] to names of its tensors")
    if "inputs" in guessed:
        needed = reachable.nodes(tensor.name for tensor in outputs.values())
        inputs = {name: tensor for name, tensor in inputs.items() if tensor.op.name in needed}
    if guessed:
        took = f"guessed {' and '.join(guessed)} of the graph: takes {_listed(inputs)}, gives {_listed(outputs)}"
        notes.append(f"{took}; `inputs` and `outputs` in [[model]] say otherwise")
    signature = SignatureDef(inputs=_infos(inputs), outputs=_infos(outputs))
    return {DEFAULT_SIGNATURE: signature}


def _tensor(graph: Any, name: str, key: str) -> Any:
    try:
        found = graph.as_graph_element(name, allow_tensor=True, allow_operation=True)
    except (KeyError, ValueError, TypeError):
        near = difflib.get_close_matches(name.partition(":")[0], [str(op.name) for op in graph.get_operations()], n=1)
        listed = _listed(_by_name(_guessed_inputs(graph)))
        hint = f"did you mean {near[0]!r}?" if near else f"its placeholders are {listed}"
        raise CannotLoad(f"`{key}` names {name!r:.80}, which is not a tensor of its graph; {hint}") from None
    if ":" in name:
        return found
    if not found.outputs:
        raise CannotLoad(f"`{key}` names {name!r}, a {found.type} without an output tensor")
    return found.outputs[0]


def _guessed_inputs(graph: Any) -> list[Any]:
    found = [op.outputs[0] for op in graph.get_operations() if op.type in _PLACEHOLDERS]
    return [tensor for tensor in found if _travels(tensor)]


def _guessed_outputs(graph: Any, inputs: Collection[Any], reachable: Reachable) -> list[Any]:
    """All outputs of the ops that depend on the inputs and that no other op reads; none that would change state.

    Without inputs: of all such ops.
    """
    depending = _depending_on(inputs) if inputs else graph.get_operations()
    ends = [op for op in depending if op.outputs and _is_answer(op) and not any(map(_readers, op.outputs))]
    found = [tensor for op in ends for tensor in op.outputs if _travels(tensor)]
    return [tensor for tensor in found if not writes_state(reachable.ops([tensor.name]))]


def _depending_on(tensors: Iterable[Any]) -> list[Any]:
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
    if op.type in _PLACEHOLDERS or _NO_ANSWERS.fullmatch(op.type) or _OF_TRAINING.match(op.name):
        return False
    # The two names that `tf.cond` gives its predicate: one of them is never there.
    return op.type != "Identity" or op.inputs[0].op.type not in ("Switch", "RefSwitch")


def _travels(tensor: Any) -> bool:
    return tensor.dtype.base_dtype.name in DTYPES


def _by_name(tensors: Sequence[Any]) -> dict[str, Any]:
    """The node's name; with the number of its output, unless that is the first."""
    return {str(each.name).removesuffix(":0"): each for each in sorted(tensors, key=lambda each: str(each.name))}


def _infos(tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: TensorInfo(
            name=tensor.name, dtype=tensor.dtype.base_dtype.as_datatype_enum, tensor_shape=tensor.shape.as_proto()
        )
        for name, tensor in tensors.items()
    }


def _listed(names: Collection[str]) -> str:
    more = f" and {len(names) - _MOST_SAID} more" if len(names) > _MOST_SAID else ""
    return (", ".join([repr(name) for name in names][:_MOST_SAID]) or "nothing") + more
