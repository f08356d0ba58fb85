"""`copy_per_device = true`: rows split over the devices of a worker give what one device gives, to the bit."""

import dataclasses
import threading

import numpy as np
import pytest
import tensorflow as tf

from pool.wire.faults import Fault
from pool.wire.independence import Batching
from pool.wire.signatures import Refused
from pool.wire.worker_messages import ModelSettings
from workers.backend import SessionCall
from workers.independence.known import Known
from workers.tf.backend import TensorFlowBackend
from workers.tf.copies import Copies, pieces

pytestmark = pytest.mark.tensorflow

RNG = np.random.default_rng(11)


@pytest.fixture(scope="module")
def backend(tensorflow_settings):
    known = Known([ModelSettings("deep", "", True, batching=Batching.ALWAYS)])
    return TensorFlowBackend(dataclasses.replace(tensorflow_settings, device_count={"CPU": 2}), gpus=0, known=known)


@pytest.fixture(scope="module")
def deep(models):
    """Two layers, of which each row is computed by itself; one signature whose rows are not; one that can fail."""

    class Deep(tf.Module):
        def __init__(self):
            super().__init__()
            self.first = tf.Variable(RNG.normal(size=(16, 32)).astype(np.float32), name="first")
            self.second = tf.Variable(RNG.normal(size=(32, 4)).astype(np.float32), name="second")

        @tf.function(input_signature=[tf.TensorSpec([None, 16]), tf.TensorSpec([None], tf.string)])
        def whole(self, x, word):
            hidden = tf.nn.relu(tf.reduce_sum(x[:, :, None] * self.first, 1))
            return {"y": tf.reduce_sum(hidden[:, :, None] * self.second, 1), "word": tf.strings.upper(word)}

        @tf.function(input_signature=[tf.TensorSpec([None], name="x")])
        def positive(self, x):
            return {"x": tf.boolean_mask(x, x > 0)}

        @tf.function(input_signature=[tf.TensorSpec([None], name="x")])
        def checked(self, x):
            with tf.control_dependencies([tf.debugging.assert_less(x, 10.0, message="too much")]):
                return {"x": tf.identity(x)}

    module = Deep()
    folder = models / "deep"
    signatures = {"serving_default": module.whole, "positive": module.positive, "checked": module.checked}
    tf.saved_model.save(module, str(folder), signatures=signatures)
    return folder


def settings(folder, **others):
    return ModelSettings("deep", str(folder), True, batch_sizes=(1, 8), **others)


@pytest.fixture(scope="module")
def plain(backend, deep):
    return backend.load(settings(deep))


@pytest.fixture
def copies(backend, deep):
    model = backend.load(settings(deep, copy_per_device=True))
    model.warm_up()
    yield model
    model.close()


def fed(rows):
    words = np.array([f"w{number}".encode() for number in range(rows)], object)
    return {"x": RNG.normal(size=(rows, 16)).astype(np.float32), "word": words}


@pytest.mark.parametrize(
    ("rows", "copies", "sizes"), [(8, 2, [4, 4]), (5, 2, [2, 3]), (1, 2, [1]), (0, 2, []), (7, 3, [2, 2, 3])]
)
def test_rows_are_cut_into_pieces_of_like_sizes(rows, copies, sizes):
    found = pieces(rows, copies)
    assert [piece.stop - piece.start for piece in found] == sizes
    assert [row for piece in found for row in range(rows)[piece]] == list(range(rows))


@pytest.mark.parametrize("rows", [1, 2, 5, 8, 33])
def test_split_rows_give_what_one_device_gives_to_the_bit(copies, plain, rows):
    feeds = fed(rows)
    expected = plain.run("serving_default", feeds, ["y", "word"])
    answer = copies.run("serving_default", feeds, ["y", "word"])
    assert answer.keys() == expected.keys()
    assert answer["y"].tobytes() == expected["y"].tobytes()
    assert answer["word"].tolist() == expected["word"].tolist()
    assert answer["y"].flags["C_CONTIGUOUS"]


def test_no_rows_at_all_are_no_trouble(copies):
    assert copies.run("serving_default", fed(0), ["y"])["y"].shape == (0, 4)


def test_each_copy_runs_on_its_own_device_and_both_do(copies):
    report = copies.placement()
    assert report["devices"] == ["/cpu:0", "/cpu:1"]
    nodes = report["signatures"]["serving_default"]["nodes"]
    for name in ("first", "second", "StringUpper"):
        assert [each["device"] for each in nodes if each["node"] == name] == ["/cpu:0", "/cpu:1"]


def test_both_run_a_split_batch_at_once(copies, monkeypatch):
    """Neither goes on before the other has come."""
    together = threading.Barrier(2, timeout=20)
    for copy in copies._copies:
        inner = copy.run

        def run(*args, inner=inner):
            together.wait()
            return inner(*args)

        monkeypatch.setattr(copy, "run", run)
    assert copies.run("serving_default", fed(2), ["y"])["y"].shape == (2, 4)


def test_what_is_not_split_goes_to_the_idle_one(copies, monkeypatch):
    came, let_go, ran = threading.Event(), threading.Event(), []
    for number, copy in enumerate(copies._copies):

        def run(*args, number=number, inner=copy.run):
            ran.append(number)
            if number == 0:
                came.set()
                assert let_go.wait(20)
            return inner(*args)

        monkeypatch.setattr(copy, "run", run)
    first = threading.Thread(target=copies.run, args=("serving_default", fed(1), ["y"]))
    first.start()
    assert came.wait(20)
    copies.run("serving_default", fed(1), ["y"])
    let_go.set()
    first.join(20)
    assert ran == [0, 1]


def test_a_signature_whose_rows_change_is_run_whole(copies, caplog):
    x = np.array([1, -1, 2, 3], np.float32)
    for _ in range(2):
        assert copies.run("positive", {"x": x}, ["x"])["x"].tolist() == [1.0, 2.0, 3.0]
    assert [record.getMessage() for record in caplog.records] == [
        "model deep: signature 'positive' is not split: its rows change"
    ]


@pytest.mark.parametrize("bad", [0, 3])
def test_the_error_of_either_is_the_runs(copies, bad):
    x = np.zeros(4, np.float32)
    x[bad] = 11
    with pytest.raises(Refused, match="too much") as caught:
        copies.run("checked", {"x": x}, ["x"])
    assert caught.value.fault is Fault.MODEL_FAILED
    assert copies.run("checked", {"x": x - 5}, ["x"])["x"].tolist() == (x - 5).tolist()


def test_what_a_session_writes_every_later_run_sees(backend, models):
    folder = models / "settable"
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [None], name="x")
        factor = tf.compat.v1.get_variable("factor", initializer=2.0, use_resource=True)
        tf.compat.v1.assign(factor, 5.0, name="set")
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.saved_model.simple_save(session, str(folder), {"x": x}, {"y": x * factor})
    model = backend.load(ModelSettings("settable", str(folder), True, copy_per_device=True))
    ones = {"x": np.ones(4, np.float32)}
    assert model.run("serving_default", ones, ["y"])["y"].tolist() == [2.0] * 4
    write = SessionCall({}, frozenset(), ("set",), may_write=False)
    model.session_run(write)  # it runs nothing, and says that it would write
    assert model.run("serving_default", ones, ["y"])["y"].tolist() == [2.0] * 4
    model.session_run(dataclasses.replace(write, may_write=True))
    assert model.run("serving_default", ones, ["y"])["y"].tolist() == [5.0] * 4
    for _ in range(3):
        assert model.run("serving_default", {"x": ones["x"][:1]}, ["y"])["y"].tolist() == [5.0]
    model.close()


def test_a_model_that_keeps_state_has_one_copy(backend, models, caplog):
    class Counter(tf.Module):
        def __init__(self):
            super().__init__()
            self.total = tf.Variable(0.0)

        @tf.function(input_signature=[tf.TensorSpec([None], name="x")])
        def add(self, x):
            return {"total": self.total.assign_add(tf.reduce_sum(x)) + 0.0 * x}

    module = Counter()
    tf.saved_model.save(module, str(models / "counter_of_copies"), signatures={"serving_default": module.add})
    model = backend.load(ModelSettings("counter", str(models / "counter_of_copies"), True, copy_per_device=True))
    assert isinstance(model, Copies)
    model.warm_up()
    for expected in (3.0, 6.0):
        assert model.run("serving_default", {"x": np.array([1, 2], np.float32)}, ["total"])["total"][0] == expected
    assert "model counter: it keeps state, so it has one copy" in caplog.text
    model.close()
