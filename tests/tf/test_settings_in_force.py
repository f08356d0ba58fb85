"""What a configuration asks of TensorFlow is what the workers of a running pool do; each fails where it is ignored.

`integration/test_settings_in_force.py` has the keys that need no TensorFlow.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from pool import Client
from support.pool_process import PoolProcess, pool_process, stub_config
from tf.processor import HAS_BFLOAT16

pytestmark = [pytest.mark.tensorflow, pytest.mark.models]

# TensorFlow's C interface: its C++ headers would take a minute to compile.
OP = """
#include <stddef.h>
#include "tensorflow/c/kernels.h"
#include "tensorflow/c/ops.h"
#include "tensorflow/c/tf_tensor.h"
static void shape(TF_ShapeInferenceContext* c, TF_Status* s) { TF_ShapeInferenceContextSetUnknownShape(c, s); }
static void compute(void*, TF_OpKernelContext* c) {
  TF_Status* s = TF_NewStatus();
  TF_Tensor* x = NULL;
  TF_GetInput(c, 0, &x, s);
  int64_t n = TF_TensorElementCount(x);
  TF_Tensor* y = TF_AllocateOutput(c, 0, TF_FLOAT, &n, 1, n * sizeof(float), s);
  for (int64_t i = 0; i < n; ++i) ((float*)TF_TensorData(y))[i] = 2 * ((float*)TF_TensorData(x))[i];
  TF_DeleteTensor(x);
  TF_DeleteTensor(y);
  TF_DeleteStatus(s);
}
__attribute__((constructor)) static void add() {
  TF_Status* s = TF_NewStatus();
  TF_OpDefinitionBuilder* op = TF_NewOpDefinitionBuilder("OddlyDoubled");
  TF_OpDefinitionBuilderAddInput(op, "x: float");
  TF_OpDefinitionBuilderAddOutput(op, "y: float");
  TF_OpDefinitionBuilderSetShapeInferenceFunction(op, shape);
  TF_RegisterOpDefinition(op, s);
  TF_RegisterKernelBuilder("OddlyDoubled", TF_NewKernelBuilder("OddlyDoubled", "CPU", NULL, compute, NULL), s);
  TF_DeleteStatus(s);
}
"""
MODELS = """
[tensorflow]
op_libraries = [{libraries}]
[[model]]
name = "usual"
path = "tagged"
[[model]]
name = "chosen"
path = "tagged"
tags = ["serve", "gpu"]
{odd}
[[model]]
name = "kept"
path = "second.pb"
tensorflow = {{ device_count = {{ CPU = 2 }} }}
[[model]]
name = "cleared"
path = "second.pb"
advanced.clear_devices = "all"
tensorflow = {{ device_count = {{ CPU = 2 }} }}
[[model]]
name = "missing"
path = "absent.pb"
tensorflow = {{ device_count = {{ CPU = 2 }}, allow_soft_placement = false }}
[[model]]
name = "heeded"
path = "absent.pb"
advanced.clear_devices = "off"
tensorflow = {{ device_count = {{ CPU = 3 }}, allow_soft_placement = false }}
[[model]]
name = "tuned"
path = "dense"
mixed_precision = true
freeze = true
advanced.grappler = {{ remapping = "off" }}
allowed_batch_sizes = [1, 4]
[[model]]
name = "strict"
path = "dense"
mixed_precision = true
advanced.tolerance = 1e-12
allowed_batch_sizes = [1, 4]
"""
ODD = '[[model]]\nname = "odd"\npath = "odd.pb"\n'
HAS_COMPILER = shutil.which("g++") is not None


def save_tagged(folder: Path) -> None:
    """Two graphs in one SavedModel: the one for the GPU adds 2, the other 1."""
    v1 = tf.compat.v1
    builder = v1.saved_model.Builder(str(folder))
    for tags, more in ((["serve"], 1.0), (["serve", "gpu"], 2.0)):
        with tf.Graph().as_default(), v1.Session() as session:
            x = v1.placeholder(tf.float32, [None], "x")
            signature = v1.saved_model.predict_signature_def({"x": x}, {"y": x + more})
            if more == 1.0:
                builder.add_meta_graph_and_variables(session, tags, {"serving_default": signature})
            else:
                builder.add_meta_graph(tags, {"serving_default": signature})
    builder.save()


def save_on(path: Path, device: str) -> None:
    """A frozen graph whose `y` names a device."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None], "x")
        with tf.device(device):
            tf.multiply(x, 3.0, name="y")
    path.write_bytes(graph.as_graph_def().SerializeToString())


def save_dense(folder: Path) -> None:
    class Dense(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = tf.Variable(tf.random.stateless_normal([16, 16], seed=(1, 2)))

        @tf.function(input_signature=[tf.TensorSpec([None, 16], name="x")])
        def dense(self, x: Any) -> dict[str, Any]:
            return {"y": tf.matmul(tf.nn.relu(tf.matmul(x, self.weights)), self.weights)}

    module = Dense()
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.dense})


def build_odd(folder: Path) -> None:
    """A graph with an op of one's own, and the library that has it."""
    (folder / "op.cc").write_text(OP)
    flags = [flag for flag in tf.sysconfig.get_compile_flags() if flag.startswith("-I")]
    build = ["g++", "-w", "-fpermissive", "-shared", "-fPIC", *flags, "op.cc", "-o", "ops.so"]
    built = subprocess.run(
        [*build, *tf.sysconfig.get_link_flags()], cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert built.returncode == 0, built.stderr[-2000:]
    graph = tf.compat.v1.GraphDef()
    graph.versions.producer = 1000
    graph.node.add(name="x", op="Placeholder").attr["dtype"].type = tf.float32.as_datatype_enum
    graph.node.add(name="y", op="OddlyDoubled", input=["x"])
    (folder / "odd.pb").write_bytes(graph.SerializeToString())


@pytest.fixture(scope="module")
def pool() -> Iterator[PoolProcess]:
    """Three slots: of the models without a session of their own, of two CPU devices, and of three, which is FATAL."""
    folder = Path(tempfile.mkdtemp(prefix="pt-models-"))
    try:
        save_tagged(folder / "tagged")
        save_on(folder / "second.pb", "/device:CPU:1")
        save_on(folder / "absent.pb", "/device:GPU:3")
        save_dense(folder / "dense")
        if HAS_COMPILER:
            build_odd(folder)
        models = MODELS.format(libraries=f'"{folder}/ops.so"' if HAS_COMPILER else "", odd=ODD if HAS_COMPILER else "")
        models = models.replace('path = "', f'path = "{folder}/')
        with pool_process(stub_config(devices='["cpu"]', models=models, extra_pool='ready = "any"')) as running:
            running.await_log("FATAL", 90)
            running.await_log("slot 1 cpu:0 READY", 90)
            running.await_log("slot 0 cpu:0 READY", 90)
            yield running
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def client(pool: PoolProcess) -> Iterator[Client]:
    with pool.client() as client:
        yield client


X = np.float32([1, 2])


def test_tags_choose_the_graph(client: Client) -> None:
    assert client.run("usual", X)["y"].tolist() == [2.0, 3.0]
    assert client.run("chosen", X)["y"].tolist() == [3.0, 4.0]


def device_of(client: Client, model: str) -> str:
    nodes = client.placement(model).signatures["serving_default"].nodes
    (device,) = {node.device for node in nodes if node.node == "y"}
    return device


def test_devices_in_a_graph_are_cleared_as_asked(client: Client) -> None:
    assert [device_of(client, model) for model in ("kept", "cleared", "missing")] == ["/cpu:1", "/cpu:0", "/cpu:0"]
    for model in ("kept", "cleared", "missing"):
        assert client.run(model, X)["y"].tolist() == [3.0, 6.0]
    (fatal,) = [slot for slot in client.status().slots if slot.state == "FATAL"]
    assert [each.model for each in client.status().unloadable if each.slot == fatal.slot] == ["heeded"]
    assert "node 'y/y' and 1 more must run on device /gpu:3" in fatal.reason, fatal.reason


@pytest.mark.skipif(not HAS_COMPILER, reason="needs g++ to build an op")
def test_an_op_of_ones_own_runs(client: Client) -> None:
    assert client.run("odd", X)["y"].tolist() == [2.0, 4.0]


def test_optimizations_are_tried_as_asked(client: Client) -> None:
    tried = {model.name: {each.kind: each for each in model.optimizations} for model in client.models()}
    assert {name: [*kinds] for name, kinds in tried.items() if kinds} == {
        "tuned": ["freeze", "grappler", "mixed_precision"],
        "strict": ["mixed_precision"],
    }
    # Where the machine was held up meanwhile, "takes … far longer than before".
    assert all("takes " in each.why for each in tried["tuned"].values()), "each is right, and was timed"
    assert not tried["strict"]["mixed_precision"].kept
    assert ("more than 1e-12" if HAS_BFLOAT16 else "takes ") in tried["strict"]["mixed_precision"].why
