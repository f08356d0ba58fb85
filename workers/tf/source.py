"""A model that was read, on its way into a Session.

    files ─ read ─► Source.meta_graph ─ rewrite ─► import ─► Source.restore ─► Source.signature_defs ─ bind ─► model

Each format has a file of its own that reads it: `saved_model`, `graph_files`, `keras_file`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Source"]


@dataclass(frozen=True)
class Source:
    """Whatever goes wrong on the way is raised as TensorFlow raises it, or as `CannotLoad`.

    `meta_graph`: the `MetaGraphDef` to import. What is imported may be a rewritten one, in which each node keeps its
    name. `restore(session, saver)`: fills variables and tables; the session's graph, which is the default one, holds
    what was imported; `saver` is what the import made, None for a graph without variables. `signature_defs(graph)`: the
    `SignatureDef`s to offer, by name, about tensors of this graph.
    """

    meta_graph: Any
    restore: Callable[[Any, Any], object]
    signature_defs: Callable[[Any], Mapping[str, Any]]
    samples: Path | None = None
    """Where recorded requests may lie; None where the format has no place for them."""
    composite: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The signatures with ragged or sparse tensors, as far as their definitions do not show it; see `composites`."""
