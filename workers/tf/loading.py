"""Loads a model, whatever its format: look → read → rewrite → import → restore → bind."""

import logging
from collections.abc import Callable
from typing import Any

from pool.wire.model_files import Format, ModelFiles, NotServed, look, misfit
from pool.wire.worker_messages import ModelSettings
from workers.backend import CannotLoad, LoadFailed, WrongDevices
from workers.tf.errors import one_line, passes
from workers.tf.graph_files import read_checkpoint, read_frozen_graph
from workers.tf.keras_file import read_keras
from workers.tf.layer_devices import place
from workers.tf.library import tf
from workers.tf.model import TensorFlowModel
from workers.tf.reachable import ReachableOps
from workers.tf.saved_model import read_saved_model
from workers.tf.session import devices_of, open_session
from workers.tf.signature_defs import bind
from workers.tf.source import Source
from workers.tf.traces import Traces

__all__ = ["Rewrite", "load"]

logger = logging.getLogger("workers.tf")

Rewrite = Callable[[Any], Any]
"""From the `MetaGraphDef` that was read to the one that is imported; no node gets another name."""


def load(settings: ModelSettings, config: Any, gpus: int, rewrite: Rewrite = lambda read: read) -> TensorFlowModel:
    """A model in a Graph and a Session of its own, variables restored, a callable ready for each signature.

    Raises `CannotLoad` with one line, whatever the files are like; `LoadFailed` if it is not the files; and
    `WrongDevices` unless the Session has `gpus` GPUs.
    """
    where = f"model {settings.name}: {settings.path}"
    files = _look(settings, where)
    try:
        session = open_session(config, gpus)
    except WrongDevices:
        raise
    except Exception as error:
        raise _failure(where, error) from error
    try:
        return _load(settings, files, session, rewrite, config.allow_soft_placement)
    except Exception as error:  # of a foreign file TensorFlow and protobuf raise whatever they meet first
        session.close()
        raise _failure(where, error) from error


def _look(settings: ModelSettings, where: str) -> ModelFiles:
    try:
        files = look(settings.path)
    except NotServed as error:
        raise CannotLoad(f"{where} {error}") from None
    except OSError as error:
        if passes(error):
            raise LoadFailed(f"{where} cannot be read now: {error.strerror or error}") from error
        raise CannotLoad(f"{where} cannot be read: {error.strerror or error}") from error
    wrong = misfit(files.format, settings.tags, settings.inputs, settings.outputs)
    if wrong is not None:
        raise CannotLoad(f"{where} {wrong}")
    if files.version is not None:
        skipped = f"; not of {', '.join(files.incomplete)}: no SavedModel is in there" if files.incomplete else ""
        logger.info("model %s: version %d is served, of %s%s", settings.name, files.version, settings.path, skipped)
    return files


def _read(settings: ModelSettings, files: ModelFiles) -> Source:
    match files.format:
        case Format.SAVED_MODEL:
            return read_saved_model(files.path, settings.tags)
        case Format.FROZEN_GRAPH:
            return read_frozen_graph(settings, files.path)
        case Format.META_GRAPH:
            return read_checkpoint(settings, files.path)
        case Format.KERAS:
            return read_keras(settings, files.path)


def _load(settings: ModelSettings, files: ModelFiles, session: Any, rewrite: Rewrite, soft: bool) -> TensorFlowModel:
    source = _read(settings, files)
    meta_graph = rewrite(source.meta_graph)
    placed = place(meta_graph.graph_def, settings, devices_of(session), soft)
    with session.graph.as_default():
        saver = tf.compat.v1.train.import_meta_graph(meta_graph)
        source.restore(session, saver)
        bound, left_out = bind(settings.name, source.signature_defs(session.graph), session.graph, source.composite)
    traces = Traces(session, placed)
    reachable = ReachableOps(meta_graph.graph_def)
    model = TensorFlowModel(settings, session, bound, left_out, reachable, source.samples, traces)
    session.graph.finalize()
    return model


def _failure(where: str, error: Exception) -> CannotLoad | LoadFailed:
    if isinstance(error, CannotLoad | LoadFailed):
        text = str(error)
        return type(error)(text if text.startswith("model ") else f"{where}: {text}")
    if passes(error):
        return LoadFailed(f"{where} cannot be loaded now: {one_line(error)}")
    return CannotLoad(f"{where} cannot be loaded: {one_line(error)}")
