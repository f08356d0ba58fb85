"""A `RemoteSession` against a `tf.Session` on the same graph: the same values and structures, and the same words."""

import collections
import random
import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from pool import RemoteSession, errors
from pool.wire.worker_messages import ModelSettings
from tf.session_in_process import InProcess
from workers.tf.library import tf

pytestmark = pytest.mark.tensorflow

v1 = tf.compat.v1


class Pair(NamedTuple):
    one: Any
    two: Any


def build(folder: Path) -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 2], name="x")
        small = v1.placeholder(tf.uint8, [], name="small")
        text = v1.placeholder(tf.string, None, name="text")
        half = v1.placeholder(tf.bfloat16, None, name="half")
        double = tf.multiply(x, 2.0, name="double")
        tf.reduce_sum(double, name="sum")
        tf.identity(small, name="same_small")
        tf.strings.join([text, "!"], name="shout")
        tf.add(half, half, name="whole")
        first, _ = tf.split(x, [1, 1], axis=1, name="split")
        tf.identity(first, name="first")
        sparse = v1.sparse_placeholder(tf.float32, [2, 3], name="sparse")
        tf.sparse.to_dense(sparse, name="dense")
        parts = tf.ragged.range(tf.cast(x[:, 0], tf.int32, name="lengths"))
        tf.identity(parts.flat_values, name="ragged/values")
        tf.identity(parts.row_splits, name="ragged/splits")
        tf.group(tf.debugging.Assert(tf.reduce_all(x > 0), ["not positive"]), name="check")
        with tf.control_dependencies([tf.debugging.assert_positive(x, message="negative!")]):
            tf.identity(x, name="checked")
        counter = v1.get_variable("counter", initializer=tf.constant(0, tf.int64), use_resource=True)
        tf.group(v1.assign_add(counter, 1), name="count")
        old = v1.get_variable("old", initializer=tf.constant([1.0, 2.0]), use_resource=False)
        tf.group(v1.assign_add(old, [1.0, 1.0]), name="age")
        queue = tf.queue.FIFOQueue(10, tf.float32, [[]], name="queue")
        queue.enqueue([tf.reduce_sum(x)], name="put")
        tf.multiply(queue.dequeue(name="take"), 10.0, name="taken")
        v1.global_variables_initializer()
        session.run("init")
        v1.saved_model.simple_save(session, str(folder), {"x": x}, {"double": double})


@pytest.fixture(scope="module")
def folder(models: Path) -> Path:
    where = models / "session_runs"
    build(where)
    return where


@pytest.fixture(scope="module")
def in_pool(folder, backend) -> InProcess:
    settings = ModelSettings("m", str(folder), True)
    return InProcess({"m": backend.load(settings)}, lambda _: backend.load(settings), 2, 5.0)


@pytest.fixture(scope="module")
def remote(in_pool) -> RemoteSession:
    return in_pool.session("m")


@pytest.fixture(scope="module")
def local(folder) -> Any:
    with v1.Session(graph=tf.Graph()) as session:
        v1.saved_model.loader.load(session, ["serve"], str(folder))
        yield session


def alike(one: Any, other: Any) -> None:
    assert type(one) is type(other), (one, other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        one, other = list(one.values()), list(other.values())
    if isinstance(one, list | tuple):
        assert len(one) == len(other)
        for each, of_other in zip(one, other, strict=True):
            alike(each, of_other)
    elif one is not None:
        assert np.asarray(one).dtype == np.asarray(other).dtype
        np.testing.assert_array_equal(one, other)


X = {"x:0": [[1, 2], [3, 4]]}
SPARSE = {"sparse/indices:0": [[0, 1], [1, 2]], "sparse/values:0": [5, 6], "sparse/shape:0": [2, 3]}
KINDS = collections.namedtuple("KINDS", "a b")  # as an old script has it


@pytest.mark.parametrize(
    ("fetches", "feeds"),
    [
        ("double:0", X),
        ("sum:0", X),
        (["double:0", "sum:0", "double:0"], X),
        (("sum:0",), X),
        ([], X),
        ({}, None),
        ((), None),
        ([[], {"nothing": []}], None),
        ({"d": "double:0", "more": [("sum:0", {"deep": "x:0"})]}, X),
        (Pair("double:0", ["sum:0"]), X),
        (KINDS("sum:0", "check"), X),
        (collections.OrderedDict(b="sum:0", a="double:0"), X),
        (collections.defaultdict(list, {"s": "sum:0"}), X),
        ("double", X),
        (["double", "double:0"], X),
        (b"sum:0", X),
        ("sum:0", {"double:0": [[5, 6]]}),
        ("double:0", {"double:0": [[5, 6]]}),
        (["x:0", "sum:0"], X),
        (["small:0", "same_small:0"], {"small:0": 7}),
        (["text:0", "shout:0"], {"text:0": b"a"}),
        ("first:0", {"split:0": [[7]]}),
        (["first:0", "split:1"], {"split:0": [[7]], **X}),
        ("sum:00", X),
        ("sum:0", {"x:00": [[1, 2]]}),
        ("sum:0", {"x:0": np.ones((3, 2), ">f8")}),
        ("sum:0", {"x:0": np.arange(6, dtype=np.int64).reshape(2, 3).T}),
        ("sum:0", {"x:0": [[True, False]]}),
        ("sum:0", {"x:0": np.zeros((0, 2))}),
        ("sum:0", {"x:0": [["1.5", "2"]]}),
        ("sum:0", {b"x:0": [[1.5, 2]]}),
        ("sum:0", {("x:0", ("small:0",)): (np.array([[1, 2]]), (3,))}),
        ("same_small:0", {"small:0": 255}),
        ("same_small:0", {"small:0": 3.7}),
        ("same_small:0", {"small:0": np.int64(300)}),
        ("same_small:0", {"small:0": True}),
        ("shout:0", {"text:0": "ü"}),
        ("shout:0", {"text:0": b"a\0"}),
        ("shout:0", {"text:0": ["a", "bc"]}),
        ("shout:0", {"text:0": np.array([["a"], ["b\0c"]], object)}),
        ("shout:0", {"text:0": np.array(["a", "b"])}),
        ("whole:0", {"half:0": [1.0, 2.5]}),
        (("sparse/indices:0", "sparse/values:0"), SPARSE),
        ("dense:0", SPARSE),
        (["ragged/values:0", "ragged/splits:0"], X),
        ("counter/Read/ReadVariableOp:0", None),
        ("old:0", None),
        ("old/read:0", {"old/read:0": [5, 5]}),
        (["old/read:0", "check"], X),
        ("checked:0", X),
    ],
)
def test_the_same_values_in_the_same_structure(remote, local, fetches, feeds) -> None:
    alike(remote.run(fetches, feeds), local.run(fetches, feeds))


def said_by(session: Any, fetches: Any, feeds: Any) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011  # of which class is looked at
        session.run(fetches, feeds)
    return caught.value


@pytest.mark.parametrize(
    ("fetches", "feeds"),
    [
        ("nope:0", None),
        ("nope", None),
        ("double:1", X),
        ("double:x", X),
        ("", None),
        ("^double", X),
        (None, None),
        (["sum:0", None], X),
        (5, None),
        ("sum:0", {"x": [[1, 2]]}),
        ("sum:0", {"nope:0": 1}),
        ("sum:0", {5: 1}),
        ("sum:0", {"x:0": [[1, 2, 3]]}),
        ("sum:0", {"x:0": 1.0}),
        ("sum:0", {**X, "small:0": [1]}),
        ("same_small:0", {"small:0": 300}),
        ("same_small:0", {"small:0": -1}),
        ("shout:0", {"text:0": 5}),
        (["sum:0", "nope:0"], X),
    ],
)
def test_what_tensorflow_refuses_is_refused_in_its_words(remote, local, fetches, feeds) -> None:
    theirs, ours = said_by(local, fetches, feeds), said_by(remote, fetches, feeds)
    assert isinstance(ours, TypeError if isinstance(theirs, TypeError) else ValueError), repr(ours)
    assert str(ours) == str(theirs)


def test_a_value_of_another_kind_is_refused(remote, local) -> None:
    theirs, ours = said_by(local, "sum:0", {"x:0": [["a", "b"]]}), said_by(remote, "sum:0", {"x:0": [["a", "b"]]})
    assert isinstance(theirs, ValueError)
    assert isinstance(ours, ValueError)
    assert str(ours).startswith("could not convert string to float")


def test_a_placeholder_that_is_not_fed_is_named(remote, local) -> None:
    theirs, ours = said_by(local, "sum:0", None), said_by(remote, "sum:0", None)
    assert isinstance(theirs, tf.errors.InvalidArgumentError)
    assert isinstance(ours, errors.InvalidInput)
    text = "You must feed a value for placeholder tensor 'x' with dtype float"
    assert text in str(theirs)
    assert text in str(ours)


def test_what_an_operation_raises_is_the_models(remote, local) -> None:
    feeds = {"x:0": [[-1, 2]]}
    theirs, ours = said_by(local, "checked:0", feeds), said_by(remote, "checked:0", feeds)
    assert "negative!" in str(theirs)
    assert isinstance(ours, errors.ModelFailed)
    assert str(ours).startswith("InvalidArgumentError: ")
    assert "negative!" in str(ours)


def test_what_may_not_be_fetched_or_fed_is_refused(folder, backend) -> None:
    model = backend.load(ModelSettings("m", str(folder), False))
    graph = model._session.graph
    with v1.Session(graph=graph) as local:
        graph.prevent_fetching(graph.get_operation_by_name("double"))
        graph.prevent_feeding(graph.get_tensor_by_name("small:0"))
        remote = InProcess({"m": model}, lambda _: model).session("m")
        for fetches, feeds in (("double:0", X), ("double", X), ("same_small:0", {"small:0": 1})):
            theirs, ours = said_by(local, fetches, feeds), said_by(remote, fetches, feeds)
            assert isinstance(theirs, ValueError)
            assert isinstance(ours, ValueError)
            assert str(ours) == str(theirs)
        alike(remote.run("sum:0", X), local.run("sum:0", X))


def test_a_bad_list_of_fetches_spoils_no_good_one(remote, local) -> None:
    for _ in range(3):
        said_by(remote, ["sum:0", "nope:0"], X)
        said_by(remote, "sum:0", None)
        alike(remote.run(["sum:0", "double"], X), local.run(["sum:0", "double"], X))


WRITTEN = ("counter", "count", "old", "age", "Assign", "init", "save", "queue", "put", "take", "ReadVariable")


@pytest.mark.parametrize("seed", range(3))
def test_any_tensors_and_operations_with_any_feeds(remote, local, seed) -> None:
    """But for those that read or write what the other tests write."""
    rng = random.Random(seed)
    operations = [each for each in local.graph.get_operations() if not any(name in each.name for name in WRITTEN)]
    tensors = [tensor for operation in operations for tensor in operation.outputs]

    def value(tensor: Any) -> Any:
        axes = [
            rng.choice((2, axis or 2)) for axis in (tensor.shape.as_list() if tensor.shape.rank is not None else [2])
        ]
        if tensor.dtype == tf.string:
            return np.full(axes, b"text", object)
        dtype = rng.choice((np.float64, np.int32, tensor.dtype.as_numpy_dtype))
        array = np.full(axes, rng.randint(0, 2)).astype(dtype)
        return rng.choice((array, array.tolist() if array.dtype.kind in "fiu" else array))

    for _ in range(30):
        fetches = [rng.choice((rng.choice(operations), rng.choice(tensors))).name for _ in range(rng.randint(1, 3))]
        feeds = {"x:0": np.ones((rng.randint(0, 2), 2))} if rng.random() < 0.8 else {}
        feeds |= {tensor.name: value(tensor) for tensor in rng.sample(tensors, rng.randint(0, 2))}
        answers: list[Any] = []
        for session in (local, remote):
            try:
                answers.append(session.run(fetches, feeds))
            except Exception as error:  # both must
                answers.append(error)
        said = f"fetches {fetches}, feeds {feeds}: {answers}"
        if isinstance(answers[0], Exception):
            assert isinstance(answers[1], Exception), said
            assert isinstance(answers[0], TypeError) == isinstance(answers[1], TypeError), said
            # TensorFlow's own refusal is no ValueError; the pool's `InvalidInput` always is.
            if not isinstance(answers[1], errors.InvalidInput):
                assert isinstance(answers[0], ValueError) == isinstance(answers[1], ValueError), said
        else:
            alike(*answers)


def test_a_handle_of_this_process_neither_leaves_it_nor_is_believed(remote) -> None:
    for fetches, feeds in (
        ("counter:0", None),
        ("counter/Read/ReadVariableOp:0", {"counter:0": np.zeros(8, np.uint8)}),
    ):
        assert "is of dtype resource, which cannot be sent" in str(said_by(remote, fetches, feeds))


def test_only_what_leads_to_the_fetches_runs(remote) -> None:
    negative = {"x:0": [[-1, 2]]}
    assert remote.run("sum:0", negative) == 2
    assert remote.run("checked:0", {"checked:0": [[-1, 2]]}).tolist() == [[-1, 2]]
    before = remote.run("counter/Read/ReadVariableOp:0")
    remote.run("sum:0", X)
    assert remote.run("counter/Read/ReadVariableOp:0") == before


def test_writes_are_found_from_the_graph(in_pool) -> None:
    remote = in_pool.session("m")
    in_pool.signatures.clear()
    before = remote.run("counter/Read/ReadVariableOp:0")
    assert remote.run("count") is None
    assert remote.run(["count", "counter/Read/ReadVariableOp:0"])[0] is None
    assert in_pool.session("m").run("counter/Read/ReadVariableOp:0") == before + 2, "all sessions share it"
    kinds = [str(signature) for signature in in_pool.signatures]
    assert kinds == ["Session.run", *["Session.run", "Session.run, which writes"] * 2, "Session.run"]
    in_pool.signatures.clear()
    remote.run("count")
    assert in_pool.signatures == ["Session.run, which writes"], "the second time it knows"


def test_what_is_fed_runs_nothing_before_it(in_pool) -> None:
    remote = in_pool.session("m")
    in_pool.signatures.clear()
    assert remote.run("taken:0", {"take:0": 4.0}) == 40.0, "the queue is empty, and nothing waits for it"
    assert in_pool.signatures == ["Session.run"]
    assert remote.run("put", X) is None
    assert remote.run("taken:0") == 100.0


def test_what_was_fetched_stays_as_it_is(remote) -> None:
    """A reference variable's own buffer comes out of TensorFlow."""
    kept = remote.run("old:0")
    before = kept.copy()
    answers = [remote.run(["age", "old:0"])[1] for _ in range(3)]
    assert kept.tolist() == before.tolist()
    assert answers[0].tolist() != answers[2].tolist()


def test_fed_arrays_are_not_written(remote) -> None:
    fed = np.ones((64, 2), np.float32)
    remote.run(["double:0", "count"], {"x:0": fed})
    assert (fed == 1).all()


@pytest.mark.parametrize("options", [{"trace_level": 3}, v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)])
def test_a_trace_comes_back(remote, options) -> None:
    metadata = v1.RunMetadata()
    assert remote.run("sum:0", X, options=options, run_metadata=metadata) == 20
    assert any(node.node_name == "sum" for device in metadata.step_stats.dev_stats for node in device.node_stats)
    nothing = v1.RunMetadata()
    remote.run("sum:0", X, run_metadata=nothing)
    assert not nothing.step_stats.dev_stats


def test_a_private_session_has_variables_of_its_own(in_pool) -> None:
    value = "counter/Read/ReadVariableOp:0"
    shared = in_pool.session("m")
    shared.run("count")
    before = shared.run(value)
    with in_pool.session("m", private=True) as one, in_pool.session("m", private=True) as other:
        assert one.run(value) == other.run(value) == 0, "as in the model's files"
        for _ in range(3):
            one.run("count")
        assert (one.run(value), other.run(value), shared.run(value)) == (3, 0, before)
        assert one.run("old:0").tolist() == [1, 2]
        with pytest.raises(errors.Overloaded, match="2 private sessions"):
            in_pool.session("m", private=True).run(value)
    with in_pool.session("m", private=True) as again:
        assert again.run(value) == 0


def test_several_threads_share_a_session(remote) -> None:
    before = remote.run("counter/Read/ReadVariableOp:0")

    def count() -> None:
        for _ in range(20):
            remote.run("count")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert remote.run("counter/Read/ReadVariableOp:0") == before + 80


def test_a_closed_session_says_so(in_pool) -> None:
    with in_pool.session("m") as session:
        session.run("sum:0", X)
    with pytest.raises(RuntimeError, match=r"^Attempted to use a closed Session\.$"):
        session.run("sum:0", X)
