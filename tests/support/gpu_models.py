"""`python gpu_models.py FOLDER [NAME …]`: the models of tests/gpu, made on the CPU; `… bare FOLDER ROWS`: a Session.

`bare` says what two rows of one half give, as a line of JSON. Then, asked `{"seconds": 5}`, it runs `serving_default`
for so long in eight threads, with ROWS of the inputs of `batches`, and answers with the runs a second, and with how
many of them were in flight at most. It has the GPU that its environment shows it, with the options that a worker has.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

WIDTH = 8192  # of `wide`: a row of 32 KiB, so that 512 rows are 16 MiB
WEIGHTS_MIB = 1024  # of `heavy`
SIDE = 224
IN_FLIGHT = 8
MODELS = ("resnet", "wide", "heavy", "layers", "words")


def batches(shape: Sequence[int], dtype: Any = np.float32) -> list[np.ndarray[Any, Any]]:
    """Some that take turns, the same for whoever asks."""
    return [np.random.default_rng(seed).random(shape).astype(dtype) for seed in range(4)]


def make(folder: Path, names: Collection[str] = MODELS) -> None:
    """Each a SavedModel in a folder of its name."""
    import tensorflow as tf

    tf.keras.utils.set_random_seed(1)

    class Wide(tf.Module):
        """As long to copy to the device as to compute, more or less: a sum of what was multiplied a few times."""

        def __init__(self) -> None:
            super().__init__()
            self.weights = tf.Variable(tf.random.normal([WIDTH, 256], stddev=0.01))

        @tf.function(input_signature=[tf.TensorSpec([None, WIDTH], name="x")])
        def serve(self, x: object) -> dict[str, object]:
            product = x
            for _ in range(8):
                product = tf.matmul(tf.matmul(product, self.weights), self.weights, transpose_b=True)
            return {"y": tf.reduce_sum(product, axis=1)}

    class Heavy(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = tf.Variable(tf.zeros([WEIGHTS_MIB, 1 << 18]))  # a MiB a row

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, name="row")])
        def serve(self, row: object) -> dict[str, object]:
            return {"first": tf.gather(self.weights, row)[:, 0]}

    class Words(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
        def serve(self, text: object) -> dict[str, object]:
            return {"length": tf.strings.length(text, name="measure")}

    for name, module in (("wide", Wide), ("heavy", Heavy), ("words", Words)):
        if name in names:
            made = module()
            tf.saved_model.save(made, str(folder / name), signatures=made.serve)
    layers = tf.keras.Sequential(
        [
            tf.keras.Input((64,), name="features"),
            tf.keras.layers.Dense(64, activation="relu", name="first"),
            tf.keras.layers.Dense(64, activation="relu", name="second"),
        ]
    )
    if "layers" in names:
        layers.export(str(folder / "layers"), verbose=False)
    if "resnet" in names:
        resnet = tf.keras.applications.ResNet50(weights=None, input_shape=(SIDE, SIDE, 3))
        resnet.export(str(folder / "resnet"), verbose=False)


class Flight:
    """So many threads that run one after the other, as a pool's client has so many jobs in flight."""

    def __init__(self, run: Callable[[int], object]) -> None:
        """`run` takes the number of a run."""
        self._run = run
        self._lock = threading.Lock()
        self._begun = self._flying = self._most = self._in_time = 0

    def turn(self, seconds: float) -> dict[str, float]:
        """Of the runs that ended in time. Those still in flight then are waited for, and not counted."""
        self._begun = self._most = self._in_time = 0
        end = time.perf_counter() + seconds
        threads = [threading.Thread(target=self._main, args=(end,)) for _ in range(IN_FLIGHT)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {"runs_a_s": self._in_time / seconds, "in_flight": self._most}

    def _main(self, end: float) -> None:
        while time.perf_counter() < end:
            with self._lock:
                number = self._begun
                self._begun += 1
                self._flying += 1
                self._most = max(self._most, self._flying)
            self._run(number)
            with self._lock:
                self._flying -= 1
                self._in_time += time.perf_counter() < end


def bare(folder: Path, rows: int) -> None:
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    config.gpu_options.allow_growth = True
    with tf.compat.v1.Session(graph=tf.Graph(), config=config) as session:
        meta_graph = tf.compat.v1.saved_model.loader.load(session, ["serve"], str(folder))
        signature = meta_graph.signature_def["serving_default"]
        ((name, info),) = signature.inputs.items()
        shape = [rows, *(dim.size for dim in info.tensor_shape.dim[1:])]
        outputs = {name: output.name for name, output in signature.outputs.items()}
        inputs = batches(shape, tf.as_dtype(info.dtype).as_numpy_dtype)
        flight = Flight(lambda number: session.run(outputs, {info.name: inputs[number % len(inputs)]}))
        halves = session.run(outputs, {info.name: np.full([2, *shape[1:]], 0.5, inputs[0].dtype)})
        say({"input": name, "answers": {name: np.asarray(value).tolist() for name, value in halves.items()}})
        for line in sys.stdin:
            say(flight.turn(json.loads(line)["seconds"]))


def say(answer: object) -> None:
    print(json.dumps(answer), flush=True)  # noqa: T201  # for its parent


if __name__ == "__main__":
    if sys.argv[1] == "bare":
        bare(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        make(Path(sys.argv[1]), sys.argv[2:] or MODELS)
