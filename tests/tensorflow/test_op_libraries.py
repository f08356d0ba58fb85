"""Libraries of custom ops are loaded before any model, and what is none is told in one line."""

import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from pool.wire.worker_messages import ModelSettings
from workers.backend import CannotLoad
from workers.tf.backend import TensorFlowBackend

pytestmark = pytest.mark.tensorflow

SOURCE = """
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
using namespace tensorflow;
REGISTER_OP("OddlyDoubled").Input("x: float").Output("y: float");
class OddlyDoubled : public OpKernel {
 public:
  explicit OddlyDoubled(OpKernelConstruction* c) : OpKernel(c) {}
  void Compute(OpKernelContext* c) override {
    const Tensor& x = c->input(0);
    Tensor* y = nullptr;
    OP_REQUIRES_OK(c, c->allocate_output(0, x.shape(), &y));
    auto in = x.flat<float>();
    auto out = y->flat<float>();
    for (int i = 0; i < in.size(); ++i) out(i) = 2 * in(i);
  }
};
REGISTER_KERNEL_BUILDER(Name("OddlyDoubled").Device(DEVICE_CPU), OddlyDoubled);
"""


def refusal(session_settings, library):
    with pytest.raises(CannotLoad) as caught:
        TensorFlowBackend(replace(session_settings, op_libraries=(str(library),)), gpus=0)
    text = str(caught.value)
    assert text.startswith(f"op_libraries of [session]: {library} ")
    assert "\n" not in text
    return text


def test_a_library_that_is_not_there(session_settings, tmp_path):
    assert "is no file: give a library (.so)" in refusal(session_settings, tmp_path / "ops.so")


def test_what_is_no_library(session_settings, tmp_path):
    (tmp_path / "ops.so").write_text("none")
    assert f"cannot be loaded into TensorFlow {tf.__version__}: " in refusal(session_settings, tmp_path / "ops.so")


@pytest.mark.models
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ to build an op")
def test_a_graph_with_an_op_of_ones_own(session_settings, tmp_path):
    (tmp_path / "op.cc").write_text(SOURCE)
    flags = ["-std=c++17", "-w", "-O0", "-shared", "-fPIC", *tf.sysconfig.get_compile_flags()]
    build = [
        "g++",
        *flags,
        "op.cc",
        "-o",
        "ops.so",
        *tf.sysconfig.get_link_flags(),
    ]
    built = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False)
    assert built.returncode == 0, built.stderr[-2000:]
    graph = tf.compat.v1.GraphDef()
    graph.versions.producer = 1000
    graph.node.add(name="x", op="Placeholder").attr["dtype"].type = tf.float32.as_datatype_enum
    graph.node.add(name="y", op="OddlyDoubled", input=["x"])
    (tmp_path / "odd.pb").write_bytes(graph.SerializeToString())
    settings = ModelSettings("odd", str(tmp_path / "odd.pb"), True)
    with pytest.raises(CannotLoad, match="OddlyDoubled"):
        TensorFlowBackend(session_settings, gpus=0).load(settings)
    model = TensorFlowBackend(replace(session_settings, op_libraries=(str(tmp_path / "ops.so"),)), gpus=0).load(
        settings
    )
    assert model.run("serving_default", {"x": np.float32([1, 2])}, ["y"])["y"].tolist() == [2.0, 4.0]
