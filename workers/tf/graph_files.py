"""Graphs that declare little: a frozen one, and a meta graph beside the checkpoint of its variables."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from pool.wire.model_files import checkpoint_prefix
from pool.wire.worker_messages import ModelSettings
from workers.backend import CannotLoad
from workers.tf.interface import interface
from workers.tf.library import MetaGraphDef, tf
from workers.tf.reachable import ReachableOps
from workers.tf.source import Source
from workers.tf.tables import fill_tables

__all__ = ["read_checkpoint", "read_frozen_graph"]

_VARIABLES = frozenset({"Variable", "VariableV2", "VarHandleOp"})
_CORRUPT = "its protobuf is corrupt or cut short: copy or export it again"


def read_frozen_graph(settings: ModelSettings, path: Path) -> Source:
    """A `GraphDef`, binary or as text, whose variables were made constants. What it gives is configured or guessed.

    Raises `CannotLoad`, and the passing `OSError`s.
    """
    content = path.read_bytes()
    if path.name.lower().endswith(".pbtxt"):
        try:
            graph_def = text_format.Parse(content.decode(), tf.compat.v1.GraphDef())
        except (text_format.ParseError, UnicodeDecodeError) as error:
            raise CannotLoad(f"it is not a GraphDef as text: {str(error).splitlines()[0]}") from None
    else:
        try:
            graph_def = tf.compat.v1.GraphDef.FromString(content)
        except DecodeError:
            raise CannotLoad(_CORRUPT) from None
    if not graph_def.node:
        raise CannotLoad("it holds no graph: it is not a GraphDef, or an empty one")
    meta_graph = MetaGraphDef(graph_def=graph_def)  # a copy: the functions below keep no other

    def signature_defs(graph: Any) -> Mapping[str, Any]:
        found = interface(settings, graph, meta_graph.graph_def)
        outputs = [info.name for signature in found.values() for info in signature.outputs.values()]
        if ReachableOps(meta_graph.graph_def).from_tensors(outputs) & _VARIABLES:
            raise CannotLoad(
                "it is not frozen: it has variables without their values; give the .meta file of a checkpoint"
            )
        return found

    def restore(session: Any, _: Any) -> None:
        fill_tables(settings.name, session)

    return Source(meta_graph, restore, signature_defs)


def read_checkpoint(settings: ModelSettings, path: Path) -> Source:
    """What `tf.compat.v1.train.Saver` writes; its signatures are configured, else those it declares, else guessed.

    Raises `CannotLoad`, and the passing `OSError`s.
    """
    prefix = os.path.join(path.parent, checkpoint_prefix(path))
    meta_graph = _meta_graph(path.read_bytes())
    if not meta_graph.graph_def.node:
        raise CannotLoad("it holds no graph: it is not a MetaGraphDef, or an empty one")

    def restore(session: Any, saver: Any) -> None:
        if saver is not None:
            name = os.path.basename(prefix)
            # Without a name it would take the folder for a checkpoint of the older format.
            there = tf.compat.v1.train.checkpoint_exists if name else lambda prefix: os.path.exists(f"{prefix}.index")
            if not there(prefix):
                raise CannotLoad(f"the checkpoint beside it is missing: {name}.index and its .data files")
            saver.restore(session, prefix)
        # Of metrics, and queues' limits: no checkpoint holds them.
        session.run(tf.compat.v1.local_variables_initializer())
        fill_tables(settings.name, session)

    def signature_defs(graph: Any) -> Mapping[str, Any]:
        declared: Mapping[str, Any] = meta_graph.signature_def
        if declared and not settings.inputs and not settings.outputs:
            return declared
        return interface(settings, graph, meta_graph.graph_def)

    return Source(meta_graph, restore, signature_defs)


def _meta_graph(content: bytes) -> Any:
    try:
        return MetaGraphDef.FromString(content)
    except DecodeError:
        pass
    try:
        return text_format.Parse(content.decode(), MetaGraphDef())
    except (text_format.ParseError, UnicodeDecodeError):
        raise CannotLoad(_CORRUPT) from None
