"""Outputs as JSON."""

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pool.gateway.http import Refused
from pool.gateway.serving.answers import classifications, predictions, regressions
from pool.gateway.serving.columns import Format
from pool.wire.tensors import Array

NAN, INFINITY = float("nan"), float("inf")


def strings(*values: Any) -> Array:
    return np.array([*values], object)


def rows(**outputs: Array) -> bytes:
    return predictions(outputs, Format.ROW)


def columns(**outputs: Array) -> bytes:
    return predictions(outputs, Format.COLUMN)


def test_one_output_has_no_name() -> None:
    numbers = np.arange(6, dtype=np.int32).reshape(3, 2)
    assert rows(y=numbers) == b'{"predictions":[[0,1],[2,3],[4,5]]}'
    assert columns(y=numbers) == b'{"outputs":[[0,1],[2,3],[4,5]]}'


def test_several_outputs_are_objects_by_row_or_by_column() -> None:
    outputs = {
        "d": np.array([8.0, 9.0]),
        "f": np.array([[1], [2]], np.float32),
        "b": np.array([True, False]),
        "s": strings([b"foo"], [b"bar"]),
        "s_bytes": strings(b"hello", b"world"),
    }
    assert json.loads(rows(**outputs)) == {
        "predictions": [
            {"d": 8.0, "f": [1.0], "b": True, "s": ["foo"], "s_bytes": {"b64": "aGVsbG8="}},
            {"d": 9.0, "f": [2.0], "b": False, "s": ["bar"], "s_bytes": {"b64": "d29ybGQ="}},
        ]
    }
    assert json.loads(columns(**outputs)) == {
        "outputs": {
            "d": [8.0, 9.0],
            "f": [[1.0], [2.0]],
            "b": [True, False],
            "s": [["foo"], ["bar"]],
            "s_bytes": [{"b64": "aGVsbG8="}, {"b64": "d29ybGQ="}],
        }
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.float32(0.1), b"0.1"),
        (np.float32(NAN), b"NaN"),
        (np.float64(-INFINITY), b"-Infinity"),
        (np.int8(-3), b"-3"),
        (np.uint64((1 << 64) - 1), b"18446744073709551615"),
        (np.True_, b"true"),
        (np.array(b"text", object), b'"text"'),
        (np.array(1.5, ml_dtypes.bfloat16), b"1.5"),
    ],
)
def test_a_scalar_is_bare_in_a_column_and_no_row(value: Any, text: bytes) -> None:
    scalar = np.asarray(value)
    assert columns(y=scalar) == b'{"outputs":' + text + b"}"
    assert columns(y=scalar, z=scalar) == b'{"outputs":{"y":' + text + b',"z":' + text + b"}}"
    with pytest.raises(Refused, match="give 'inputs' in place of 'instances'") as error:
        rows(y=scalar)
    assert error.value.status == 400


def test_rows_need_outputs_of_the_same_height() -> None:
    with pytest.raises(Refused, match=r"y \[2, 3\], z \[1\]"):
        rows(y=np.zeros((2, 3)), z=np.zeros(1))
    with pytest.raises(Refused, match="no rows in common"):
        rows(y=np.zeros(2), z=np.zeros(()))


def test_floats_have_the_fewest_digits_that_name_them() -> None:
    numbers = np.array([9000000, 999999, 0.5, 0.0003, 0.00003, 555557.5, 0.2, 1e-45], np.float32)
    assert json.loads(rows(y=numbers))["predictions"] == [9e6, 999999.0, 0.5, 0.0003, 3e-5, 555557.5, 0.2, 1e-45]
    with_nan = np.append(numbers, np.float32(NAN))
    assert json.loads(rows(y=with_nan))["predictions"][:-1] == json.loads(rows(y=numbers))["predictions"]


def test_whole_numbers_stay_floats() -> None:
    assert rows(y=np.array([1, 2], np.float64)) == b'{"predictions":[1.0,2.0]}'
    assert rows(y=np.array([1, INFINITY], np.float32)) == b'{"predictions":[1.0,Infinity]}'


def test_words_stand_where_a_number_is_none() -> None:
    numbers = np.array([[NAN, INFINITY], [3, -INFINITY]], np.float32)
    assert rows(y=numbers) == b'{"predictions":[[NaN,Infinity],[3.0,-Infinity]]}'
    assert columns(null=numbers, y=strings(b"null")) == (
        b'{"outputs":{"null":[[NaN,Infinity],[3.0,-Infinity]],"y":["null"]}}'
    )
    assert rows(null=numbers, v=numbers[:, 0]) == (
        b'{"predictions":[{"null":[NaN,Infinity],"v":NaN},{"null":[3.0,-Infinity],"v":3.0}]}'
    )


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn])
def test_short_floats_are_written_too(dtype: Any) -> None:
    assert json.loads(rows(y=np.array([0.5, -2, 1.5], dtype))) == {"predictions": [0.5, -2.0, 1.5]}
    assert b"NaN" in rows(y=np.array([NAN], dtype))


def test_short_integers_are_written_too() -> None:
    assert rows(y=np.array([-8, 7], ml_dtypes.int4)) == b'{"predictions":[-8,7]}'
    assert rows(y=np.array([0, 15], ml_dtypes.uint4)) == b'{"predictions":[0,15]}'


def test_arrays_of_any_layout_are_written() -> None:
    numbers = np.arange(6, dtype=np.float32).reshape(2, 3).T
    assert json.loads(rows(y=numbers)) == {"predictions": [[0, 3], [1, 4], [2, 5]]}
    shifted = np.zeros(13, np.uint8)[1:].view(np.float32)
    assert not shifted.flags.aligned
    assert rows(y=shifted) == b'{"predictions":[0.0,0.0,0.0]}'
    assert rows(y=np.zeros((2, 0), np.float32)) == b'{"predictions":[[],[]]}'
    assert rows(y=np.zeros((0, 2), np.float32)) == b'{"predictions":[]}'
    assert columns(y=np.zeros((1,) * 64, np.float32)).count(b"[") == 64


def test_a_string_that_is_no_text_comes_as_bytes() -> None:
    assert rows(y=strings(b"a\xff", "é".encode())) == '{"predictions":[{"b64":"Yf8="},"é"]}'.encode()


def test_complex_numbers_are_not_implemented() -> None:
    for form in Format:
        with pytest.raises(Refused, match="complex64") as error:
            predictions({"y": np.zeros(1, np.complex64)}, form)
        assert error.value.status == 501


def test_a_regression_is_a_number_an_example() -> None:
    values = np.array([0.2, INFINITY, 1.0], np.float32)
    for shape in ((3,), (3, 1)):
        assert regressions({"outputs": values.reshape(shape)}, 3) == b'{"results":[0.2,Infinity,1.0]}'
    for wrong in (values[:2], values.reshape(1, 3), np.zeros(3, np.int32), np.zeros((3, 2), np.float32)):
        with pytest.raises(Refused, match=r"float \[3\] or \[3, 1\]"):
            regressions({"outputs": wrong}, 3)


def test_a_classification_has_labels_and_scores() -> None:
    scores = np.array([[0.2, 0.7], [0.7, NAN]], np.float32)
    labels = strings([b"car", b"bike"], [b"car", b"bike"])
    assert classifications({"classes": labels, "scores": scores}, 2) == (
        b'{"results":[[["car",0.2],["bike",0.7]],[["car",0.7],["bike",NaN]]]}'
    )
    assert classifications({"scores": scores[:1]}, 1) == b'{"results":[[["",0.2],["",0.7]]]}'
    assert classifications({"classes": labels[:1]}, 1) == b'{"results":[[["car",0.0],["bike",0.0]]]}'


def test_a_classification_of_another_form_is_refused() -> None:
    scores, labels = np.zeros((2, 3), np.float32), np.full((2, 3), b"", object)
    wrong: list[dict[str, Array]] = [
        {"scores": scores[0]},
        {"scores": scores[:1]},
        {"scores": scores.astype(np.int32)},
        {"scores": labels},
        {"classes": scores},
        {"classes": labels[0]},
        {"classes": labels[:, :2], "scores": scores},
    ]
    for each in wrong:
        with pytest.raises(Refused, match="classification") as error:
            classifications(each, 2)
        assert error.value.status == 400
