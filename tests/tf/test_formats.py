"""Models of every format but Keras' answer, bit for bit, as a Session does that loads them without a pool."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from pool import Ragged, Sparse
from pool.wire.signatures import TensorSpec
from pool.wire.tensors import to_array
from pool.wire.worker_messages import ModelSettings
from support.encoded import encode_tensor
from workers.backend import CannotLoad
from workers.signatures import resolve
from workers.tf.loading import load as load_with

pytestmark = pytest.mark.tensorflow

v1 = tf.compat.v1


@dataclass(frozen=True)
class Trained:
    """One network of TensorFlow 1 in three formats, and what it answered in the Session that trained it."""

    saved_model: Path
    frozen: Path
    meta: Path
    features: np.ndarray
    scores: np.ndarray
    labels: np.ndarray


def network():
    """Batch normalisation with moving averages, dropout by a placeholder, a table from class to name."""
    features = v1.placeholder(tf.float32, [None, 4], name="features")
    training = v1.placeholder_with_default(False, [], name="training")
    weights = v1.get_variable("weights", [4, 3], initializer=v1.glorot_uniform_initializer(seed=3), use_resource=False)
    hidden = features @ weights
    moving_mean = v1.get_variable("mean", [3], initializer=v1.zeros_initializer(), trainable=False)
    moving_variance = v1.get_variable("variance", [3], initializer=v1.ones_initializer(), trainable=False)
    batch_mean, batch_variance = tf.nn.moments(hidden, [0])
    mean = tf.cond(training, lambda: batch_mean, lambda: tf.identity(moving_mean))
    variance = tf.cond(training, lambda: batch_variance, lambda: tf.identity(moving_variance))
    scale = v1.get_variable("scale", [3], initializer=v1.ones_initializer())
    scores = tf.nn.softmax(tf.nn.batch_normalization(hidden, mean, variance, None, scale, 1e-3), name="head/scores")
    names = tf.lookup.KeyValueTensorInitializer(tf.constant([0, 1, 2], tf.int64), ["cat", "dog", "cow"])
    table = tf.lookup.StaticHashTable(names, "?")
    label = tf.identity(table.lookup(tf.argmax(scores, 1)), name="head/label")
    updates = [
        v1.assign(moving_mean, 0.9 * moving_mean + 0.1 * batch_mean),
        v1.assign(moving_variance, 0.9 * moving_variance + 0.1 * batch_variance),
    ]
    return features, training, scores, label, updates


@pytest.fixture(scope="module")
def trained(models):
    folder = models / "trained"
    random = np.random.default_rng(1)
    features = random.standard_normal((6, 4)).astype(np.float32)
    with tf.Graph().as_default() as graph, v1.Session() as session:
        fed, training, scores, label, updates = network()
        truth = v1.placeholder(tf.int64, [None], name="truth")
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(truth, tf.math.log(scores)), name="loss")
        with tf.control_dependencies(updates):
            step = v1.train.GradientDescentOptimizer(0.5).minimize(loss)
        filled = v1.tables_initializer(name="fill_tables")
        session.run([v1.global_variables_initializer(), filled])
        for _ in range(5):
            batch = random.standard_normal((16, 4)).astype(np.float32)
            session.run(step, {fed: batch, truth: batch.argmax(1) % 3, training: True})
        answers = session.run([scores, label], {fed: features})
        v1.saved_model.simple_save(
            session, str(folder / "saved"), {"features": fed}, {"scores": scores, "label": label}, filled
        )
        v1.train.Saver().save(session, str(folder / "model.ckpt"), global_step=5)
        outputs = [scores.op.name, label.op.name, filled.name]
        constant = v1.graph_util.convert_variables_to_constants(session, graph.as_graph_def(), outputs)
    (folder / "frozen.pb").write_bytes(constant.SerializeToString())
    (folder / "frozen.pbtxt").write_text(text_format.MessageToString(constant))
    return Trained(folder / "saved", folder / "frozen.pb", folder / "model.ckpt-5.meta", features, *answers)


@pytest.fixture
def loaded(backend):
    """Loads with further settings."""

    def load(path, **settings):
        return backend.load(replace(ModelSettings("m", str(path), True), **settings))

    return load


@pytest.fixture
def refusal(loaded):
    def why(path, **settings):
        with pytest.raises(CannotLoad) as caught:
            loaded(path, **settings)
        text = str(caught.value)
        assert text.startswith(f"model m: {path}")
        assert "\n" not in text
        return text

    return why


def run(model, feeds, signature="serving_default"):
    return model.run(signature, feeds, tuple(model.info.signatures[signature].outputs))


def check_answers(model, trained, scores="head/scores", label="head/label"):
    answer = run(model, {"features": trained.features})
    np.testing.assert_array_equal(answer[scores], trained.scores)
    assert answer[label].tolist() == trained.labels.tolist()


def test_a_saved_model_of_a_trained_network(loaded, trained):
    check_answers(loaded(trained.saved_model), trained, "scores", "label")


def test_a_frozen_graph_whose_ends_are_guessed(loaded, trained, caplog):
    caplog.set_level(logging.INFO, "workers.tf")
    model = loaded(trained.frozen)
    assert run(model, {"features": trained.features})["head/label"].tolist() == trained.labels.tolist()
    signature = model.info.signatures["serving_default"]
    assert signature.inputs == {"features": TensorSpec("float32", (-1, 4))}
    assert signature.outputs["head/label"].dtype == "string"
    assert not model.info.stateful
    (line,) = [record.getMessage() for record in caplog.records if "guessed" in record.getMessage()]
    assert "takes 'features', gives 'head/label'" in line
    assert "`inputs` and `outputs` in [[model]] say otherwise" in line


def test_a_frozen_graph_as_text(loaded, trained):
    check_answers(loaded(trained.frozen.with_suffix(".pbtxt"), outputs=("head/scores:0", "head/label")), trained)


def test_a_frozen_graph_from_one_tensor_to_another(loaded, trained, caplog):
    caplog.set_level(logging.INFO, "workers.tf")
    model = loaded(trained.frozen, inputs=("head/scores",), outputs=("head/label:0",))
    assert list(model.info.signatures["serving_default"].inputs) == ["head/scores"]
    assert run(model, {"head/scores": trained.scores})["head/label"].tolist() == trained.labels.tolist()
    assert not [record for record in caplog.records if "guessed" in record.getMessage()]


def test_a_checkpoint_whose_ends_are_guessed(loaded, trained, caplog):
    caplog.set_level(logging.INFO, "workers.tf")
    model = loaded(trained.meta)
    assert "guessed inputs and outputs" in caplog.text
    assert not model.info.stateful
    signature = model.info.signatures["serving_default"]
    assert {"head/label", "loss"} <= set(signature.outputs)
    assert not [name for name in signature.outputs if name.startswith(("save/", "gradients/"))]
    answer = model.run(
        "serving_default", {"features": trained.features, "truth": np.zeros(6, np.int64)}, ["head/label"]
    )
    assert answer["head/label"].tolist() == trained.labels.tolist()


def test_a_checkpoint_with_outputs_needs_only_what_they_need(loaded, trained):
    model = loaded(trained.meta, outputs=("head/scores", "head/label"))
    assert list(model.info.signatures["serving_default"].inputs) == ["features"]
    check_answers(model, trained)


def test_a_checkpoint_that_declares_signatures(loaded, trained, tmp_path):
    for file in trained.meta.parent.glob("model.ckpt-5.*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    meta = tmp_path / trained.meta.name
    graph = v1.MetaGraphDef.FromString(meta.read_bytes())
    signature = graph.signature_def["by name"]
    signature.inputs["x"].name = "features:0"
    signature.inputs["x"].dtype = tf.float32.as_datatype_enum
    signature.outputs["y"].name = "head/scores:0"
    signature.outputs["y"].dtype = tf.float32.as_datatype_enum
    meta.write_text(text_format.MessageToString(graph))  # a `.meta` may be text
    answer = run(loaded(meta), {"x": trained.features}, "by name")
    np.testing.assert_array_equal(answer["y"], trained.scores)
    assert list(loaded(meta, outputs=("head/scores",)).info.signatures) == ["serving_default"]


def test_a_checkpoint_that_was_saved_to_a_folder(loaded, refusal, trained, tmp_path):
    """Which has no name: its files are `.meta`, `.index` and `.data-…`."""
    for file in trained.meta.parent.glob("model.ckpt-5.*"):
        (tmp_path / file.name.removeprefix("model.ckpt-5")).write_bytes(file.read_bytes())
    check_answers(loaded(tmp_path / ".meta", outputs=("head/scores", "head/label")), trained)
    (tmp_path / ".index").unlink()
    assert "the checkpoint beside it is missing: .index and its .data files" in refusal(tmp_path / ".meta")


def test_tensors_that_are_not_there(refusal, trained):
    assert "`outputs` names 'head/score', which is not a tensor of its graph; did you mean 'head/scores'?" in refusal(
        trained.frozen, outputs=("head/score",)
    )
    assert "its placeholders are 'features'" in refusal(trained.frozen, inputs=("zzzzzzzz:7",))
    assert "without an output tensor" in refusal(trained.frozen, outputs=("fill_tables",))


def test_keys_that_the_format_has_no_use_for(refusal, trained):
    assert "leave `tags` out" in refusal(trained.frozen, tags=("serve",))
    assert "leave `inputs` and `outputs` out" in refusal(trained.saved_model, outputs=("scores",))


def test_a_checkpoint_that_is_not_there(refusal, trained, tmp_path):
    (tmp_path / "model.meta").write_bytes(trained.meta.read_bytes())
    assert "the checkpoint beside it is missing: model.index" in refusal(tmp_path / "model.meta")


@pytest.mark.parametrize("name", ["graph.pb", "graph.pbtxt", "model.meta"])
@pytest.mark.parametrize("content", [b"", b"\xff" * 50, b"no protobuf"])
def test_files_that_are_no_graph(refusal, tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    refusal(tmp_path / name)


def test_a_truncated_frozen_graph(refusal, trained, tmp_path):
    whole = trained.frozen.read_bytes()
    (tmp_path / "cut.pb").write_bytes(whole[: len(whole) // 2])
    assert "corrupt or cut short" in refusal(tmp_path / "cut.pb")


def test_a_graph_that_is_not_frozen(refusal, tmp_path):
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None], name="x")
        tf.identity(x * v1.get_variable("w", initializer=2.0), name="y")
    (tmp_path / "thawed.pb").write_bytes(graph.as_graph_def().SerializeToString())
    assert "it is not frozen" in refusal(tmp_path / "thawed.pb")


def test_a_table_whose_initialiser_was_cut_off_is_told(loaded, trained, tmp_path, caplog):
    whole = v1.GraphDef.FromString(trained.frozen.read_bytes())
    cut = v1.graph_util.extract_sub_graph(whole, ["head/label", "head/scores"])
    (tmp_path / "cut.pb").write_bytes(cut.SerializeToString())
    model = loaded(tmp_path / "cut.pb", outputs=("head/scores", "head/label"))
    assert "hash_table' is not filled: nothing in the graph fills it" in caplog.text
    np.testing.assert_array_equal(
        model.run("serving_default", {"features": trained.features}, ["head/scores"])["head/scores"], trained.scores
    )


def test_outputs_of_one_node_have_its_number_in_their_names(loaded, tmp_path):
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.bfloat16, [None, 3], name="x")
        tf.math.top_k(tf.cast(x, tf.float32), 2, name="top")
        tf.identity(tf.cast(x, tf.bfloat16) * 3, name="triple")
    (tmp_path / "top.graphdef").write_bytes(graph.as_graph_def().SerializeToString())
    model = loaded(tmp_path / "top.graphdef")
    given = np.array([[1, 3, 2]], tf.bfloat16.as_numpy_dtype)
    answer = run(model, {"x": given})
    assert answer["top"].tolist() == [[3.0, 2.0]]
    assert answer["top:1"].tolist() == [[1, 2]]
    assert answer["triple"].dtype == given.dtype
    assert answer["triple"].tobytes() == (given * 3).tobytes()


@pytest.fixture(scope="module")
def ragged(models):
    """Strings cut into words and letters, and a sparse tensor."""

    class Ragged(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
        def cut(self, text):
            words = tf.strings.split(text)
            counts = tf.cast(words.row_lengths(), tf.float32)
            return {"words": words, "letters": tf.strings.bytes_split(words), "long": tf.sparse.from_dense(counts)}

    module = Ragged()
    tf.saved_model.save(module, str(models / "ragged"), signatures={"cut": module.cut})
    return models / "ragged"


def test_ragged_and_sparse_tensors_travel_as_their_parts(loaded, ragged):
    text = np.array([b"ab c", b"", b"d\0"], object)
    model = loaded(ragged)
    answer = run(model, {"text": text}, "cut")
    eager = tf.saved_model.load(str(ragged)).signatures["cut"](text=tf.constant(text.tolist()))
    assert answer["words.flat_values"].tolist() == eager["words"].flat_values.numpy().tolist() == [b"ab", b"c", b"d\0"]
    assert answer["words.row_splits_0"].tolist() == eager["words"].row_splits.numpy().tolist() == [0, 2, 2, 3]
    for number, splits in enumerate(eager["letters"].nested_row_splits):
        assert answer[f"letters.row_splits_{number}"].tolist() == splits.numpy().tolist()
    for part in ("indices", "values", "dense_shape"):
        assert answer[f"long.{part}"].tolist() == getattr(eager["long"], part).numpy().tolist()
    assert Ragged.of(answer, "words").to_list() == eager["words"].to_list() == [[b"ab", b"c"], [], [b"d\0"]]
    assert Ragged.of(answer, "letters").to_list() == eager["letters"].to_list()
    assert Sparse.of(answer, "long").to_dense().tolist() == tf.sparse.to_dense(eager["long"]).numpy().tolist()
    assert not model.info.has_rows("cut", None)


def test_a_ragged_input_is_fed_by_its_parts(loaded, tmp_path):
    with tf.Graph().as_default(), v1.Session() as session:
        rows = v1.ragged.placeholder(tf.float32, 1, [])
        v1.saved_model.simple_save(session, str(tmp_path / "m"), {"rows": rows}, {"total": tf.reduce_sum(rows, 1)})
    model = loaded(tmp_path / "m")
    feeds = {"rows.flat_values": np.array([1, 2, 4], np.float32), "rows.row_splits_0": np.array([0, 2, 2, 3])}
    assert set(model.info.signatures["serving_default"].inputs) == set(feeds)
    assert run(model, feeds)["total"].tolist() == [3.0, 0.0, 4.0]
    assert run(model, Ragged.from_rows([[1, 2], [], [4]], np.float32).parts("rows"))["total"].tolist() == [3, 0, 4]


def test_flat_inputs_of_tensorflow_2_go_by_the_names_of_their_parts_too(loaded, tmp_path):
    """In the file they are `r`, `r_1`, … of one argument, and `x`, `x_1`, … of a mapping."""

    class Module(tf.Module):
        def __init__(self):
            self.factor = tf.Variable(2.0)

        @tf.function(input_signature=[tf.RaggedTensorSpec([None, None, None], tf.float32), tf.TensorSpec([None])])
        def one(self, r, k):
            return {"y": tf.reduce_sum(r, [1, 2]) * self.factor + k}

        @tf.function(
            input_signature=[
                {
                    "s": tf.SparseTensorSpec([None, None], tf.float32),
                    "r": tf.RaggedTensorSpec([None, None], tf.string),
                    "d": tf.TensorSpec([None], tf.float32),
                }
            ]
        )
        def several(self, x):
            rows = tf.cast(x["r"].row_lengths(), tf.float32)
            return {"y": tf.sparse.reduce_sum(x["s"], 1) * 100 + rows * 10 + x["d"]}

    module = Module()
    tf.saved_model.save(module, str(tmp_path / "m"), signatures={"one": module.one, "several": module.several})
    model = loaded(tmp_path / "m")

    def answer(signature, inputs):
        fed = {name: to_array(value) for name, value in inputs.items()}
        headers = [encode_tensor(name, *each)[0] for name, each in fed.items()]
        invocation = resolve(model.info, signature, None, headers)
        names = [each.name for each in invocation.inputs]
        feeds = {name: array for name, (array, _) in zip(names, fed.values(), strict=True)}
        return run(model, feeds, signature)["y"].tolist()

    inner = Ragged.from_rows([[1, 2], [4], []], np.float32)
    outer = Ragged(inner.flat_values, (np.array([0, 2, 3]), inner.row_splits[0]))
    assert answer("one", {**outer.parts("r"), "k": np.array([0.5, 0.25], np.float32)}) == [14.5, 0.25]
    parts = model.info.signatures["several"].parts
    ragged, sparse = (next(name for name in parts if name.endswith(kind)) for kind in (".flat_values", ".indices"))
    given = {
        **Ragged.from_rows([["a", "b"], []]).parts(ragged.removesuffix(".flat_values")),
        **Sparse.from_dense(np.array([[0, 3], [4, 0]], np.float32)).parts(sparse.removesuffix(".indices")),
    }
    (dense,) = model.info.signatures["several"].inputs.keys() - set(parts.values())
    assert answer("several", {**given, dense: np.array([1, 2], np.float32)}) == [321.0, 402.0]
    assert not any(model.info.has_rows(signature, None) for signature in ("one", "several"))


def test_what_workers_draw_at_random_is_as_the_page_says(loaded, tmp_path):
    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
        def draw(self, x):
            return {
                "seeded": x + tf.random.uniform([4], seed=42),
                "unseeded": x + tf.random.uniform([4]),
                "stateless": x + tf.random.stateless_uniform([4], [1, 2]),
            }

    tf.random.set_seed(None)  # another test's would be every operation's
    module = Module()
    tf.saved_model.save(module, str(tmp_path / "m"), signatures={"draw": module.draw})
    workers = [loaded(tmp_path / "m") for _ in range(2)]
    one, other = (
        {
            name: [run(model, {"x": np.float32(0)}, "draw")[name].tolist() for _ in range(3)]
            for name in ("seeded", "unseeded", "stateless")
        }
        for model in workers
    )
    assert one["seeded"] == other["seeded"], "the same sequence"
    assert one["seeded"][0] != one["seeded"][1]
    assert one["unseeded"] != other["unseeded"]
    assert one["stateless"] == other["stateless"]
    assert one["stateless"][0] == one["stateless"][1]


def test_the_newest_version_is_served(loaded, trained, two_signatures, tmp_path, caplog):
    caplog.set_level(logging.INFO, "workers.tf")
    for name, model in {"2": two_signatures, "0010": trained.saved_model}.items():
        (tmp_path / name).symlink_to(model)
    (tmp_path / "11").mkdir()
    check_answers(loaded(tmp_path), trained, "scores", "label")
    assert f"model m: version 10 is served, of {tmp_path}; not of 11: no SavedModel is in there" in caplog.text


def test_a_graph_is_chosen_by_its_tags(loaded, refusal, tmp_path):
    builder = v1.saved_model.builder.SavedModelBuilder(str(tmp_path / "two"))
    for number, tags in enumerate((["serve"], ["serve", "gpu"])):
        with tf.Graph().as_default(), v1.Session() as session:
            x = v1.placeholder(tf.float32, [None], name="x")
            y = x * v1.get_variable("w", initializer=float(number + 2))
            signature = v1.saved_model.predict_signature_def({"x": x}, {"y": y})
            session.run(v1.global_variables_initializer())
            if number == 0:
                builder.add_meta_graph_and_variables(session, tags, {"serving_default": signature})
            else:
                builder.add_meta_graph(tags, {"other": signature})
    builder.save()
    assert list(loaded(tmp_path / "two").info.signatures) == ["serving_default"]
    assert list(loaded(tmp_path / "two", tags=("gpu", "serve")).info.signatures) == ["other"]
    assert "no graph is tagged tpu and nothing else; there are: gpu, serve; serve" in refusal(
        tmp_path / "two", tags=("tpu",)
    )


def test_what_is_imported_may_be_rewritten(tensorflow_settings, trained):
    """The seam where a graph is changed between reading and importing it."""
    seen = []

    def rewrite(meta_graph):
        changed = type(meta_graph)()
        changed.CopyFrom(meta_graph)
        for node in changed.graph_def.node:
            node.device = "/cpu:0"
        seen.append(changed)
        return changed

    config = v1.ConfigProto(log_device_placement=tensorflow_settings.log_device_placement)
    for path in (trained.saved_model, trained.frozen, trained.meta):
        model = load_with(ModelSettings("m", str(path), True), config, 0, rewrite)
        graph = model._session.graph
        assert {operation.device for operation in graph.get_operations() if operation.name == "features"} == {
            "/device:CPU:0"
        }
    assert len(seen) == 3
