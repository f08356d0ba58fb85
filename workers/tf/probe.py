"""`python -m workers.tf.probe`: which GPUs TensorFlow sees, what they compute, and memory that it takes there."""

import re
from typing import Any

import numpy as np

from pool.wire.probe import ProbeAnswer, ProbeOrder, SeenGpu
from workers.probe import main

__all__ = ["look", "seen_gpu"]

_BUS = re.compile(r"pci bus id: ([0-9a-fA-F:.]+)")
_NAME = re.compile(r"name: ([^,]+)")
_CAPABILITY = re.compile(r"compute capability: ([\d.]+)")
_BUILT_FOR = {"cuda": "cuda_version", "cudnn": "cudnn_version", "capabilities": "cuda_compute_capabilities"}


def look(order: ProbeOrder) -> tuple[ProbeAnswer, object]:
    # Not before the memory of the GPU is free.
    from tensorflow.python.client import device_lib

    from workers.tf.library import tf
    from workers.tf.session import config_proto, open_session

    config = config_proto(order.tensorflow)
    # Only this names the card; with the same config it takes no more of it than the Session does.
    listed = device_lib.list_local_devices(config)
    gpus = tuple(seen_gpu(device) for device in listed if device.device_type == "GPU")
    answer = ProbeAnswer("", tf.__version__, _built_for(tf), gpus)
    if order.gpus is None:
        return answer, None
    session = open_session(config, order.gpus)
    difference = _computed(tf, session, "/gpu:0" if order.gpus else "/cpu:0")
    if order.hold_bytes:
        with session.graph.as_default(), tf.device("/gpu:0" if order.gpus else "/cpu:0"):
            held = tf.compat.v1.get_variable("held", initializer=tf.zeros([order.hold_bytes // 4]), use_resource=True)
        session.run(held.initializer)
    return ProbeAnswer("", answer.version, answer.built_for, gpus, difference), session


def _built_for(tf: Any) -> dict[str, str]:
    info = tf.sysconfig.get_build_info()
    if not info.get("is_cuda_build"):
        return {}
    found = {name: info.get(key, "") for name, key in _BUILT_FOR.items()}
    return {name: value if isinstance(value, str) else " ".join(value) for name, value in found.items()}


def seen_gpu(device: Any) -> SeenGpu:
    """`device`: of `list_local_devices`."""
    text = device.physical_device_desc
    bus, name, capability = (_first(pattern, text) for pattern in (_BUS, _NAME, _CAPABILITY))
    return SeenGpu(bus, name, capability, device.memory_limit)


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found[1] if found else ""


def _computed(tf: Any, session: Any, device: str) -> float:
    """How far a convolution and a product, by cuDNN and cuBLAS, are from the CPU's. Fed, or they would be folded."""
    shapes = {"image": (4, 16, 16, 8), "kernel": (3, 3, 8, 16), "weights": (16 * 16 * 16, 32)}
    random = np.random.default_rng(1)
    with session.graph.as_default():
        fed = {
            tf.compat.v1.placeholder(tf.float32, shape, name): random.random(shape) for name, shape in shapes.items()
        }
        image, kernel, weights = fed
        found = []
        for each in ("/cpu:0", device):
            with tf.device(each):
                hidden = tf.nn.conv2d(image, kernel, 1, "SAME")
                found.append(tf.matmul(tf.reshape(hidden, [4, -1]), weights))
    expected, got = session.run(found, fed)
    return float(np.max(np.abs(got - expected) / np.abs(expected)))


if __name__ == "__main__":
    main(look)
