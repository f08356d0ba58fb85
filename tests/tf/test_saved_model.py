"""SavedModels of every origin load, and answer exactly as TensorFlow does."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

from pool.wire.faults import Fault
from pool.wire.signatures import Refused, TensorSpec
from pool.wire.worker_messages import ModelSettings
from workers.tf import callables
from workers.tf.errors import of_a_run

pytestmark = pytest.mark.tensorflow


def floats(*shape):
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


def assert_same(answer, expected):
    assert answer.keys() == expected.keys()
    for name, value in answer.items():
        wanted = np.asarray(expected[name], dtype=object if value.dtype == object else None)
        assert isinstance(value, np.ndarray)
        assert value.dtype == wanted.dtype, name
        assert value.shape == wanted.shape, name
        np.testing.assert_array_equal(value, wanted, err_msg=name)


def run_all(model, signature, feeds):
    return model.run(signature, feeds, tuple(model.info.signatures[signature].outputs))


def test_several_signatures_inputs_and_outputs(load, two_signatures, in_process):
    model = load(two_signatures)
    assert set(model.info.signatures) == {"serving_default", "strings"}
    numbers = model.info.signatures["serving_default"]
    assert numbers.inputs == {"a": TensorSpec("float32", (-1, 3)), "b": TensorSpec("float32", (-1, 3))}
    assert numbers.outputs["sum"] == TensorSpec("float32", ())
    assert numbers.outputs["first"] == TensorSpec("float32", (-1,))
    feeds = {"a": floats(5, 3), "b": floats(5, 3) + 1}
    assert_same(run_all(model, "serving_default", feeds), in_process(two_signatures, "serving_default", feeds))


def test_bytes_survive_whatever_they_are(load, two_signatures, in_process):
    model = load(two_signatures)
    feeds = {"text": np.array([b"a\0", b"", b"\xff\0\0", b"x" * 100_000], object)}
    answer = run_all(model, "strings", feeds)
    assert_same(answer, in_process(two_signatures, "strings", feeds))
    assert answer["same"].tolist() == feeds["text"].tolist()
    assert answer["joined"].shape == ()
    assert answer["joined"][()] == b"".join(feeds["text"])


def test_a_scalar_string_keeps_its_trailing_nul(load, two_signatures):
    answer = load(two_signatures).run("strings", {"text": np.array([b"a\0"], object)}, ["joined"])
    assert answer["joined"][()] == b"a\0"


@pytest.mark.parametrize("outputs", [["total"], ["sum", "first"], ["first", "sum"], []])
def test_some_outputs_only(load, two_signatures, in_process, outputs):
    feeds = {"a": floats(2, 3), "b": floats(2, 3)}
    expected = in_process(two_signatures, "serving_default", feeds)
    answer = load(two_signatures).run("serving_default", feeds, outputs)
    assert list(answer) == outputs
    assert_same(answer, {name: expected[name] for name in outputs})


def test_keras_export(load, keras_export, in_process):
    model = load(keras_export)
    (name,) = model.info.signatures["serving_default"].inputs
    feeds = {name: floats(7, 4)}
    assert_same(run_all(model, "serving_default", feeds), in_process(keras_export, "serving_default", feeds))
    assert not [signature for signature in model.info.signatures if signature.startswith("__")]


def test_tensorflow_1_with_a_table_and_a_reference_variable(load, tf1_table, in_process):
    model = load(tf1_table)
    feeds = {"words": np.array([b"dog", b"cow", b"cat"], object)}
    answer = run_all(model, "serving_default", feeds)
    assert answer["number"].tolist() == [12, 9, 11]
    assert_same(answer, in_process(tf1_table, "serving_default", feeds))


def test_an_output_that_is_an_input_is_what_was_fed(load, tf1_table):
    words = np.array([b"dog"], object)
    answer = load(tf1_table).run("serving_default", {"words": words}, ["words"])
    assert answer["words"].tolist() == [b"dog"]


def test_init_ops_are_not_offered(load, tf1_table, two_signatures):
    for folder in (tf1_table, two_signatures):
        assert not [name for name in load(folder).info.signatures if name.startswith("__saved_model")]


@pytest.fixture(scope="module")
def odd(models):
    """Two inputs that are one tensor, outputs that are one tensor, a scalar, a bfloat16, an output that is a handle."""
    folder = models / "odd"
    build = tf.compat.v1.saved_model
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        value = tf.compat.v1.placeholder(tf.float32, None, name="value")
        double = value * 2
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[])
        info = build.utils.build_tensor_info

        def signature(inputs, outputs):
            return build.signature_def_utils.build_signature_def(
                {name: info(tensor) for name, tensor in inputs.items()},
                {name: info(tensor) for name, tensor in outputs.items()},
            )

        builder = build.builder.SavedModelBuilder(str(folder))
        builder.add_meta_graph_and_variables(
            session,
            ["production"],
            signature_def_map={
                "twins": signature({"x": value, "y": value}, {"one": double, "other": double}),
                "brain": signature({"x": value}, {"half": tf.cast(value, tf.bfloat16)}),
                "handle": signature({"x": value}, {"handle": handle}),
                "nothing": signature({"x": value}, {}),
            },
        )
        builder.save()
    return folder


def test_what_cannot_travel_is_left_out_with_a_warning(backend, odd, caplog):
    model = backend.load(ModelSettings("odd", str(odd), True))
    assert set(model.info.signatures) == {"twins", "brain"}
    assert model.info.left_out == {
        "handle": "output of signature 'handle', 'handle', has dtype resource, which cannot be sent",
        "nothing": "it declares no outputs",
    }
    (record,) = [record for record in caplog.records if record.name == "workers.tf"]
    assert "'handle' is not served" in record.getMessage()
    assert "has dtype resource, which cannot be sent" in record.getMessage()


def test_the_only_tag_set_is_taken_and_rank_may_be_unknown(load, odd):
    twins = load(odd).info.signatures["twins"]
    assert twins.inputs["x"] == TensorSpec("float32", None)


def test_outputs_that_are_one_tensor(load, odd):
    answer = load(odd).run("twins", {"x": floats(3), "y": floats(3)}, ["other", "one"])
    np.testing.assert_array_equal(answer["one"], floats(3) * 2)
    np.testing.assert_array_equal(answer["other"], floats(3) * 2)


def test_inputs_that_are_one_tensor_must_agree(load, odd):
    with pytest.raises(Refused, match="'x' and 'y' are the same tensor") as caught:
        load(odd).run("twins", {"x": floats(3), "y": floats(3) + 1}, ["one"])
    assert caught.value.fault is Fault.INVALID_INPUT


def test_scalars_and_bfloat16(load, odd):
    answer = load(odd).run("brain", {"x": np.array(1.5, np.float32)}, ["half"])
    assert answer["half"].dtype.name == "bfloat16"
    assert answer["half"].shape == ()
    assert float(answer["half"]) == 1.5


def test_lanes_run_one_model_at_the_same_time(load, two_signatures):
    model = load(two_signatures)
    names = list(model.info.signatures["serving_default"].outputs)

    def work(seed):
        a = np.random.default_rng(seed).standard_normal((4, 3)).astype(np.float32)
        outputs = names[seed % len(names) :]
        answer = model.run("serving_default", {"a": a, "b": a}, outputs)
        return "product" not in outputs or np.array_equal(answer["product"], a * a)

    with ThreadPoolExecutor(4) as lanes:
        assert all(lanes.map(work, range(200)))


def test_only_so_many_callables_are_kept(monkeypatch):
    monkeypatch.setattr(callables, "_MAX_KEPT", 2)
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        value = tf.compat.v1.placeholder(tf.float32, [None], name="value")
        fetches = [(value * factor).name for factor in (1.0, 2.0, 3.0)]
        kept = callables.Callables(session)
        kept.prepare([value.name], [fetches[0]], False)
        prepared = kept.get([value.name], [fetches[0]], False)
        first = kept.get([value.name], [fetches[1]], False)
        kept.get([value.name], [fetches[2]], False)
        assert kept.get([value.name], [fetches[1]], False) is first
        kept.get([value.name], fetches, False)
        kept.get([value.name], fetches[1:], False)
        assert kept.get([value.name], [fetches[1]], False) is not first
        assert kept.get([value.name], [fetches[0]], False) is prepared
        np.testing.assert_array_equal(first(np.ones(2, np.float32))[0], [2.0, 2.0])  # dropped, still whole


def test_the_order_of_the_outputs_makes_no_other_callable(backend, two_signatures, monkeypatch):
    model = backend.load(ModelSettings("two", str(two_signatures), True))
    made = []
    make = callables.Callables._make
    monkeypatch.setattr(callables.Callables, "_make", lambda self, key: made.append(key) or make(self, key))
    feeds = {"a": floats(2, 3), "b": floats(2, 3)}
    expected = run_all(model, "serving_default", feeds)
    for outputs in itertools.permutations(["total", "product", "sum", "first"]):
        answer = model.run("serving_default", feeds, outputs)
        assert tuple(answer) == outputs
        assert_same(answer, expected)
    for outputs in itertools.permutations(["total", "product", "sum"]):
        assert_same(model.run("serving_default", feeds, outputs), {name: expected[name] for name in outputs})
    assert len(made) == 1, "the four were prepared at load, the three once"


def test_warming_up_swallows_what_a_model_makes_of_zeros(load, two_signatures, failing, odd):
    for folder in (two_signatures, failing, odd):
        load(folder).warm_up()


def test_a_plain_exception_is_the_models_failure():
    assert str(of_a_run(ValueError("no"))) == "ValueError: no"
