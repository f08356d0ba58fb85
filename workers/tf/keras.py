"""A Keras file, `.keras` or `.h5`: served as the SavedModel that it is converted into once, and then kept.

The conversion runs in a process of its own without a GPU. Keras computes eagerly, which would take the worker's GPU
with options of its own and keep its memory. Code that a file brings along is never run.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path

from workers.backend import CannotLoad, LoadFailed
from workers.tf.errors import one_line, passes
from workers.tf.files import Source, read_saved_model
from workers.tf.library import tf

_REFUSAL = "refusal"  # the file in which the other process says why it cannot convert
_MAIN = "from workers.tf.keras import main; main()"
_EXPORT = "in the program with its code, save it as a SavedModel with model.export(folder)"
# Keras' safe mode is on, too; not all its releases mean `.h5` by it.
_CODE = re.compile(r'"class_name": "(Lambda|__lambda__)"')
_BOLD = re.compile(r"\x1b\[\d*m")


def read_keras(path: Path, state: str) -> Source:
    """What a file with this content is converted into, now or before. It is kept below `state`.

    Raises `CannotLoad` if Keras refuses the file, `LoadFailed` if the process died or nothing can be kept.
    """
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    made = Path(state, "keras", f"{digest}-{tf.__version__}-{tf.keras.__version__}")
    if not made.exists():
        try:
            made.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(suffix=".part", dir=made.parent) as unfinished:
                _convert_apart(path, unfinished)
                with suppress(OSError):  # another worker was faster
                    os.rename(unfinished, made)
        except OSError as error:
            text = f"its converted form cannot be kept in {made.parent}: {error.strerror}; set `state` of [pool]"
            raise LoadFailed(text) from error
    return read_saved_model(made, ())


def _convert_apart(path: Path, folder: str) -> None:
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "KERAS_BACKEND": "tensorflow", "TF_USE_LEGACY_KERAS": "0"}
    argv = [sys.executable, "-P", "-c", _MAIN, str(path), folder]
    done = subprocess.run(argv, env=env, check=False, stdin=subprocess.DEVNULL, capture_output=True)
    refusal = Path(folder, _REFUSAL)
    if refusal.exists():
        raise CannotLoad(refusal.read_text())
    if done.returncode:
        said = " ".join(done.stderr.decode(errors="replace").split())[-400:]
        raise LoadFailed(f"the process that converts it ended with {done.returncode}: {said}")


def main() -> None:
    """Of the process that converts a file: it gets the file's path and a folder for the SavedModel."""
    try:
        convert(Path(sys.argv[1]), sys.argv[2])
    except CannotLoad as error:
        Path(sys.argv[2], _REFUSAL).write_text(str(error))


def convert(path: Path, folder: str) -> None:
    """Writes the SavedModel. Raises `CannotLoad`, or what says nothing against the file."""
    config = _config(path)
    if _CODE.search(config):
        raise CannotLoad(f"it has a Lambda layer or function, and the pool does not run code from a file: {_EXPORT}")
    try:
        model = tf.keras.models.load_model(path, compile=False, safe_mode=True)
        fixed = None
        if '"stateful": true' in config:
            # Keras would say that any number of rows may come, but the state has rows of its own.
            inputs = model.inputs if isinstance(model, tf.keras.Sequential) else [model.input]
            fixed = tf.nest.map_structure(lambda x: tf.keras.InputSpec(x.dtype, x.shape, name=x.name), inputs)
        model.export(folder, format="tf_saved_model", verbose=False, input_signature=fixed)
    except Exception as error:  # of a foreign file Keras raises whatever it meets first
        if passes(error):
            raise
        raise CannotLoad(f"Keras cannot load or export it: {_BOLD.sub('', one_line(error))}; {_EXPORT}") from error


def _config(path: Path) -> str:
    """What the file says of its layers, as JSON without any spelling of its own."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if "config.json" not in archive.namelist():
                raise CannotLoad("it has no config.json, so it is not a Keras file")
            return json.dumps(json.loads(archive.read("config.json")))
    import h5py

    if not h5py.is_hdf5(path):
        raise CannotLoad("it is neither a Keras archive nor HDF5: copy or save it again")
    with h5py.File(path, "r") as file:
        config = file.attrs.get("model_config")
    if config is None:
        raise CannotLoad("it holds weights but no model: save the whole model with model.save(file)")
    return json.dumps(json.loads(config))
