"""SavedModels that declare what they do not give, as hand-written signatures do."""

import logging
from pathlib import Path

import numpy as np
import pytest
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from pool.wire.worker_messages import ModelSettings
from support.commands import run_command
from support.pool_process import pool_process, stub_config
from support.processes import eventually
from workers.tf.library import tf

pytestmark = pytest.mark.tensorflow

V1 = tf.compat.v1


def edited(folder: Path, edit) -> Path:
    """A model of x: float32 [?, 2], y = 2x and total, its sum; with another declaration."""
    with tf.Graph().as_default(), V1.Session() as session:
        x = V1.placeholder(tf.float32, [None, 2], name="x")
        outputs = {"y": tf.multiply(x, 2.0), "total": tf.cast(tf.reduce_sum(x), tf.int64)}
        V1.saved_model.simple_save(session, str(folder), {"x": x}, outputs)
    file = folder / "saved_model.pb"
    saved = SavedModel.FromString(file.read_bytes())
    edit(saved.meta_graphs[0].signature_def["serving_default"])
    file.write_bytes(saved.SerializeToString())
    return folder


@pytest.mark.models
def test_a_shape_that_does_not_come_is_answered_logged_once_and_in_pool_models(tmp_path: Path) -> None:
    def edit(signature) -> None:
        signature.outputs["y"].tensor_shape.dim[1].size = 3

    model = f'[[model]]\nname = "m"\npath = "{edited(tmp_path / "m", edit)}"\ndevices = "all"\n'
    with pool_process(stub_config(models=model)) as pool, pool.client() as client:
        for device in ("cpu:0", "cpu:1", "cpu:0"):
            answer = client.run("m", {"x": np.ones((4, 2), np.float32)}, device=device)
            assert answer["y"].tolist() == [[2.0, 2.0]] * 4
        eventually(lambda: bool(client.models()[0].remarks))
        (remark,) = client.models()[0].remarks
        assert remark.startswith("signature serving_default, output 'y': declared as float32 [?, 3] but came back as")
        shown = run_command(pool, "models").stdout
        assert remark in " ".join(shown.split())
        assert pool.whole_log().count("declared as float32 [?, 3]") == 1


def test_a_dtype_that_is_not_the_graph_s(backend, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A scalar would be cast to it without a word, and what is fed would be refused by TensorFlow."""

    def edit(signature) -> None:
        signature.inputs["x"].dtype = tf.float64.as_datatype_enum
        signature.outputs["total"].dtype = tf.float32.as_datatype_enum

    caplog.set_level(logging.WARNING, "workers.tf")
    model = backend.load(ModelSettings("m", str(edited(tmp_path / "m", edit)), True))
    signature = model.info.signatures["serving_default"]
    assert (signature.inputs["x"].dtype, signature.outputs["total"].dtype) == ("float32", "int64")
    answer = model.run("serving_default", {"x": np.full((1, 2), 2.0**25, np.float32)}, ("total",))
    assert (answer["total"].dtype, answer["total"].item()) == (np.int64, 2**26)
    assert sorted(record.getMessage() for record in caplog.records) == [
        "model m: input of signature 'serving_default', 'x', is declared as float64 but is float32 in its graph;"
        " the graph counts",
        "model m: output of signature 'serving_default', 'total', is declared as float32 but is int64 in its graph;"
        " the graph counts",
    ]
