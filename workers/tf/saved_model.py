"""A SavedModel: of a TensorFlow 1 Estimator, of `tf.saved_model.save`, of Keras' `model.export`."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from workers.backend import CannotLoad
from workers.tf.composites import composite_signatures
from workers.tf.errors import passes
from workers.tf.library import SavedModelLoader
from workers.tf.source import Source

__all__ = ["read_saved_model"]

_SERVE = frozenset({"serve"})
_SAMPLES = "assets.extra/tf_serving_warmup_requests"


def read_saved_model(folder: Path, tags: Sequence[str]) -> Source:
    """One graph of the folder. `tags`: of the graph; empty: the one tagged "serve", or the only one.

    Raises `CannotLoad`.
    """
    try:
        loader = SavedModelLoader(str(folder))
    except (OSError, UnicodeDecodeError) as error:
        if passes(error):
            raise
        raise CannotLoad("its protobuf is corrupt or cut short: copy or export it again") from None
    graphs = loader.saved_model.meta_graphs
    chosen = sorted(_chosen([frozenset(graph.meta_info_def.tags) for graph in graphs], frozenset(tags)))
    meta_graph: Any = loader.get_meta_graph_def_from_tags(chosen)

    def restore(session: Any, saver: Any) -> None:
        loader.restore_variables(session, saver)
        loader.run_init_ops(session, chosen)

    def declared(_: Any) -> Mapping[str, Any]:
        signatures: Mapping[str, Any] = meta_graph.signature_def
        return signatures

    return Source(meta_graph, restore, declared, folder / _SAMPLES, composite_signatures(meta_graph))


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
            f'no graph has only the tag "serve", and there are several: {_named(sets)}; choose one with `tags`'
        )
    return sets[0]


def _named(sets: Iterable[frozenset[str]]) -> str:
    return "; ".join(sorted(", ".join(sorted(tags)) or "none" for tags in sets))
