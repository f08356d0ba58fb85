"""A frozen graph: a `GraphDef`, binary or as text, whose variables were made constants."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from pool.wire.worker_messages import ModelSettings
from workers.backend import CannotLoad
from workers.tf.interface import interface
from workers.tf.library import MetaGraphDef, tf
from workers.tf.reachable import ReachableOps
from workers.tf.tables import fill_tables

__all__ = ["FrozenGraph"]

_VARIABLES = frozenset({"Variable", "VariableV2", "VarHandleOp"})


class FrozenGraph:
    """A `workers.tf.source.Source`. What it takes and gives is configured or guessed."""

    samples: Path | None = None
    composite: frozenset[str] = frozenset()

    def __init__(self, settings: ModelSettings, path: Path) -> None:
        """Raises `CannotLoad`, and the passing `OSError`s."""
        self._settings = settings
        self.meta_graph: Any = MetaGraphDef(graph_def=_graph_def(path))
        if not self.meta_graph.graph_def.node:
            raise CannotLoad("it holds no graph: it is no GraphDef, or an empty one")

    def restore(self, session: Any, saver: Any) -> None:  # noqa: ARG002  # its variables are constants
        fill_tables(self._settings.name, session)

    def signature_defs(self, graph: Any) -> Mapping[str, Any]:
        found = interface(self._settings, graph, self.meta_graph.graph_def)
        outputs = [info.name for signature in found.values() for info in signature.outputs.values()]
        if ReachableOps(self.meta_graph.graph_def).from_tensors(outputs) & _VARIABLES:
            raise CannotLoad(
                "it is not frozen: it has variables, whose values it does not hold; give the .meta file of a checkpoint"
            )
        return found


def _graph_def(path: Path) -> Any:
    content = path.read_bytes()
    if path.name.lower().endswith(".pbtxt"):
        try:
            return text_format.Parse(content.decode(), tf.compat.v1.GraphDef())
        except (text_format.ParseError, UnicodeDecodeError) as error:
            raise CannotLoad(f"it is no GraphDef as text: {str(error).splitlines()[0]}") from None
    try:
        return tf.compat.v1.GraphDef.FromString(content)
    except DecodeError:
        raise CannotLoad("its protobuf is corrupt or cut short: copy or export it again") from None
