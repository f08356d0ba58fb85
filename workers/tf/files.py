"""What lies at a model's path, by its names, and what is read of it. No path is taken for a pattern.

path ─ format_at ─► Format ─ saved_model, bare_graph, keras ─► Source ─ backend ─► Session ─► Model
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from workers.backend import CannotLoad
from workers.tf.graph import Reachable


class Format(Enum):
    SAVED_MODEL = "a SavedModel"
    FROZEN_GRAPH = "a frozen graph"
    CHECKPOINT = "a meta graph with its checkpoint"
    KERAS = "a Keras file"


@dataclass(frozen=True)
class Source:
    """A model that was read. Its functions raise `CannotLoad`, or what TensorFlow raises."""

    meta_graph: Any
    """The `MetaGraphDef` to import."""
    restore: Callable[[Any], object]
    """Fills variables and tables of a Session whose graph is the default one and holds what was imported."""
    signature_defs: Callable[[Any, Reachable], Mapping[str, Any]]
    """Of this graph: the `SignatureDef`s to offer, by name."""
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
