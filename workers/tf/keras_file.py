"""A Keras file, `.keras` or `.h5`: served as the SavedModel that it is converted into once, and then kept.

The conversion runs in a process of its own without a GPU: Keras computes eagerly, which would take the worker's GPU
with options of its own and keep its memory.
"""

import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path
from typing import Any

from pool.wire.worker_messages import ModelSettings
from workers.backend import CannotLoad, LoadFailed
from workers.tf.conversions import Conversions
from workers.tf.saved_model import read_saved_model
from workers.tf.source import Source

__all__ = ["read_keras"]

logger = logging.getLogger("workers.tf")

_LONGEST_S = 3600.0  # the pool's `load_timeout` ends a worker much sooner, and its child with it


def read_keras(settings: ModelSettings, path: Path) -> Source:
    """What the file is converted into. Raises `CannotLoad`, `LoadFailed`, and `OSError`."""

    def convert(file: Path, into: Path) -> None:
        logger.info("model %s: converting it into a SavedModel in %s", settings.name, into.parent)
        _convert(file, into)

    if settings.cache:
        try:
            kept = Conversions(Path(settings.cache)).of(path, convert)
        except OSError as error:  # a disk that is full or read-only: the model can be served all the same
            logger.warning("model %s: its converted form cannot be stored: %s", settings.name, error)
        else:
            return read_saved_model(kept, ())
    folder = tempfile.mkdtemp(prefix="pool-keras-")
    try:
        found = read_saved_model(Conversions(Path(folder)).of(path, convert), ())
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(found, shutil.rmtree, folder, ignore_errors=True)  # of no use once it is loaded
    return found


def _convert(path: Path, folder: Path) -> None:
    """Raises `CannotLoad` if Keras refuses the file, `LoadFailed` if the process died."""
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "KERAS_BACKEND": "tensorflow", "TF_USE_LEGACY_KERAS": "0"}
    argv = [sys.executable, "-P", "-m", "workers.tf.keras_conversion", str(os.getpid()), str(path), str(folder)]
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "errors": "replace"}
    try:
        done = subprocess.run(argv, env=env, timeout=_LONGEST_S, check=False, **pipes)
    except subprocess.TimeoutExpired:
        raise LoadFailed(f"its conversion took longer than {_LONGEST_S:g} s") from None
    last = done.stdout.splitlines()[-1] if done.stdout else ""
    if not last.startswith("{"):
        errors = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        ended = f"ended with {done.returncode}" if done.returncode >= 0 else f"died of signal {-done.returncode}"
        raise LoadFailed(
            f"the process that converts it {ended}: {errors[-1][:400] if errors else 'it printed nothing'}"
        )
    said = json.loads(last)
    if said["failed"]:
        raise CannotLoad(said["failed"])
