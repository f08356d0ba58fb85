"""Models whose rows depend on each other, and models whose rows do not: each a signature of a SavedModel.

A row that depends on its neighbours has another answer in the rows of another job, or without those of its own.
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["CHANCE", "RARE", "SHAPELESS", "dependent", "feeds_of", "independent", "save_gate", "save_swapped"]

CHANCE = frozenset(
    {"noise", "dropout", "shuffled", "v1_noise"}
)  # two runs of the same rows differ: there is no reference
SHAPELESS = frozenset(
    {"ragged", "sparse", "ragged_answer"}
)  # axes 0 of sizes of their own: never joined, whoever vouches

RARE = 12345.0  # which nobody makes up
WORDS = (b"one", b"two words", b"now three words", b"four of them here", b"", b"import os", b"\xff\x00")


@dataclasses.dataclass(frozen=True)
class Function:
    """Of rows. `takes`: the specs of what it is fed, by the name of each."""

    call: Callable[..., Mapping[str, Any]]
    takes: Mapping[str, Any]


def save(folder: Path, functions: Mapping[str, Function]) -> Path:
    import tensorflow as tf

    module = tf.Module()
    signatures = {}
    for name, function in functions.items():
        traced = tf.function(function.call, input_signature=tuple(function.takes.values()), autograph=False)
        setattr(module, name, traced)
        signatures[name] = traced
    tf.saved_model.save(module, str(folder), signatures=signatures)
    return folder


def dependent(folder: Path) -> dict[str, Path]:
    """By the name of the model: `together` with a signature a function, and `v1`, a graph of TensorFlow 1."""
    return {"together": save(folder / "together", _dependent()), "v1": _save_v1(folder / "v1")}


def _floats(name: str = "x", width: int = 4, dtype: str = "float32") -> Any:
    import tensorflow as tf

    return tf.TensorSpec([None, width], dtype, name)


def _dependent() -> dict[str, Function]:
    import tensorflow as tf

    x = {"x": _floats()}
    ids = {"id": tf.TensorSpec([None], tf.int32, "id")}
    text = {"text": tf.TensorSpec([None], tf.string, "text")}

    def of(call: Callable[[Any], Any], takes: Mapping[str, Any] = x) -> Function:
        return Function(lambda fed: {"y": call(fed)}, takes)

    def normed(x: Any) -> Any:
        mean, variance = tf.nn.moments(x, [0])
        return tf.nn.batch_normalization(x, mean, variance, None, None, 1e-3)

    def nearest(x: Any) -> Any:
        apart = tf.reduce_sum((x[:, None] - x[None]) ** 2, -1)
        return tf.reduce_min(apart + 1e9 * tf.eye(tf.shape(x)[0]), 1)

    def is_first(ids: Any) -> Any:
        rows = tf.range(tf.size(ids))
        which = tf.unique(ids)[1]
        return tf.gather(tf.math.unsorted_segment_min(rows, which, tf.size(ids)), which) == rows

    def best(x: Any) -> Any:
        return x[:, 0] >= tf.math.top_k(x[:, 0], tf.minimum(3, tf.shape(x)[0])).values[-1]

    def position(x: Any) -> Any:
        return tf.range(tf.shape(x)[0])

    return {
        "centred": of(lambda x: x - tf.reduce_mean(x, 0)),
        "softmax": of(lambda x: tf.nn.softmax(x, axis=0)),
        "cumsum": of(lambda x: tf.cumsum(x)),
        "sorted": of(lambda x: tf.gather(x, tf.argsort(x[:, 0]))),
        "ranks": of(lambda x: tf.argsort(tf.argsort(x[:, 0]))),
        "cond_on_sum": of(lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: x, lambda: -x)),
        "products": of(lambda x: tf.matmul(x, x, transpose_b=True)),
        "batch_norm": of(normed),
        "l2_norm": of(lambda x: tf.nn.l2_normalize(x, 0)),
        "from_maximum": of(lambda x: x - tf.reduce_max(x)),
        "reversed": of(lambda x: tf.reverse(x, [0])),
        "rolled": of(lambda x: tf.roll(x, 1, 0)),
        "first_seen": of(is_first, ids),
        "how_often": of(lambda ids: tf.reduce_sum(tf.cast(ids[:, None] == ids[None], tf.int32), 1), ids),
        "count": of(lambda x: tf.concat([x, tf.ones_like(x[:, :1]) * tf.cast(tf.shape(x)[0], tf.float32)], 1)),
        "share": of(lambda x: x / tf.cast(tf.shape(x)[0], tf.float32)),
        "against_first": of(lambda x: x - x[:1]),
        "against_previous": of(lambda x: x - tf.concat([x[:1], x[:-1]], 0)),
        "nearest": of(nearest),
        "best": of(best),
        "numbered": of(lambda x: x + tf.cast(position(x), tf.float32)[:, None]),
        "noise": of(lambda x: x + tf.random.normal(tf.shape(x))),
        "noise_by_position": of(lambda x: x + tf.random.stateless_normal(tf.shape(x), [1, 2])),
        "dropout": of(lambda x: tf.nn.dropout(x, 0.5)),
        "shuffled": of(lambda x: tf.random.shuffle(x)),
        "padded": of(lambda text: tf.strings.split(text).to_tensor(), text),
        "joined_text": of(lambda text: tf.strings.join([text, tf.fill([tf.size(text)], text[0])]), text),
        "gate": of(lambda x: tf.cond(tf.reduce_any(x > 2.5), lambda: 2 * x, lambda: x)),
        "gate_of_ids": of(lambda ids: tf.cond(tf.reduce_any(ids == 3), lambda: -ids, lambda: ids), ids),
        "slightly": of(lambda x: x + 0.05 * tf.reduce_mean(x)),
        "attention": of(lambda x: tf.matmul(tf.nn.softmax(tf.matmul(x, x, transpose_b=True)), x)),
        "one_of_two": Function(
            lambda x, other: {"own": x * 2, "mixed": x + tf.reduce_sum(other, 0)},
            {"x": _floats(), "other": _floats("other")},
        ),
        "ragged": Function(
            lambda r: {"y": tf.reduce_sum(r, 1)},
            {"r": tf.RaggedTensorSpec([None, None], tf.float32, row_splits_dtype=tf.int64)},
        ),
        "ragged_answer": Function(lambda text: {"y": tf.strings.split(text)}, text),
        "sparse": Function(
            lambda s: {"y": tf.sparse.reduce_sum(s, 1)}, {"s": tf.SparseTensorSpec([None, 4], tf.float32)}
        ),
    }


def _save_v1(folder: Path) -> Path:
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 4], "x")
        found = {
            "v1_whitened": (x - tf.reduce_mean(x, 0)) / (tf.math.reduce_std(x, 0) + 1e-3),
            "v1_noise": x + v1.random_normal(tf.shape(x)),
        }
        builder = v1.saved_model.builder.SavedModelBuilder(str(folder))
        info = v1.saved_model.utils.build_tensor_info
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            {
                name: v1.saved_model.signature_def_utils.build_signature_def({"x": info(x)}, {"y": info(y)})
                for name, y in found.items()
            },
        )
        builder.save()
    return folder


def independent(folder: Path) -> dict[str, Path]:
    """By the name of the model: `apart` with a signature a function, and `keras`, a recurrent network."""
    import tensorflow as tf

    tf.keras.utils.set_random_seed(3)
    keras = tf.keras.Sequential(
        [
            tf.keras.Input((6, 4), name="steps"),
            tf.keras.layers.GRU(5),
            tf.keras.layers.BatchNormalization(),
            tf.keras.layers.Dropout(0.5),
            tf.keras.layers.Dense(3, activation="softmax"),
        ]
    )
    keras.export(str(folder / "keras"), verbose=False)
    return {"apart": save(folder / "apart", _independent()), "keras": folder / "keras"}


def _independent() -> dict[str, Function]:
    import tensorflow as tf

    numbers = np.random.default_rng(11)

    def weights(*shape: int, dtype: str = "float32") -> Any:
        return tf.constant(numbers.standard_normal(shape), dtype)

    x = {"x": _floats()}
    dense, more, kernel = weights(4, 16), weights(16, 3), weights(3, 3, 1, 2)
    embedding, wide = weights(50, 5), weights(4, 4, dtype="float64")
    features = {
        "x": tf.io.FixedLenFeature([2], tf.float32),
        "word": tf.io.FixedLenFeature([], tf.string, b"none"),
    }

    def of(call: Callable[[Any], Any], takes: Mapping[str, Any] = x) -> Function:
        return Function(lambda fed: {"y": call(fed)}, takes)

    def normed(x: Any) -> Any:
        mean, variance = tf.nn.moments(x, [1], keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + 1e-3)

    def over_time(x: Any) -> Any:
        def step(index: Any, state: Any) -> tuple[Any, Any]:
            return index + 1, tf.tanh(state @ kernel_of_time + x[:, index])

        return tf.while_loop(lambda index, _: index < 5, step, (0, tf.zeros_like(x[:, 0])))[1]

    kernel_of_time = weights(4, 4)

    def parsed(example: Any) -> Mapping[str, Any]:
        found = tf.io.parse_example(example, features)
        return {"x": found["x"] * 2, "word": tf.strings.upper(found["word"])}

    return {
        "mlp": of(lambda x: tf.nn.relu(x @ dense) @ more),
        "conv": of(
            lambda x: tf.reduce_mean(tf.nn.conv2d(x, kernel, 1, "SAME"), [1, 2]),
            {"x": tf.TensorSpec([None, 8, 8, 1], tf.float32, "x")},
        ),
        "embedding": of(
            lambda ids: tf.reduce_sum(tf.gather(embedding, ids), 1), {"id": tf.TensorSpec([None, 3], tf.int64, "id")}
        ),
        "strings": Function(
            lambda text: {
                "upper": tf.strings.upper(text),
                "length": tf.strings.length(text),
                "bucket": tf.strings.to_hash_bucket_fast(text, 1000),
            },
            {"text": tf.TensorSpec([None], tf.string, "text")},
        ),
        "softmax": of(lambda x: tf.nn.softmax(x, axis=1)),
        "layer_norm": of(normed),
        "over_time": of(over_time, {"x": tf.TensorSpec([None, 5, 4], tf.float32, "x")}),
        "two": Function(
            lambda x, other: {"total": x + other, "dot": tf.reduce_sum(x * other, 1)},
            {"x": _floats(), "other": _floats("other")},
        ),
        "classifier": of(lambda x: tf.argmax(x @ dense, 1)),
        "double": of(lambda x: tf.tanh(x @ wide), {"x": _floats(dtype="float64")}),
        "best_of_row": Function(lambda x: dict(zip(("value", "at"), tf.math.top_k(x, 2), strict=True)), x),
        "brain": of(lambda x: x * 2 + 1, {"x": _floats(dtype="bfloat16")}),
        "half": of(lambda x: x * 2 + 1, {"x": _floats(dtype="float16")}),
        "any_width": of(lambda x: tf.cumsum(x, 1), {"x": tf.TensorSpec([None, None], tf.float32, "x")}),
        "parsed": Function(parsed, {"example": tf.TensorSpec([None], tf.string, "example")}),
    }


def save_gate(folder: Path) -> Path:
    """serving_default: x + 50, in fifty steps, or less than nothing if any value of the run is RARE."""
    import tensorflow as tf

    def call(x: Any) -> Mapping[str, Any]:
        added = tf.while_loop(lambda step, _: step < 50, lambda step, y: (step + 1, y + 1), (0, x))[1]
        return {"y": tf.cond(tf.reduce_any(x == RARE), lambda: -added, lambda: added)}

    return save(folder, {"serving_default": Function(call, {"x": _floats()})})


def save_swapped(folder: Path, depends: bool) -> Path:
    """serving_default: twice x, or what is left of that less its mean; the same signature."""
    import tensorflow as tf

    x = {"x": _floats()}

    def call(x: Any) -> Mapping[str, Any]:
        return {"y": 2 * x - tf.reduce_mean(x, 0) if depends else 2 * x}

    return save(folder, {"serving_default": Function(call, x)})


# --- what they are fed ----------------------------------------------------------------------------------------------


def texts(values: Any) -> np.ndarray:
    array = np.empty(len(values), object)
    array[:] = list(values)
    return array


def feeds_of(name: str, rows: int, numbers: np.random.Generator) -> dict[str, np.ndarray]:
    """What a job of so many rows gives to the function of this name. Some have more, as they are ragged."""
    x = numbers.standard_normal((rows, 4)).astype(np.float32)
    match name:
        case "first_seen" | "how_often" | "gate_of_ids":
            return {"id": numbers.integers(0, 40, rows).astype(np.int32)}
        case "padded" | "joined_text" | "ragged_answer" | "strings":
            return {"text": texts([WORDS[index] for index in numbers.integers(0, len(WORDS), rows)])}
        case "one_of_two" | "two":
            return {"x": x, "other": numbers.standard_normal((rows, 4)).astype(np.float32)}
        case "ragged":  # as many values as splits: nothing tells the two apart
            splits = np.sort(numbers.integers(0, rows + 2, rows)).astype(np.int64)
            return {"r": x[:, 0].repeat(2)[: rows + 1], "r_1": np.concatenate([[0], splits[1:], [rows + 1]])}
        case "sparse":
            at = np.stack([np.arange(rows), numbers.integers(0, 4, rows)], 1).astype(np.int64)
            return {"s": at, "s_1": x[:, 0], "s_2": np.array([rows, 4], np.int64)}
        case "conv":
            return {"x": numbers.standard_normal((rows, 8, 8, 1)).astype(np.float32)}
        case "embedding":
            return {"id": numbers.integers(0, 50, (rows, 3))}
        case "over_time":
            return {"x": numbers.standard_normal((rows, 5, 4)).astype(np.float32)}
        case "any_width":
            return {"x": numbers.standard_normal((rows, int(numbers.integers(2, 4)))).astype(np.float32)}
        case "double":
            return {"x": x.astype(np.float64)}
        case "brain":
            import ml_dtypes

            return {"x": x.astype(ml_dtypes.bfloat16)}
        case "half":
            return {"x": x.astype(np.float16)}
        case "keras":
            return {"steps": numbers.standard_normal((rows, 6, 4)).astype(np.float32)}
        case "parsed":
            return {"example": texts([_example(row) for row in x])}
    return {"x": x}


def _example(row: np.ndarray) -> bytes:
    import tensorflow as tf

    feature = {
        "x": tf.train.Feature(float_list=tf.train.FloatList(value=row[:2])),
        "word": tf.train.Feature(bytes_list=tf.train.BytesList(value=[WORDS[int(abs(row[2]) * 10) % 5]])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
