"""SavedModels of TensorFlow 1 and 2 load, offer what they declare, and answer as TensorFlow does."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from pool.wire.signatures import TensorInfo
from tf.making import line_of, run, save_graph, v1
from workers.tf.library import tf

ROWS = np.random.default_rng(5).standard_normal((5, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def two(models):
    """TensorFlow 2: of numbers, with a variable and a default; of strings; of a ragged tensor."""

    class Two(tf.Module):
        def __init__(self):
            super().__init__()
            self.weights = tf.Variable([[1.0, 2.0, 3.0]])

        @tf.function(input_signature=[tf.TensorSpec([None, 3], name="a"), tf.TensorSpec([], name="by")])
        def numbers(self, a, by=tf.constant(2.0)):  # noqa: B008
            total = a * self.weights * by
            return {"total": total, "first": total[:, 0], "sum": tf.reduce_sum(total)}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
        def strings(self, text):
            return {"same": tf.identity(text), "joined": tf.strings.reduce_join(text)}

        @tf.function(input_signature=[tf.RaggedTensorSpec([None, None], tf.float32)])
        def ragged(self, r):
            return {"total": tf.reduce_sum(r, 1)}

    module = Two()
    signatures = {"serving_default": module.numbers, "strings": module.strings, "ragged": module.ragged}
    tf.saved_model.save(module, str(models / "two"), signatures=signatures)
    return models / "two"


@pytest.fixture(scope="module")
def table(models):
    """TensorFlow 1: a word's line in an asset, plus a reference variable."""
    (models / "words.txt").write_bytes(b"cat\ndog\n")

    def build():
        words = v1.placeholder(tf.string, [None])
        ten = v1.get_variable("ten", initializer=tf.constant(10, tf.int64), use_resource=False)
        line = line_of(words, models / "words.txt") + ten
        return {"serving_default": ({"words": words}, {"line": line, "words": words})}

    return save_graph(models / "table", build)


@pytest.fixture
def copy(tmp_path, two):
    return Path(shutil.copytree(two, tmp_path / "copy"))


def edit(folder, change):
    file = folder / "saved_model.pb"
    saved_model = SavedModel.FromString(file.read_bytes())
    change(saved_model.meta_graphs[0])
    file.write_bytes(saved_model.SerializeToString())


def test_several_signatures_inputs_outputs_and_a_default(load, two):
    model = load(two)
    numbers = model.signatures["serving_default"]
    assert numbers.inputs == {"a": TensorInfo("float32", (-1, 3)), "by": TensorInfo("float32", ())}
    assert numbers.outputs["sum"] == TensorInfo("float32", ())
    assert numbers.defaults == {"by"}
    assert set(model.signatures) == {"serving_default", "strings", "ragged"}, "none of TensorFlow's own"
    for feeds in ({"a": ROWS}, {"a": ROWS, "by": np.array(4, np.float32)}):
        expected = tf.saved_model.load(str(two)).signatures["serving_default"](**{"by": np.float32(2), **feeds})
        answer = run(model, feeds)
        assert list(answer) == sorted(expected) == ["first", "sum", "total"]
        for name, value in answer.items():
            np.testing.assert_array_equal(value, expected[name].numpy(), strict=True)


@pytest.mark.parametrize("name", ["[1]*?", "a\\b", "Ünïcødé 模型", "'{}%s $HOME, "])
def test_a_folder_may_have_any_name(load, two, table, name, tmp_path):
    for source in (two, table):
        shutil.copytree(source, tmp_path / name / source.name)
    assert run(load(tmp_path / name / "two"), {"a": ROWS})["total"].shape == (5, 3)
    model = load(tmp_path / name / "table")
    words = np.array([b"dog", b"cow", b"cat"], object)
    assert run(model, {"words": words})["line"].tolist() == [11, 9, 10]
    assert run(model, {"words": words}, outputs=["words"])["words"].tolist() == words.tolist(), "an input, and no fetch"
    assert not model.is_stateful


def test_odd_signatures(load, two, tmp_path):
    def build():
        x, rows = v1.placeholder(tf.float32, None), v1.placeholder(tf.float32, [None, 3])
        ragged, sparse = v1.ragged.placeholder(tf.float32, 1, []), v1.sparse_placeholder(tf.float32, [None, None])
        handle, factor = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[]), v1.placeholder_with_default(3.0, [])
        return {
            "plain": ({"x": rows}, {"y": rows * 2}),
            "random": ({"x": rows}, {"y": rows + tf.random.uniform([3])}),
            "sum": ({"x": rows}, {"y": tf.reduce_sum(rows)}),
            "scaled": ({"x": x, "factor": factor}, {"y": x * factor}),
            "twins": ({"x": x, "y": x}, {"one": x * 2}),
            "half": ({"x": x}, {"half": tf.cast(x, tf.bfloat16)}),
            "ragged": ({"rows": ragged}, {"total": tf.reduce_sum(ragged, 1)}),
            "sparse": ({"s": sparse}, {"s": sparse * 2.0}),
            "handle": ({"x": x}, {"handle": handle}),
            "nothing": ({"x": x}, {}),
        }

    model = load(save_graph(tmp_path / "m", build, ["production"]), batching="on")  # the only tags there are
    assert model.left_out == {
        "handle": "output of signature 'handle', 'handle', has dtype resource, which cannot be sent",
        "nothing": "it declares no outputs",
        "twins": "two of its inputs are the same tensor",
    }
    assert model.signatures["half"].inputs["x"] == TensorInfo("float32", None)
    scalar = np.array(1.5, np.float32)
    assert model.signatures["scaled"].defaults == {"factor"}
    assert run(model, {"x": scalar}, "scaled")["y"] == 4.5
    assert run(model, {"x": scalar, "factor": scalar}, "scaled")["y"] == 2.25
    half = run(model, {"x": scalar}, "half")["half"]
    assert (half.dtype.name, half.shape, float(half)) == ("bfloat16", (), 1.5)
    feeds = {"rows.flat_values": np.array([1, 2, 4], np.float32), "rows.row_splits_0": np.array([0, 2, 2, 3])}
    assert run(model, feeds, "ragged")["total"].tolist() == [3, 0, 4]
    assert set(model.signatures["sparse"].outputs) == {"s.indices", "s.values", "s.dense_shape"}
    assert [name for name in model.signatures if not any(model.verdicts(name, "on").values())] == ["plain"]
    assert model.verdicts("random", "on") == {"y": "it draws random numbers"}
    assert model.verdicts("plain", "off") == {"y": "batching is off"}
    assert [name for name, each in load(two)._bound.items() if each.has_parts] == ["ragged"]


def test_a_graph_is_chosen_by_its_tags(load, refusal, copy):
    saved_model = SavedModel.FromString((copy / "saved_model.pb").read_bytes())
    one, other = saved_model.meta_graphs[0], saved_model.meta_graphs.add()
    other.CopyFrom(one)
    other.meta_info_def.tags.append("gpu")
    del other.signature_def["strings"]
    (copy / "saved_model.pb").write_bytes(saved_model.SerializeToString())
    assert "strings" in load(copy).signatures
    assert "strings" not in load(copy, tags=["gpu", "serve"]).signatures
    assert "is tagged tpu and nothing else; `tags` may be: gpu, serve; serve" in refusal(copy, tags=["tpu"])
    edit(copy, lambda graph: graph.meta_info_def.tags.append("train"))
    assert refusal(copy).endswith("there are several: gpu, serve; serve, train; choose one with `tags`")


def test_damaged_files(refusal, copy):
    whole = (copy / "saved_model.pb").read_bytes()
    for content, expected in ((whole[:999], "parse"), (b"\xff" * 99, "parse"), (b"", "holds no graph")):
        (copy / "saved_model.pb").write_bytes(content)
        assert expected in refusal(copy)
    (copy / "saved_model.pb").write_bytes(whole)
    (copy / "variables" / "variables.data-00000-of-00001").write_bytes(b"")
    assert "Read less bytes than requested" in refusal(copy)
    shutil.rmtree(copy / "variables")
    assert "the checkpoint of its variables is missing: variables.index" in refusal(copy)


def test_declarations_that_do_not_fit(load, refusal, copy, tmp_path):
    edit(copy, lambda graph: setattr(graph.signature_def["strings"].outputs["joined"], "dtype", 3))
    assert load(copy).signatures["strings"].outputs["joined"].dtype == "string", "the graph counts"
    edit(copy, lambda graph: setattr(graph.signature_def["strings"].inputs["text"], "name", "nowhere:0"))
    assert "signature 'strings', 'text', names 'nowhere:0', which is not a tensor" in refusal(copy)
    assert "it is a SavedModel, which takes no `outputs`: leave" in refusal(copy, outputs={"y": "y:0"})
    tf.saved_model.save(tf.Module(), str(tmp_path / "bare"))
    assert "it declares none; save it with signatures=" in refusal(tmp_path / "bare")


def test_a_path_of_something_else(refusal, tmp_path, copy):
    assert "it does not exist: give a SavedModel's folder, a .pb, " in refusal(tmp_path / "none")
    assert refusal(tmp_path).endswith(f"the folder holds models: give one of them, such as {copy}")
    refused = {"m.onnx": "unknown kind", "saved_model.pb": "give its folder", "m.ckpt-5.index": "unknown kind: give"}
    for name, expected in refused.items():
        (tmp_path / name).touch()
        assert expected in refusal(tmp_path / name)
        (tmp_path / name).unlink()
    (copy / "variables" / "model.meta").touch()
    assert refusal(copy / "variables").endswith(f"such as {copy / 'variables' / 'model.meta'}")
