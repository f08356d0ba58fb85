"""What is no model that is served here is refused with one line: which, why, what would be right."""

import os
import shutil
from pathlib import Path

import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from pool.wire.messages import ModelSettings
from workers.backend import CannotLoad, WrongDevices
from workers.tf.backend import TensorFlowBackend

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
    assert refusal(tmp_path / "none").endswith("none does not exist: give the folder of a SavedModel")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("model.tflite", b"", "TensorFlow Lite"),
        ("model.bin", b"\x1c\0\0\0TFL3", "TensorFlow Lite"),
        ("frozen.pb", b"", "frozen graph"),
        ("model.keras", b"PK", "model.export"),
        ("model.h5", b"\x89HDF", "model.export"),
        ("model.ckpt.meta", b"", "checkpoint"),
        ("model.onnx", b"", "ONNX"),
        ("saved_model.pb", b"", "give its folder"),
        ("notes.txt", b"", "give the folder of a SavedModel"),
    ],
)
def test_a_file_of_another_kind(refusal, tmp_path, name, content, expected):
    (tmp_path / name).write_bytes(content)
    assert expected in refusal(tmp_path / name)


def test_a_folder_of_something_else(refusal, tmp_path):
    assert "there is no saved_model.pb in it" in refusal(tmp_path)


def test_a_folder_of_versions(refusal, copy, tmp_path):
    shutil.copytree(copy, tmp_path / "9")
    copy.rename(tmp_path / "10")
    assert refusal(tmp_path).endswith(f"give one of them, e.g. {tmp_path / '10'}")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(refusal, copy):
    (copy / "saved_model.pb").chmod(0)
    assert "no permission" in refusal(copy)


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
    assert refusal(copy).endswith("there are several: gpu, serve; train")


def test_no_signature(refusal, tmp_path):
    tf.saved_model.save(tf.Module(), str(tmp_path / "bare"))
    assert "save it with signatures=" in refusal(tmp_path / "bare")


def test_a_gpu_worker_without_a_gpu_says_what_to_install(session_settings, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-promised")
    with pytest.raises(WrongDevices) as caught:
        TensorFlowBackend(session_settings, gpus=1)
    text = str(caught.value)
    assert "sees 0 GPUs, this worker was promised 1" in text
    assert "CUDA_VISIBLE_DEVICES is 'GPU-promised'" in text
    assert "pip install 'tf-worker-pool[gpu]'" in text
    assert "\n" not in text
