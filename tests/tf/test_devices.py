"""Rules move layers, and the traced run decides; baked device strings are cleared, kept or refused."""

import numpy as np
import pytest
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from tf.making import MODEL, backend_with, run, save_graph, v1
from workers.backend import CannotLoad, RunFailed
from workers.tf import devices as devices_module
from workers.tf.devices import Devices
from workers.tf.library import SavedModelLoader, tf

ELSEWHERE = "/job:worker/replica:0/task:3/device:GPU:1"
X = np.arange(8, dtype=np.float32).reshape(2, 4) / 10
FEEDS = {"x": X}


@pytest.fixture(scope="module")
def load():
    """Into one worker with four devices, which stand for GPUs."""
    strict, soft = (backend_with(device_count={"CPU": 4}, allow_soft_placement=each) for each in (False, True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices_module, "MOST_NAMES", 1000)
        yield lambda path, is_soft=True, **some: (strict, soft)[is_soft].load({**MODEL, "path": str(path), **some})


@pytest.fixture(scope="module")
def layers(models):
    """TensorFlow 2: conv1 on another machine, conv2 in a function, a branch, a loop, `apart`."""

    class Layers(tf.Module):
        def __init__(self):
            super().__init__()
            self.first = tf.Variable(np.full((4, 8), 0.1, np.float32), name="conv1/kernel")
            self.second = tf.Variable(np.full((8, 8), 0.2, np.float32), name="conv2/kernel")
            self.scale = tf.Variable(0.5, name="scale")
            filling = tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([1, 2], tf.int64))
            self.table = tf.lookup.StaticHashTable(filling, -1)

        @tf.function
        def inner(self, x):
            with tf.name_scope("conv2"):
                return tf.nn.relu(tf.matmul(x, self.second))

        @tf.function(experimental_attributes={"_noinline": True})
        def apart(self, x):
            with tf.name_scope("apart"):
                return tf.nn.relu(tf.nn.bias_add(tf.matmul(x, self.second), tf.ones([8])))

        @tf.function(input_signature=[tf.TensorSpec([None, 4], name="x")])
        def numbers(self, x):
            with tf.name_scope("conv1"), tf.device(ELSEWHERE):
                y = tf.nn.relu(tf.matmul(x, self.first))
            y = self.inner(y)
            if tf.reduce_sum(self.second) > 0.0:
                y = tf.sqrt(y) * self.scale
            for _ in tf.range(2):
                y = tf.tanh(y) * self.scale
            return {"y": self.apart(y)}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="word")])
        def words(self, word):
            return {"number": self.table.lookup(word)}

        @tf.function(input_signature=[tf.TensorSpec([4], name="x")])
        def learn(self, x):
            return {"y": self.first.assign_add(tf.zeros([4, 8]) + x[:, tf.newaxis])}

    module = Layers()
    signatures = {"serving_default": module.numbers, "words": module.words, "learn": module.learn}
    tf.saved_model.save(module, str(models / "layers"), signatures=signatures)
    return models / "layers"


def save_bare(folder, **devices):
    """TensorFlow 1: a reference and a resource variable, each read by two layers. Baked: `devices` by first name."""

    def build():
        x = v1.placeholder(tf.float32, [None, 4], name="x")
        old = v1.get_variable("old", initializer=tf.ones([4, 2]), use_resource=False)
        new = v1.get_variable("new", initializer=tf.ones([4, 2]), use_resource=True)
        left = tf.tanh(tf.matmul(x, old + new, name="left/product"), name="left/squashed")
        right = tf.tanh(tf.matmul(x, old * new, name="right/product"), name="right/squashed")
        return {"serving_default": ({"x": x}, {"left": left, "right": right})}

    save_graph(folder, build)
    saved = SavedModelLoader(str(folder)).saved_model  # the builder clears strings; others do not
    for node in saved.meta_graphs[0].graph_def.node:
        node.device = devices.get(node.name.partition("/")[0], "")
    (folder / "saved_model.pb").write_bytes(saved.SerializeToString())
    return folder


def where(model, signature="serving_default"):
    """By op, the devices where it ran."""
    found = {}
    for each in model.trace(signature):
        assert each.ops == len(each.names)
        assert each.seconds > 0
        for name in each.names:
            found.setdefault(name, set()).add(each.device)
    return found


def on(ran, *beginnings):
    """Where what begins so ran, which is something each."""
    each = [set().union(*(where for name, where in ran.items() if name.startswith(begin))) for begin in beginnings]
    assert all(each), (beginnings, sorted(ran))
    return set().union(*each)


@pytest.mark.parametrize("is_soft", [True, False])
def test_layers_in_functions_go_where_the_rules_say_and_answers_and_proofs_stay(load, layers, is_soft):
    plain = load(layers, stateful=False)
    rules = {"conv2/*": "/cpu:1", "while/Tanh": "/cpu:2", "*/Sqrt": "/cpu:3", "apart/Relu": "/cpu:3"}
    model = load(layers, is_soft, stateful=False, layer_devices=rules)
    assert set().union(*where(plain).values()) == {"/cpu:0"}
    ran = where(model)
    assert on(ran, "conv2/kernel", "conv2/MatMul/ReadVariableOp", "conv2/MatMul", "conv2/Relu") == {"/cpu:1"}
    assert on(ran, "apart/MatMul/ReadVariableOp") == {"/cpu:1"}, "it reads the same variable"
    assert (ran["while/Tanh"], ran["cond/Sqrt"]) == ({"/cpu:2"}, {"/cpu:3"})
    assert ran["apart/Relu"] == {"/cpu:3"}, "a function that is not inlined is not remapped either"
    assert on(ran, "conv1/") == {"/cpu:0"}, "its graph names a device that is not there"
    np.testing.assert_array_equal(run(model, FEEDS)["y"], run(plain, FEEDS)["y"])
    assert model.verdicts("serving_default", "auto") == plain.verdicts("serving_default", "auto") == {"y": ""}


@pytest.mark.parametrize("pattern", ["conv1/MatMul/ReadVariableOp", "conv1/kernel", "conv1", "conv?/[kR]*"])
def test_a_variable_and_what_uses_it_move_together(load, layers, pattern):
    model = load(layers, layer_devices={pattern: "/cpu:1"})
    ran = where(model)
    assert on(ran, "conv1/kernel", "conv1/MatMul/ReadVariableOp") == {"/cpu:1"}
    assert ran["conv1/MatMul"] == ({"/cpu:1"} if pattern == "conv1" else {"/cpu:0"})
    run(model, {"x": X[0]}, "learn")  # its assignment is in another function
    with pytest.raises(RunFailed, match="'learn' cannot be run on zeros: a run of it changes the model's state"):
        model.trace("learn")


@pytest.mark.parametrize("pattern", ["scale", "cond/*Read*", "while/*Read*"])
def test_a_variable_moves_with_its_readers_in_a_branch_and_a_loop(load, layers, pattern):
    ran = where(load(layers, layer_devices={pattern: "/cpu:1"}))
    read = {name: devices for name, devices in ran.items() if name.startswith(("while/", "cond/")) and "Read" in name}
    assert {name.partition("/")[0] for name in read} == {"while", "cond"}
    assert set().union(*read.values(), ran["scale"]) == {"/cpu:1"}
    assert on(ran, "while/Tanh", "cond/Sqrt") == {"/cpu:0"}


def test_the_first_rule_that_matches_one_of_them_moves_them_all(load, layers):
    ran = where(load(layers, layer_devices={"conv2/kernel": "/cpu:2", "*": "/cpu:1"}))
    assert on(ran, "conv2/kernel", "conv2/MatMul/ReadVariableOp", "apart/MatMul/ReadVariableOp") == {"/cpu:2"}
    assert on(ran, "conv2/Relu", "conv1/", "while/Tanh") == {"/cpu:1"}


def test_a_rule_for_a_call_moves_what_runs_in_it_but_for_variables_and_what_has_its_own(load, layers):
    rules = {"conv2/Relu": "/cpu:2", "StatefulPartitionedCall": "/cpu:1", "conv2/kernel": "/cpu:3"}
    model = load(layers, layer_devices=rules)
    ran = where(model)
    assert ran.pop("conv2/Relu") == {"/cpu:2"}
    assert on(ran, "conv1/MatMul/Read", "conv1/kernel") == {"/cpu:0"}
    assert on(ran, "conv2/MatMul/Read", "conv2/kernel", "apart/MatMul/Read") == {"/cpu:3"}
    for name in ("conv1/MatMul", "conv1/Relu", "conv2/MatMul", "apart/MatMul", "while/Tanh", "cond/Sqrt"):
        assert ran[name] == {"/cpu:1"}
    np.testing.assert_array_equal(run(model, FEEDS)["y"], run(load(layers), FEEDS)["y"])


def test_a_table_moves_with_its_look_ups_and_is_filled_there(load, layers):
    model = load(layers, layer_devices={"*LookupTableFind*": "/cpu:1"})
    ran = where(model, "words")
    assert on(ran, "None_Lookup", "hash_table") == {"/cpu:1"}
    assert run(model, {"word": np.array([b"b", b"c"], object)}, "words")["number"].tolist() == [2, -1]


@pytest.mark.parametrize("is_soft", [True, False])
def test_variables_of_tensorflow_1_go_with_their_readers(load, tmp_path, is_soft):
    plain = load(save_bare(tmp_path / "m"))
    model = load(tmp_path / "m", is_soft, layer_devices={"old/read": "/cpu:1", "right": "/cpu:2", "new": "/cpu:3"})
    ran = where(model)
    assert on(ran, "old") == {"/cpu:1"}
    assert on(ran, "new") == {"/cpu:3"}
    assert on(ran, "right/") == {"/cpu:2"}
    assert on(ran, "left/") == {"/cpu:0"}
    assert model.verdicts("serving_default", "auto") == dict.fromkeys(("left", "right"), "")
    for name, value in run(plain, FEEDS).items():
        np.testing.assert_array_equal(run(model, FEEDS)[name], value)


def save_frozen(path, *devices):
    """A tower for each device string, summed."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, 4], name="x")
        towers = []
        for number, device in enumerate(devices):
            with tf.device(device):
                product = tf.matmul(x, tf.constant(X.T * number), name=f"tower{number}/product")
                towers.append(tf.nn.relu(tf.nn.bias_add(product, [1.0, 2.0]), name=f"tower{number}/relu"))
        tf.add_n(towers, name="sum")
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


def test_a_layer_of_a_frozen_graph_is_not_fused_over_two_devices(load, tmp_path):
    path = save_frozen(tmp_path / "m.pb", "", "")
    model = load(path, layer_devices={"tower1/relu": "/cpu:1"})
    ran = where(model)
    assert ran["tower1/relu"] == {"/cpu:1"}
    assert on(ran, "tower0/relu", "tower1/product", "sum") == {"/cpu:0"}
    plain = load(path)
    np.testing.assert_array_equal(run(model, FEEDS)["sum"], run(plain, FEEDS)["sum"])
    assert model.verdicts("serving_default", "auto") == plain.verdicts("serving_default", "auto") == {"sum": ""}


def test_towers_run_as_they_are(load, tmp_path):
    path = save_frozen(tmp_path / "m.pb", *(f"/cpu:{number}" for number in range(4)))
    model = load(path)
    ran = where(model)
    assert [on(ran, f"tower{number}/") for number in range(4)] == [{f"/cpu:{number}"} for number in range(4)]
    assert not any("cleared" in note for note in model.notes)
    np.testing.assert_array_equal(run(model, FEEDS)["sum"], run(load(path, clear_devices=True), FEEDS)["sum"])


def test_strings_are_cleared_all_those_of_missing_devices_or_none(load, layers, tmp_path):
    path = save_bare(tmp_path / "m", left=ELSEWHERE, right="/cpu:2", old="/gpu:3")
    expected = run(load(path, clear_devices=True), FEEDS)["left"]
    for clear, right, is_told in ((None, "/cpu:2", False), (True, "/cpu:0", True)):
        for is_soft in (True, False):
            model = load(path, is_soft, clear_devices=clear)
            ran = where(model)
            assert on(ran, "right/squashed") == {right}
            assert on(ran, "left/", "old") == {"/cpu:0"}
            (note,) = model.notes
            assert ("'/cpu:2' of" in note, "'/gpu:3' of" in note, ELSEWHERE in note) == (is_told, True, True)
            np.testing.assert_array_equal(run(model, FEEDS)["left"], expected)
    for folder in (path, layers):  # in the graph, and in a function, which TensorFlow does not look into
        with pytest.raises(CannotLoad, match=r"must run on '.*', but .* has /cpu:0, .* alone.* false: leave out clear"):
            load(folder, is_soft=False, clear_devices=False)
    path = save_frozen(tmp_path / "m.pb", "/gpu:3")
    kept, cleared = (run(load(path, clear_devices=clear), FEEDS) for clear in (False, True))
    np.testing.assert_equal(kept, cleared, "soft placement moves what stays")
    assert load(layers, clear_devices=False).notes == []
    told = (
        f"device strings of its graph are cleared, as this worker has /cpu:0, /cpu:1, /cpu:2, /cpu:3: {ELSEWHERE!r} of"
    )
    assert [note.startswith(told) for note in load(layers).notes] == [True]


WIDTHS = {"a": 1024, "b": 512, "c": 384, "d": 256, "e": 200}  # the first has more bytes than all others


def save_wide(folder, is_frozen):
    class Wide(tf.Module):
        def __init__(self):
            super().__init__()
            self.kernels = [tf.Variable(tf.ones([w, w]) / w, name=f"{name}/kernel") for name, w in WIDTHS.items()]
            self.small = tf.Variable(tf.ones([8]), name="small")

        @tf.function(input_signature=[tf.TensorSpec([None, 8], name="x")])
        def call(self, x):
            y = x * self.small
            for name, kernel in zip(WIDTHS, self.kernels, strict=True):
                with tf.name_scope(name):
                    y = tf.matmul(tf.tile(y, [1, WIDTHS[name] // 8]), kernel)[:, :8]
            return {"y": y}

    module = Wide()
    if is_frozen:
        graph = convert_variables_to_constants_v2(module.call.get_concrete_function()).graph
        folder.write_bytes(graph.as_graph_def().SerializeToString())
    else:
        tf.saved_model.save(module, str(folder), signatures=module.call)
    return folder


@pytest.mark.parametrize("is_frozen", [False, True])
def test_least_loaded_spreads_weights_by_bytes_and_what_computes_with_them_follows(load, tmp_path, is_frozen):
    path, outputs = save_wide(tmp_path / "wide.pb", is_frozen), {"y": "Identity"} if is_frozen else {}
    model, plain = (load(path, layer_devices=each, outputs=outputs) for each in ("least-loaded", {}))
    ran, feeds = where(model), {"x": np.ones((3, 8), np.float32)}
    assert [on(ran, f"{name}/MatMul") for name in WIDTHS] == [{f"/cpu:{place}"} for place in (0, 1, 2, 3, 3)]
    assert on(ran, "mul" if is_frozen else "small") == {"/cpu:0"}
    assert set().union(*where(plain).values()) == {"/cpu:0"}
    np.testing.assert_array_equal(run(model, feeds)["y"], run(plain, feeds)["y"])
    assert model.verdicts("serving_default", "auto") == plain.verdicts("serving_default", "auto") == {"y": ""}


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({"conv1/*": "/gpu:0"}, r"has no /gpu:0 for 'conv1/\*'; it has /cpu:0, /cpu:1, /cpu:2, /cpu:3$"),
        ({"conv2": "/cpu:1", "conv3/*": "/cpu:1"}, r"'conv3/\*' matches no op or layer .* such as '.*conv\d"),
        ({"Conv1": "/cpu:1"}, "'Conv1' matches no op or layer of the graph; .* such as 'conv1/"),
        ({"[": "/cpu:1"}, "matches no op"),
    ],
)
def test_a_rule_that_moves_nothing_is_refused_with_what_would_be_right(load, layers, rule, why):
    with pytest.raises(CannotLoad, match=why) as caught:
        load(layers, layer_devices=rule)
    assert "\n" not in str(caught.value)


def test_a_device_string_may_leave_parts_out():
    devices = Devices(f"/job:localhost/replica:0/task:0/device:{name}:0" for name in ("CPU", "GPU"))
    assert all(map(devices.has, ["", "/gpu:0", "/device:CPU:0", "/job:localhost", "/device:GPU:*", "/task:0/cpu:0"]))
    assert not any(map(devices.has, ["/gpu:1", "/job:worker", "/task:1/gpu:0", "/device:TPU:0", "nonsense"]))
    assert str(devices) == "/cpu:0, /gpu:0"
