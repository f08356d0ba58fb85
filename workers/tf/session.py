"""The `ConfigProto` of a worker and the Sessions made with it.

GPU options belong to the process, not to a Session (the first Session's win, and others fail or run on the
wrong card), so one config is built for each worker and every model's Session gets that one.
"""

from typing import Any

from pool.wire.messages import SessionSettings
from workers.tf.library import tf

__all__ = ["config_proto", "open_session"]


def config_proto(settings: SessionSettings) -> Any:
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


def open_session(config: Any) -> Any:
    """A `tf.compat.v1.Session` on a new, empty Graph of its own."""
    return tf.compat.v1.Session(graph=tf.Graph(), config=config)
