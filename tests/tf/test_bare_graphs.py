"""Frozen graphs and checkpoints answer, bit for bit, as the Session did that trained them."""

import shutil

import numpy as np
import pytest
from google.protobuf import text_format

from pool.wire.signatures import TensorInfo
from tf.making import definition, run, v1
from workers.tf.library import tf

ENDS = {"scores": "head/scores:0", "label": "head/label"}
FEATURES = np.random.default_rng(1).standard_normal((6, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def trained(models):
    """The folder, and the right answers. A moving average, training by a placeholder, a table of names."""
    folder = models / "trained"
    with tf.Graph().as_default() as graph, v1.Session() as session:
        fed = v1.placeholder(tf.float32, [None, 4], name="features")
        training = v1.placeholder_with_default(False, [], name="training")
        hidden = fed @ v1.get_variable("weights", [4, 3], use_resource=False)
        moving = v1.get_variable("mean", [3], trainable=False)
        mean = tf.cond(training, lambda: tf.reduce_mean(hidden, 0), lambda: tf.identity(moving))
        scores = tf.nn.softmax(hidden - mean, name="head/scores")
        names = tf.lookup.KeyValueTensorInitializer(tf.constant([0, 1, 2], tf.int64), ["cat", "dog", "cow"])
        label = tf.identity(tf.lookup.StaticHashTable(names, "?").lookup(tf.argmax(scores, 1)), name="head/label")
        loss = tf.reduce_mean(scores[:, 0], name="loss")
        step = v1.assign(moving, mean), v1.train.GradientDescentOptimizer(0.5).minimize(loss)
        filled = v1.tables_initializer(name="fill_tables")
        session.run([v1.global_variables_initializer(), filled])
        session.run(step, {fed: FEATURES, training: True})
        answers = session.run([scores, label], {fed: FEATURES})
        v1.train.Saver().save(session, str(folder / "model.ckpt"), global_step=5)
        outputs = ["head/scores", "head/label", filled.name]
        constant = v1.graph_util.convert_variables_to_constants(session, graph.as_graph_def(), outputs)
    (folder / "frozen.pb").write_bytes(constant.SerializeToString())
    (folder / "frozen.pbtxt").write_text(text_format.MessageToString(constant))
    return folder, *answers


@pytest.mark.parametrize("name", ["frozen.pb", "frozen.pbtxt", "model.ckpt-5.meta"])
def test_a_graph_whose_ends_are_given(load, trained, name):
    folder, scores, labels = trained
    model = load(folder / name, outputs=ENDS)
    assert model.signatures["serving_default"].inputs == {"features": TensorInfo("float32", (-1, 4))}
    answer = run(model, {"features": FEATURES})
    np.testing.assert_array_equal(answer["scores"], scores)
    assert answer["label"].tolist() == labels.tolist()
    assert not model.is_stateful
    model = load(folder / name, inputs={"from": "head/scores"}, outputs={"to": "head/label:0"})
    assert run(model, {"from": scores})["to"].tolist() == labels.tolist()
    assert not model.notes


def test_a_graph_whose_ends_are_guessed(load, trained):
    folder, _, labels = trained
    model = load(folder / "frozen.pb")
    assert run(model, {"features": FEATURES})["head/label"].tolist() == labels.tolist()
    (note,) = model.notes
    assert note.startswith("guessed inputs and outputs of the graph: takes 'features', gives 'head/label'; ")
    outputs = load(folder / "model.ckpt-5.meta").signatures["serving_default"].outputs
    assert {"head/label", "loss"} <= set(outputs)
    assert not [name for name in outputs if name.startswith(("save/", "gradients/"))]


@pytest.mark.parametrize("name", ["", "model 5"])
def test_a_checkpoint_in_any_folder_that_declares_a_signature(load, refusal, trained, tmp_path, name):
    """Saved to "folder/" it has none: its files are `.meta`, `.index` and `.data-…`."""
    folder = tmp_path / "at [2]\\*"
    folder.mkdir()
    for file in trained[0].glob("model.ckpt-5.*"):
        shutil.copy(file, folder / file.name.replace("model.ckpt-5", name))
    meta = folder / f"{name}.meta"
    meta_graph = v1.MetaGraphDef.FromString(meta.read_bytes())
    with tf.Graph().as_default() as graph:
        v1.train.import_meta_graph(meta_graph)
        sides = [{key: graph.get_tensor_by_name(key)} for key in ("features:0", "head/scores:0")]
        meta_graph.signature_def["declared"].CopyFrom(definition(*sides))
    meta.write_text(text_format.MessageToString(meta_graph))  # a `.meta` may be text
    answer = run(load(meta), {"features:0": FEATURES}, "declared")
    np.testing.assert_array_equal(answer["head/scores:0"], trained[1])
    assert list(load(meta, outputs=ENDS).signatures) == ["serving_default"]
    (folder / f"{name}.index").unlink()
    assert f"the checkpoint of its variables is missing: {name}.index and its .data files" in refusal(meta)


def test_what_is_refused(load, refusal, trained, tmp_path):
    frozen = trained[0] / "frozen.pb"
    text = "`outputs` names 'head/score:0', which is not a tensor of its graph; did you mean 'head/scores'?"
    assert text in refusal(frozen, outputs={"y": "head/score"})
    assert refusal(frozen, inputs={"x": "zzzzzzzz:7"}).endswith("is not a tensor of its graph")
    assert "'fill_tables:0', which is not a tensor" in refusal(frozen, outputs={"y": "fill_tables"})
    assert "it is a frozen graph, which takes no `tags`: leave them out" in refusal(frozen, tags=["serve"])
    for name in ("g.pb", "g.meta"):
        for content, expected in ((b"", "it holds no graph"), (b"\xff" * 50, "corrupt")):
            (tmp_path / name).write_bytes(content)
            assert expected in refusal(tmp_path / name)
    for factor, expected in ((2.0, "it has variables without"), (None, "its outputs cannot be guessed")):
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [None])
            _ = factor and x * v1.get_variable("w", initializer=factor)
        (tmp_path / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
        assert expected in refusal(tmp_path / "graph.pb")
    cut = v1.graph_util.extract_sub_graph(v1.GraphDef.FromString(frozen.read_bytes()), ["head/label"])
    (tmp_path / "cut.pb").write_bytes(cut.SerializeToString())
    model = load(tmp_path / "cut.pb")
    model.warm_up()
    assert "Table not initialized" in "".join(model.notes)
