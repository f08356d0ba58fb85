"""TensorFlow as a worker's backend: loads models of any format into Sessions."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workers.backend import CannotLoad, LoadFailed
from workers.tf.bare_graph import read_bare_graph
from workers.tf.devices import Devices, keep_from_remapper, place
from workers.tf.errors import one_line, passes
from workers.tf.files import Format, Source, format_at, read_saved_model
from workers.tf.keras import read_keras
from workers.tf.library import load_op_libraries, open_session, session_config, tf
from workers.tf.model import Model


class Backend:
    """Its `load` is a `workers.backend.Load`: a Graph and a Session for each model."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """`settings`: "tensorflow", that section; "device", with the uuids of its GPUs; "state", a folder.

        Raises `CannotLoad` for a library of ops that cannot be loaded. Takes no GPU before the first `load`, which
        raises `Unfit` unless TensorFlow sees exactly the device's.
        """
        self._gpus = len(settings["device"]["uuids"])
        self._tensorflow = settings["tensorflow"]
        self._state: str = settings["state"]
        load_op_libraries(self._tensorflow["op_libraries"])

    def load(self, settings: Mapping[str, Any]) -> Model:
        where = f"model {settings['name']}: {settings['path']}"
        try:
            return self._load(settings)
        except (CannotLoad, LoadFailed) as error:
            raise type(error)(f"{where}: {error}") from None
        except Exception as error:  # of a foreign file TensorFlow and protobuf raise whatever they meet first
            if passes(error):
                raise LoadFailed(f"{where} cannot be loaded now: {one_line(error)}") from error
            is_unknown_op = "Op type not registered" in str(error)
            hint = "; give the library that has this op in op_libraries of [tensorflow]" if is_unknown_op else ""
            raise CannotLoad(f"{where} cannot be loaded: {one_line(error)}{hint}") from error

    def _load(self, settings: Mapping[str, Any]) -> Model:
        source = self._read(settings)
        config = session_config(self._tensorflow, self._gpus, settings["xla"], settings["mixed_precision"])
        if settings["layer_devices"]:
            keep_from_remapper(config)
        session = open_session(config, self._gpus)
        try:
            devices = Devices(device.name for device in session.list_devices())
            graph_def = source.meta_graph.graph_def
            source.notes.extend(place(graph_def, settings, devices, self._tensorflow["allow_soft_placement"]))
            with session.graph.as_default():
                tf.compat.v1.train.import_meta_graph(source.meta_graph)
                source.restore(session)
                session.graph.finalize()
                return Model(settings, session, source)
        except BaseException:
            session.close()
            raise

    def _read(self, settings: Mapping[str, Any]) -> Source:
        path = Path(settings["path"])
        found = format_at(path)
        called, takes = found.value
        if given := [f"`{key}`" for key in ("tags", "inputs", "outputs") if settings[key] and key not in takes]:
            raise CannotLoad(f"it is {called}, which takes no {' and '.join(given)}: leave them out of [[model]]")
        if found is Format.SAVED_MODEL:
            return read_saved_model(path, settings["tags"] or ())
        if found is Format.KERAS:
            return read_keras(path, self._state)
        return read_bare_graph(settings, path, found is Format.FROZEN_GRAPH)
