"""JSON values as tensors of the dtype that a signature declares, and what does not fit."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pool.gateway.http import Refused
from pool.gateway.serving.binary import as_bytes, as_text, is_binary
from pool.gateway.serving.tensors import to_tensor
from pool.wire.tensors import DTYPES

NAN, INFINITY = float("nan"), float("inf")
INTEGERS = [name for name in DTYPES if "int" in name]
FLOATS = [name for name in DTYPES if "float" in name]


def refused(value: Any, dtype: str) -> Refused:
    with pytest.raises(Refused) as error:
        to_tensor(value, dtype, "x")
    return error.value


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_are_exact_to_the_ends_of_their_dtype(dtype: str) -> None:
    info = ml_dtypes.iinfo(DTYPES[dtype])  # type: ignore[no-untyped-call]  # it has no hints
    ends = [int(info.min), int(info.max)]
    made = to_tensor([ends, [0, 1]], dtype, "x")
    assert made.dtype == DTYPES[dtype]
    assert [[int(each) for each in row] for row in made] == [ends, [0, 1]]
    for wrong in (ends[0] - 1, ends[1] + 1):
        assert refused([0, wrong], dtype).text == f"x[1] is {wrong}; {dtype} has {ends[0]} to {ends[1]}"


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_take_whole_numbers_too(dtype: str) -> None:
    made = to_tensor([1, 2.0, 0.5], dtype, "x")
    assert made.dtype == DTYPES[dtype]
    assert [float(each) for each in made] == [1.0, 2.0, 0.5]


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_finite_number_never_becomes_infinite(dtype: str) -> None:
    info = ml_dtypes.finfo(DTYPES[dtype])  # type: ignore[no-untyped-call]  # it has no hints
    assert float(to_tensor(float(info.max), dtype, "x")) == float(info.max)
    assert f"too large for {dtype}" in refused([0.0, 10**400], dtype).text
    if dtype != "float64":
        assert refused([0.0, float(info.max) * 4.0], dtype).status == 400


def test_numbers_beyond_their_dtype_are_rounded_as_the_documentation_says() -> None:
    assert to_tensor(1435774380, "float32", "x") == np.float32(1435774336)
    assert to_tensor((1 << 64) + 1, "float64", "x") == np.float64(1 << 64)


def test_nan_and_infinity_are_floats() -> None:
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        made = to_tensor([NAN, INFINITY, -INFINITY], dtype, "x").astype(np.float64)
        assert np.isnan(made[0])
        assert made[1:].tolist() == [INFINITY, -INFINITY]
    assert refused([INFINITY], "float8_e4m3fn").status == 400, "it has no infinity"
    assert refused([NAN], "int32").status == 400


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1.0, "int32"),
        (True, "int32"),
        (True, "float32"),
        (1, "bool"),
        ("1", "float32"),
        ("true", "bool"),
        (None, "float32"),
        (None, "string"),
        (1, "string"),
        ({"b64": "AAAA"}, "float32"),
        ({"b64": 1}, "string"),
        ({"b64": "AAAA", "more": 1}, "string"),
        ({}, "string"),
        ([], "string"),
    ],
)
def test_a_value_of_another_kind_is_refused_with_its_place(value: Any, dtype: str) -> None:
    right = {"int32": 0, "float32": 0.5, "bool": False, "string": "a"}[dtype]
    error = refused([[right, right], [right, value]], dtype)
    assert error.status == 400
    assert error.text.startswith("x[1][1] is ")
    assert dtype in error.text


def test_all_lists_have_the_lengths_of_the_first() -> None:
    assert refused([[1, 2], [3]], "int32").text == "x[1] is a list of 1, where x[0] is a list of 2"
    assert refused([[1], 2], "int32").text == "x[1] is 2, where x[0] is a list of 1"
    assert refused([1, [2]], "int32").text == "x[1] is a list of 1, which is not of the expected type int32"
    assert refused([[[1], [2]], [[3], [4, 5]]], "int32").text == "x[1][1] is a list of 2, where x[0][0] is a list of 1"
    assert refused([[], [1]], "int32").text == "x[1] is a list of 1, where x[0] is a list of 0"


def test_lists_without_elements_have_their_shape() -> None:
    assert to_tensor([], "string", "x").shape == (0,)
    assert to_tensor([[], []], "float32", "x").shape == (2, 0)
    assert to_tensor(7, "int64", "x").shape == ()


def test_lists_may_be_as_deep_as_a_tensor_has_axes() -> None:
    value: Any = 1
    for _ in range(64):
        value = [value]
    assert to_tensor(value, "int8", "x").shape == (1,) * 64
    assert "deeper than 64" in refused([value], "int8").text


@pytest.mark.parametrize("dtype", ["complex64", "complex128", "resource", "variant"])
def test_a_dtype_that_json_cannot_say_is_not_implemented(dtype: str) -> None:
    assert refused([1], dtype).status == 501


def test_a_refusal_never_quotes_more_than_a_little() -> None:
    for value in ("a" * 10_000_000, 10**4000, [[0] * 1_000_000], {"k" * 1000: 1}):
        assert len(refused([0, value], "float32").text) < 200


def test_strings_are_the_bytes_of_their_text() -> None:
    made = to_tensor(["é", "", "a\x00", {"b64": "/wA="}], "string", "x")
    assert made.tolist() == ["é".encode(), b"", b"a\x00", b"\xff\x00"]
    assert "not valid unicode" in refused(["\ud800"], "string").text


@pytest.mark.parametrize("text", ["aGVsbG8=", "aGVsbG8", " aGVs\nbG8= ", "aGVsbG8."])
def test_base64_is_read_as_tensorflow_serving_does(text: str) -> None:
    assert is_binary({"b64": text})
    assert as_bytes({"b64": text}) == b"hello"


@pytest.mark.parametrize("text", ["aGVsbG8==", "aGVs=bG8", "a", "a===", "====", "aGVsb-8=", "é", "\ud800", "aGVsbG8=a"])
def test_what_is_no_base64_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="not base64"):
        as_bytes({"b64": text})


def test_bytes_come_back_as_bytes_where_they_must() -> None:
    assert as_text("é".encode(), is_bytes=False) == "é"
    assert as_text(b"\xff", is_bytes=False) == {"b64": "/w=="}
    assert as_text(b"hello", is_bytes=True) == {"b64": "aGVsbG8="}
