"""What lies at a model's path, by names and first bytes, and what is read of it. No path is taken for a pattern.

path ─ format_at ─► Format ─ saved_model, bare_graph, keras_file ─► Source ─ backend ─► Session ─► Model
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from workers.backend import CannotLoad

__all__ = ["CORRUPT", "Format", "Source", "checkpoint_prefix", "format_at"]

CORRUPT = "its protobuf is corrupt or cut short: copy or export it again"


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
    signature_defs: Callable[[Any], Mapping[str, Any]]
    """Of this graph: the `SignatureDef`s to offer, by name."""
    composite: frozenset[str] = frozenset()
    """Signatures with ragged or sparse tensors that their definitions do not show."""
    notes: list[str] = field(default_factory=list)


_SAVED_MODEL = ("saved_model.pb", "saved_model.pbtxt")
_FORMATS = {
    ".pb": Format.FROZEN_GRAPH,
    ".pbtxt": Format.FROZEN_GRAPH,
    ".graphdef": Format.FROZEN_GRAPH,
    ".meta": Format.CHECKPOINT,
    ".keras": Format.KERAS,
    ".h5": Format.KERAS,
    ".hdf5": Format.KERAS,
}
_SERVED = "give a SavedModel's folder, a .pb, .pbtxt, .meta, .keras or .h5"
_OTHERS = {
    ".tflite": "a TensorFlow Lite model, which is not served here: give the SavedModel it was converted from",
    ".onnx": "an ONNX model, which is not served here: give a SavedModel's folder",
    **dict.fromkeys((".index", ".ckpt"), "a part of a checkpoint: give its .meta file, which has the graph"),
    **dict.fromkeys((".pt", ".pth"), "a PyTorch model, which is not served here: give a SavedModel's folder"),
}


def format_at(path: Path) -> Format:
    """Raises `CannotLoad`, and `OSError` where it cannot be looked at."""
    if path.is_file():
        return _format_of_file(path)
    if not path.exists():
        raise CannotLoad(f"it does not exist: {_SERVED}")
    names = sorted(entry.name for entry in path.iterdir())
    if _holds_saved_model(path):
        return Format.SAVED_MODEL
    raise CannotLoad(_other_folder(path, names))


def checkpoint_prefix(meta_graph: Path) -> str:
    """Where the paths of its variables' files begin. The name is empty where it was saved to "folder/"."""
    return os.path.join(meta_graph.parent, meta_graph.name.removesuffix(_suffix(meta_graph.name)))


def _format_of_file(path: Path) -> Format:
    if path.name in _SAVED_MODEL:
        raise CannotLoad(f"it is the file inside a SavedModel: give its folder, {path.parent}")
    with path.open("rb") as file:
        head = file.read(8)
    suffix = ".tflite" if head[4:] == b"TFL3" else _suffix(path.name).lower()
    if ".data-" in path.name:
        suffix = ".index"
    if suffix not in _FORMATS:
        raise CannotLoad(f"it is {_OTHERS.get(suffix, f'a file of an unknown kind: {_SERVED}')}")
    return _FORMATS[suffix]


def _holds_saved_model(folder: Path) -> bool:
    return any((folder / name).is_file() for name in _SAVED_MODEL)


def _suffix(name: str) -> str:
    """Unlike a path's, also that of a name that is nothing else: a checkpoint saved to "folder/" has a `.meta`."""
    return "".join(name.rpartition(".")[1:]) if "." in name else ""


def _other_folder(folder: Path, names: Sequence[str]) -> str:
    inside = [name for name in names if _holds_saved_model(folder / name)]
    if inside:
        return f"it holds SavedModels in subfolders: give one of them, such as {folder / inside[-1]}"
    files = [name for name in names if _suffix(name).lower() in _FORMATS]
    if files:
        return f"it is a folder with {_FORMATS[_suffix(files[-1]).lower()].value} in it: give {folder / files[-1]}"
    return f"it is not a SavedModel: it has no {_SAVED_MODEL[0]}"
