"""A Keras file, `.keras` or `.h5`: served as the SavedModel that it is converted into once, and then kept.

The conversion runs in a process of its own without a GPU: Keras computes eagerly, which would take the worker's GPU
with options of its own and keep its memory.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workers.backend import CannotLoad, LoadFailed
from workers.tf.conversions import Conversions
from workers.tf.saved_model import SavedModel

__all__ = ["KerasFile"]

_LONGEST_S = 3600.0  # the pool's `load_timeout` ends a worker much sooner, and its child with it


class KerasFile:
    """A `workers.tf.source.Source`: that of the SavedModel."""

    samples: Path | None = None

    def __init__(self, path: Path, cache: str) -> None:
        """`cache`: the folder for what was converted, "" for none. Raises `CannotLoad`, `LoadFailed`, `OSError`."""
        folder = Path(cache or tempfile.mkdtemp(prefix="pool-keras-"))
        if not cache:  # of no use to anybody once it is loaded
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._saved_model = SavedModel(Conversions(folder).of(path, _convert), ())
        self.meta_graph: Any = self._saved_model.meta_graph

    def restore(self, session: Any, saver: Any) -> None:
        self._saved_model.restore(session, saver)

    def signature_defs(self, graph: Any) -> Mapping[str, Any]:
        return self._saved_model.signature_defs(graph)


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
        raise LoadFailed(f"the process that converts it {ended}: {errors[-1][:400] if errors else 'it said nothing'}")
    said = json.loads(last)
    if said["failed"]:
        raise CannotLoad(said["failed"])
