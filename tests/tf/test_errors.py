"""What TensorFlow raises becomes a `Refused` with the right fault and a text for a person, or ends the process."""

import numpy as np
import pytest
import tensorflow as tf

from pool.wire.faults import Fault
from pool.wire.signatures import Refused
from pool.wire.worker_messages import ModelSettings
from workers.backend import ProcessUnusable
from workers.tf.errors import of_a_run, one_line

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
    assert of_a_run(error).fault is fault


ILLEGAL = "an illegal memory access was encountered"
SYNC = "could not synchronize on CUDA stream"


@pytest.mark.parametrize(
    "message",
    [
        # As TensorFlow's threads and its sources have them: 2.18 and later, then as it was before.
        f"CUDA error: Could not synchronize CUDA stream: CUDA_ERROR_ILLEGAL_ADDRESS: {ILLEGAL}",
        f"CUDA Runtime error: Failed to load: cudaErrorIllegalAddress: {ILLEGAL}",
        "CUDA error: Failed to query event: CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure",
        f"Failed to complete all kernels launched on stream 0x1f50d730: {SYNC}: CUDA_ERROR_ILLEGAL_ADDRESS: {ILLEGAL}"
        "\n\t [[{{node cluster_0_1/xla_run}}]]",
        "CUDA error: : CUDA_ERROR_ASSERT: device-side assert triggered",
        "CUDA error: Failed to launch kernel: CUDA_ERROR_MISALIGNED_ADDRESS: misaligned address",
        "CUDA error: failed memcpy: CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered",
        "GPU sync failed",
        "cuDNN launch failure : unspecified launch failure",
        "Failed to get convolution algorithm. This is probably because cuDNN failed to initialize, so try looking to"
        " see if a warning log message was printed above.\n\t [[{{node conv3d/Conv3D}}]]",
        "Could not create cudnn handle: CUDNN_STATUS_NOT_INITIALIZED",
        "Failed to create cublas handle: CUBLAS_STATUS_NOT_INITIALIZED",
        "CUDNN_STATUS_INTERNAL_ERROR\nin tensorflow/stream_executor/cuda/cuda_dnn.cc(1802): 'cudnnRNNForward'",
        "Attempting to perform BLAS operation using StreamExecutor without BLAS support",
        "No BLAS support for stream",
        "No DNN in stream executor.",
    ],
)
@pytest.mark.parametrize("kind", [tf.errors.InternalError, tf.errors.UnknownError])
def test_what_no_later_run_survives_ends_the_process(kind, message):
    found = of_a_run(op_error(kind, message))
    assert type(found) is ProcessUnusable
    assert str(found).startswith(f"{kind.__name__}: {message[:20]}")
    assert "\n" not in str(found)
    assert type(of_a_run(op_error(tf.errors.InvalidArgumentError, message))) is Refused, "a model's own words"


@pytest.mark.parametrize(
    ("error", "ends"),
    [
        (op_error(tf.errors.FailedPreconditionError, "DNN library initialization failed. Look at the errors"), True),
        (op_error(tf.errors.UnimplementedError, "DNN library is not found."), True),
        (op_error(tf.errors.FailedPreconditionError, "Could not find variable dense/bias"), False),
        (op_error(tf.errors.UnimplementedError, "The Conv2D op currently only supports the NHWC format"), False),
        (op_error(tf.errors.CancelledError, "Session has been closed."), True),
        (op_error(tf.errors.CancelledError, "Dequeue operation was cancelled"), False),
        (RuntimeError("Attempted to use a closed Session."), True),
        (RuntimeError("The Session graph is empty."), False),
        (op_error(tf.errors.InternalError, "Blas xGEMM launch failed : a.shape=[1,8,9], b.shape=[1,9,4]"), False),
        (op_error(tf.errors.InternalError, "cuDNN launch failure : input shape ([1,5000,1,8])"), False),
    ],
)
def test_a_library_or_a_session_that_is_gone_ends_the_process(error, ends):
    assert isinstance(of_a_run(error), ProcessUnusable) is ends


@pytest.mark.parametrize(
    "message",
    [
        "Failed to create cublas handle: CUBLAS_STATUS_ALLOC_FAILED",
        "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
        "CUDA Runtime error: cudaErrorMemoryAllocation: out of memory",
        "This is probably because cuDNN failed to initialize: CUDNN_STATUS_ALLOC_FAILED",
    ],
)
def test_want_of_memory_is_no_broken_process(message):
    assert of_a_run(op_error(tf.errors.InternalError, message)).fault is Fault.OUT_OF_MEMORY


def test_a_session_that_was_closed_ends_the_process(backend, failing):
    model = backend.load(ModelSettings("closed", str(failing), True))
    model._callables._session.close()
    with pytest.raises(ProcessUnusable, match="Session has been closed"):
        model.run("serving_default", {"index": np.array([1], np.int32)}, ["picked"])
    with pytest.raises(ProcessUnusable):
        model.warm_up()


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
    text = str(of_a_run(op_error(tf.errors.InvalidArgumentError, message)))
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
    text = str(of_a_run(op_error(tf.errors.InternalError, "x" * 100_000)))
    assert len(text) <= 2000
    assert text.endswith("…")


def test_one_line_is_one_line():
    assert one_line(op_error(tf.errors.NotFoundError, "\n first \nsecond")) == "first"
    assert one_line(KeyError()) == "KeyError"


def test_an_error_that_quotes_what_is_no_utf8_is_tensorflow_s_own() -> None:
    with tf.Graph().as_default() as graph:
        text = tf.compat.v1.placeholder(tf.string, [], name="text")
        tf.strings.to_number(text, name="number")
    with tf.compat.v1.Session(graph=graph) as session, pytest.raises(UnicodeDecodeError) as caught:
        session.run("number:0", {text: b"\xff1"})
    refused = of_a_run(caught.value)
    assert refused.fault is Fault.MODEL_FAILED
    assert str(refused) == r"StringToNumberOp could not correctly convert string: \xff1 [at op number]"
