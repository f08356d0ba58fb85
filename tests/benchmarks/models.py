"""Makes the models that are measured, as SavedModels, with TensorFlow."""

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.cases import Case

__all__ = ["ECHO_VALUES", "make", "make_of_numbers"]

ECHO_VALUES = 16 << 20
"""float32 values of 64 MiB."""
GUESSLANG = "guesslang==2.2.1"


def make(folder: Path, say: Callable[[str], None]) -> dict[str, Case]:
    """`mlp`, `image`, `cnn`, `guesslang` and `echo64`, each a folder in `folder`."""
    return {**make_of_numbers(folder), "guesslang": _guesslang(folder / "guesslang", say)}


def make_of_numbers(folder: Path) -> dict[str, Case]:
    """All but `guesslang`: those whose inputs are floats."""
    import tensorflow as tf

    tf.keras.utils.set_random_seed(1)
    made: dict[str, Case] = {}

    def save(name: str, row: tuple[int | None, ...], rows: int, function: Callable[[Any], Any], **kept: Any) -> None:
        module = tf.Module()
        for key, value in kept.items():
            setattr(module, key, value)  # or its variables are lost
        traced = tf.function(
            lambda x: {"y": function(x)}, input_signature=[tf.TensorSpec([None, *row], tf.float32, name="x")]
        )
        tf.saved_model.save(module, str(folder / name), signatures=traced)
        shape = tuple(size or ECHO_VALUES for size in row)
        made[name] = Case(name, str(folder / name), "serving_default", "x", "y", "float32", shape, rows)

    first, second = tf.Variable(tf.random.normal([64, 256])), tf.Variable(tf.random.normal([256, 10]))
    save("mlp", (64,), 128, lambda x: tf.nn.relu(x @ first) @ second, first=first, second=second)
    save("image", (224, 224, 3), 16, lambda x: tf.reduce_mean(x, [1, 2, 3]))
    near, far = tf.Variable(tf.random.normal([3, 3, 3, 16])), tf.Variable(tf.random.normal([3, 3, 16, 16]))

    def convolve(x: Any) -> Any:
        hidden = tf.nn.relu(tf.nn.conv2d(x, near, 2, "SAME"))
        return tf.reduce_mean(tf.nn.relu(tf.nn.conv2d(hidden, far, 2, "SAME")), [1, 2])

    save("cnn", (32, 32, 3), 32, convolve, near=near, far=far)
    # A number that takes no time to find, so that nothing but the way there is measured.
    save("echo64", (None,), 1, lambda x: x[:, 0] + x[:, -1])
    return made


def _guesslang(folder: Path, say: Callable[[str], None]) -> Case:
    """The real one, an Estimator's export of others in a wheel; without a package index a stand-in of its kind."""
    folder.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(folder), GUESSLANG]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return _stand_in(folder, say, "pip download took more than 120 s")
    if done.returncode:
        return _stand_in(folder, say, (done.stderr.strip().splitlines() or ["?"])[-1])
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    path = str(folder / "guesslang" / "data" / "model")
    return Case("guesslang", path, "predict", "content", "probabilities", "string", (), 32)


def _stand_in(folder: Path, say: Callable[[str], None], why: str) -> Case:
    """Not guesslang, but of its kind: bytes in pairs, hashed into buckets, embedded, averaged, and one linear layer."""
    import tensorflow as tf

    say(f"guesslang is a stand-in in this run, {GUESSLANG} could not be had: {why}")
    module = tf.Module()
    module.table = tf.Variable(tf.random.normal([5000, 70]))
    module.weights = tf.Variable(tf.random.normal([70, 54]))

    def scores(content: Any) -> dict[str, Any]:
        pairs = tf.strings.ngrams(tf.strings.bytes_split(content), 2)
        buckets = tf.strings.to_hash_bucket_fast(pairs, 5000)
        means = tf.reduce_mean(tf.gather(module.table, buckets), 1)
        return {"probabilities": tf.nn.softmax(tf.reshape(means, [-1, 70]) @ module.weights)}

    traced = tf.function(scores, input_signature=[tf.TensorSpec([None], tf.string, name="content")])
    tf.saved_model.save(module, str(folder / "stand-in"), signatures=traced)
    return Case("guesslang", str(folder / "stand-in"), "serving_default", "content", "probabilities", "string", (), 32)
