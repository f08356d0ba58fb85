"""`python -m workers.tf.keras_conversion PARENT FILE FOLDER`: a Keras file becomes a SavedModel, without a GPU.

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

from workers import environment

__all__ = ["Unconvertible", "cause", "convert"]

_EXPORT = "in the program with its code, save it as a SavedModel with model.export(folder)"
_MISSING = re.compile(
    r"Could not locate (?:class|function) '([^']+)'|Unknown (?:layer|object|\w+ function): '?([\w.>]+)'?"
)
_CODE = frozenset({"Lambda", "__lambda__"})  # Keras' safe mode is on, too; not all its releases mean `.h5` by it
_MAX_CHARS = 400


class Unconvertible(Exception):
    """One line: why, and what would be right."""


def convert(path: Path, folder: Path) -> None:
    """Writes the SavedModel. Raises `Unconvertible`, or whatever Keras meets."""
    config = _config(path)
    if not _CODE.isdisjoint(_classes(config)):
        raise Unconvertible(f"it has a Lambda layer or function, and the pool does not run code from a file: {_EXPORT}")
    from workers.tf.library import tf

    try:
        model = tf.keras.models.load_model(path, compile=False, safe_mode=True)
    except (TypeError, ValueError, AttributeError) as error:
        missing = _MISSING.search(str(error))
        if missing is None:
            raise
        what = f"it needs {missing[1] or missing[2]!r}, which is your own code and not in the file"
        raise Unconvertible(f"{what}: {_EXPORT}") from error
    model.export(str(folder), format="tf_saved_model", verbose=False)


def cause(error: Exception) -> str:
    """One line: Keras tells of the model first, then of the layer in it, and last of what is wrong."""
    innermost = str(error).rpartition("Exception encountered: ")[2]
    return next((line.strip() for line in innermost.splitlines() if line.strip()), type(error).__name__)


def _config(path: Path) -> Any:
    """What the file says of its layers."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if "config.json" not in archive.namelist():
                raise Unconvertible("it has no config.json, so it is not a Keras file")
            return json.loads(archive.read("config.json"))
    import h5py

    if not h5py.is_hdf5(path):
        raise Unconvertible("it is neither a Keras archive nor HDF5: copy or save it again")
    with h5py.File(path, "r") as file:
        config = file.attrs.get("model_config")
    if config is None:
        raise Unconvertible("it holds weights but no model: save the whole model with model.save(file)")
    return json.loads(config)


def _classes(config: Any) -> Iterator[str]:
    if isinstance(config, dict):
        if isinstance(config.get("class_name"), str):
            yield config["class_name"]
        config = list(config.values())
    if isinstance(config, list):
        for each in config:
            yield from _classes(each)


def _main(parent: int, path: Path, folder: Path) -> None:
    # What a library prints must not end up in the answer.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    environment.die_with_parent(parent)
    failed = ""
    try:
        convert(path, folder)
    except Unconvertible as error:
        failed = str(error)
    except Exception as error:  # of a foreign file Keras raises whatever it meets first
        from workers.tf.errors import passes

        if passes(error):
            raise
        failed = f"Keras cannot load it: {cause(error)}"[:_MAX_CHARS]
    print(json.dumps({"failed": failed}), file=out, flush=True)


if __name__ == "__main__":
    _main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
