"""`client.session(model).run` gives what `tf.Session.run` gives. All sessions share the model's variables."""

import asyncio
from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest

from pool import AsyncClient, errors
from support.pools import pool_in
from tf.making import MODEL, backend_with, run, save_graph, v1
from workers.tf.library import tf

pytestmark = pytest.mark.tensorflow

Pair = namedtuple("Pair", "first second")
CONFIG = """
[pool]
devices = ["cpu", "cpu"]
[[model]]
name = "net"
path = "{folder}/net"
[[model]]
name = "counter"
path = "{folder}/counter"
stateful = true
[[model]]
name = "writer"
path = "{folder}/counter"
stateful = false
"""


def net() -> dict[str, Any]:
    x = v1.placeholder(tf.float32, [None, 3], "x")
    scale = v1.placeholder_with_default(tf.constant(2.0), [], "scale")
    hidden = tf.multiply(x, scale, "hidden")
    tf.identity(v1.placeholder(tf.string, None, "text"), "same")
    v1.sparse_placeholder(tf.float32, name="sparse")
    tf.no_op("nothing")
    weights = v1.get_variable("weights", initializer=tf.ones([3, 2]), use_resource=True)
    return {"serving_default": ({"x": x}, {"y": tf.matmul(hidden, weights, name="y")})}


def counter() -> dict[str, Any]:
    n = v1.placeholder(tf.int64, [], "n")
    total = v1.get_variable("total", [], tf.int64, initializer=v1.zeros_initializer(), use_resource=True)
    with tf.control_dependencies([total.assign_add(n, read_value=False)]):
        tf.no_op("add")
        return {"serving_default": ({"n": n}, {"total": total.read_value()})}


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sessions")
    for build in (net, counter):
        save_graph(folder / build.__name__, build)
    with pool_in(folder, CONFIG.format(folder=folder)) as made:
        yield made


@pytest.fixture(scope="module")
def bare(running):
    """A `tf.Session` with the same model."""
    with v1.Session(graph=tf.Graph()) as session:
        v1.saved_model.load(session, ["serve"], str(running.folder / "net"))
        yield session


X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    ("fetches", "feeds"),
    [
        ("y:0", {"x:0": X}),
        (["y:0", "hidden:0", "y:0"], {"x:0": X.tolist(), "scale:0": 3}),
        ({"a": "y:0", "b": ("nothing", ["hidden:0"])}, {"x:0": np.float64(X)}),
        (Pair("hidden:0", Pair("nothing", "x:0")), {"x:0": X}),
        (OrderedDict(y="y:0"), {"hidden:0": X}),
        ("scale:0", None),
        ([], {}),
        ("same:0", {"text:0": ["a", "é".encode()]}),
        ("same:0", {"text:0": b"a\0"}),
        (["sparse/values:0"], {"sparse/values:0": [1, 2]}),
    ],
)
def test_it_gives_what_a_session_gives(client, bare, fetches, feeds):
    ours, theirs = client.session("net").run(fetches, feeds), bare.run(fetches, feeds)
    assert type(ours) is type(theirs) or isinstance(theirs, dict)
    for one, other in zip(tf.nest.flatten(ours), tf.nest.flatten(theirs), strict=True):
        assert (one is None) == (other is None)
        if other is not None:
            assert type(one) is type(other)
            np.testing.assert_array_equal(np.asarray(one, object), np.asarray(other, object))
            assert np.asarray(one).dtype == np.asarray(other).dtype


def test_objects_of_the_graph_stand_for_their_names(client, bare):
    graph = bare.graph
    y, x, nothing = graph.get_tensor_by_name("y:0"), graph.get_tensor_by_name("x:0"), "nothing"
    found = client.session("net").run([y, graph.get_operation_by_name(nothing)], {x: X})
    np.testing.assert_array_equal(found[0], bare.run(y, {x: X}))
    assert found[1] is None


@pytest.mark.parametrize(
    ("fetches", "feeds", "text"),
    [
        ("z:0", {}, "z"),
        ("y:0", {}, "placeholder"),
        ("y:0", {"x:0": X.T}, "shape"),
        ("y:0", {"y": X}, "y"),
        ("weights:0", {}, "resource|not"),
        (3, {}, "name"),
    ],
)
def test_what_a_session_refuses_is_refused(client, fetches, feeds, text):
    with pytest.raises((errors.InvalidInput, errors.ModelFailed), match=f"(?i){text}"):
        client.session("net").run(fetches, feeds)
    np.testing.assert_array_equal(client.session("net").run("x:0", {"x:0": X}), X)


def test_sessions_and_jobs_share_the_variables_of_a_stateful_model(client, running):
    one, other = client.session("counter"), client.session("counter")
    assert one.run(["add"], {"n:0": 1}) == [None]
    before = one.run("total/Read/ReadVariableOp:0")
    for _ in range(10):
        one.run("add", {"n:0": 1})
        client.run("counter", {"n": 1})

    async def add() -> Any:
        async with AsyncClient(running.endpoint) as another:
            await asyncio.gather(*(another.session("counter").run("add", {"n:0": 1}) for _ in range(10)))
            return await another.session("counter").run("total/Read/ReadVariableOp:0")

    assert asyncio.run(add()) == before + 30
    assert type(other.run("total/Read/ReadVariableOp:0")) is np.int64
    with pytest.raises(errors.InvalidInput, match="stateful = true"):
        client.session("writer").run("add", {"n:0": 1})
    assert client.session("writer").run("total/Read/ReadVariableOp:0") == 0


def test_device_placement_is_logged_where_it_is_asked_for(models, capfd):
    loud = backend_with(log_device_placement=True)
    run(loud.load({**MODEL, "path": str(save_graph(models / "logged", net))}), {"x": X})
    assert "hidden: (Mul)" in "".join(capfd.readouterr())
