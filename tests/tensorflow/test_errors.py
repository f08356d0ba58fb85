"""What TensorFlow raises becomes one `Refused` with the right fault and a text for a person."""

import numpy as np
import pytest
import tensorflow as tf

from pool.wire.faults import Fault
from pool.wire.signatures import Refused
from workers.tf.errors import one_line, refused

pytestmark = pytest.mark.tensorflow


def op_error(kind, message):
    return kind(None, None, message)


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (op_error(tf.errors.ResourceExhaustedError, "OOM when allocating tensor"), Fault.OUT_OF_MEMORY),
        (op_error(tf.errors.InternalError, "failed: CUDA_ERROR_OUT_OF_MEMORY: out"), Fault.OUT_OF_MEMORY),
        (op_error(tf.errors.UnknownError, "CUDNN_STATUS_ALLOC_FAILED"), Fault.OUT_OF_MEMORY),
        (op_error(tf.errors.InternalError, "CUDNN_STATUS_EXECUTION_FAILED"), Fault.MODEL_FAILED),
        (op_error(tf.errors.InvalidArgumentError, "CUDA_ERROR_OUT_OF_MEMORY"), Fault.MODEL_FAILED),
        (op_error(tf.errors.FailedPreconditionError, "uninitialized"), Fault.MODEL_FAILED),
        (MemoryError(), Fault.OUT_OF_MEMORY),
        (ValueError("x"), Fault.MODEL_FAILED),
    ],
)
def test_faults(error, fault):
    assert refused(error).fault is fault


def test_a_failing_op_is_named(load, failing):
    model = load(failing)
    with pytest.raises(Refused) as caught:
        model.run("serving_default", {"index": np.array([7], np.int32)}, ["picked"])
    assert caught.value.fault is Fault.MODEL_FAILED
    text = str(caught.value)
    assert text.startswith("InvalidArgumentError: ")
    assert "indices[0] = 7 is not in [0, 2)" in text
    assert "picky" in text
    assert "{{" not in text
    assert "\n" not in text


def test_the_next_run_is_unharmed(load, failing):
    model = load(failing)
    with pytest.raises(Refused):
        model.run("serving_default", {"index": np.array([7], np.int32)}, ["picked"])
    answer = model.run("serving_default", {"index": np.array([1], np.int32)}, ["picked"])
    assert answer["picked"].tolist() == [2.0]


def test_a_wrong_feed_is_an_error_and_no_crash(load, failing):
    with pytest.raises(Refused) as caught:
        load(failing).run("serving_default", {"index": np.array(["x"], object)}, ["picked"])
    assert caught.value.fault is Fault.MODEL_FAILED


def test_python_traces_and_call_paths_are_cut_off():
    message = (
        "{{function_node __inference_f_1}} bad shape [2] vs. [3]\n"
        "\t [[{{node model/dense/MatMul}}]]\n"
        "\t [[StatefulPartitionedCall]]\n\n"
        "Original stack trace for 'StatefulPartitionedCall':\n  File \"train.py\", line 1"
    )
    text = str(refused(op_error(tf.errors.InvalidArgumentError, message)))
    assert text == "InvalidArgumentError: bad shape [2] vs. [3] [at op model/dense/MatMul]"


def test_the_preamble_of_session_run_is_cut_off():
    message = (
        "Graph execution error:\n\nDetected at node 'picky' defined at (most recent call last):\n"
        "    File \"model.py\", line 8, in <module>\nNode: 'picky'\nindices[0] = 5 is not in [0, 1)\n"
        "\t [[{{node picky}}]]"
    )
    assert one_line(op_error(tf.errors.InvalidArgumentError, message)).startswith("indices[0] = 5 is not in [0, 1)")
    short = "Graph execution error:\n\nRead less bytes than requested\n\t [[{{node RestoreV2}}]]"
    assert one_line(op_error(tf.errors.OutOfRangeError, short)).startswith("Read less bytes than requested")


def test_a_text_is_bounded():
    text = str(refused(op_error(tf.errors.InternalError, "x" * 100_000)))
    assert len(text) <= 2000
    assert text.endswith("…")


def test_one_line_is_one_line():
    assert one_line(op_error(tf.errors.NotFoundError, "\n first \nsecond")) == "first"
    assert one_line(KeyError()) == "KeyError"
