"""A model that was read, on its way into a Session.

    files ─ read ─► Source.meta_graph ─ rewrite ─► import ─► Source.restore ─► Source.signature_defs ─ bind ─► model

Each format has a file of its own that reads it: `saved_model`, `frozen_graph`, `checkpoint`, `keras_file`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

__all__ = ["Source"]


class Source(Protocol):
    """Whatever goes wrong on the way is raised as TensorFlow raises it, or as `CannotLoad`."""

    @property
    def meta_graph(self) -> Any:
        """The `MetaGraphDef` to import. What is imported may be a rewritten one, in which each node keeps its name."""
        ...

    @property
    def samples(self) -> Path | None:
        """Where recorded requests may lie; None where the format has no place for them."""
        ...

    @property
    def composite(self) -> frozenset[str]:
        """The signatures with ragged or sparse tensors, as far as their definitions do not show it."""
        ...

    def restore(self, session: Any, saver: Any) -> None:
        """Fills variables and tables. The session's graph, which is the default one, holds what was imported.

        `saver`: what the import made; None for a graph without variables.
        """
        ...

    def signature_defs(self, graph: Any) -> Mapping[str, Any]:
        """The `SignatureDef`s to offer, by name, about tensors of this graph."""
        ...
