"""A SavedModel: of a TensorFlow 1 Estimator, of `tf.saved_model.save`, of Keras' `model.export`."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from workers.backend import CannotLoad
from workers.tf.composites import composite_signatures
from workers.tf.errors import passes
from workers.tf.library import SavedModelLoader

__all__ = ["SavedModel"]

_SERVE = frozenset({"serve"})
_SAMPLES = "assets.extra/tf_serving_warmup_requests"


class SavedModel:
    """A `workers.tf.source.Source`: one graph of the folder."""

    def __init__(self, folder: Path, tags: Sequence[str]) -> None:
        """`tags`: of the graph; empty: the one tagged "serve", or the only one. Raises `CannotLoad`."""
        try:
            self._loader = SavedModelLoader(str(folder))
        except (OSError, UnicodeDecodeError) as error:
            if passes(error):
                raise
            raise CannotLoad("its protobuf is corrupt or cut short: copy or export it again") from None
        graphs = self._loader.saved_model.meta_graphs
        self._tags = sorted(_chosen([frozenset(graph.meta_info_def.tags) for graph in graphs], frozenset(tags)))
        self.meta_graph: Any = self._loader.get_meta_graph_def_from_tags(self._tags)
        self.samples: Path | None = folder / _SAMPLES
        self.composite = composite_signatures(self.meta_graph)

    def restore(self, session: Any, saver: Any) -> None:
        self._loader.restore_variables(session, saver)
        self._loader.run_init_ops(session, self._tags)

    def signature_defs(self, graph: Any) -> Mapping[str, Any]:  # noqa: ARG002  # it declares them
        signatures: Mapping[str, Any] = self.meta_graph.signature_def
        return signatures


def _chosen(sets: Sequence[frozenset[str]], asked: frozenset[str]) -> frozenset[str]:
    if not sets:
        raise CannotLoad("it holds no graph")
    if asked:
        if asked not in sets:
            raise CannotLoad(f"no graph is tagged {_named([asked])} and nothing else; there are: {_named(sets)}")
        return asked
    if _SERVE in sets:
        return _SERVE
    if len(set(sets)) > 1:
        raise CannotLoad(
            f'no graph is tagged "serve" alone, and there are several: {_named(sets)}; choose one with `tags`'
        )
    return sets[0]


def _named(sets: Iterable[frozenset[str]]) -> str:
    return "; ".join(sorted(", ".join(sorted(tags)) or "none" for tags in sets))
