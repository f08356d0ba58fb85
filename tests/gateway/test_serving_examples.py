"""Examples as protobuf; that TensorFlow reads what was meant is in `tests/tf/test_examples.py`."""

from typing import Any

import pytest

from pool.gateway.http import Refused
from pool.gateway.serving.examples import examples_of


def example(features: Any) -> bytes:
    (made,) = examples_of({"examples": [features]})
    assert type(made) is bytes
    return made


def refusal(body: Any) -> str:
    with pytest.raises(Refused) as error:
        examples_of(body)
    assert error.value.status == 400
    return error.value.text


def test_each_kind_of_list_has_its_bytes() -> None:
    assert example({}) == b"\x0a\x00"
    assert example({"a": []}) == b"\x0a\x07\x0a\x05\x0a\x01a\x12\x00"
    assert example({"a": "x"}) == b"\x0a\x0c\x0a\x0a\x0a\x01a\x12\x05\x0a\x03\x0a\x01x"
    assert example({"a": 1.0}) == b"\x0a\x0f\x0a\x0d\x0a\x01a\x12\x08\x12\x06\x0a\x04\x00\x00\x80\x3f"
    assert example({"a": [1, True, 300]}) == b"\x0a\x0f\x0a\x0d\x0a\x01a\x12\x08\x1a\x06\x0a\x04\x01\x01\xac\x02"


def test_a_negative_integer_takes_ten_bytes() -> None:
    assert example({"a": -1})[-12:] == b"\x0a\x0a" + b"\xff" * 9 + b"\x01"


def test_the_context_comes_before_each_example() -> None:
    context, one, two = example({"c": 1}), example({"a": 1}), example({"a": 2})
    made = examples_of({"context": {"c": 1}, "examples": [{"a": 1}, {"a": 2}]})
    assert made.tolist() == [context + one, context + two]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "no 'examples'"),
        ({"examples": {"a": 1}}, "'examples' is not a list"),
        ({"examples": None}, "'examples' is not a list"),
        ({"examples": []}, "'examples' is an empty list"),
        ({"examples": [[{"a": 1}]]}, "examples[0] is not an object"),
        ({"examples": [{"a": 1}, 1]}, "examples[1] is not an object"),
        ({"context": [{"a": 1}], "examples": [{}]}, "context is not an object"),
        ({"examples": [{"a": [10, None]}]}, "examples[0]['a'] has null"),
        ({"examples": [{"a": [10, 10.0]}]}, "examples[0]['a'] has floats among integers"),
        ({"examples": [{"a": [10, "x"]}]}, "examples[0]['a'] has strings among integers"),
        ({"examples": [{"a": [10, {"test": 10}]}]}, "examples[0]['a'] has an object"),
        ({"examples": [{"a": {"b64": 1}}]}, "examples[0]['a'] has an object"),
        ({"examples": [{"a": {"b64": "?"}}]}, "not base64"),
        ({"examples": [{"a": [[10], 20]}]}, "examples[0]['a'] has a list in a list"),
        ({"examples": [{"a": [20, 18446744073709551603]}]}, "no int64"),
        ({"examples": [{"a": [20, -(1 << 63) - 1]}]}, "no int64"),
        ({"examples": [{"a": 1.7976931348623157e308}]}, "too large for a float"),
        ({"examples": [{"a": "\ud800"}]}, "not valid unicode"),
        ({"examples": [{"\ud800": 1}]}, "not valid unicode"),
    ],
)
def test_what_is_no_example_says_why(body: Any, says: str) -> None:
    assert says in refusal(body)
