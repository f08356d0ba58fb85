"""Graphs that keep what they are fed, or write into it, do so with a copy of their own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from pool.wire.tensors import Array
from pool.wire.worker_messages import ModelSettings
from workers.tf.callables import Callables
from workers.tf.feeds import private
from workers.tf.model import TensorFlowModel

pytestmark = [pytest.mark.tensorflow, pytest.mark.memory]

WIDTH = 64


def aligned(values: Array) -> Array:
    """As the worker feeds it: TensorFlow takes such an array as it is."""
    return private(values)


KEEPERS = [
    *("assign", "reference", "queue", "priority", "stage", "map_stage", "barrier"),
    *("dense_table", "table", "sparse_map", "iterator"),
]


def keeper(kind: str, x: Any) -> tuple[Any, Any]:
    """What keeps `x`, and what gives back what is kept."""
    raw, v1 = tf.raw_ops, tf.compat.v1
    one = tf.constant(1, tf.int64)
    match kind:
        case "assign":
            variable = v1.get_variable("v", initializer=tf.zeros([WIDTH]), use_resource=True)
            return variable.assign(x).op, variable.read_value()
        case "reference":
            variable = v1.get_variable("r", initializer=tf.zeros([WIDTH]), use_resource=False)
            return variable.assign(x).op, tf.identity(variable)
        case "queue":
            queue = tf.queue.FIFOQueue(9, [tf.float32], [[WIDTH]], shared_name=kind)
            return queue.enqueue([x]), queue.dequeue()
        case "priority":
            queue = tf.queue.PriorityQueue(9, [tf.float32], [[WIDTH]], shared_name=kind)
            return queue.enqueue([one, x]), queue.dequeue()[1]
        case "stage":
            taken = raw.StagePeek(index=0, dtypes=[tf.float32], shared_name=kind)
            return raw.Stage(values=[x], shared_name=kind), taken[0]
        case "map_stage":
            area = {"key": one, "indices": [0], "dtypes": [tf.float32], "shared_name": kind}
            return raw.MapStage(values=[x], **area), raw.MapUnstage(**area)[0]
        case "barrier":
            barrier = raw.Barrier(component_types=[tf.float32], shapes=[[WIDTH]], shared_name=kind)
            put = raw.BarrierInsertMany(handle=barrier, keys=["a"], values=x[tf.newaxis], component_index=0)
            taken = raw.BarrierTakeMany(handle=barrier, num_elements=1, component_types=[tf.float32])
            return put, taken[2][0][0]
        case "dense_table" | "table":
            table = (
                tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, tf.zeros([WIDTH]), name=kind)
                if kind == "table"
                else tf.lookup.experimental.DenseHashTable(
                    tf.int64, tf.float32, tf.zeros([WIDTH]), one * -1, one * -2, name=kind
                )
            )
            return table.insert(one[tf.newaxis], x[tf.newaxis]), table.lookup(one)
        case "sparse_map":
            indices = tf.reshape(tf.range(WIDTH, dtype=tf.int64), [-1, 1])
            handle = v1.get_variable("s", initializer=tf.zeros([], tf.int64), use_resource=True)
            added = raw.AddSparseToTensorsMap(
                sparse_indices=indices, sparse_values=x, sparse_shape=[WIDTH], shared_name=kind
            )
            taken = raw.TakeManySparseFromTensorsMap(
                sparse_handles=handle.read_value()[tf.newaxis], dtype=tf.float32, shared_name=kind
            )
            return handle.assign(added).op, taken[1]
        case "iterator":
            iterator = v1.data.make_initializable_iterator(tf.data.Dataset.from_tensors(x).repeat())
            return iterator.initializer, iterator.get_next()
    raise AssertionError(kind)


@pytest.fixture(scope="module")
def keepers(backend, models) -> TensorFlowModel:
    """A signature that keeps what it is fed in each place there is, and one that gives that back."""
    folder: Path = models / "keepers"
    v1 = tf.compat.v1
    signatures = {}

    def signature(*sides):
        infos = ({name: v1.saved_model.build_tensor_info(each) for name, each in side.items()} for side in sides)
        return v1.saved_model.build_signature_def(*infos)

    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [WIDTH], name="x")
        for kind in KEEPERS:
            put, taken = keeper(kind, x)
            with tf.control_dependencies([put]):
                done = tf.constant(1.0, name=f"{kind}_done")
            signatures[f"put_{kind}"] = signature({"x": x}, {"done": done})
            signatures[f"take_{kind}"] = signature({}, {"taken": tf.identity(taken, name=f"{kind}_taken")})
        handle = v1.placeholder(tf.string, [], name="handle")
        signatures["put_by_handle"] = signature({"x": x}, {"handle": tf.raw_ops.GetSessionHandle(value=x)})
        stored = tf.raw_ops.GetSessionTensor(handle=handle, dtype=tf.float32)
        signatures["take_by_handle"] = signature({"handle": handle}, {"taken": stored})
        rows = tf.reshape(x, [8, -1])
        added = tf.raw_ops.InplaceAdd(x=rows, i=[0], v=tf.ones([1, 8]))
        signatures["in_place"] = signature({"x": x}, {"added": added})
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(str(folder))
        builder.add_meta_graph_and_variables(session, ["serve"], signature_def_map=signatures)
        builder.save()
    return backend.load(ModelSettings("keepers", str(folder), True))


@pytest.mark.parametrize("kind", KEEPERS)
def test_what_is_kept_is_not_the_callers_array(keepers, kind):
    x = aligned(np.arange(WIDTH, dtype=np.float32))
    keepers.run(f"put_{kind}", {"x": x}, ("done",))
    x[:] = -1
    taken = keepers.run(f"take_{kind}", {}, ("taken",))["taken"]
    np.testing.assert_array_equal(taken, np.arange(WIDTH))
    assert not np.may_share_memory(taken, x)


def test_what_a_session_keeps_by_its_handle_is_not_the_callers_array(keepers):
    x = aligned(np.arange(WIDTH, dtype=np.float32))
    handle = keepers.run("put_by_handle", {"x": x}, ("handle",))
    x[:] = -1
    taken = keepers.run("take_by_handle", handle, ("taken",))["taken"]
    np.testing.assert_array_equal(taken, np.arange(WIDTH))


def test_tensorflow_itself_would_keep_it():
    """Else the test above shows nothing."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        value = tf.compat.v1.placeholder(tf.float32, [WIDTH])
        put, taken = keeper("stage", value)
        with tf.control_dependencies([put]):
            done = tf.constant(1.0)
        callables = Callables(session)
        x = aligned(np.ones(WIDTH, np.float32))
        callables.get([value.name], [done.name], False)(x)
        x[:] = -1
        (kept,) = callables.get([], [taken.name], True)()
        assert (kept == -1).all()


def test_what_is_written_in_place_is_not_the_callers_array(keepers):
    x = aligned(np.zeros(WIDTH, np.float32))
    added = keepers.run("in_place", {"x": x}, ("added",))["added"]
    assert added[0].tolist() == [1.0] * 8
    assert not x.any()
