"""Which graphs are fed a client's memory as it is, and which get a copy: those whose kernels index by values."""

from pathlib import Path

import pytest
from tensorflow.core.framework import op_def_pb2
from tensorflow.python.client import pywrap_tf_session

from benchmarks.models import make_of_numbers
from pool.config.load import demo_folder
from pool.wire.session_runs import PRIVATE_RUN, RUN, TRACE_LEVEL, WRITING_RUN
from workers.tf.adoption import HARMLESS
from workers.tf.library import tf

pytestmark = pytest.mark.tensorflow

RAW = tf.raw_ops
FLOATS = tf.TensorSpec([None, 8], tf.float32, name="x")

HARMFUL = {
    "top_k": lambda x: tf.math.top_k(x, 2).indices,
    "top_k_of_another": lambda x: tf.math.top_k(tf.nn.relu(x) + 1.0, 2).indices,
    "sort": tf.sort,
    "argsort": tf.argsort,
    "nth": lambda x: RAW.NthElement(input=x, n=2),
    "where": tf.where,
    "mask": lambda x: tf.boolean_mask(x, x[:, 0] > 0),
    "unique": lambda x: tf.unique(x[:, 0]).idx,
    "suppression": lambda x: tf.image.non_max_suppression(x[:, :4], x[:, 0], 3),
    "sampling": lambda x: tf.random.categorical(x, 2),
    "search": lambda x: tf.searchsorted(x, x),
    "buckets": lambda x: RAW.Bucketize(input=x, boundaries=[0.0, 1.0]),
    "histogram": lambda x: tf.histogram_fixed_width(x, [0.0, 1.0]),
    "gather": lambda x: tf.gather(x, tf.cast(x[:, 0], tf.int32)),
    "scatter": lambda x: tf.tensor_scatter_nd_add(x, tf.cast(x[:, :1], tf.int32), x),
    "crops": lambda x: tf.image.crop_and_resize(
        tf.ones([1, 4, 4, 1]), x[:, :4], tf.zeros_like(x[:, 0], tf.int32), [2, 2]
    ),
    "bits": lambda x: tf.bitcast(x, tf.int32),
    "strings": tf.strings.as_string,
    "python": lambda x: tf.numpy_function(lambda array: array, [x], tf.float32),
    "in_a_branch": lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: tf.sort(x), lambda: x),
    "in_a_loop": lambda x: tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.sort(y)), [0, x])[1],
    "in_a_function": lambda x: tf.function(tf.function(tf.sort))(x),
    "in_every_row": lambda x: tf.map_fn(tf.sort, x),
}

HARMLESS_OF_ALL_KINDS = {
    "in_a_branch": lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: tf.nn.relu(x), lambda: x),
    "in_a_loop": lambda x: tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.tanh(y)), [0, x])[1],
    "in_a_function": lambda x: tf.function(tf.nn.softmax)(x),
    "of_shapes": lambda x: tf.reshape(tf.pad(tf.transpose(x), [[0, 0], [1, 1]]), [tf.shape(x)[1], -1]),
}


def save(folder: Path, functions) -> Path:
    module = tf.Module()
    signatures = {
        name: tf.function(lambda x, call=call: {"y": call(x)}).get_concrete_function(FLOATS)
        for name, call in functions.items()
    }
    tf.saved_model.save(module, str(folder), signatures=signatures)
    return folder


@pytest.fixture(scope="module")
def mixed(models: Path) -> Path:
    """Harmful and harmless signatures in one graph."""
    harmless = {f"harmless_{name}": call for name, call in HARMLESS_OF_ALL_KINDS.items()}
    return save(models / "mixed", {**HARMFUL, **harmless})


def test_the_list_names_ops() -> None:
    known = op_def_pb2.OpList.FromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))
    assert not HARMLESS - {op.name for op in known.op}


@pytest.mark.parametrize("name", HARMFUL)
def test_what_compares_and_then_indexes_gets_a_copy(load, mixed, name) -> None:
    assert not load(mixed).bears_change(name, ["x"], ["y"])


@pytest.mark.parametrize("name", HARMLESS_OF_ALL_KINDS)
def test_what_only_computes_takes_what_it_is_fed(load, mixed, name) -> None:
    assert load(mixed).bears_change(f"harmless_{name}", ["x"], ["y"])


def test_the_models_of_the_benchmark_and_the_demo_take_what_they_are_fed(load, models) -> None:
    cases = make_of_numbers(models)
    assert {"mlp", "image", "cnn"} <= cases.keys()
    for case in cases.values():
        assert load(Path(case.path)).bears_change(case.signature, [case.input], [case.output]), case.name
    digits = load(demo_folder() / "digits")
    for name, signature in digits.info.signatures.items():
        assert digits.bears_change(name, list(signature.inputs), list(signature.outputs)), name


def test_so_does_a_convolutional_model_of_keras(load, models) -> None:
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Input([32, 32, 3]),
            layers.Rescaling(1 / 255),
            layers.Conv2D(4, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.DepthwiseConv2D(3),
            layers.ReLU(6.0),
            layers.MaxPooling2D(),
            layers.Conv2DTranspose(4, 3),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.export(str(models / "convolutional"), verbose=False)
    loaded = load(models / "convolutional")
    (signature,) = {"serving_default"} & loaded.info.signatures.keys()
    spec = loaded.info.signatures[signature]
    assert loaded.bears_change(signature, list(spec.inputs), list(spec.outputs))


@pytest.fixture(scope="module")
def by_name(models: Path) -> Path:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [None, 8], name="x")
        doubled = tf.multiply(x, 2.0, name="doubled")
        tf.identity(tf.sort(doubled), name="sorted")
        tf.compat.v1.saved_model.simple_save(session, str(models / "by_name"), {"x": x}, {"y": doubled})
    return models / "by_name"


@pytest.mark.parametrize("signature", [RUN, WRITING_RUN, PRIVATE_RUN])
def test_a_run_by_name_is_judged_by_what_leads_to_its_fetches(load, by_name, signature) -> None:
    model = load(by_name)
    assert model.bears_change(signature, ["x:0", TRACE_LEVEL], ["doubled:0"])
    assert not model.bears_change(signature, ["x:0"], ["doubled:0", "sorted:0"])
    assert not model.bears_change(signature, ["doubled:0"], ["sorted"])
    assert not model.bears_change(signature, ["x:0"], ["no_such_tensor:0"])
