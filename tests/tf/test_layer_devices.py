"""Rules move layers, and what a traced run shows decides; device strings of a graph are cleared, kept or refused."""

import dataclasses
import logging
import re

import numpy as np
import pytest
import tensorflow as tf

from pool.wire.signatures import Refused
from pool.wire.worker_messages import Clear, LayerRule, ModelSettings
from workers.backend import CannotLoad
from workers.tf import layer_devices, loading
from workers.tf.backend import TensorFlowBackend
from workers.tf.devices import Devices, clear, short
from workers.tf.library import SavedModelLoader

pytestmark = pytest.mark.tensorflow

ELSEWHERE = "/job:worker/replica:0/task:3/device:GPU:1"
X = np.arange(8, dtype=np.float32).reshape(2, 4) / 10


@pytest.fixture(scope="module")
def two_cpus(tensorflow_settings):
    return dataclasses.replace(tensorflow_settings, device_count={"CPU": 2})


@pytest.fixture(scope="module")
def backend(two_cpus):
    return TensorFlowBackend(two_cpus, gpus=0)


@pytest.fixture(scope="module")
def layers(models):
    """TensorFlow 2: conv1, in a device that no worker has, then conv2 in a function, a branch, a loop; and a table."""

    class Layers(tf.Module):
        def __init__(self):
            super().__init__()
            self.first = tf.Variable(np.full((4, 8), 0.1, np.float32), name="conv1/kernel")
            self.second = tf.Variable(np.full((8, 8), 0.2, np.float32), name="conv2/kernel")
            filling = tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([1, 2], tf.int64))
            self.table = tf.lookup.StaticHashTable(filling, -1)

        @tf.function
        def inner(self, x):
            with tf.name_scope("conv2"):
                return tf.nn.relu(tf.matmul(x, self.second))

        @tf.function(experimental_attributes={"_noinline": True})
        def apart(self, x):
            with tf.name_scope("apart"):
                bias = tf.range(8.0, name="range")
                return tf.nn.relu(tf.nn.bias_add(tf.matmul(x, self.second), bias))

        @tf.function(input_signature=[tf.TensorSpec([None, 4], name="x")])
        def numbers(self, x):
            with tf.name_scope("conv1"), tf.device("/device:GPU:3"):
                y = tf.nn.relu(tf.matmul(x, self.first))
            y = self.inner(y)
            if tf.reduce_sum(y) > -1.0:
                y = tf.sqrt(y)
            count = tf.constant(0)
            while count < 2:
                y = tf.tanh(y)
                count += 1
            return {"y": self.apart(y)}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="word")])
        def words(self, word):
            return {"number": self.table.lookup(word)}

    module = Layers()
    folder = models / "layers"
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.numbers, "words": module.words})
    return folder


@pytest.fixture(scope="module")
def branches(models):
    """TensorFlow 1: reference variables under names of their own, with baked devices, read by two branches."""
    folder = models / "branches"
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [None, 4], name="x")
        weight = tf.compat.v1.get_variable("weight", initializer=tf.ones([4, 2]), use_resource=False)
        left = tf.matmul(x, weight, name="left/product")
        right = tf.tanh(tf.matmul(x, weight, name="right/product"), name="right/squashed")
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.saved_model.simple_save(session, str(folder), {"x": x}, {"left": left, "right": right})
    # `simple_save` clears devices; others do not.
    saved = SavedModelLoader(str(folder)).saved_model
    for node in saved.meta_graphs[0].graph_def.node:
        node.device = {"weight": ELSEWHERE, "left": ELSEWHERE, "right": "/cpu:0"}.get(node.name.partition("/")[0], "")
    (folder / "saved_model.pb").write_bytes(saved.SerializeToString())
    return folder


def rules(*pairs):
    return tuple(LayerRule(layers, device) for layers, device in pairs)


def settings(folder, *pairs, **others):
    return ModelSettings(folder.name, str(folder), True, layer_devices=rules(*pairs), **others)


def where(report, signature="serving_default"):
    return {each["node"]: each["device"] for each in report["signatures"][signature]["nodes"]}


def found(nodes, pattern):
    """The devices of the nodes whose whole name matches."""
    return {device for name, device in nodes.items() if re.fullmatch(pattern, name)}


# --- rules


def test_layers_go_where_the_rules_say_in_functions_too_and_answers_stay(backend, layers):
    plain = backend.load(settings(layers)).run("serving_default", {"x": X}, ["y"])["y"]
    model = backend.load(settings(layers, ("conv2/.*", "/cpu:1"), ("while/Tanh", "/cpu:1"), ("Sqrt|cond/.*", "/cpu:1")))
    report = model.placement()
    nodes = where(report)
    assert found(nodes, "conv2/.*") == {"/cpu:1"}
    assert {"conv2/kernel", "conv2/MatMul", "conv2/MatMul/ReadVariableOp", "conv2/Relu"} <= nodes.keys()
    assert nodes["while/Tanh"] == nodes["cond/Sqrt"] == "/cpu:1"
    assert found(nodes, "conv1/.*") == {"/cpu:0"}, "what its graph says is nowhere"
    assert report["devices"] == ["/cpu:0", "/cpu:1"]
    assert [rule["kept"] for rule in report["rules"]] == [True] * 3
    np.testing.assert_array_equal(model.run("serving_default", {"x": X}, ["y"])["y"], plain)


def test_without_rules_all_stays_where_tensorflow_puts_it(backend, layers):
    report = backend.load(settings(layers)).placement()
    assert set(where(report).values()) == {"/cpu:0"}
    assert report["rules"] == []
    assert all(each["rule"] is None for each in report["signatures"]["serving_default"]["nodes"])


def test_a_function_that_is_not_inlined_is_not_remapped_either(backend, layers):
    report = backend.load(settings(layers, ("apart/Relu", "/cpu:1"))).placement()
    assert where(report)["apart/Relu"] == "/cpu:1"
    assert report["rules"][0]["kept"]
    (rule,) = backend.load(settings(layers, ("apart/.*", "/cpu:1"))).placement()["rules"]
    assert rule["kept"]
    assert rule["absent"] == ["apart/range/Cast", "apart/range/Cast_1"], "they are folded into a constant"


@pytest.mark.parametrize("layer", ["conv1/MatMul/ReadVariableOp", "conv1/kernel", "conv1/.*"])
def test_a_variable_and_what_uses_it_stay_together(backend, layers, layer):
    report = backend.load(settings(layers, (layer, "/cpu:1"))).placement()
    nodes = where(report)
    assert nodes["conv1/kernel"] == nodes["conv1/MatMul/ReadVariableOp"] == "/cpu:1"
    assert nodes["conv1/MatMul"] == ("/cpu:1" if layer == "conv1/.*" else "/cpu:0")
    assert report["rules"][0]["kept"]


def test_the_first_rule_that_matches_any_of_them_moves_them_all(backend, layers):
    report = backend.load(settings(layers, ("conv2/kernel", "/cpu:0"), (".*", "/cpu:1"))).placement()
    nodes = where(report)
    assert nodes["conv2/kernel"] == nodes["conv2/MatMul/ReadVariableOp"] == "/cpu:0"
    assert nodes["apart/MatMul/ReadVariableOp"] == "/cpu:0", "it reads the same variable"
    assert nodes["conv2/MatMul"] == nodes["conv1/kernel"] == "/cpu:1"
    assert [rule["kept"] for rule in report["rules"]] == [True, True]


def test_a_table_goes_with_its_look_ups(backend, layers):
    model = backend.load(settings(layers, (".*LookupTableFind.*", "/cpu:1")))
    report = model.placement()
    assert found(where(report, "words"), ".*(LookupTableFind.*|hash_table.*)") == {"/cpu:1"}
    words = np.array([b"b", b"c"], object)
    assert model.run("words", {"word": words}, ["number"])["number"].tolist() == [2, -1]


@pytest.fixture(scope="module")
def handed_on(models):
    """Variables that are read in a loop, in a branch, and behind a function that gives back a resource."""

    class Handed(tf.Module):
        def __init__(self):
            super().__init__()
            self.looped = tf.Variable([1.0], name="looped")
            self.branched = tf.Variable([2.0], name="branched")
            self.chosen = tf.Variable([3.0], name="chosen")

        @tf.function
        def handle(self):
            return self.chosen.handle

        @tf.function(input_signature=[tf.TensorSpec([None], name="x")])
        def all(self, x):
            for _ in tf.range(2):
                x += tf.multiply(self.looped, 2.0, name="in_loop")
            if tf.reduce_sum(x) > 0.0:
                x += tf.multiply(self.branched, 2.0, name="in_branch")
            read = tf.raw_ops.ReadVariableOp(resource=self.handle(), dtype=tf.float32, name="read_chosen")
            return {"x": x + read}

    module = Handed()
    folder = models / "handed_on"
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.all})
    return folder


@pytest.mark.parametrize(
    ("layers", "variable"),
    [
        ("while/in_loop/ReadVariableOp", "looped"),
        ("cond/in_branch/ReadVariableOp", "branched"),
        ("read_chosen", "chosen"),
        ("looped", "looped"),
    ],
)
def test_what_uses_a_variable_is_found_wherever_it_was_handed_on_to(backend, handed_on, layers, variable):
    model = backend.load(settings(handed_on, (layers, "/cpu:1")))
    report = model.placement()
    nodes = where(report)
    assert nodes[variable] == "/cpu:1"
    reads = {"looped": "while/in_loop/.*Read.*", "branched": "cond/in_branch/.*Read.*", "chosen": "read_chosen"}
    assert {name: found(nodes, pattern) for name, pattern in reads.items()} == {
        name: {"/cpu:1" if name == variable else "/cpu:0"} for name in reads
    }
    assert report["rules"][0]["kept"]
    x = np.ones(1, np.float32)
    assert model.run("serving_default", {"x": x}, ["x"])["x"].tolist() == [12.0]


def test_reference_variables_of_tensorflow_1_go_with_their_readers(backend, branches):
    model = backend.load(settings(branches, ("weight/read", "/cpu:1"), ("right/.*", "/cpu:1")))
    nodes = where(model.placement())
    assert nodes["weight"] == nodes["weight/read"] == nodes["right/squashed"] == nodes["right/product"] == "/cpu:1"
    assert nodes["left/product"] == "/cpu:0"
    answer = model.run("serving_default", {"x": X}, ["left", "right"])
    np.testing.assert_allclose(np.tanh(answer["left"]), answer["right"], rtol=1e-6)


def test_a_layer_of_keras_moves_with_its_weights(backend, keras_export):
    plain = backend.load(settings(keras_export))
    (name,) = plain.info.signatures["serving_default"].inputs
    model = backend.load(settings(keras_export, (r".*/dense(_\d+)*/(Relu|MatMul|BiasAdd|Cast).*", "/cpu:1")))
    report = model.placement()
    assert "/cpu:1" in found(where(report), ".*Relu")
    assert report["rules"][0]["kept"]
    args = "serving_default", {name: X}, tuple(plain.info.signatures["serving_default"].outputs)
    for key, value in model.run(*args).items():
        np.testing.assert_allclose(value, plain.run(*args)[key], rtol=1e-6)


def test_a_rule_that_matches_nothing_is_refused_with_what_is_near(backend, layers):
    with pytest.raises(CannotLoad) as caught:
        backend.load(settings(layers, ("conv1/.*", "/cpu:0"), ("model/conv2x/.*", "/cpu:1")))
    assert str(caught.value).startswith(
        f"model layers: {layers}: layer_devices: 'model/conv2x/.*' matches no node;"
        " the whole name must match; near are '"
    )
    assert "conv2" in str(caught.value).rpartition("near are")[2]
    with pytest.raises(CannotLoad, match="near are 'conv2/Relu', 'conv2/MatMul'"):
        backend.load(settings(layers, ("conv2", "/cpu:1")))


def test_a_rule_for_a_device_that_there_is_not_is_refused(backend, layers):
    with pytest.raises(CannotLoad, match=r"this worker has no /gpu:0 for 'conv1/\.\*'; it has /cpu:0, /cpu:1"):
        backend.load(settings(layers, ("conv1/.*", "/gpu:0")))


def test_a_rule_that_is_not_kept_is_told_when_the_model_warms_up(backend, layers, caplog, monkeypatch):
    """The remapper is left on here, as TensorFlow has it: what it makes of two nodes is on the device of one."""
    monkeypatch.setattr("workers.tf.backend.config_of_model", lambda _, worker: worker)
    monkeypatch.setattr(layer_devices, "_keep_from_remapper", lambda _: None)
    model = backend.load(settings(layers, ("apart/MatMul", "/cpu:1"), ("conv2/.*", "/cpu:1")))
    with caplog.at_level(logging.WARNING, "workers.tf"):
        model.warm_up()
    (line,) = [record.getMessage() for record in caplog.records if record.name == "workers.tf"]
    assert line == (
        "model layers: rule 'apart/MatMul' of layer_devices on /cpu:1 is not obeyed: none of its 2 nodes ran;"
        " TensorFlow replaced them or left them out"
    )
    caplog.clear()
    backend.load(settings(layers)).warm_up()
    assert not caplog.records


def test_a_rule_that_tensorflow_does_not_follow_is_not_kept(backend, layers, caplog, monkeypatch):
    model = backend.load(settings(layers, ("conv2/(Relu|MatMul)", "/cpu:1")))
    moved = model._traces._placed
    kept = dataclasses.replace(moved, rules=rules(("conv2/(Relu|MatMul)", "/cpu:0")))
    monkeypatch.setattr(model._traces, "_placed", kept)
    with caplog.at_level(logging.WARNING, "workers.tf"):
        model.warm_up()
    (line,) = [record.getMessage() for record in caplog.records if record.name == "workers.tf"]
    assert "is not obeyed: 'conv2/MatMul' ran on /cpu:1, 'conv2/Relu' ran on /cpu:1, of 2 nodes that ran" in line


def test_a_graph_that_cannot_be_read_back_does_not_keep_its_model_from_serving(backend, layers, caplog, monkeypatch):
    model = backend.load(settings(layers, ("conv2/.*", "/cpu:1")))

    def fail():
        raise ValueError("GraphDef cannot be larger than 2GB.")

    monkeypatch.setattr(model._session.graph, "as_graph_def", fail)
    with pytest.raises(Refused, match="cannot be read back: GraphDef cannot be larger than 2GB"):
        model.placement()
    model.warm_up()
    assert "its layer_devices could not be checked: its graph cannot" in caplog.records[-1].getMessage()


def test_what_may_change_state_is_not_run_for_it(backend, counter):
    report = backend.load(settings(counter)).placement()
    assert report["signatures"]["serving_default"] == {"nodes": [], "why": "it may change the model's state"}
    assert report["signatures"]["peek"]["nodes"]


def test_a_signature_that_fails_on_zeros_says_so(backend, models):
    folder = models / "not_zero"
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [None], name="x")
        with tf.control_dependencies([tf.debugging.assert_positive(x, message="only positive ones")]):
            tf.compat.v1.saved_model.simple_save(session, str(folder), {"x": x}, {"y": tf.sqrt(x)})
    (told,) = backend.load(settings(folder)).placement()["signatures"].values()
    assert told["nodes"] == []
    assert "only positive ones" in told["why"]


# --- device strings of the graph


def graph_of(folder):
    return SavedModelLoader(str(folder)).get_meta_graph_def_from_tags(["serve"]).graph_def


def strings(graph_def):
    functions = (node for function in graph_def.library.function for node in function.node_def)
    return {node.device for nodes in (graph_def.node, functions) for node in nodes}


CPU = Devices(["/job:localhost/replica:0/task:0/device:CPU:0"])


def test_only_devices_that_are_not_there_are_cleared(layers, branches, two_signatures):
    graph = graph_of(layers)
    assert "/device:GPU:3" in strings(graph)
    clear(graph, Clear.MISSING, CPU)
    assert {"/device:CPU:0"} <= strings(graph) <= {"", "/device:CPU:0", "/device:CPU:*"}
    clear(graph, Clear.ALL, CPU)
    assert strings(graph) == {""}
    graph = graph_of(branches)
    clear(graph, Clear.MISSING, CPU)
    assert strings(graph) == {"", "/cpu:0"}, "of another job's, nothing is there"
    for which in (Clear.MISSING, Clear.OFF):
        graph = graph_of(two_signatures)
        before = graph.SerializeToString(deterministic=True)
        clear(graph, which, CPU)
        assert graph.SerializeToString(deterministic=True) == before


def test_without_rules_and_strings_to_clear_what_is_imported_is_what_was_read(two_signatures):
    graph = graph_of(two_signatures)
    before = graph.SerializeToString(deterministic=True)
    placed = layer_devices.place(graph, settings(two_signatures), CPU, soft=False)
    assert (placed.rules, placed.moved) == ((), {})
    assert graph.SerializeToString(deterministic=True) == before


def test_a_model_of_another_machine_loads_on_any_worker(backend, branches, layers):
    for folder in (branches, layers):
        assert set(where(backend.load(settings(folder)).placement()).values()) == {"/cpu:0"}
        every = backend.load(settings(folder, clear_devices=Clear.ALL)).placement()
        assert set(where(every).values()) == {"/cpu:0"}


def test_a_device_that_is_not_there_is_refused_where_nothing_may_run_elsewhere(backend, two_cpus, layers, branches):
    hard = dataclasses.replace(two_cpus, allow_soft_placement=False)
    kept = {"clear_devices": Clear.OFF, "tensorflow": hard}
    with pytest.raises(CannotLoad) as caught:
        backend.load(settings(layers, **kept))
    told = str(caught.value)
    assert re.search(r"node 'conv1/MatMul' of function '__inference_numbers_\d+' and \d+ more must run on ", told), told
    assert "device /gpu:3, which this worker does not have (it has /cpu:0, /cpu:1), and allow_soft_placement is" in told
    with pytest.raises(CannotLoad, match=r"node 'weight' and 3 more must run on device /gpu:1, which this worker"):
        backend.load(settings(branches, **kept))
    backend.load(settings(layers, tensorflow=hard))
    backend.load(settings(layers, clear_devices=Clear.OFF))


def test_devices_of_a_session_by_their_parts():
    devices = Devices([f"/job:localhost/replica:0/task:0/device:{each}" for each in ("CPU:0", "CPU:1", "GPU:0")])
    there = ["/cpu:0", "/device:CPU:1", "/gpu:0", "/device:GPU:*", "/job:localhost", "/job:localhost/task:0/gpu:0", ""]
    assert [name for name in there if not devices.has(name)] == []
    absent = ["/gpu:1", "/cpu:2", "/device:TPU:0", "/job:worker", "/task:1/cpu:0", "nonsense", "/device:GPU:x"]
    assert [name for name in absent if devices.has(name)] == []
    assert str(devices) == "/cpu:0, /cpu:1, /gpu:0"
    assert short("/job:localhost/replica:0/task:0/device:GPU:0/stream:all") is None


# --- the Session of a model


def test_a_model_may_have_a_session_that_differs_from_its_workers(backend, two_cpus, layers, monkeypatch):
    opened = []

    def far_enough(config, _):
        opened.append(config)
        raise CannotLoad("far enough")

    monkeypatch.setattr(loading, "open_session", far_enough)
    own = dataclasses.replace(two_cpus, log_device_placement=True)
    for each in (settings(layers), settings(layers, tensorflow=own), settings(layers, (".*", "/cpu:0"))):
        with pytest.raises(CannotLoad):
            backend.load(each)
    plain, logging_too, _ = opened
    assert plain is backend._config
    assert (plain.log_device_placement, logging_too.log_device_placement) == (False, True)
    remapping = [config.graph_options.rewrite_options.remapping for config in opened]
    assert [each == remapping[0] for each in remapping] == [True, True, False]
