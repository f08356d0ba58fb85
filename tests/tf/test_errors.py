"""What TensorFlow raises or lacks becomes an error of the right kind, in one line for a person, or ends the process."""

import errno
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from pool.wire import Exit
from tf.making import TENSORFLOW, backend_with, run, save_graph, v1
from workers import probe
from workers.backend import CannotLoad, LoadFailed, RunFailed, Unfit
from workers.tf import model as model_module
from workers.tf.errors import of_a_run
from workers.tf.library import open_session, session_config, tf

INTERNAL, UNKNOWN, INVALID = tf.errors.InternalError, tf.errors.UnknownError, tf.errors.InvalidArgumentError
ILLEGAL = "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered"


@pytest.mark.parametrize(
    ("kind", "message", "expected"),
    [
        (tf.errors.ResourceExhaustedError, "OOM when allocating tensor with shape[8]", "OutOfMemory"),
        (UNKNOWN, "Failed to create cublas handle: CUBLAS_STATUS_ALLOC_FAILED", "OutOfMemory"),
        (INTERNAL, "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", "OutOfMemory"),
        (INVALID, "CUDA_ERROR_OUT_OF_MEMORY", "ModelFailed"),  # these may be a model's own words
        (INVALID, "could not convert string: Session has been closed.", "ModelFailed"),
        (INTERNAL, "cudaErrorInvalidValue: invalid argument", "ModelFailed"),
        (INTERNAL, "CUDA error: cudaErrorEccUncorrectable", None),
        (INTERNAL, f"Failed to complete all kernels: {ILLEGAL}\n\t [[{{{{node cluster_0_1/xla_run}}}}]]", None),
        (INTERNAL, "CUDNN_STATUS_INTERNAL_ERROR\nin cuda_dnn.cc(1802): 'cudnnRNNForward'", None),
        (INTERNAL, "Attempting to perform BLAS operation using StreamExecutor without BLAS support", None),
        (tf.errors.FailedPreconditionError, "DNN library initialization failed. Look at the errors", None),
        (tf.errors.CancelledError, "Session has been closed.", None),
    ],
)
def test_what_a_failed_run_ends(kind, message, expected):
    """The job alone, else (None) the process."""
    found = of_a_run(kind(None, None, message))
    assert getattr(found, "name", None) == expected
    assert isinstance(found, RunFailed) or found.status is Exit.PROCESS_UNUSABLE
    assert str(found).startswith(f"{kind.__name__}: {message[:20]}")
    assert "\n" not in str(found)


@pytest.fixture(scope="module")
def failing(models):
    def build():
        index, text = v1.placeholder(tf.int32, [None]), v1.placeholder(tf.string, [])
        picked = tf.gather(tf.constant([1.0, 2.0]), index, name="picky")
        number = tf.strings.to_number(text, name="number")
        return {"serving_default": ({"index": index}, {"picked": picked}), "number": ({"text": text}, {"y": number})}

    return save_graph(models / "failing", build)


def test_a_failing_op_is_named_in_short_and_the_next_run_is_unharmed(load, failing):
    model = load(failing)
    with pytest.raises(RunFailed) as caught:
        run(model, {"index": np.array([7], np.int32)})
    assert str(caught.value) == "InvalidArgumentError: indices[0] = 7 is not in [0, 2) [at op picky]"
    assert run(model, {"index": np.array([1], np.int32)})["picked"].tolist() == [2.0]
    with pytest.raises(RunFailed, match=r"StringToNumberOp could not .* string: \\xff1 \[at op number\]"):
        run(model, {"text": np.array(b"\xff1", object)}, "number")
    text = (
        "{{function_node __f}} bad [2]\n\t [[{{node x/MatMul}}]]\n\t [[Call]]\n\nOriginal stack trace for 'f':\n File"
    )
    assert str(of_a_run(INVALID(None, None, text))) == "InvalidArgumentError: bad [2] [at op x/MatMul]"
    model._session.close()
    with pytest.raises(Unfit):
        model.warm_up()


@pytest.mark.parametrize("place", ["format_at", "open_session"])
@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (INTERNAL(None, None, "failed to allocate 6.00G: CUDA_ERROR_OUT_OF_MEMORY: out of memory"), True),
        (OSError(errno.EIO, "Input/output error"), True),
        (tf.errors.DataLossError(None, None, "not an sstable (bad magic number)"), False),
    ],
    ids=repr,
)
def test_a_failed_load_says_whether_a_later_one_may_succeed(load, failing, monkeypatch, place, error, passes):
    def fail(*_):
        raise error

    monkeypatch.setattr(model_module, place, fail)
    kind, text = (LoadFailed, "cannot be loaded now: ") if passes else (CannotLoad, "cannot be loaded: ")
    with pytest.raises(kind) as caught:
        load(failing)
    assert str(caught.value).startswith(f"model m: {failing} {text}")
    assert "\n" not in str(caught.value)


def test_a_gpu_worker_without_a_gpu_says_what_to_install(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-promised")
    for counts, advice in (({}, "pip install 'tf-worker-pool[gpu]'"), ({"GPU": 0}, "leave GPU out of device_count")):
        config = session_config({**TENSORFLOW, "device_count": counts}, 1, xla=False, mixed_precision=False)
        with pytest.raises(Unfit) as caught:
            open_session(config, gpus=1)
        assert caught.value.status is Exit.WRONG_DEVICES
        told = "sees 0 GPUs, but this worker should have 1; CUDA_VISIBLE_DEVICES is 'GPU-promised'; "
        assert told in str(caught.value)
        assert advice in str(caught.value)


def test_without_tensorflow_it_says_what_to_install(tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise ImportError('libcudart.so.12:\\nnot here')")
    show = "import sys; sys.path[:0] = sys.argv[1:]\n"
    show += "try: import workers.tf.model\nexcept BaseException as e: print(e.status, e)"
    told = subprocess.check_output([sys.executable, "-c", show, str(tmp_path)], text=True)
    assert told.startswith(
        f"{Exit.BACKEND_MISSING:d} TensorFlow cannot be imported: ImportError: libcudart.so.12: not here; "
    )


def test_a_device_that_computes_wrongly_is_told(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["probe", "0"])
    monkeypatch.setattr(probe, "np", SimpleNamespace(ones=np.zeros))
    monkeypatch.setattr(probe, "os", None)  # whose `_exit` would end this process, too
    with pytest.raises(ValueError, match=r"a product of ones is 0\.0 to 0\.0, but should be 512"):
        probe.main()


def test_what_is_no_library_of_ops(tmp_path):
    path = tmp_path / "text.so"
    path.write_text("none")
    with pytest.raises(CannotLoad) as caught:
        backend_with(op_libraries=[str(path)])
    assert str(caught.value).startswith(f"op_libraries of [tensorflow]: {path} cannot be loaded into TensorFlow 2.")
    assert "\n" not in str(caught.value)
