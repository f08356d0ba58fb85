"""A model is READY when each signature has run at each batch size, on zeros or on what was recorded for it."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from pool.wire.faults import Fault
from pool.wire.signatures import Refused
from pool.wire.worker_messages import ModelSettings
from workers.tf.model import TensorFlowModel

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def runs(monkeypatch):
    """What was run: signature, the feeds as lists or shapes, outputs."""
    seen = []
    run = TensorFlowModel.run

    def note(self, signature, feeds, outputs):
        seen.append((signature, dict(feeds), tuple(outputs)))
        return run(self, signature, feeds, outputs)

    monkeypatch.setattr(TensorFlowModel, "run", note)
    return seen


def warm(backend, path, batch_sizes=(1,)):
    backend.load(ModelSettings("m", str(path), True, batch_sizes=batch_sizes)).warm_up()


def shapes(runs):
    return [(signature, {name: array.shape for name, array in feeds.items()}) for signature, feeds, _ in runs]


def test_each_signature_at_each_batch_size(backend, two_signatures, runs):
    warm(backend, two_signatures, (2, 8))
    assert shapes(runs) == [
        ("serving_default", {"a": (2, 3), "b": (2, 3)}),
        ("serving_default", {"a": (8, 3), "b": (8, 3)}),
        ("strings", {"text": (2,)}),
        ("strings", {"text": (8,)}),
    ]


def test_what_has_no_rows_runs_once_and_what_keeps_state_never(backend, counter, failing, tf1_table, runs):
    warm(backend, counter, (1, 8))
    assert {signature for signature, _, _ in runs} == {"peek"}
    assert len(runs) == 1
    warm(backend, failing, (1, 8))
    warm(backend, tf1_table, (1, 8))
    assert [len(next(iter(feeds.values()))) for _, feeds, _ in runs[1:]] == [1, 8, 1, 8]


def test_a_batch_that_finds_no_memory_is_told(backend, two_signatures, monkeypatch, caplog):
    run = TensorFlowModel.run

    def full(self, signature, feeds, outputs):
        if signature == "strings" and len(feeds["text"]) > 4:
            raise Refused("no room", Fault.OUT_OF_MEMORY)
        return run(self, signature, feeds, outputs)

    monkeypatch.setattr(TensorFlowModel, "run", full)
    warm(backend, two_signatures, (1, 8))
    assert caplog.messages == [
        "model m: signature 'strings' runs out of memory with a batch of 8 rows, which its settings allow: no room"
    ]


# --- recorded requests, written as protobuf has it: a key of field and type, then a length, then the bytes


def field(number: int, content: bytes) -> bytes:
    length, size = bytearray(), len(content)
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes([number << 3 | 2]) + bytes([*length, size]) + content


def request(inputs: Mapping[str, object], signature: str = "", outputs: tuple[str, ...] = ()) -> bytes:
    """A PredictionLog, with fields that nobody asked for."""
    spec = field(1, b"name of a model") + (field(3, signature.encode()) if signature else b"")
    message = field(1, spec)
    for name, value in inputs.items():
        tensor = tf.make_tensor_proto(value).SerializeToString()
        message += field(2, field(1, name.encode()) + field(2, tensor))
    message += b"".join(field(3, name.encode()) for name in outputs)
    log = field(1, message) + field(2, field(1, b"some response"))
    return field(1, b"") + field(6, log)


@pytest.fixture
def with_records(two_signatures, tmp_path):
    """A copy of the model with these records; the path of their file."""

    def write(*records: bytes) -> Path:
        folder = Path(shutil.copytree(two_signatures, tmp_path / "m"))
        (folder / "assets.extra").mkdir()
        with tf.io.TFRecordWriter(str(folder / "assets.extra" / "tf_serving_warmup_requests")) as writer:
            for record in records:
                writer.write(record)
        return folder

    return write


A = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


def test_recorded_requests_are_run_as_they_are_and_at_each_batch_size(backend, with_records, runs, caplog):
    numbers = request({"a": A, "b": A + 1}, outputs=("sum", "total"))
    warm(backend, with_records(numbers, request({"text": [b"x\0", b""]}, "strings")), (1, 4))
    assert not caplog.records
    assert shapes(runs)[:2] == [
        ("serving_default", {"a": (1, 3), "b": (1, 3)}),
        ("serving_default", {"a": (4, 3), "b": (4, 3)}),
    ]
    assert runs[1][1]["a"].tolist() == [*A.tolist(), *A.tolist()]
    signature, feeds, outputs = runs[2]
    assert (signature, outputs) == ("serving_default", ("sum", "total"))
    np.testing.assert_array_equal(feeds["b"], A + 1)
    assert [feeds["text"].tolist() for _, feeds, _ in runs[3:]] == [[b"x\0"], [b"x\0", b""] * 2, [b"x\0", b""]]


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (b"\xff\xff no protobuf", "DecodeError: "),
        (b"", "it is not a PredictLog, the only kind that can run"),
        (field(2, b""), "it is not a PredictLog"),
        (request({"a": A, "b": A}, "serving"), "the model has no signature 'serving'"),
        (request({"a": A}), "takes 'a', 'b', the record has 'a'"),
        (request({"a": A, "b": A.astype(np.float64)}), "input 'b' of signature 'serving_default' is float32 [?, 3], "),
        (request({"a": A, "b": A[0]}), "the record has float32 [3]"),
        (request({"a": A, "b": A}, outputs=("none",)), "has no output 'none'"),
        (
            field(6, field(1, field(2, field(1, b"a")) + field(2, field(1, b"b") + field(2, b"\x08\xff\xff")))),
            "Cannot convert",
        ),
    ],
    ids=range(9),
)
def test_bad_records_are_told_in_one_line_and_the_model_is_warmed_all_the_same(
    backend, with_records, runs, caplog, record, told
):
    folder = with_records(record, request({"a": A, "b": A}))
    warm(backend, folder)
    (line,) = caplog.messages
    assert line.startswith("model m: 1 of 2 recorded requests in ")
    assert told in line
    assert "\n" not in line
    assert ("strings", {"text": (1,)}) in shapes(runs)
    assert ("serving_default", {"a": (2, 3), "b": (2, 3)}) in shapes(runs)


@pytest.mark.parametrize("content", [b"no record file", b"\0" * 40])
def test_a_file_that_is_none(backend, with_records, runs, caplog, content):
    folder = with_records()
    (folder / "assets.extra" / "tf_serving_warmup_requests").write_bytes(content)
    warm(backend, folder)
    (line,) = caplog.messages
    assert "the first, because the rest of the file cannot be read: " in line
    assert len(runs) == 2


def test_what_was_recorded_lets_inputs_of_unknown_rank_be_warmed(backend, tmp_path, runs):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, None, name="x")
        tf.compat.v1.saved_model.simple_save(session, str(tmp_path / "m"), {"x": x}, {"y": x * 2})
    warm(backend, tmp_path / "m", (1, 8))
    assert not runs
    (tmp_path / "m" / "assets.extra").mkdir()
    with tf.io.TFRecordWriter(str(tmp_path / "m/assets.extra/tf_serving_warmup_requests")) as writer:
        writer.write(request({"x": A}))
    warm(backend, tmp_path / "m", (1, 8))
    assert shapes(runs) == [("serving_default", {"x": (2, 3)})] * 2
