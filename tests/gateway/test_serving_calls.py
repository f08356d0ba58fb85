"""The two formats of `:predict`, and what becomes of a body that is neither."""

from typing import Any

import numpy as np
import pytest

from gateway.told import model, signature
from pool.gateway.http import Refused
from pool.gateway.serving.calls import Call, call_of
from pool.gateway.serving.paths import Method
from pool.wire.records import SignatureInfo

ONE = signature({"x": "int32"})
TWO = signature({"n": "float32", "s": "string"})
WORDS = signature({"s": "string"})


def predict(body: Any, takes: SignatureInfo = ONE) -> Call:
    return call_of(Method.PREDICT, body, model({"serving_default": takes}))


def refusal(body: Any, takes: SignatureInfo = ONE) -> str:
    with pytest.raises(Refused) as error:
        predict(body, takes)
    assert error.value.status == 400
    return error.value.text


def test_a_list_of_values_is_the_only_input() -> None:
    made = predict({"instances": [[1, 2], [3, 4], [5, 6]]})
    assert made.signature == "serving_default"
    assert made.outputs is None
    np.testing.assert_array_equal(made.inputs["x"], np.array([[1, 2], [3, 4], [5, 6]], np.int32))


def test_a_list_of_objects_has_every_input_in_each() -> None:
    made = predict({"instances": [{"n": [1.0, 2], "s": "a"}, {"s": {"b64": "/w=="}, "n": [3, float("nan")]}]}, TWO)
    np.testing.assert_array_equal(made.inputs["n"], np.array([[1, 2], [3, float("nan")]], np.float32))
    assert made.inputs["s"].tolist() == [b"a", b"\xff"]


def test_objects_may_name_the_only_input() -> None:
    np.testing.assert_array_equal(predict({"instances": [{"x": 1}, {"x": 2}]}).inputs["x"], [1, 2])


def test_an_object_of_bytes_is_a_value() -> None:
    assert predict({"instances": [{"b64": "aGVsbG8="}]}, WORDS).inputs["s"].tolist() == [b"hello"]
    assert predict({"instances": [[{"b64": "aGVsbG8="}]]}, WORDS).inputs["s"].tolist() == [[b"hello"]]
    assert predict({"instances": [{"s": [{"b64": "aGVsbG8="}]}]}, WORDS).inputs["s"].tolist() == [[b"hello"]]
    whole = predict({"inputs": {"b64": "aGVsbG8="}}, WORDS).inputs["s"]
    assert whole.shape == ()
    assert whole[()] == b"hello"


def test_columns_may_have_any_shapes() -> None:
    made = predict({"inputs": {"n": 1, "s": [["a"], ["b"]], "more": None}}, TWO)
    assert made.inputs["n"].shape == ()
    assert made.inputs["s"].tolist() == [[b"a"], [b"b"]]
    assert predict({"inputs": [[[1, 2], [3, 4]]]}).inputs["x"].shape == (1, 2, 2)
    assert predict({"inputs": {"x": []}}).inputs["x"].shape == (0,)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "neither"),
        ([1], "not a JSON object"),
        (None, "not a JSON object"),
        ({"instances": [1], "inputs": [1]}, "only one of them"),
        ({"instances": 1}, "not a list"),
        ({"instances": {"x": 1}}, "not a list"),
        ({"instances": None}, "not a list"),
        ({"instances": []}, "empty list"),
        ({"instances": [1, {"x": 1}]}, "instances[1] is an object"),
        ({"instances": [{"x": 1}, 1]}, "instances[1] is a value or a list"),
        ({"instances": [{"x": 1}, {}]}, "instances[1] has no 'x'"),
        ({"instances": [{"x": 1}, {"x": 1, "y": 2}]}, "instances[1] has 'y', which is no input"),
        ({"instances": [{"x": [1]}, {"x": [1, 2]}]}, "x of instances[1] is a list of 2"),
        ({"inputs": {"y": 1}}, "no 'x'"),
        ({"inputs": {}}, "no 'x'"),
        ({"inputs": None}, "null"),
        ({"signature_name": 1, "instances": [1]}, "'signature_name' is not a text"),
        ({"signature_name": None, "instances": [1]}, "'signature_name' is not a text"),
        ({"signature_name": "other", "instances": [1]}, "no signature 'other'; there are: serving_default"),
        ({"signature_name": "\ud800", "instances": [1]}, "no signature"),
    ],
)
def test_what_is_no_request_says_why(body: Any, says: str) -> None:
    assert says in refusal(body)


def test_several_inputs_need_names() -> None:
    assert "the signature takes n, s" in refusal({"instances": [1]}, TWO)
    assert "the signature takes n, s" in refusal({"instances": [{"b64": "AAAA"}]}, TWO)
    assert "the signature takes n, s" in refusal({"inputs": [1]}, TWO)
    assert "the signature takes n, s" in refusal({"inputs": {"n": 1}}, TWO)


def test_a_signature_without_inputs_takes_an_empty_object() -> None:
    none = signature({})
    assert predict({"inputs": {}}, none).inputs == {}
    assert "the signature takes nothing" in refusal({"instances": [1]}, none)


def test_the_default_signature_is_the_only_one_or_the_one_of_that_name() -> None:
    body = {"signature_name": "", "instances": [1]}
    assert call_of(Method.PREDICT, body, model({"other": ONE})).signature == "other"
    both = model({"other": TWO, "serving_default": ONE})
    assert call_of(Method.PREDICT, {"instances": [1]}, both).signature == "serving_default"
    with pytest.raises(Refused, match="'serving_default'; there are: a, b"):
        call_of(Method.PREDICT, {"instances": [1]}, model({"a": ONE, "b": ONE}))


def test_values_are_rows_of_an_input_with_a_last_axis_of_one() -> None:
    column = signature({"x": ("float32", (-1, 1))}, {"y": ("float32", (-1, 1)), "z": ("float32", (-1,))})
    found = {"y": np.array([[2.5], [3.0]], np.float32), "z": np.array([1.0, 2.0], np.float32)}
    for key, plain, nested in (
        ("instances", b'{"predictions":[{"y":2.5,"z":1.0},{"y":3.0,"z":2.0}]}', b'"y":[2.5]'),
        ("inputs", b'{"outputs":{"y":[2.5,3.0],"z":[1.0,2.0]}}', b'"y":[[2.5],[3.0]]'),
    ):
        made = predict({key: [1.0, 2.0]}, column)
        assert made.inputs["x"].shape == (2, 1)
        assert made.write(found) == plain
        made = predict({key: [[1.0], [2.0]]}, column)
        assert made.inputs["x"].shape == (2, 1)
        assert nested in made.write(found)
    assert predict({"instances": [[1.0, 2.0]]}, column).inputs["x"].shape == (1, 2), "the worker says what is wrong"


@pytest.mark.parametrize("method", [Method.CLASSIFY, Method.REGRESS])
def test_a_method_calls_only_signatures_that_are_made_for_it(method: Method) -> None:
    right = {"inputs": "string"}
    gives = {Method.CLASSIFY: {"scores": "float32"}, Method.REGRESS: {"outputs": "float32"}}
    other = Method.REGRESS if method is Method.CLASSIFY else Method.CLASSIFY
    body = {"examples": [{"x": 1.0}]}
    made = call_of(method, body, model({"serving_default": signature(right, gives[method])}))
    assert made.outputs == tuple(gives[method])
    for wrong in (
        signature(right, gives[other]),
        signature({"x": "string"}, gives[method]),
        signature({"inputs": "float32"}, gives[method]),
        signature({"inputs": "string", "more": "string"}, gives[method]),
    ):
        with pytest.raises(Refused, match=f"not made for :{method.value}") as error:
            call_of(method, body, model({"serving_default": wrong}))
        assert error.value.status == 400
