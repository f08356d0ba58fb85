"""`python -m workers.tf.keras_conversion FILE FOLDER`: a Keras file becomes a SavedModel, without a GPU.

Prints one line of JSON: {"failed": why}, "" if it went well. Code that a file brings along is never run.
"""

import json
import os
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workers.backend import CannotLoad
from workers.tf.errors import passes
from workers.tf.library import tf

__all__ = ["cause", "convert"]

_EXPORT = "in the program with its code, save it as a SavedModel with model.export(folder)"
_MISSING = re.compile(
    r"Could not locate (?:class|function) '([^']+)'|Unknown (?:layer|object|\w+ function): '?([\w.>]+)'?"
)
_CODE = frozenset({"Lambda", "__lambda__"})  # Keras' safe mode is on, too; not all its releases mean `.h5` by it
_WRAPPED = re.compile(r"Exception encountered(?: when calling [^\n]*\.)?:?\s")
_BOLD = re.compile(r"\x1b\[\d*m")
_MOST_CHARS = 400


def convert(path: Path, folder: str) -> None:
    """Writes the SavedModel. Raises `CannotLoad`, or whatever Keras meets."""
    objects = list(_objects(_config(path)))
    if any(str(each.get("class_name")) in _CODE for each in objects):
        raise CannotLoad(f"it has a Lambda layer or function, and the pool does not run code from a file: {_EXPORT}")
    try:
        model = tf.keras.models.load_model(path, compile=False, safe_mode=True)
    except (TypeError, ValueError, AttributeError) as error:
        missing = _MISSING.search(str(error))
        if missing is None:
            raise
        what = f"it needs {missing[1] or missing[2]!r}, which is your own code and not in the file"
        raise CannotLoad(f"{what}: {_EXPORT}") from error
    fixed = None
    if any(each.get("stateful") is True for each in objects):
        # Keras would say that any number of rows may come, but the state has rows of its own.
        fixed = tf.nest.map_structure(_spec, model.inputs if isinstance(model, tf.keras.Sequential) else [model.input])
    model.export(folder, format="tf_saved_model", verbose=False, input_signature=fixed)


def cause(error: Exception) -> str:
    """One line: Keras tells of the model first, then of the layer in it, and last of what is wrong."""
    innermost = _WRAPPED.split(_BOLD.sub("", str(error)))[-1]
    return next((line.strip() for line in innermost.splitlines() if line.strip()), type(error).__name__)


def _spec(tensor: Any) -> Any:
    return tf.keras.InputSpec(shape=tensor.shape, dtype=tensor.dtype, name=tensor.name)


def _config(path: Path) -> Any:
    """What the file says of its layers."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if "config.json" not in archive.namelist():
                raise CannotLoad("it has no config.json, so it is not a Keras file")
            return json.loads(archive.read("config.json"))
    import h5py

    if not h5py.is_hdf5(path):
        raise CannotLoad("it is neither a Keras archive nor HDF5: copy or save it again")
    with h5py.File(path, "r") as file:
        config = file.attrs.get("model_config")
    if config is None:
        raise CannotLoad("it holds weights but no model: save the whole model with model.save(file)")
    return json.loads(config)


def _objects(config: Any) -> Iterator[dict[str, Any]]:
    if isinstance(config, dict):
        yield config
        config = list(config.values())
    if isinstance(config, list):
        for each in config:
            yield from _objects(each)


def _main(path: Path, folder: str) -> None:
    # What a library prints must not end up in the answer.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    failed = ""
    try:
        convert(path, folder)
    except CannotLoad as error:
        failed = str(error)
    except Exception as error:  # of a foreign file Keras raises whatever it meets first
        if passes(error):
            raise
        failed = f"Keras cannot load or export it: {cause(error)}"[:_MOST_CHARS]
    print(json.dumps({"failed": failed}), file=out, flush=True)


if __name__ == "__main__":
    _main(Path(sys.argv[1]), sys.argv[2])
