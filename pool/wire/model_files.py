"""What lies at a model's path, found by looking at names and the first bytes, never by loading it.

Pool and workers look with the same eyes: `pool check` says what a worker will make of a path, without TensorFlow.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from glob import escape
from itertools import islice
from pathlib import Path

from pool.wire.versions import newest, versions_in

__all__ = [
    "Format",
    "ModelFiles",
    "NotServed",
    "checkpoint_prefix",
    "files_of",
    "holds_saved_model",
    "is_whole",
    "look",
    "may_be_model",
    "misfit",
]


class Format(Enum):
    SAVED_MODEL = "a SavedModel"
    FROZEN_GRAPH = "a frozen graph"
    META_GRAPH = "a meta graph with its checkpoint"
    KERAS = "a Keras file"


class NotServed(Exception):
    """What the path is instead of a model, and what would be right; it goes on after the path."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """`path` is what is loaded: a SavedModel's folder, else a file. `version`, where there are numbered ones.

    `incomplete`: newer versions that hold no model, or not yet.
    """

    format: Format
    path: Path
    version: int | None = None
    incomplete: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.format.value if self.version is None else f"version {self.version}, {self.format.value}"


_MOST_FILES = 10_000  # of one model, that are looked at
_SHARD = re.compile(r"variables\.data-\d+-of-(\d+)", re.ASCII)
_SAVED_MODEL = ("saved_model.pb", "saved_model.pbtxt")
_FORMATS = {
    ".pb": Format.FROZEN_GRAPH,
    ".pbtxt": Format.FROZEN_GRAPH,
    ".graphdef": Format.FROZEN_GRAPH,
    ".meta": Format.META_GRAPH,
    ".keras": Format.KERAS,
    ".h5": Format.KERAS,
    ".hdf5": Format.KERAS,
}
_SERVED = "a SavedModel's folder, a .pb, .pbtxt, .meta, .keras or .h5"
_CHECKPOINT = (".index", ".ckpt")
_OTHERS = {
    ".tflite": "a TensorFlow Lite model, which is not served here: give the SavedModel it was converted from",
    ".onnx": "an ONNX model, which is not served here: give a SavedModel folder",
    **dict.fromkeys(_CHECKPOINT, "a part of a checkpoint: give its .meta file, which has the graph"),
    ".pt": "a PyTorch model, which is not served here: give a SavedModel folder",
    ".pth": "a PyTorch model, which is not served here: give a SavedModel folder",
}


def look(path: str) -> ModelFiles:
    """Which format it is, and what to load. Raises `NotServed`, and `OSError` where it cannot be looked at."""
    model = Path(path)
    if model.is_file():
        return ModelFiles(_format_of_file(model), model)
    if not model.exists():
        raise NotServed(f"does not exist: give {_SERVED}")
    names = sorted(entry.name for entry in model.iterdir())
    if holds_saved_model(model):
        return ModelFiles(Format.SAVED_MODEL, model)
    versions = versions_in(model)
    chosen = newest(versions, is_whole) or newest(versions, holds_saved_model)
    if chosen is not None:
        newer = tuple(version.folder.name for version in versions if version > chosen)
        return ModelFiles(Format.SAVED_MODEL, chosen.folder, chosen.number, newer)
    raise NotServed(_other_folder(model, names))


def may_be_model(name: str) -> bool:
    """Whether `look` has more to say of a file of this name than that it is none; a checkpoint is its .meta file."""
    suffix = _suffix(name).lower()
    return suffix in _FORMATS or (suffix in _OTHERS and suffix not in _CHECKPOINT)


def checkpoint_prefix(meta_graph: Path) -> str:
    """What the names of the files of its variables begin with, in its folder: "", where it is named `.meta`."""
    return meta_graph.name.removesuffix(_suffix(meta_graph.name))


def misfit(found: Format, tags: Sequence[str], inputs: Sequence[str], outputs: Sequence[str]) -> str | None:
    """What of these keys of `[[model]]` this format has no use for, as a sentence's end."""
    if tags and found is not Format.SAVED_MODEL:
        return f"is {found.value}: leave `tags` out; they choose among the graphs of a SavedModel"
    if (inputs or outputs) and found in (Format.SAVED_MODEL, Format.KERAS):
        return f"is {found.value}, which declares its inputs and outputs itself: leave `inputs` and `outputs` out"
    return None


def files_of(path: str) -> Iterator[tuple[str, int, int]]:
    """Name, size and time of each file of the model. Raises `NotServed` and `OSError`."""
    found = look(path)
    match found.format:
        case Format.SAVED_MODEL:
            files = [each for each in islice(found.path.rglob("*"), _MOST_FILES) if each.is_file()]
        case Format.META_GRAPH:
            files = [found.path, *found.path.parent.glob(f"{escape(checkpoint_prefix(found.path))}.*")]
        case _:
            files = [found.path]
    for file in sorted(set(files)):
        seen = file.stat()
        yield str(file), seen.st_size, seen.st_mtime_ns


def holds_saved_model(folder: Path) -> bool:
    return any((folder / name).is_file() for name in _SAVED_MODEL)


def is_whole(folder: Path) -> bool:
    """Whether a SavedModel is in it of which no file is seen to be missing, as it is while it is copied there."""
    if not any((folder / name).is_file() and (folder / name).stat().st_size for name in _SAVED_MODEL):
        return False
    names: list[str] = []
    with suppress(FileNotFoundError, NotADirectoryError):
        names = [entry.name for entry in (folder / "variables").iterdir()]
    shards = [found for name in names if (found := _SHARD.fullmatch(name))]
    if not shards:
        return "variables.index" not in names  # a SavedModel may have no variables, or some of an older format
    return "variables.index" in names and len(shards) == int(shards[0][1])


def _format_of_file(path: Path) -> Format:
    if path.name in _SAVED_MODEL:
        raise NotServed(f"is the file inside a SavedModel: give its folder, {path.parent}")
    with path.open("rb") as file:
        head = file.read(8)
    suffix = ".tflite" if head[4:] == b"TFL3" else _suffix(path.name).lower()
    if ".data-" in path.name:
        suffix = ".index"
    if suffix not in _FORMATS:
        raise NotServed(f"is {_OTHERS.get(suffix, f'a file of an unknown kind: give {_SERVED}')}")
    return _FORMATS[suffix]


def _suffix(name: str) -> str:
    """Unlike a path's, also that of a name that is nothing else: a checkpoint saved to "folder/" has a `.meta`."""
    return "".join(name.rpartition(".")[1:]) if "." in name else ""


def _other_folder(folder: Path, names: Sequence[str]) -> str:
    inside = [name for name in names if holds_saved_model(folder / name)]
    if inside:
        return f"holds SavedModels in subfolders: give one of them, such as {folder / inside[-1]}"
    files = [name for name in names if _suffix(name).lower() in _FORMATS]
    if files:
        return f"is a folder with {_FORMATS[_suffix(files[-1]).lower()].value} in it: give {folder / files[-1]}"
    return f"is not a SavedModel: it has no {_SAVED_MODEL[0]}"
