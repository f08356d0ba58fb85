"""A meta graph beside the checkpoint of its variables, as `tf.compat.v1.train.Saver` writes them."""

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
from workers.tf.tables import fill_tables

__all__ = ["Checkpoint"]


class Checkpoint:
    """A `workers.tf.source.Source`. Its signatures are those configured, else those it declares, else guessed."""

    samples: Path | None = None
    composite: frozenset[str] = frozenset()

    def __init__(self, settings: ModelSettings, path: Path) -> None:
        """Raises `CannotLoad`, and the passing `OSError`s."""
        self._settings = settings
        self._prefix = os.path.join(path.parent, checkpoint_prefix(path))
        self.meta_graph: Any = _meta_graph(path)
        if not self.meta_graph.graph_def.node:
            raise CannotLoad("it holds no graph: it is no MetaGraphDef, or an empty one")

    def restore(self, session: Any, saver: Any) -> None:
        if saver is not None:
            name = os.path.basename(self._prefix)
            # Without a name it would take the folder for a checkpoint of the older format.
            there = tf.compat.v1.train.checkpoint_exists if name else lambda prefix: os.path.exists(f"{prefix}.index")
            if not there(self._prefix):
                raise CannotLoad(f"there is no checkpoint beside it: {name}.index and its .data files")
            saver.restore(session, self._prefix)
        # Of metrics, and queues' limits: no checkpoint holds them.
        session.run(tf.compat.v1.local_variables_initializer())
        fill_tables(self._settings.name, session)

    def signature_defs(self, graph: Any) -> Mapping[str, Any]:
        declared: Mapping[str, Any] = self.meta_graph.signature_def
        if declared and not self._settings.inputs and not self._settings.outputs:
            return declared
        return interface(self._settings, graph, self.meta_graph.graph_def)


def _meta_graph(path: Path) -> Any:
    content = path.read_bytes()
    try:
        return MetaGraphDef.FromString(content)
    except DecodeError:
        pass
    try:
        return text_format.Parse(content.decode(), MetaGraphDef())
    except (text_format.ParseError, UnicodeDecodeError):
        raise CannotLoad("its protobuf is corrupt or cut short: copy or export it again") from None
