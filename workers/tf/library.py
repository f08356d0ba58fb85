"""The only place that imports TensorFlow, and what a process has once of it: devices, options, libraries of ops."""

import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from pool.wire import Exit
from workers.backend import CannotLoad, Unfit

# What other modules take of TensorFlow itself.
__all__ = ["CallableOptions", "SavedModelLoader", "op_def_registry", "tf"]


@contextmanager
def _quiet() -> Iterator[None]:
    """Drops what C++ prints meanwhile: warnings that no log level silences. Whatever fails raises."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


# Without it XLA leaves alone what runs on the CPU. It does nothing where no Session asks for XLA.
if "tf_xla_cpu_global_jit" not in (flags := os.environ.get("TF_XLA_FLAGS", "")):
    os.environ["TF_XLA_FLAGS"] = f"{flags} --tf_xla_cpu_global_jit".strip()
try:
    with _quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what its own modules use that others deprecate
        import tensorflow as tf

        # TensorFlow has no public name for these.
        from tensorflow.core.protobuf.config_pb2 import CallableOptions
        from tensorflow.python.framework import op_def_registry
        from tensorflow.python.saved_model.loader_impl import SavedModelLoader
except Exception as error:
    text = f"TensorFlow cannot be imported: {type(error).__name__}: {error}; pip install 'tf-worker-pool[worker]'"
    raise Unfit(Exit.BACKEND_MISSING, " ".join(text.split())) from error

# The loader and Session are TensorFlow 1's on purpose, and a user of the pool cannot do anything about it.
tf.get_logger().addFilter(lambda record: "is deprecated and will be removed" not in str(record.msg))
logging.getLogger("absl").addFilter(lambda record: "is deprecated and will be removed" not in str(record.msg))

custom_state_ops: set[str] = set()
"""Ops of `op_libraries` that say that they have state: nobody has judged what they do with it."""


def session_config(settings: Mapping[str, Any], gpus: int, xla: bool, mixed_precision: bool) -> Any:
    """The ConfigProto of a Session. `settings`: the [tensorflow] section.

    GPU options belong to the process: the first Session's win, so they are the same for all. So are the sizes of the
    thread pools. Which GPU is used is the environment's business.
    """

    def options(kind: Any) -> Any:  # the section's keys are TensorFlow's own names; what is None has its default
        return kind(**{name: value for name, value in settings.items() if name in kind.DESCRIPTOR.fields_by_name})

    config = options(tf.compat.v1.ConfigProto)
    config.gpu_options.CopyFrom(options(tf.compat.v1.GPUOptions))
    if xla:
        config.graph_options.optimizer_options.global_jit_level = tf.compat.v1.OptimizerOptions.ON_1
    if mixed_precision:
        # `auto_mixed_precision_cpu` makes TensorFlow 2.21 raise an IndexError of C++.
        kind = "auto_mixed_precision" if gpus else "auto_mixed_precision_onednn_bfloat16"
        rewriting = config.graph_options.rewrite_options
        setattr(rewriting, kind, rewriting.ON)
    return config


def open_session(config: Any, gpus: int) -> Any:
    """A Session on an empty Graph of its own. Raises `Unfit` unless it has exactly `gpus` GPUs.

    Else models would run on the CPU in silence, where the driver is missing or the config leaves a GPU out.
    """
    with nullcontext() if gpus else _quiet():
        session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
    found = sum(device.device_type == "GPU" for device in session.list_devices())
    if found != gpus:
        session.close()
        text = f"TensorFlow {tf.__version__} sees {found} GPUs, but this worker should have {gpus}"
        environment = f"CUDA_VISIBLE_DEVICES is {os.environ.get('CUDA_VISIBLE_DEVICES')!r}"
        advice = "pip install 'tf-worker-pool[gpu]' brings CUDA's libraries; nvidia-smi shows NVIDIA's driver"
        advice += "; leave GPU out of device_count of [tensorflow]" if "GPU" in config.device_count else ""
        raise Unfit(Exit.WRONG_DEVICES, f"{text}; {environment}; {advice}")
    return session


def load_op_libraries(paths: Sequence[str]) -> None:
    """Libraries of custom ops, for the life of the process. Raises `CannotLoad` for the first that is none."""
    for path in paths:
        try:
            names = vars(tf.load_op_library(path))  # its ops, and functions that make them
        except (tf.errors.OpError, RuntimeError, OSError) as error:
            why = " ".join(str(error).split())[:400]
            text = f"op_libraries of [tensorflow]: {path} cannot be loaded into TensorFlow {tf.__version__}: {why}"
            raise CannotLoad(text) from error
        found = [op_def_registry.get(name) for name in names]
        custom_state_ops.update(op.name for op in found if op is not None and op.is_stateful)
