"""What callers may give, and what they are told otherwise."""

import math
from typing import Any

import numpy as np
import pytest

from pool.client.inputs import Planner, Request, cast
from pool.errors import InvalidInput
from pool.wire.signatures import Signature, TensorInfo
from pool.wire.tensors import DTYPES


def signature(dtype: str, shape: tuple[int, ...] | None = None, **more: Any) -> dict[str, Signature]:
    return {"serving_default": Signature({"x": TensorInfo(dtype, shape)}, {"y": TensorInfo(dtype, shape)}, **more)}


def converted(value: Any, dtype: str, shape: tuple[int, ...] | None = None) -> Any:
    _, (array,) = Planner().prepare(Request("m"), value, signature(dtype, shape))
    return array


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        ([[1, 2.5]], "float32", [[1, 2.5]]),
        (0.1, "float16", np.float16(0.1)),
        (np.float64([0.1, math.nan, math.inf]), "float32", np.float32([0.1, math.nan, math.inf])),
        (np.array([1, 2], ">f4"), "float32", [1, 2]),
        (np.array([[1, 2], [3, 4]], np.float32).T, "float32", [[1, 3], [2, 4]]),
        ([2**63], "uint64", [2**63]),
        ([0, 2**64 - 1], "uint64", [0, 2**64 - 1]),
        ([True], "float32", [1.0]),
        (np.array([1, 2], object), "int32", [1, 2]),
        ([1, 2j], "complex64", [1, 2j]),
        ([2**24 + 1], "float32", [2**24]),
    ],
)
def test_values_that_survive_are_taken(value: Any, dtype: str, expected: Any) -> None:
    array = converted(value, dtype)
    assert array.dtype == DTYPES[dtype]
    np.testing.assert_array_equal(array.astype(np.complex128), np.asarray(expected).astype(np.complex128))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ([128], "int8"),
        (np.uint64([2**63]), "int64"),
        ([2**64], "uint64"),
        ([math.nan], "int32"),
        ([1e300], "float32"),
        ([3.0], "int32"),
        ([math.inf], "float4_e2m1fn"),
        ([1], "bool"),
        (["a"], "float32"),
        ([[1], [2, 3]], "float32"),
        (np.int32([1]), "float32"),
        (np.ma.masked_array([1.0], [True]), "float32"),
    ],
)
def test_values_that_would_become_others_are_refused(value: Any, dtype: str) -> None:
    with pytest.raises(InvalidInput):
        converted(value, dtype)


@pytest.mark.parametrize("dtype", sorted(name for name in DTYPES if name not in ("string", "float32", "float64")))
def test_a_cast_of_python_numbers_loses_nothing_but_digits(dtype: str) -> None:
    numbers = [0, 1, 2, 3, 6, 7, 8, 100, 127, 128, 240, 448, 449, 2**11, 65504, 65520, 2**15, 2**31, 2**53, 2**62]
    for number in [*numbers, *(-each for each in numbers)]:
        for source in (np.int64([number]), np.float64([number])):
            try:
                back = cast(source, DTYPES[dtype]).astype(np.complex128)[0]
            except TypeError:
                continue
            tolerance = 0.0 if "int" in dtype or dtype == "bool" else 0.5
            assert math.isclose(back.real, number, rel_tol=tolerance, abs_tol=0)


def test_inputs_with_a_default_may_be_left_out() -> None:
    info = TensorInfo("float32", None)
    known = {"only": Signature({"x": info, "rate": info}, {"y": info}, frozenset({"rate"}))}
    plan, _ = Planner().prepare(Request("m"), [1.0], known)
    assert plan.names == ["x"]


@pytest.mark.parametrize("model", ["\ud800", "m" * 70000, 3])
def test_no_name_ends_the_client(model: Any) -> None:
    with pytest.raises(InvalidInput):
        Planner().prepare(Request(model), {"x": np.ones(1, np.float32)})
