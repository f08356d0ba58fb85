"""`python gpu_models.py FOLDER`: the models of tests/gpu, made on the CPU; `… bare FOLDER ROWS SECONDS`: a Session.

`bare` prints the runs a second of one thread that feeds ROWS of zeros to `serving_default`, as JSON, with the outputs
of rows of one half. It has the GPU that its environment shows it, with the options that a worker has.
"""

import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

WIDTH = 8192  # of `wide`: a row of 32 KiB, so that 512 rows are 16 MiB
WEIGHTS_MIB = 1024  # of `heavy`
SIDE = 224


def make(folder: Path) -> None:
    """`resnet`, `wide`, `heavy`, `layers` and `words`, each a SavedModel in a folder of its name."""
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

    for name, module in (("wide", Wide()), ("heavy", Heavy()), ("words", Words())):
        tf.saved_model.save(module, str(folder / name), signatures=module.serve)
    layers = tf.keras.Sequential(
        [
            tf.keras.Input((64,), name="features"),
            tf.keras.layers.Dense(64, activation="relu", name="first"),
            tf.keras.layers.Dense(64, activation="relu", name="second"),
        ]
    )
    layers.export(str(folder / "layers"), verbose=False)
    resnet = tf.keras.applications.ResNet50(weights=None, input_shape=(SIDE, SIDE, 3))
    resnet.export(str(folder / "resnet"), verbose=False)


def bare(folder: Path, rows: int, seconds: float) -> None:
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    config.gpu_options.allow_growth = True
    with tf.compat.v1.Session(graph=tf.Graph(), config=config) as session:
        meta_graph = tf.compat.v1.saved_model.loader.load(session, ["serve"], str(folder))
        signature = meta_graph.signature_def["serving_default"]
        ((name, info),) = signature.inputs.items()
        shape = [rows, *(dim.size for dim in info.tensor_shape.dim[1:])]
        outputs = {name: output.name for name, output in signature.outputs.items()}
        x = np.zeros(shape, tf.as_dtype(info.dtype).as_numpy_dtype)
        for _ in range(3):
            session.run(outputs, {info.name: x})
        runs, began = 0, time.perf_counter()
        while (took := time.perf_counter() - began) < seconds:
            session.run(outputs, {info.name: x})
            runs += 1
        halves = session.run(outputs, {info.name: np.full([2, *shape[1:]], 0.5, x.dtype)})
        answers = {name: np.asarray(value).tolist() for name, value in halves.items()}
        print(json.dumps({"input": name, "runs_a_s": runs / took, "answers": answers}))  # noqa: T201  # for its parent


if __name__ == "__main__":
    if sys.argv[1] == "bare":
        bare(Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
    else:
        make(Path(sys.argv[1]))
