"""`layer_devices = "least-loaded"`: what a traced run shows of it, and the bytes on each device."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
import tensorflow as tf

from pool.wire.worker_messages import ModelSettings
from workers.tf.backend import TensorFlowBackend
from workers.tf.balancing import SMALL_BYTES, balance
from workers.tf.devices import Devices

pytestmark = pytest.mark.tensorflow

X = np.arange(256, dtype=np.float32).reshape(2, 128) / 256
TWO = Devices(["/job:localhost/replica:0/task:0/device:CPU:0", "/job:localhost/replica:0/task:0/device:CPU:1"])


@pytest.fixture(scope="module")
def backend(tensorflow_settings):
    return TensorFlowBackend(dataclasses.replace(tensorflow_settings, device_count={"CPU": 2}), gpus=0)


@pytest.fixture(scope="module")
def tall(models):
    """Four layers of 64, 128, 128 and 256 KiB with small biases, in functions and a loop; and a counter of integers."""

    class Tall(tf.Module):
        def __init__(self):
            super().__init__()
            widths = (128, 128, 256, 128, 512)
            rng = np.random.default_rng(7)
            pairs = list(pairwise(widths))
            self.kernels = [
                tf.Variable(rng.normal(size=pair).astype(np.float32) / 16, name=f"kernel{i}")
                for i, pair in enumerate(pairs)
            ]
            self.biases = [tf.Variable(np.zeros(pair[1], np.float32), name=f"bias{i}") for i, pair in enumerate(pairs)]
            self.count = tf.Variable(np.zeros([256, 256], np.int32), name="count")

        @tf.function
        def layer(self, x, number):
            with tf.name_scope(f"layer{number}"):
                return tf.nn.relu(tf.matmul(x, self.kernels[number]) + self.biases[number])

        @tf.function(input_signature=[tf.TensorSpec([None, 128], name="x")])
        def whole(self, x):
            for _ in tf.range(2):
                x = self.layer(x, 0)
            for number in (1, 2, 3):
                x = self.layer(x, number)
            return {"y": x + tf.cast(self.count[0, 0], tf.float32)}

    module = Tall()
    folder = models / "tall"
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.whole})
    return folder


def settings(folder, **others):
    return ModelSettings("tall", str(folder), True, **others)


def test_variables_are_spread_by_bytes_and_answers_stay_to_the_bit(backend, tall):
    plain = backend.load(settings(tall)).run("serving_default", {"x": X}, ["y"])["y"]
    model = backend.load(settings(tall, least_loaded=True))
    report = model.placement()
    nodes = {each["node"]: each["device"] for each in report["signatures"]["serving_default"]["nodes"]}
    sizes = {"kernel0": 64, "kernel1": 128, "kernel2": 128, "kernel3": 256}
    loads = {"/cpu:0": 0, "/cpu:1": 0}
    for name, kib in sizes.items():
        loads[nodes[name]] += kib
    # 256 | 128 + 128, and the 64 where the biases are not.
    assert sorted(loads.values()) == [256, 320]
    assert {nodes[f"bias{number}"] for number in range(4)} == {"/cpu:0"}
    assert nodes["count"] == "/cpu:0", "integers stay where TensorFlow puts them"
    products = {name: device for name, device in nodes.items() if name.endswith("/MatMul")}
    assert len(products) == 4
    for name, device in products.items():
        number = name[name.index("layer") + len("layer")]
        assert device == nodes[f"kernel{number}"], "it computes where its weights are"
    assert [(rule["layers"], rule["device"], rule["kept"]) for rule in report["rules"]] == [
        ("least-loaded", "/cpu:0", True),
        ("least-loaded", "/cpu:1", True),
    ]
    np.testing.assert_array_equal(model.run("serving_default", {"x": X}, ["y"])["y"], plain)


def graph(build):
    with tf.Graph().as_default() as built:
        build()
    return built.as_graph_def()


def test_constants_of_a_frozen_graph_count_as_variables():
    def build():
        x = tf.compat.v1.placeholder(tf.float32, [None, 256], name="x")
        for number in range(3):
            x = tf.matmul(x, tf.constant(np.ones((256, 256), np.float32), name=f"w{number}"), name=f"y{number}")
        tf.add(x, tf.constant(np.ones(256, np.float32), name="small"), name="z")

    rules, moved = balance(graph(build), TWO)
    assert [rule.device for rule in rules] == ["/cpu:0", "/cpu:1"]
    expected = {"w0": 0, "w1": 1, "w2": 0, "y0": 0, "y1": 1, "y2": 0}
    assert {name: number for (_, name), number in moved.items()} == expected


def test_reference_variables_go_with_their_readers_and_small_ones_stay_together():
    def build():
        large = tf.compat.v1.get_variable("large", initializer=tf.ones([128, 256]), use_resource=False)
        larger = tf.compat.v1.get_variable("larger", initializer=tf.ones([256, 256]), use_resource=False)
        tf.compat.v1.get_variable("bias", initializer=tf.ones([256]), use_resource=False)
        tf.compat.v1.get_variable("words", initializer=tf.constant(["a"] * 3))
        tf.matmul(large, larger, name="product")

    _, moved = balance(graph(build), TWO)
    found = {name: number for (_, name), number in moved.items()}
    assert SMALL_BYTES <= 128 * 256 * 4
    assert found["bias"] == 0
    assert found["larger"] == found["larger/read"] == found["larger/Assign"] == found["product"] == 1
    assert found["large"] == found["large/read"] == 0
    assert not [name for name in found if name.startswith("words")]


def test_it_is_the_same_every_time_and_nothing_where_there_is_one_device():
    def build():
        for number in range(5):
            tf.Variable(np.ones((256, 256), np.float32), name=f"v{number}")

    one = Devices(TWO.names[:1])
    built = graph(build)
    assert balance(built, TWO) == balance(built, TWO)
    assert balance(built, one) == ((), {})


def test_the_gpus_of_a_group_and_not_the_cpu_are_what_it_is_spread_over():
    def build():
        tf.Variable(np.ones((256, 256), np.float32), name="v")

    names = [f"/job:localhost/replica:0/task:0/device:{kind}" for kind in ("CPU:0", "GPU:0", "GPU:1")]
    rules, moved = balance(graph(build), Devices(names))
    assert [rule.device for rule in rules] == ["/gpu:0", "/gpu:1"]
    assert set(moved.values()) <= {0, 1}


def test_a_variable_of_unknown_shape_weighs_nothing():
    def build():
        tf.Variable(np.ones((256, 256), np.float32), name="known")
        tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=tf.TensorShape(None), shared_name="unknown", name="unknown")

    _, moved = balance(graph(build), TWO)
    found = {name: number for (_, name), number in moved.items()}
    assert found["unknown"] == 0
