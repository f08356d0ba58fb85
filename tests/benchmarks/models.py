"""The models that are measured, as every side sees them. It runs in mosec's environment, too, which has no pool."""

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

TINY, IMAGE = "tiny", "image"
SHAPES = {TINY: (64,), IMAGE: (224, 224, 3)}
ROWS = 16  # different rows take turns, so that answers to other rows are noticed
SMALL_BYTES = 4096  # Python joins smaller rows in one go
MOST_BYTES = 64 << 20  # of a batch
ALIGNMENT = 64  # TensorFlow takes such memory without a copy

logging.getLogger("tensorflow").setLevel("ERROR")
os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")  # for all that is started, too

Array = np.ndarray[Any, Any]

random = np.random.default_rng(7)
WEIGHTS, BIAS = random.standard_normal((64, 10), np.float32), random.standard_normal(10, np.float32)
EXPECTED: dict[str, Callable[[Array], Array]] = {
    TINY: lambda row: row @ WEIGHTS + BIAS,
    IMAGE: lambda row: row.mean((1, 2, 3)),
}


def rows_of(model: str) -> list[Array]:
    """Arrays of one row each; each is brighter than the one before it."""
    values = np.random.default_rng(1).random((ROWS, 1, *SHAPES[model]), np.float32)
    return [row * np.float32(1 + number / 4) for number, row in enumerate(values)]


def check(model: str, row: Array, answer: Array) -> None:
    """A side that gives wrong answers is not measured."""
    np.testing.assert_allclose(answer.ravel(), EXPECTED[model](row).ravel(), 1e-3, 1e-3)


def save(folder: Path) -> None:
    """SavedModels of y = x·w + b, and of the mean over an image."""
    import tensorflow as tf

    v1 = tf.compat.v1
    for model in (TINY, IMAGE):
        with tf.Graph().as_default(), v1.Session() as session:
            x = v1.placeholder(tf.float32, [None, *SHAPES[model]])
            y = x @ WEIGHTS + BIAS if model == TINY else tf.reduce_mean(x, [1, 2, 3])
            v1.saved_model.simple_save(session, str(folder / model), {"x": x}, {"y": y})


class Graph:
    """A SavedModel in a Session of this process, with a default `ConfigProto`."""

    def __init__(self, path: Path) -> None:
        import tensorflow as tf
        from tensorflow.core.protobuf.config_pb2 import CallableOptions

        self._session = tf.compat.v1.Session(graph=tf.Graph())
        with self._session.graph.as_default():
            loaded = tf.compat.v1.saved_model.load(self._session, ["serve"], str(path))
        definition = loaded.signature_def["serving_default"]
        self._x, self._y = definition.inputs["x"].name, definition.outputs["y"].name
        options = CallableOptions(feed=[self._x], fetch=[self._y])
        options.run_options.inter_op_thread_pool = -1  # in the caller's thread: the fastest for such graphs
        self._prepared = self._session._make_callable_from_options(options)
        memory = np.zeros(MOST_BYTES, np.uint8)
        self._shape, self._memory = SHAPES[path.name], memory[-memory.ctypes.data % ALIGNMENT :]

    def run(self, row: Array) -> Array:
        return self._session.run(self._y, {self._x: row})  # type: ignore[no-any-return]

    def answer(self, bodies: Sequence[bytes]) -> list[bytes]:
        """Raw rows in, raw answers out, by a prepared callable."""
        size = len(bodies[0])
        if size <= SMALL_BYTES:
            joined = np.frombuffer(b"".join(bodies), np.float32)
        else:
            for number, body in enumerate(bodies):
                self._memory[number * size : number * size + size] = np.frombuffer(body, np.uint8)
            joined = self._memory[: len(bodies) * size].view(np.float32)
        raw = self._prepared(joined.reshape(-1, *self._shape))[0].tobytes()
        size = len(raw) // len(bodies)
        return [raw[begin : begin + size] for begin in range(0, len(raw), size)]
