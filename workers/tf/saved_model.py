"""Loads a SavedModel: of a TensorFlow 1 Estimator, of `tf.saved_model.save`, of Keras' `model.export`."""

import os
from pathlib import Path
from typing import Any

from pool.wire.worker_messages import ModelSettings
from workers.backend import CannotLoad, LoadFailed, WrongDevices
from workers.tf.errors import one_line, passes
from workers.tf.library import parse_saved_model, tf
from workers.tf.model import TensorFlowModel
from workers.tf.reachable import ReachableOps
from workers.tf.session import open_session
from workers.tf.signature_defs import bind

__all__ = ["load_saved_model"]

_FILES = ("saved_model.pb", "saved_model.pbtxt")
_SERVE = frozenset({"serve"})
_OTHER_KINDS = {
    ".tflite": "a TensorFlow Lite model, which is not served here: give the SavedModel it was converted from",
    ".pb": "a frozen graph, which is not served yet: give a SavedModel folder",
    ".keras": "a Keras file, which is not served yet: save it as a SavedModel with model.export(folder)",
    ".h5": "a Keras file, which is not served yet: save it as a SavedModel with model.export(folder)",
    ".hdf5": "a Keras file, which is not served yet: save it as a SavedModel with model.export(folder)",
    ".meta": "a checkpoint, which is not served yet: give a SavedModel folder",
    ".onnx": "an ONNX model, which is not served here: give a SavedModel folder",
}


def load_saved_model(settings: ModelSettings, config: Any, gpus: int) -> TensorFlowModel:
    """A model in a Graph and a Session of its own, variables restored, a callable ready for each signature.

    Raises `CannotLoad` with one line, whatever the files are like; `LoadFailed` if it is not the files; and
    `WrongDevices` unless the Session has `gpus` GPUs.
    """
    where = f"model {settings.name}: {settings.path}"
    folder = Path(settings.path)
    try:
        problem = _problem(folder)
    except OSError as error:
        raise LoadFailed(f"{where} cannot be read now: {error.strerror or error}") from error
    if problem is not None:
        raise CannotLoad(f"{where} {problem}")
    try:
        session = open_session(config, gpus)
    except WrongDevices:
        raise
    except Exception as error:
        raise _failure(where, error) from error
    try:
        return _load(settings, folder, session)
    except Exception as error:  # of a foreign file TensorFlow and protobuf raise whatever they meet first
        session.close()
        raise _failure(where, error) from error


def _failure(where: str, error: Exception) -> CannotLoad | LoadFailed:
    if isinstance(error, CannotLoad):
        text = str(error)
        return CannotLoad(text if text.startswith("model ") else f"{where}: {text}")
    if passes(error):
        return LoadFailed(f"{where} cannot be loaded now: {one_line(error)}")
    return CannotLoad(f"{where} cannot be loaded: {one_line(error)}")


def _load(settings: ModelSettings, folder: Path, session: Any) -> TensorFlowModel:
    tags = _tags(folder)
    with session.graph.as_default():
        meta_graph = tf.compat.v1.saved_model.loader.load(session, sorted(tags), str(folder))
    bound = bind(settings.name, meta_graph.signature_def, session.graph)
    model = TensorFlowModel(settings, session, bound, ReachableOps(meta_graph.graph_def))
    session.graph.finalize()
    return model


def _problem(path: Path) -> str | None:
    """What is at `path` if it cannot be a SavedModel's folder, and what would be right. Raises a passing `OSError`."""
    try:
        if path.is_file():
            return _problem_of_file(path)
        if not path.exists():
            return "does not exist: give the folder of a SavedModel"
        names = sorted(os.listdir(path))
    except OSError as error:
        if passes(error):
            raise
        return f"cannot be read: {error.strerror or error}"
    file = next((path / name for name in _FILES if name in names), None)
    if file is not None:
        return None if os.access(file, os.R_OK) else f"cannot be read: no permission for {file.name}"
    versions = [name for name in names if any((path / name / file).exists() for file in _FILES)]
    if versions:
        newest = max(versions, key=lambda name: (int(name) if name.isdecimal() else -1, name))
        return f"holds SavedModels in folders of their own: give one of them, e.g. {path / newest}"
    return f"is no SavedModel: there is no {_FILES[0]} in it"


def _problem_of_file(path: Path) -> str:
    if path.name in _FILES:
        return f"is the file inside a SavedModel: give its folder, {path.parent}"
    with path.open("rb") as file:
        head = file.read(8)
    kind = ".tflite" if head[4:] == b"TFL3" else path.suffix.lower()
    return f"is {_OTHER_KINDS.get(kind, 'a file: give the folder of a SavedModel')}"


def _tags(folder: Path) -> frozenset[str]:
    """The tag set to load: "serve", or the only one there is."""
    try:
        saved_model = parse_saved_model(str(folder))
    except (OSError, UnicodeDecodeError) as error:
        if passes(error):
            raise
        raise CannotLoad("its protobuf is corrupt or cut short: copy or export it again") from None
    sets = {frozenset(graph.meta_info_def.tags) for graph in saved_model.meta_graphs}
    if _SERVE in sets:
        return _SERVE
    if not sets:
        raise CannotLoad("it holds no graph")
    if len(sets) > 1:
        named = "; ".join(sorted(", ".join(sorted(tags)) or "none" for tags in sets))
        raise CannotLoad(f'no graph is tagged "serve" alone, and there are several: {named}')
    return next(iter(sets))
