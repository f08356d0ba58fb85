"""The `ConfigProto` of a worker and the Sessions made with it.

GPU options belong to the process, not to a Session (the first Session's win, and others fail or run on the
wrong card), so one config is built for each worker and every model's Session gets that one, or one that differs in
what is a Session's own.
"""

from typing import Any

from pool.wire.worker_messages import ModelSettings, TensorFlowSettings
from workers.backend import WrongDevices
from workers.tf.devices import Devices
from workers.tf.library import RewriterConfig, tf

__all__ = ["config_of_model", "config_proto", "devices_of", "open_session"]


def config_proto(settings: TensorFlowSettings) -> Any:
    """The `tf.compat.v1.ConfigProto` of these settings. Which GPU is used is the environment's business."""
    config = tf.compat.v1.ConfigProto(
        allow_soft_placement=settings.allow_soft_placement,
        log_device_placement=settings.log_device_placement,
        intra_op_parallelism_threads=settings.intra_op_parallelism_threads,
        inter_op_parallelism_threads=settings.inter_op_parallelism_threads,
        device_count=dict(settings.device_count),
    )
    config.gpu_options.allow_growth = settings.allow_growth
    config.gpu_options.per_process_gpu_memory_fraction = settings.per_process_gpu_memory_fraction
    if settings.jit:
        config.graph_options.optimizer_options.global_jit_level = tf.compat.v1.OptimizerOptions.ON_1
    return config


def config_of_model(settings: ModelSettings, worker: Any) -> Any:
    """The `ConfigProto` of a model's Session: that of its worker, unless the model asks for something else.

    With `layer_devices` grappler's remapper is off. It makes one node of several, on the device of one of them.
    """
    ruled = bool(settings.layer_devices) or settings.least_loaded
    if settings.tensorflow is None and not ruled:
        return worker
    config = tf.compat.v1.ConfigProto()
    config.CopyFrom(worker if settings.tensorflow is None else config_proto(settings.tensorflow))
    if ruled:
        config.graph_options.rewrite_options.remapping = RewriterConfig.OFF
    return config


def devices_of(session: Any) -> Devices:
    return Devices(device.name for device in session.list_devices())


def open_session(config: Any, gpus: int) -> Any:
    """A `tf.compat.v1.Session` on a new, empty Graph of its own.

    Raises `WrongDevices` unless it has exactly `gpus` GPUs: its config may leave out some that TensorFlow sees,
    and models would run on the CPU in silence.
    """
    session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
    found = sum(device.device_type == "GPU" for device in session.list_devices())
    if found != gpus:
        session.close()
        counts = dict(config.device_count)
        why = f"device_count of [tensorflow] is {counts}: leave GPU out of it" if "GPU" in counts else "see the log"
        raise WrongDevices(f"a Session of this worker has {found} GPUs, but it should have {gpus}; {why}")
    return session
