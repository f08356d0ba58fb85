"""What a prepared run takes and gives: exactly, with the caller's arrays never kept nor written, in few calls."""

import platform
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from pool.wire.tensors import DTYPES
from support.counting import counted
from tf.making import adopted, run, save_graph, v1
from workers.backend import RunFailed
from workers.lane import flush_subnormals
from workers.tf.graph import Reachable, writes_state
from workers.tf.library import tf

WIDTH = 64
# As `IsBF16SupportedByOneDNNOnThisCPU` asks. Elsewhere TensorFlow leaves a graph in float32.
HAS_BFLOAT16 = bool({"avx512f", "avx_ne_convert"} & set(Path("/proc/cpuinfo").read_text().split()))


@pytest.fixture(scope="module")
def echoes(load, models):
    def build():
        feeds = {name: v1.placeholder(name, None) for name in DTYPES}
        echoes = {name: ({"x": feed}, {"y": tf.identity(feed), "x": feed}) for name, feed in feeds.items()}
        x = v1.placeholder(tf.float32, [None, WIDTH])
        views = {"identity": tf.identity(x), "reshape": tf.reshape(x, [-1, 8, 8]), "bitcast": tf.bitcast(x, tf.int32)}
        return {**echoes, "views": ({"x": x}, {**views, "tail": x[2:], "doubled": x * 2, "sum": tf.reduce_sum(x)})}

    return load(save_graph(models / "echoes", build))


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_comes_back_as_it_went(echoes, name):
    dtype, random = DTYPES[name], np.random.default_rng(7)
    if dtype.hasobject:
        made = np.array([b"", b"\0", b"a\0", b"\xff" * 99, "é".encode(), b"x"], object)
    elif dtype.kind in "fc" or dtype.itemsize > 1 or "float8" in name:
        made = np.frombuffer(random.bytes(6 * dtype.itemsize), dtype)  # any bits
    else:
        made = random.integers(0, 2, 6).astype(dtype)
    for array in (made.reshape(2, 3), made[2:3].reshape(()), made[:0].reshape(0, 3)):
        for given in (array.copy(), array.copy() if dtype.hasobject else adopted(array)):
            given.flags.writeable = False
            for value in run(echoes, {"x": given}, name).values():
                assert (type(value), value.dtype, value.shape) == (np.ndarray, dtype, given.shape)
                assert value.tolist() == given.tolist() if dtype.hasobject else value.tobytes() == given.tobytes()


def test_a_prepared_run_takes_few_calls_and_a_wrong_feed_ends_nothing(echoes):
    prepared = echoes.prepare("float32", ["x"], ["y", "x"])
    feeds = {"x": np.zeros(3, np.float32)}
    assert counted(lambda: prepared(feeds)) - 1 <= 6  # without that of the lambda
    with pytest.raises(RunFailed):
        prepared({"x": np.array(["x"], object)})


def test_outputs_that_may_alias_an_input_do_so_visibly(echoes):
    """The caller copies by `np.may_share_memory`, so an output must change with the feed just where that says so."""
    x = adopted(np.arange(4 * WIDTH, dtype=np.float32).reshape(4, WIDTH))
    answer = run(echoes, {"x": x}, "views")
    before = {name: value.copy() for name, value in answer.items()}
    aliases = {name for name, value in answer.items() if np.may_share_memory(value, x)}
    x += 1
    assert {name for name, value in answer.items() if (value != before[name]).any()} == aliases
    assert {"identity", "reshape", "bitcast", "tail"} <= aliases
    assert not aliases & {"doubled", "sum"}


KEEPERS = ["assign", "reference", "queue", "stage", "table", "iterator"]


def keeper(kind, x):
    """What keeps `x`, and what gives back what is kept."""
    if kind == "queue":
        queue = tf.queue.FIFOQueue(9, [tf.float32], [[WIDTH]], shared_name=kind)
        return queue.enqueue([x]), queue.dequeue()
    if kind == "stage":
        taken = tf.raw_ops.StagePeek(index=0, dtypes=[tf.float32], shared_name=kind)
        return tf.raw_ops.Stage(values=[x], shared_name=kind), taken[0]
    if kind == "table":
        table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, tf.zeros([WIDTH]), name=kind)
        return table.insert([1], x[tf.newaxis]), table.lookup(tf.constant(1, tf.int64))
    if kind == "iterator":
        iterator = v1.data.make_initializable_iterator(tf.data.Dataset.from_tensors(x).repeat())
        return iterator.initializer, iterator.get_next()
    variable = v1.get_variable(kind, initializer=tf.zeros([WIDTH]), use_resource=kind == "assign")
    return variable.assign(x).op, tf.identity(variable)


@pytest.fixture(scope="module")
def keepers(load, models):
    """A signature that keeps what it is fed in each place there is, and one that gives that back."""

    def build():
        signatures = {}
        x = v1.placeholder(tf.float32, [WIDTH])
        for kind in KEEPERS:
            put, taken = keeper(kind, x)
            with tf.control_dependencies([put]):
                signatures[f"put {kind}"] = ({"x": x}, {"done": tf.constant(1.0)})
            signatures[f"take {kind}"] = ({}, {"taken": tf.identity(taken)})
        added = tf.raw_ops.InplaceAdd(x=tf.reshape(x, [8, -1]), i=[0], v=tf.ones([1, 8]))
        signatures["in place"] = ({"x": x}, {"added": added})
        return signatures

    model = load(save_graph(models / "keepers", build))
    model.warm_up()  # changes no state, and waits for nothing
    assert (model.is_stateful, model.notes) == (True, [])
    return model


@pytest.mark.parametrize("kind", KEEPERS)
def test_what_is_kept_is_not_the_callers_array(keepers, kind):
    x = adopted(np.arange(WIDTH, dtype=np.float32))
    run(keepers, {"x": x}, f"put {kind}")
    x[:] = -1
    np.testing.assert_array_equal(run(keepers, {}, f"take {kind}")["taken"], np.arange(WIDTH))


def test_what_is_written_in_place_is_not_the_callers_array(keepers):
    x = adopted(np.zeros(WIDTH, np.float32))
    assert run(keepers, {"x": x}, "in place")["added"][0].tolist() == [1] * 8
    assert not x.any()


def test_a_run_may_wait_for_what_it_puts_in(load, tmp_path):
    def build():
        value = v1.placeholder(tf.float32, [])
        staged = tf.raw_ops.Unstage(dtypes=[tf.float32], shared_name="area")[0]
        with tf.control_dependencies([tf.raw_ops.Stage(values=[value], shared_name="area")]):
            fed = tf.identity(value)
        return {"within": ({"value": value}, {"staged": staged, "fed": fed})}

    model = load(save_graph(tmp_path / "m", build))
    for _ in range(20):
        assert run(model, {"value": np.array(5, np.float32)}, "within") == {"staged": 5, "fed": 5}


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="no other processor's bits are known")
def test_a_lane_takes_subnormal_numbers_for_zero_as_tensorflow_s_threads_do(echoes):
    tiny = np.finfo(np.float32).tiny
    double = echoes.prepare("views", ["x"], ["doubled"])
    feeds = {"x": np.full((1, WIDTH), tiny / 2, np.float32)}

    def lane():
        flush_subnormals()
        return double(feeds)["doubled"].max()

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(lane).result() == 0
    assert double(feeds)["doubled"].max() == tiny, "another thread keeps them"


def test_the_warm_up_tells_what_fails_and_lets_the_rest_be(load, tmp_path):
    def build():
        x = v1.placeholder(tf.int32, [None])
        picked = tf.gather(tf.constant([1.0, 2.0]), x - 5, name="picky")
        return {"bad": ({"x": x}, {"y": picked}), "good": ({"x": x}, {"y": tf.ensure_shape(x, [1])})}

    model = load(save_graph(tmp_path / "m", build))
    model.warm_up()
    text = "InvalidArgumentError: indices[0] = -5 is not in [0, 2) [at op picky]"
    assert model.notes == [f"signature 'bad' failed its warm-up on zeros: {text}"]


@pytest.mark.parametrize(("switch", "mark"), [("xla", "_XlaRun"), ("mixed_precision", "Cast")])
def test_a_switch_changes_the_graph_that_runs(load, tmp_path, switch, mark):
    def build():
        x = v1.placeholder(tf.float32, [None, 64])
        w = v1.get_variable("w", [64, 64], initializer=v1.glorot_uniform_initializer(seed=1))
        return {"serving_default": ({"x": x}, {"y": tf.nn.relu(tf.nn.relu(x @ w) @ w) + 1.0})}

    def ops(model):
        options, metadata = v1.RunOptions(output_partition_graphs=True), v1.RunMetadata()
        bound = model._bound["serving_default"]
        for _ in range(4):  # XLA compiles what it meets again
            model._session.run(bound.fetches, {bound.feeds["x"]: x}, options, metadata)
        return {node.op for graph in metadata.partition_graphs for node in graph.node}

    x = np.random.default_rng(1).standard_normal((8, 64)).astype(np.float32)
    folder = save_graph(tmp_path / "m", build)
    plain, switched = load(folder), load(folder, **{switch: True})
    np.testing.assert_allclose(run(switched, {"x": x})["y"], run(plain, {"x": x})["y"], atol=0.1)
    assert mark not in ops(plain)
    assert mark in ops(switched) or (switch == "mixed_precision" and not HAS_BFLOAT16)


def test_control_inputs_count_and_what_only_leads_to_a_feed_does_not():
    with tf.Graph().as_default() as graph:
        variable = v1.get_variable("v", initializer=0.0, use_resource=False)
        added = tf.identity(variable.assign_add(1.0), name="added")
        with tf.control_dependencies([added]):
            fetched = tf.constant(1.0)
        doubled, unrelated = added * 2.0, tf.constant(1.0)
    reachable = Reachable(graph.as_graph_def())
    for tensor, fed, writes in (
        *((fetched, [], True), (fetched, [added.name], True), (unrelated, [], False)),  # a feed cuts no control input
        *((doubled, [], True), (doubled, [added.name], False)),
    ):
        assert writes_state(reachable.ops([tensor.name], fed)) == writes


def test_a_counter_in_functions_and_branches_is_stateful_and_its_copies_share_nothing(load, tmp_path):
    class Counter(tf.Module):
        def __init__(self):
            super().__init__()
            self.count = tf.Variable(0, dtype=tf.int64)

        @tf.function
        def add(self, step):
            return self.count.assign_add(step)

        @tf.function(input_signature=[tf.TensorSpec([], tf.int64, name="step")])
        def count_up(self, step):
            return {"count": self.add(step) if step > 0 else self.count.read_value()}

        @tf.function(input_signature=[tf.TensorSpec([], tf.int64, name="plus")])
        def peek(self, plus):
            return {"count": self.count + plus}

    module = Counter()
    tf.saved_model.save(module, str(tmp_path / "m"), signatures={"up": module.count_up, "peek": module.peek})
    one, other = load(tmp_path / "m"), load(tmp_path / "m", stateful=False)
    assert (one.is_stateful, other.is_stateful, load(tmp_path / "m", stateful=True).is_stateful) == (True, False, True)
    one.warm_up()
    zero = {"plus": np.array(0, np.int64)}
    assert run(one, zero, "peek")["count"] == 0
    assert run(one, {"step": np.array(3, np.int64)}, "up")["count"] == 3
    assert (run(one, zero, "peek")["count"], run(other, zero, "peek")["count"]) == (3, 0)
