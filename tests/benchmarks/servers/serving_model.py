"""A SavedModel behind a prepared callable, as every peer serves it and as the process itself runs it.

Runs in the peers' environments too, which have TensorFlow and numpy but nothing of ours.
"""

import os
from collections.abc import Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.config_pb2 import CallableOptions

from benchmarks.cases import Array, Case

__all__ = ["ServingModel"]

ALIGNMENT = 64
"""TensorFlow takes over a fed buffer without a copy only where it is aligned so."""
JOINED_BYTES = 4096
"""Smaller rows are joined by Python in one go; larger ones are copied once, to where TensorFlow takes them from."""


class ServingModel:
    """`session`, `feed` and `fetch` are those of a Session with the default `ConfigProto`, unless `threads` says else.

    `prepared` takes the feed and gives a list of one array. It runs in the caller's thread, which is the fastest for
    graphs like these. One that belongs to one thread; another needs another.
    """

    def __init__(self, case: Case, threads: int = 0) -> None:
        """`threads`: of TensorFlow within an operation; 0: one a core."""
        config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=threads)
        self.session: Any = tf.compat.v1.Session(graph=tf.Graph(), config=config)
        with self.session.graph.as_default():
            meta_graph = tf.compat.v1.saved_model.loader.load(self.session, ["serve"], case.path)
        definition = meta_graph.signature_def[case.signature]
        self.feed = definition.inputs[case.input].name
        self.fetch = definition.outputs[case.output].name
        run = tf.compat.v1.RunOptions(inter_op_thread_pool=-1)
        options = CallableOptions(feed=[self.feed], fetch=[self.fetch], run_options=run)
        self.prepared: Any = self.session._make_callable_from_options(options)
        self._case = case
        self._buffer: Array | None = None

    def run(self, batch: Array) -> Array:
        """[rows, *row] in, [rows, …] out; may alias what was fed."""
        answer: Array = self.prepared(batch)[0]
        return answer

    def answer(self, bodies: Sequence[Any]) -> list[bytes]:
        """The raw bytes of a row each in, those of its answer out."""
        fetched = np.ascontiguousarray(self.run(self.joined(bodies)))
        size = fetched.nbytes // len(bodies)
        raw = fetched.tobytes()
        return [raw[start : start + size] for start in range(0, len(raw), size)]

    def joined(self, bodies: Sequence[Any]) -> Array:
        """[rows, *row]; valid until the next call."""
        case = self._case
        if case.dtype == "string":
            texts = np.empty(len(bodies), object)
            texts[:] = [bytes(body) for body in bodies]  # mosec gives bytearrays, which TensorFlow does not take
            return texts
        size = len(bodies[0])
        if size < JOINED_BYTES:
            return np.frombuffer(b"".join(bodies), case.dtype).reshape(len(bodies), *case.row)
        if self._buffer is None or len(self._buffer) < len(bodies):
            self._buffer = _aligned(max(len(bodies), case.max_batch), size)
        for number, body in enumerate(bodies):
            self._buffer[number] = np.frombuffer(body, np.uint8)
        return self._buffer[: len(bodies)].reshape(-1).view(case.dtype).reshape(len(bodies), *case.row)


def _aligned(rows: int, size: int) -> Array:
    raw = np.zeros(rows * size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + rows * size].reshape(rows, size)
