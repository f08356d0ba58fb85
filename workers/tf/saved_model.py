"""A SavedModel: of a TensorFlow 1 Estimator, of `tf.saved_model.save`, of Keras' `model.export`."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from workers.backend import CannotLoad
from workers.tf.files import Source
from workers.tf.library import SavedModelLoader

_SERVE = frozenset({"serve"})


def read_saved_model(folder: Path, tags: Sequence[str]) -> Source:
    """One graph of the folder. `tags`: of the graph; none: the one tagged "serve", or the only one."""
    loader = SavedModelLoader(str(folder))
    graphs = loader.saved_model.meta_graphs
    chosen = sorted(_chosen([frozenset(graph.meta_info_def.tags) for graph in graphs], frozenset(tags)))
    meta_graph: Any = loader.get_meta_graph_def_from_tags(chosen)

    def restore(session: Any) -> None:
        restore_variables(session, meta_graph, os.path.join(folder, "variables", "variables"))
        loader.run_init_ops(session, chosen)  # tables, from asset files too

    return Source(meta_graph, restore, lambda *_: meta_graph.signature_def)


def restore_variables(session: Any, meta_graph: Any, prefix: str) -> None:
    """`prefix`: what the paths of the checkpoint's files begin with. Raises `CannotLoad` if they are missing."""
    saver = meta_graph.saver_def
    if not saver.restore_op_name:
        return
    folder, name = os.path.split(prefix)
    # A checkpoint of the first format is one file.
    if not os.path.isfile(f"{prefix}.index") and not os.path.isfile(prefix):
        raise CannotLoad(f"the checkpoint of its variables is missing: {name}.index and its .data files")
    # TensorFlow takes the path for a pattern, and folders may have any name.
    opened = os.open(folder or ".", os.O_PATH | os.O_DIRECTORY)
    try:
        session.run(saver.restore_op_name, {saver.filename_tensor_name: f"/proc/self/fd/{opened}/{name}"})
    finally:
        os.close(opened)


def _chosen(sets: Sequence[frozenset[str]], asked: frozenset[str]) -> frozenset[str]:
    if not sets:
        raise CannotLoad("it holds no graph: copy or export it again")
    if asked and asked not in sets:
        raise CannotLoad(f"no graph is tagged {_named([asked])} and nothing else; `tags` may be: {_named(sets)}")
    if asked or _SERVE in sets:
        return asked or _SERVE
    if len(set(sets)) > 1:
        text = f'no graph has only the tag "serve", and there are several: {_named(sets)}; choose one with `tags`'
        raise CannotLoad(text)
    return sets[0]


def _named(sets: Iterable[frozenset[str]]) -> str:
    return "; ".join(sorted(", ".join(sorted(tags)) or "none" for tags in sets))
