"""TensorFlow as a worker's backend. Importing this module imports TensorFlow, which takes seconds."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pool.wire.worker_messages import ModelSettings, TensorFlowSettings
from workers.backend import CannotLoad, WrongDevices
from workers.independence import Known
from workers.tf.copies import Copies, load_copies
from workers.tf.errors import one_line
from workers.tf.library import tf
from workers.tf.loading import load
from workers.tf.model import TensorFlowModel
from workers.tf.session import config_of_model, config_proto
from workers.tf.tuned import TunedModel

__all__ = ["TensorFlowBackend"]


class TensorFlowBackend:
    """A `workers.backend.Backend`: a Graph and a Session a model, all with the process's one `ConfigProto`.

    A model may override what is its Session's own.
    Loads the libraries of custom ops; raises `CannotLoad` for one that is not there or does not fit.
    Raises `WrongDevices` unless TensorFlow sees exactly `gpus` GPUs, and each Session has them; a worker that was
    promised one never falls back to the CPU. Takes no memory of the GPU before the first `load`.
    """

    def __init__(self, settings: TensorFlowSettings, gpus: int, known: Known | None = None) -> None:
        """`known`: of the rows of its models; None: nothing, so copies split none."""
        self._known = Known(()) if known is None else known
        _check_devices(gpus)
        load_op_libraries(settings.op_libraries)
        self._gpus = gpus
        self._config: Any = config_proto(settings)

    def load(self, settings: ModelSettings) -> TensorFlowModel | TunedModel | Copies:
        """Loads a model, ready to run but for warming up. Raises `CannotLoad`, `LoadFailed`, `WrongDevices`."""
        config = config_of_model(settings, self._config)
        if settings.optimizations is not None:
            return TunedModel(settings, settings.optimizations, config, self._gpus)
        if settings.copy_per_device:
            return load_copies(settings, config, self._gpus, self._known)
        return load(settings, config, self._gpus)


def _check_devices(gpus: int) -> None:
    seen = tf.config.list_physical_devices("GPU")
    if len(seen) == gpus:
        return
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    promised = f"TensorFlow {tf.__version__} sees {len(seen)} GPUs, but this worker should have {gpus}"
    environment = f"CUDA_VISIBLE_DEVICES is {'not set' if visible is None else repr(visible)}"
    raise WrongDevices(f"{promised}; {environment}; {_advice(len(seen), gpus)}")


def _advice(seen: int, gpus: int) -> str:
    if seen > gpus:
        return "start workers with `pool start`, which gives each its own"
    if not tf.test.is_built_with_cuda():
        return "this build of TensorFlow has no CUDA: pip install 'tf-worker-pool[gpu]'"
    return "install CUDA's libraries with pip install 'tf-worker-pool[gpu]'; `pool doctor` checks them and the driver"


def load_op_libraries(paths: Sequence[str]) -> None:
    """Libraries of custom ops. They stay for the life of the process.

    Raises `CannotLoad` with one line for the first that is not there, or is none for this TensorFlow.
    """
    for path in paths:
        where = f"op_libraries of [tensorflow]: {path}"
        if not Path(path).is_file():
            raise CannotLoad(
                f"{where} is not a file: give a library (.so) that was built with this TensorFlow's headers"
            )
        try:
            tf.load_op_library(path)
        except (tf.errors.OpError, RuntimeError, OSError) as error:
            why = one_line(error)
            raise CannotLoad(f"{where} cannot be loaded into TensorFlow {tf.__version__}: {why}") from error
