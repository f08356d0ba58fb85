"""What lies at a model's path, by its names, and what is read of it: of SavedModels here. No path is a pattern.

path ─ format_at ─► Format ─ read_saved_model, bare_graph, keras ─► Source ─ model ─► Session ─► Model
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from workers.backend import CannotLoad
from workers.tf.graph import Reachable
from workers.tf.library import SavedModelLoader

_SERVE = frozenset({"serve"})


class Format(Enum):
    """What it is called, and which keys of [[model]] say what its files do not."""

    SAVED_MODEL = "a SavedModel", ("tags",)
    FROZEN_GRAPH = "a frozen graph", ("inputs", "outputs")
    CHECKPOINT = "a meta graph with its checkpoint", ("inputs", "outputs")
    KERAS = "a Keras file", ()


@dataclass(frozen=True)
class Source:
    """A model that was read. Its functions raise `CannotLoad`, or what TensorFlow raises."""

    meta_graph: Any  # the `MetaGraphDef` to import
    # Fills variables and tables of a Session whose graph is the default one and holds what was imported.
    restore: Callable[[Any], object]
    signature_defs: Callable[[Any, Reachable], Mapping[str, Any]]  # of this graph, by name, those to offer
    notes: list[str] = field(default_factory=list)


_FORMATS = {
    **dict.fromkeys((".pb", ".pbtxt", ".graphdef"), Format.FROZEN_GRAPH),
    **dict.fromkeys((".keras", ".h5", ".hdf5"), Format.KERAS),
    ".meta": Format.CHECKPOINT,
}
_SERVED = "give a SavedModel's folder, a .pb, .pbtxt, .meta, .keras or .h5"


def format_at(path: Path) -> Format:
    """Raises `CannotLoad`, and `OSError` where it cannot be looked at."""
    if _holds_saved_model(path):
        return Format.SAVED_MODEL
    if not path.exists():
        raise CannotLoad(f"it does not exist: {_SERVED}")
    if not path.is_file():
        inside = sorted(each for each in path.iterdir() if _holds_saved_model(each) or _suffix(each) in _FORMATS)
        hint = f"the folder holds models: give one of them, such as {inside[-1]}" if inside else _SERVED
        raise CannotLoad(f"it is not a SavedModel, for it has no saved_model.pb; {hint}")
    if path.name in ("saved_model.pb", "saved_model.pbtxt"):
        raise CannotLoad(f"it is the file inside a SavedModel: give its folder, {path.parent}")
    if _suffix(path) not in _FORMATS:
        raise CannotLoad(f"it is a file of an unknown kind: {_SERVED}")
    return _FORMATS[_suffix(path)]


def _holds_saved_model(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("saved_model.pb", "saved_model.pbtxt"))


def _suffix(path: Path) -> str:
    """Also of a name that is nothing else, such as `.meta`."""
    return f".{path.name.rpartition('.')[2].lower()}"


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
