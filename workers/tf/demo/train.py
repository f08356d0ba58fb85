"""Trains the demo's model, a classifier of handwritten digits, and writes it beside this file.

    python -m workers.tf.demo.train [--out DIR]

The data is scikit-learn's bundled digits (1797 images of 8 by 8 pixels, 0 to 16), so nothing is fetched. A
fifth of them is kept for the test and never trained on; `samples.json` and `seven.json` are taken from that
fifth. On one machine and one release of TensorFlow the result is the same bit for bit.
"""

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pool.wire.tensors import Array
from workers.tf.library import tf

__all__ = ["main"]

SEED = 7
HIDDEN = 128
EPOCHS = 100
BATCH = 32
LEARNING_RATE = 2e-3
WEIGHT_DECAY = 1e-4
SAMPLES = 12


class Digits(tf.Module):  # type: ignore[misc]  # TensorFlow has no types
    """64 pixels → 128 → 128 → 10 classes. A row's answer depends on that row alone."""

    def __init__(self) -> None:
        super().__init__(name="digits")
        self.layers = [
            _dense(rows, columns, SEED + index)
            for index, (rows, columns) in enumerate([(64, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 10)])
        ]

    def logits(self, pixels: Any) -> Any:
        """[batch, 64] of 0 to 16 → [batch, 10]."""
        values = pixels / 16.0
        for weights, bias in self.layers[:-1]:
            values = tf.nn.relu(values @ weights + bias)
        weights, bias = self.layers[-1]
        return values @ weights + bias

    @tf.function(input_signature=[tf.TensorSpec([None, 64], tf.float32, name="pixels")])  # type: ignore[untyped-decorator]
    def serve(self, pixels: Any) -> dict[str, Any]:
        """The signature: the likeliest digit and the probability of each."""
        logits = self.logits(pixels)
        return {"label": tf.argmax(logits, axis=1), "probabilities": tf.nn.softmax(logits)}


def _dense(rows: int, columns: int, seed: int) -> tuple[Any, Any]:
    weights = tf.random.stateless_normal([rows, columns], [seed, 0]) * (2.0 / rows) ** 0.5
    return tf.Variable(weights, name="weights"), tf.Variable(tf.zeros([columns]), name="bias")


def split() -> tuple[Array, Array, Array, Array]:
    """Training pixels and labels, then test pixels and labels; the same every time."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    pixels = digits.data.astype(np.float32)
    train_x, test_x, train_y, test_y = train_test_split(
        pixels, digits.target, test_size=0.2, random_state=SEED, stratify=digits.target
    )
    return train_x, train_y, test_x, test_y


def train(model: Digits, pixels: Array, labels: Array) -> None:
    """Adam on shuffled batches; each image is shifted by up to one pixel, anew in each epoch."""
    random = np.random.default_rng(SEED)
    variables = model.trainable_variables
    moments = [(tf.Variable(tf.zeros_like(each)), tf.Variable(tf.zeros_like(each))) for each in variables]

    @tf.function  # type: ignore[untyped-decorator]
    def step(pixels: Any, labels: Any, count: Any, rate: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=model.logits(pixels))
            )
        gradients = tape.gradient(loss, variables)
        for variable, gradient, (first, second) in zip(variables, gradients, moments, strict=True):
            first.assign(0.9 * first + 0.1 * gradient)
            second.assign(0.999 * second + 0.001 * gradient * gradient)
            mean, square = first / (1.0 - 0.9**count), second / (1.0 - 0.999**count)
            variable.assign_sub(rate * (mean / (tf.sqrt(square) + 1e-7) + WEIGHT_DECAY * variable))

    count = 0
    batches = len(pixels) // BATCH
    for _ in range(EPOCHS):
        shifted = _shift(pixels, random)
        for rows in random.permutation(len(pixels))[: batches * BATCH].reshape(batches, BATCH):
            count += 1
            rate = LEARNING_RATE * 0.5 * (1.0 + np.cos(np.pi * count / (EPOCHS * batches)))
            step(shifted[rows], labels[rows], np.float32(count), np.float32(rate))


def _shift(pixels: Array, random: np.random.Generator) -> Array:
    padded = np.pad(pixels.reshape(-1, 8, 8), ((0, 0), (1, 1), (1, 1)))
    shifted = np.empty((len(pixels), 8, 8), np.float32)
    # Mostly not at all: the images are small, and every pixel at the border is worth something.
    offsets = random.choice([0, 1, 2], size=(len(pixels), 2), p=[0.15, 0.7, 0.15])
    for row, (down, right) in enumerate(offsets):
        shifted[row] = padded[row, down : down + 8, right : right + 8]
    return shifted.reshape(-1, 64)


def save(model: Digits, folder: Path) -> None:
    """Writes the SavedModel in place of what is there."""
    if folder.exists():
        shutil.rmtree(folder)
    tf.saved_model.save(model, str(folder), signatures={"serving_default": model.serve})
    # A fingerprint that no loader needs, and a folder with nothing in it.
    (folder / "fingerprint.pb").unlink(missing_ok=True)
    (folder / "assets").rmdir()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m workers.tf.demo.train", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to write to")
    out: Path = parser.parse_args(arguments).out
    tf.config.set_visible_devices([], "GPU")  # a GPU's sums would differ from run to run
    train_x, train_y, test_x, test_y = split()
    model = Digits()
    train(model, train_x, train_y)
    predicted = model.serve(test_x)["label"].numpy()
    accuracy = float(np.mean(predicted == test_y))
    out.mkdir(parents=True, exist_ok=True)
    save(model, out / "digits")
    images = [[int(value) for value in pixels] for pixels in test_x]
    labels = [int(label) for label in test_y]
    samples = zip(images[:SAMPLES], labels[:SAMPLES], strict=True)
    lines = ",\n".join(json.dumps({"pixels": pixels, "label": label}) for pixels, label in samples)
    (out / "samples.json").write_text(f"[\n{lines}\n]\n")
    (out / "seven.json").write_text(json.dumps(images[labels.index(7)]) + "\n")
    print(f"{accuracy:.2%} of {len(test_y)} test images are right; written to {out}")  # noqa: T201


if __name__ == "__main__":
    main()
