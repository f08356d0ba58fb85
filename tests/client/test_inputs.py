"""What callers may give, and what they are told where it does not fit."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pool.client.inputs import arrays_of
from pool.errors import InvalidInput
from pool.wire.signatures import Signature, TensorInfo


def taken(value: Any, dtype: str = "float32", shape: tuple[int, ...] | None = None) -> Any:
    return arrays_of({"x": value}, Signature({"x": TensorInfo(dtype, shape)}, {}), "model m")["x"]


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ([[1.5, 2]], "float32"),
        (3, "float32"),
        (np.float64(0.1), "float32"),
        (np.array([1.0, 1e300]), "float64"),
        ([], "int32"),
        ([1, 2], "int4"),
        (np.array([7]), "uint8"),
        ([True], "bool"),
        ([1.5], "bfloat16"),
        ([0.5], "float8_e5m2"),
        ([1 + 2j], "complex64"),
        (np.arange(6, dtype=">f4").reshape(2, 3).T, "float32"),
        (np.array([2**63], np.uint64), "uint64"),
    ],
)
def test_values_become_arrays_of_the_signature_s_dtype(value: Any, dtype: str) -> None:
    array = taken(value, dtype)
    assert array.dtype.name == dtype
    assert array.flags.c_contiguous
    assert array.dtype.isnative
    assert np.allclose(array.astype(np.complex128), np.asarray(value, np.complex128), rtol=1e-2)


@pytest.mark.parametrize(
    ("value", "dtype", "why"),
    [
        ([2**40], "int32", "whose values it does not hold"),
        ([-1], "uint8", "whose values it does not hold"),
        ([1.5], "int64", "whose values it does not hold"),
        ([500.0], "float8_e4m3fn", "whose values it does not hold"),
        ([1e300], "float32", "whose values it does not hold"),
        ([8], "int4", "whose values it does not hold"),
        (np.array([300], np.int16), "int8", "got int16; cast it yourself"),
        (np.array([1e30], np.float32), "float16", "got float32; cast it yourself"),
        ([1j], "float32", "whose values it does not hold"),
        (["a"], "float32", "got strings, where numbers go"),
        ([1], "string", "got int, where strings go"),
        (np.ma.masked_array([1.0], [True]), "float32", "fill it first"),
        ([[1], [1, 2]], "float32", "inhomogeneous"),
    ],
)
def test_values_that_would_be_lost_are_refused(value: Any, dtype: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        taken(value, dtype)


def test_texts_are_utf_8_and_bytes_stay_as_they_are() -> None:
    assert taken(["x", "é".encode(), b"\0"], "string").tolist() == ["x", "é".encode(), b"\0"]
    assert taken("x", "string").shape == ()
    assert taken(np.array(["a", "bc"]), "string").tolist() == ["a", "bc"]


def test_exact_arrays_are_not_copied() -> None:
    for dtype in (np.float32, ml_dtypes.bfloat16):
        array = np.ones((2, 2), dtype)
        assert taken(array, np.dtype(dtype).name) is array


def test_what_is_wrong_is_said_with_what_would_be_right() -> None:
    one = Signature({"x": TensorInfo("float32", (-1, 3))}, {})
    two = Signature({"x": TensorInfo("float32", (-1, 3)), "y": TensorInfo("int32", ())}, {})
    assert arrays_of([[1, 2, 3]], one, "m")["x"].shape == (1, 3)
    for inputs, signature, why in [
        ({"x": [1, 2, 3]}, one, r"expected float32 \[\?, 3\]: got float32 \[3\]: add an axis"),
        ({"xx": 1}, one, "no input 'xx'; did you mean 'x'"),
        ([1], two, "give a mapping of its inputs: x, y"),
    ]:
        with pytest.raises(InvalidInput, match=why):
            arrays_of(inputs, signature, "model m")
