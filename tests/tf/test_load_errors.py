"""What is no model that is served here is refused with one line: which, why, what would be right."""

import dataclasses
import errno
import os
import shutil
from pathlib import Path

import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from pool.wire.worker_messages import ModelSettings
from workers.backend import CannotLoad, LoadFailed, WrongDevices
from workers.tf import loading, saved_model
from workers.tf.backend import TensorFlowBackend
from workers.tf.session import config_proto, open_session

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def refusal(backend):
    """Why a path is refused."""

    def why(path):
        with pytest.raises(CannotLoad) as caught:
            backend.load(ModelSettings("m", str(path), True))
        text = str(caught.value)
        assert text.startswith("model m: ")
        assert "\n" not in text
        assert len(text) < 1000
        return text

    return why


@pytest.fixture
def copy(tmp_path, two_signatures):
    return Path(shutil.copytree(two_signatures, tmp_path / "copy"))


def edit(folder, change):
    file = folder / "saved_model.pb"
    saved_model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    change(saved_model)
    file.write_bytes(saved_model.SerializeToString())


def test_nothing_there(refusal, tmp_path):
    assert "none does not exist: give a SavedModel's folder, a .pb, " in refusal(tmp_path / "none")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("model.tflite", b"", "TensorFlow Lite"),
        ("model.bin", b"\x1c\0\0\0TFL3", "TensorFlow Lite"),
        ("model.ckpt-5.index", b"", "part of a checkpoint: give its .meta"),
        ("model.ckpt-5.data-00000-of-00001", b"", "part of a checkpoint: give its .meta"),
        ("model.onnx", b"", "ONNX"),
        ("saved_model.pb", b"", "give its folder"),
        ("notes.txt", b"", "of an unknown kind: give a SavedModel's folder"),
    ],
)
def test_a_file_of_another_kind(refusal, tmp_path, name, content, expected):
    (tmp_path / name).write_bytes(content)
    assert expected in refusal(tmp_path / name)


def test_a_folder_of_something_else(refusal, tmp_path):
    assert "it has no saved_model.pb" in refusal(tmp_path)


def test_a_folder_of_saved_models_that_are_no_versions(refusal, copy, tmp_path):
    assert refusal(tmp_path).endswith(f"give one of them, such as {copy}")


def test_a_folder_with_a_file_that_is_served(refusal, tmp_path):
    (tmp_path / "model.ckpt-5.meta").touch()
    assert refusal(tmp_path).endswith(f"a meta graph with its checkpoint in it: give {tmp_path / 'model.ckpt-5.meta'}")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(refusal, copy):
    (copy / "saved_model.pb").chmod(0)
    assert "Permission denied" in refusal(copy)


@pytest.mark.parametrize("content", [b"\xff" * 100, b"not a protobuf at all", b""])
def test_a_corrupt_protobuf(refusal, copy, content):
    (copy / "saved_model.pb").write_bytes(content)
    refusal(copy)


def test_a_truncated_protobuf(refusal, copy):
    whole = (copy / "saved_model.pb").read_bytes()
    (copy / "saved_model.pb").write_bytes(whole[: len(whole) // 2])
    assert "corrupt or cut short" in refusal(copy)


def test_variables_missing(refusal, copy):
    shutil.rmtree(copy / "variables")
    assert "variables" in refusal(copy)


def test_variables_truncated(refusal, copy):
    (copy / "variables" / "variables.data-00000-of-00001").write_bytes(b"")
    assert "Read less bytes than requested" in refusal(copy)


def test_an_op_that_this_tensorflow_does_not_have(refusal, copy):
    def change(saved_model):
        saved_model.meta_graphs[0].graph_def.node.add(name="odd", op="OpOfAnotherAge")

    edit(copy, change)
    assert "OpOfAnotherAge" in refusal(copy)


def test_a_signature_that_names_no_tensor(refusal, copy):
    def change(saved_model):
        saved_model.meta_graphs[0].signature_def["strings"].inputs["text"].name = "nowhere:0"

    edit(copy, change)
    text = refusal(copy)
    assert "signature 'strings', 'text', names 'nowhere:0'" in text


def test_several_tag_sets_without_serve(refusal, copy):
    def change(saved_model):
        saved_model.meta_graphs.add().CopyFrom(saved_model.meta_graphs[0])
        for meta_graph, tags in zip(saved_model.meta_graphs, (["train"], ["serve", "gpu"]), strict=True):
            del meta_graph.meta_info_def.tags[:]
            meta_graph.meta_info_def.tags.extend(tags)

    edit(copy, change)
    assert "there are several: gpu, serve; train; choose one with `tags`" in refusal(copy)


def test_no_signature(refusal, tmp_path):
    tf.saved_model.save(tf.Module(), str(tmp_path / "bare"))
    assert "save it with signatures=" in refusal(tmp_path / "bare")


def test_a_gpu_worker_without_a_gpu_says_what_to_install(tensorflow_settings, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-promised")
    with pytest.raises(WrongDevices) as caught:
        TensorFlowBackend(tensorflow_settings, gpus=1)
    text = str(caught.value)
    assert "sees 0 GPUs, but this worker should have 1" in text
    assert "CUDA_VISIBLE_DEVICES is 'GPU-promised'" in text
    assert "pip install 'tf-worker-pool[gpu]'" in text
    assert "\n" not in text


def test_a_session_whose_settings_leave_the_gpus_out_is_refused(tensorflow_settings):
    """TensorFlow sees the GPU, `device_count` hides it from the Session: there is one to be seen on this machine."""
    config = config_proto(dataclasses.replace(tensorflow_settings, device_count={"GPU": 0}))
    with pytest.raises(WrongDevices) as caught:
        open_session(config, gpus=1)
    assert "has 0 GPUs, but it should have 1; device_count of [tensorflow] is {'GPU': 0}" in str(caught.value)


def test_a_load_refuses_wrong_devices_as_such(tensorflow_settings, two_signatures):
    with pytest.raises(WrongDevices):
        loading.load(ModelSettings("m", str(two_signatures), True), config_proto(tensorflow_settings), 1)


OUT_OF_MEMORY = "failed to allocate 6.00G (6442450944 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory"
PASSING = [
    tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor with shape[1024]"),
    tf.errors.UnavailableError(None, None, "the file system is not there"),
    tf.errors.AbortedError(None, None, "try again"),
    tf.errors.InternalError(None, None, OUT_OF_MEMORY),
    tf.errors.UnknownError(None, None, "Failed to query the GPU: cudaErrorInitializationError"),
    tf.errors.UnknownError(None, None, "/nfs/m/variables.index; Stale file handle"),
    MemoryError(),
    OSError(errno.EIO, "Input/output error"),
    OSError(errno.ESTALE, "Stale file handle"),
]
LASTING = [
    tf.errors.NotFoundError(None, None, "Op type not registered 'OpOfAnotherAge'"),
    tf.errors.DataLossError(None, None, "not an sstable (bad magic number)"),
    tf.errors.InternalError(None, None, "the graph makes no sense"),
    OSError("Cannot parse file"),
    FileNotFoundError(errno.ENOENT, "No such file or directory"),
    PermissionError(errno.EACCES, "Permission denied"),
    ValueError("anything"),
]


@pytest.mark.parametrize("place", ["open_session", "read_saved_model", "ReachableOps"])
@pytest.mark.parametrize("error", PASSING, ids=repr)
def test_what_may_be_better_a_moment_later_is_no_fault_of_the_files(backend, two_signatures, monkeypatch, place, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(loading, place, fail)
    with pytest.raises(LoadFailed) as caught:
        backend.load(ModelSettings("m", str(two_signatures), True))
    assert str(caught.value).startswith(f"model m: {two_signatures} cannot be loaded now: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("error", LASTING, ids=repr)
def test_what_stays_as_it_is_is_not_tried_again(refusal, two_signatures, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(saved_model, "SavedModelLoader", fail)
    refusal(two_signatures)


def test_a_folder_that_cannot_be_listed_just_now(backend, two_signatures, monkeypatch):
    def fail(_path):
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(Path, "iterdir", fail)
    with pytest.raises(LoadFailed, match="cannot be read now: Stale file handle"):
        backend.load(ModelSettings("m", str(two_signatures), True))
