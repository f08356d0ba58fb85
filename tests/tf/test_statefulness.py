"""Which models are stateful, and what that means for their feeds and their warm-up."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from pool.wire.worker_messages import ModelSettings
from workers.tf.reachable import ReachableOps
from workers.tf.statefulness import blocks_its_thread, uses_references, writes_references, writes_state

pytestmark = pytest.mark.tensorflow


def test_a_counter_inside_functions_and_branches_is_stateful(load, counter):
    assert load(counter).info.stateful


@pytest.mark.parametrize("name", ["two_signatures", "keras_export", "tf1_table", "failing"])
def test_reading_variables_and_tables_is_not(load, request, name):
    assert not load(request.getfixturevalue(name)).info.stateful


def test_warming_up_leaves_the_state_alone(backend, counter):
    model = backend.load(ModelSettings("counter", str(counter), True))
    model.warm_up()
    peek = {"plus": np.array(0, np.int64)}
    assert model.run("peek", peek, ["count"])["count"] == 0
    assert model.run("serving_default", {"step": np.array(3, np.int64)}, ["count"])["count"] == 3
    assert model.run("peek", peek, ["count"])["count"] == 3


def test_two_models_share_no_state(backend, counter):
    settings = ModelSettings("counter", str(counter), True)
    one, other = backend.load(settings), backend.load(settings)
    one.run("serving_default", {"step": np.array(5, np.int64)}, ["count"])
    assert other.run("peek", {"plus": np.array(0, np.int64)}, ["count"])["count"] == 0


def test_a_variable_never_keeps_the_callers_buffer(load, keeper):
    model = load(keeper)
    store = np.zeros(1024 + 16, np.float32)
    offset = (-store.ctypes.data % 64) // 4
    value = store[offset : offset + 1024]  # 64-byte aligned, as the pool's are: TensorFlow adopts such a buffer
    value[:] = 1.0
    model.run("serving_default", {"value": value}, ["kept"])
    value[:] = 2.0
    np.testing.assert_array_equal(model.run("stored", {}, ["kept"])["kept"], np.ones(1024, np.float32))


def test_control_inputs_count():
    with tf.Graph().as_default() as graph:
        variable = tf.compat.v1.get_variable("v", initializer=0.0, use_resource=False)
        with tf.control_dependencies([variable.assign_add(1.0)]):
            fetched = tf.constant(1.0, name="fetched")
        unrelated = tf.constant(1.0, name="unrelated")
    reachable = ReachableOps(graph.as_graph_def())
    assert writes_state(reachable.from_tensors([fetched.name]))
    assert not writes_state(reachable.from_tensors([unrelated.name]))


def test_the_bodies_of_loops_and_of_functions_in_them_count():
    def body(index):
        variable.assign_add(1.0)
        return index + 1

    with tf.Graph().as_default() as graph:
        variable = tf.compat.v1.get_variable("v", initializer=0.0, use_resource=True)
        looped = tf.function(lambda: tf.while_loop(lambda index: index < 3, body, [0])[0])()
    ops = ReachableOps(graph.as_graph_def()).from_tensors([looped.name])
    assert "AssignAddVariableOp" in ops


def test_a_function_that_calls_itself_ends():
    function = SimpleNamespace(
        signature=SimpleNamespace(name="f"), node_def=[SimpleNamespace(op="f", attr={}, name="n", input=[])]
    )
    node = SimpleNamespace(op="f", attr={}, name="call", input=["call"])
    graph_def = SimpleNamespace(node=[node], library=SimpleNamespace(function=[function]))
    assert ReachableOps(graph_def).from_tensors(["call:0"]) == {"f"}


WRITERS = """
    AssignVariableOp AssignAdd ResourceScatterNdUpdate ResourceApplyAdam SparseApplyFtrl ScatterNdAdd
    QueueEnqueueV2 QueueDequeueManyV2 Stage MapUnstageNoKey OrderedMapClear BarrierTakeMany
    ResourceAccumulatorApplyGradient LookupTableInsertV2 IteratorGetNextSync ReaderReadV2 WriteFile InplaceUpdate
"""
OTHERS = """
    ReadVariableOp VarHandleOp VarIsInitializedOp LookupTableFindV2 LookupTableSizeV2 InitializeTableV2
    HashTableV2 QueueSizeV2 RandomUniform StatefulUniform TensorScatterUpdate ScatterNd ScatterNdNonAliasingAdd
    TensorArrayWriteV3 TensorListPushBack StackPushV2 Assert Print
"""


@pytest.mark.parametrize("op", WRITERS.split())
def test_writers(op):
    assert writes_state([op])


@pytest.mark.parametrize("op", OTHERS.split())
def test_readers_and_what_lives_within_a_run(op):
    assert not writes_state([op])


def test_ops_that_wait_for_others_get_threads_of_their_own():
    assert blocks_its_thread(["Const", "MapUnstage"])
    assert not blocks_its_thread(["QueueDequeueV2", "Stage"])


def test_a_graph_with_a_staging_area_does_not_deadlock(backend, models):
    folder = models / "staging"
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        value = tf.compat.v1.placeholder(tf.float32, [None], name="value")
        taken = tf.raw_ops.Unstage(dtypes=[tf.float32], container="", shared_name="area")[0]
        with tf.control_dependencies([tf.raw_ops.Stage(values=[value], container="", shared_name="area")]):
            fed = tf.identity(value)
        tf.compat.v1.saved_model.simple_save(session, str(folder), {"value": value}, {"taken": taken, "fed": fed})
    model = backend.load(ModelSettings("staging", str(folder), True))
    assert model.info.stateful
    model.warm_up()
    for number in range(50):
        answer = model.run("serving_default", {"value": np.array([number], np.float32)}, ["taken", "fed"])
        assert answer["taken"].tolist() == answer["fed"].tolist() == [number]


@pytest.fixture(scope="module")
def reference(models):
    """TensorFlow 1: serving_default fills a reference variable with `value` and gives it back; stored: gives it."""
    folder = models / "reference"
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        zeros = np.zeros(1 << 20, np.float32)
        variable = tf.compat.v1.get_variable("v", initializer=zeros, use_resource=False)
        value = tf.compat.v1.placeholder(tf.float32, [], name="value")
        filled = tf.identity(tf.compat.v1.assign(variable, tf.fill([1 << 20], value)), name="filled")
        stored = tf.identity(variable, name="stored")
        session.run(variable.initializer)
        tf.compat.v1.saved_model.simple_save(session, str(folder), {"value": value}, {"filled": filled})
    signatures = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    added = signatures.meta_graphs[0].signature_def["stored"].outputs["stored"]
    added.name, added.dtype = stored.name, stored.dtype.as_datatype_enum
    added.tensor_shape.CopyFrom(stored.shape.as_proto())
    (folder / "saved_model.pb").write_bytes(signatures.SerializeToString())
    return folder


def test_lanes_that_write_one_reference_variable_are_answered_with_their_own(load, reference):
    model = load(reference)
    assert model.info.stateful
    assert "stored" in model.info.signatures

    def lane(number):
        wrong = 0
        for turn in range(60):
            value = np.float32(number * 1000 + turn)
            wrong += (model.run("serving_default", {"value": value}, ["filled"])["filled"] != value).any()
        return wrong

    def reader():
        wrong = 0
        for _ in range(60):
            wrong += len(np.unique(model.run("stored", {}, ["stored"])["stored"])) != 1
        return wrong

    with ThreadPoolExecutor(3) as threads:
        lanes = [threads.submit(lane, 1), threads.submit(lane, 2), threads.submit(reader)]
        assert [future.result() for future in lanes] == [0, 0, 0]


def test_an_answer_is_not_the_variables_memory(load, reference):
    model = load(reference)
    one = model.run("serving_default", {"value": np.float32(1)}, ["filled"])["filled"]
    kept = model.run("stored", {}, ["stored"])["stored"]
    model.run("serving_default", {"value": np.float32(2)}, ["filled"])
    assert (one == 1).all()
    assert (kept == 1).all()


def test_runs_that_wait_for_each_other_are_not_held_apart(backend, models):
    """One signature takes from a queue what the other puts in."""
    folder = models / "queue"
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        value = tf.compat.v1.placeholder(tf.float32, [], name="value")
        queue = tf.queue.FIFOQueue(1, [tf.float32], [[]], shared_name="q")
        taken = tf.identity(queue.dequeue(), name="taken")
        with tf.control_dependencies([queue.enqueue([value])]):
            put = tf.identity(value, name="put")
        tf.compat.v1.saved_model.simple_save(session, str(folder), {"value": value}, {"put": put})
    file = folder / "saved_model.pb"
    signatures = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    added = signatures.meta_graphs[0].signature_def["take"].outputs["taken"]
    added.name, added.dtype = taken.name, taken.dtype.as_datatype_enum
    added.tensor_shape.CopyFrom(taken.shape.as_proto())
    file.write_bytes(signatures.SerializeToString())
    model = backend.load(ModelSettings("queue", str(folder), True))
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(model.run("take", {}, ["taken"])), daemon=True)
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    model.run("serving_default", {"value": np.float32(7)}, ["put"])
    waiting.join()  # for ever, if it were held apart
    assert answers == [{"taken": 7}]


@pytest.mark.parametrize("op", ["Assign", "AssignSub", "ScatterNdUpdate", "ApplyAdam", "SparseApplyFtrl", "CountUpTo"])
def test_writers_of_reference_variables(op):
    assert writes_references([op])


@pytest.mark.parametrize(
    "op", ["AssignVariableOp", "ResourceScatterAdd", "ResourceApplyAdam", "QueueEnqueueV2", "VariableV2"]
)
def test_others_write_no_reference(op):
    assert not writes_references([op])


def test_who_uses_reference_variables():
    assert uses_references(["VariableV2", "Identity"])
    assert not uses_references(["VarHandleOp", "ReadVariableOp", "TemporaryVariable"])
