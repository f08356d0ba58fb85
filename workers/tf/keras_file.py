"""A Keras file, `.keras` or `.h5`: served as the SavedModel that it is converted into once, and then kept.

The conversion runs in a process of its own without a GPU. Keras computes eagerly, which would take the worker's GPU
with options of its own and keep its memory.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path

from workers.backend import CannotLoad, LoadFailed
from workers.tf.files import Source
from workers.tf.library import tf
from workers.tf.saved_model import read_saved_model

__all__ = ["read_keras"]

_FOLDER = "keras"
_MOST_S = 3600.0  # the pool's `load_timeout` ends a worker much sooner, and its group with it


def read_keras(path: Path, state: str | None) -> Source:
    """What the file is converted into, kept below `state` if that is given and can be written.

    Raises `CannotLoad`, `LoadFailed`, and `OSError`.
    """
    notes: list[str] = []
    if state is not None:
        try:
            source = read_saved_model(_kept(path, Path(state) / _FOLDER), ())
        except OSError as error:  # a disk that is full or read-only: the model can be served all the same
            notes = [f"its converted form cannot be kept: {error.strerror or error}"]
        else:
            return source
    folder = tempfile.mkdtemp(prefix="pool-keras-")
    try:
        _convert(path, folder)
        source = read_saved_model(Path(folder), ())
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    source.notes.extend(notes)
    weakref.finalize(source, shutil.rmtree, folder, ignore_errors=True)  # of no use once it is loaded
    return source


def _kept(path: Path, folder: Path) -> Path:
    """The folder that a file with this content was converted into, now or before.

    Of two workers that convert it at the same time, the second throws its own away.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = folder.stat()
    if about.st_uid != os.geteuid() or about.st_mode & 0o022:
        raise PermissionError(f"others may write {folder}")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    made = folder / f"{digest}-{tf.__version__}-{tf.keras.__version__}"
    if made.exists():
        return made
    unfinished = tempfile.mkdtemp(suffix=".part", dir=folder)
    try:
        _convert(path, unfinished)
        try:
            os.rename(unfinished, made)
        except OSError:
            if not made.exists():
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return made


def _convert(path: Path, folder: str) -> None:
    """Raises `CannotLoad` if Keras refuses the file, `LoadFailed` if the process died."""
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "KERAS_BACKEND": "tensorflow", "TF_USE_LEGACY_KERAS": "0"}
    argv = [sys.executable, "-P", "-m", "workers.tf.keras_conversion", str(path), folder]
    try:
        done = subprocess.run(
            argv,
            env=env,
            timeout=_MOST_S,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        raise LoadFailed(f"its conversion took longer than {_MOST_S:g} s") from None
    last = done.stdout.splitlines()[-1] if done.stdout else ""
    if not last.startswith("{"):
        errors = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        ended = f"ended with {done.returncode}" if done.returncode >= 0 else f"died of signal {-done.returncode}"
        raise LoadFailed(f"the process that converts it {ended}: {errors[-1][:400] if errors else 'no output'}")
    if failed := json.loads(last)["failed"]:
        raise CannotLoad(failed)
