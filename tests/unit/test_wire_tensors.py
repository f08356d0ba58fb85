"""Tensors travel exactly: every bit of every dtype, from any layout, and what is no tensor is told so."""

import datetime
import struct
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pool.wire.calls import Table, TensorHeader
from pool.wire.codec import BadFrame, pack, unpack
from pool.wire.tensors import DTYPES, Array, decode_tensor, dtype_name, to_array
from support.encoded import encode_tensor

NUMERIC = [name for name in DTYPES if name != "string"]


def travel(value: object) -> Array:
    """As a client sends it and a worker gets it."""
    array, weak = to_array(value)
    header, buffer = encode_tensor("x", array, weak)
    (arrived,) = unpack(Table, pack(Table((header,)))).tensors
    assert arrived == header
    return decode_tensor(arrived, bytes(buffer))


def weak(value: object) -> bool:
    return to_array(value)[1]


def specimens(name: str) -> Array:
    """Every bit pattern of a small dtype; of a larger one the edges, and 1024 random patterns."""
    dtype = DTYPES[name]
    if name == "bool":
        return np.array([False, True] * 8)
    if dtype.itemsize <= 2:
        return np.arange(1 << 8 * dtype.itemsize).astype(f"u{dtype.itemsize}").view(dtype)
    edges = [0, 1, -1, 2 ** (8 * dtype.itemsize - 1) - 1, -(2 ** (8 * dtype.itemsize - 1))]
    bits = b"".join(edge.to_bytes(dtype.itemsize, "little", signed=True) for edge in edges)
    if dtype.kind in "fc":
        part = dtype.itemsize // (2 if dtype.kind == "c" else 1)
        letter, quiet, signalling = (
            ("<f", 0x7FC00123, 0x7F800001) if part == 4 else ("<d", 0x7FF8 << 48 | 5, 0x7FF << 52 | 1)
        )
        floats = [struct.pack(letter, value) for value in (-0.0, np.inf, -np.inf, 5e-324 if part == 8 else 1e-45)]
        bits += b"".join(floats) + b"".join(nan.to_bytes(part, "little") for nan in (quiet, signalling)) * 2
    return np.frombuffer(bits + np.random.default_rng(7).bytes(1024 * dtype.itemsize), dtype)


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "flat": lambda a: a,
    "0-d": lambda a: a[-1:].reshape(()),
    "empty": lambda a: a[:0],
    "empty of rank 3": lambda a: a[:0].reshape(3, 0, 2),
    "every second": lambda a: a[1::2],
    "backwards": lambda a: a[::-1],
    "transposed": lambda a: a[:16].reshape(2, 8).T,
    "Fortran": lambda a: np.asfortranarray(a[:12].reshape(2, 3, 2)),
    "a corner": lambda a: a[:16].reshape(4, 4)[1:3, ::-2],
    "repeated": lambda a: np.broadcast_to(a[:3], (4, 3)),
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "big-endian transposed": lambda a: a[:16].reshape(2, 8).astype(a.dtype.newbyteorder(">")).T,
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype),
    "unaligned": lambda a: np.frombuffer(b"." + a.tobytes(), np.uint8)[1:].view(a.dtype),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NUMERIC)
def test_every_bit_of_every_layout_arrives(name: str, layout: str) -> None:
    given = LAYOUTS[layout](specimens(name))
    before = given.tobytes()
    native = given if given.dtype.isnative else given.byteswap().view(given.dtype.newbyteorder("="))
    arrived = travel(given)
    assert arrived.dtype == DTYPES[name]
    assert arrived.shape == given.shape
    assert arrived.tobytes() == native.tobytes()
    assert given.tobytes() == before
    assert not weak(given)


@pytest.mark.parametrize("name", NUMERIC)
def test_numpy_scalars_keep_their_dtype(name: str) -> None:
    scalar = np.ones(1, DTYPES[name])[0]
    arrived = travel(scalar)
    assert (arrived.dtype, arrived.shape) == (DTYPES[name], ())
    assert arrived[()] == scalar
    assert not weak(scalar)


def test_a_contiguous_array_is_not_copied() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    _, buffer = encode_tensor("x", to_array(array)[0])
    assert np.shares_memory(np.frombuffer(buffer, np.uint8), array)
    assert np.shares_memory(decode_tensor(encode_tensor("x", array)[0], buffer), array)


@pytest.mark.parametrize(
    ("array", "buffer"),
    [
        (np.array([1, -2], ">i4"), b"\x01\0\0\0\xfe\xff\xff\xff"),
        (np.array([[1], [2]], "u2"), b"\x01\0\x02\0"),
        (np.array(1.5, "f8"), b"\0\0\0\0\0\0\xf8\x3f"),
        (np.array([1.5], ml_dtypes.bfloat16), b"\xc0\x3f"),
        (np.array([True, False]), b"\x01\0"),
        (np.array([b"", b"a\0", b"xyz"], object), struct.pack("<3Q", 0, 2, 5) + b"a\0xyz"),
        (np.array(b"\xff", object), struct.pack("<Q", 1) + b"\xff"),
        (np.empty((2, 0), object), b""),
    ],
)
def test_the_bytes_on_the_wire(array: Array, buffer: bytes) -> None:
    assert bytes(encode_tensor("x", to_array(array)[0])[1]) == buffer


def test_names_are_tensorflows_whatever_numpys_alias() -> None:
    aliases = {"longlong": "int64", "ulonglong": "uint64", "intc": "int32", ">u2": "uint16", "single": "float32"}
    assert {alias: dtype_name(np.dtype(alias)) for alias in aliases} == aliases


# --- strings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "strings"),
    [
        (b"", b""),
        (b"\0", b"\0"),
        (b"a\0\0", b"a\0\0"),
        (b"\xff\xfe\0", b"\xff\xfe\0"),
        ("", b""),
        ("a\0", b"a\0"),
        ("ü\U0001f600", "ü\U0001f600".encode()),
        (np.bytes_(b"a\0"), b"a\0"),
        (np.str_("ü\0"), b"\xc3\xbc\0"),
        ([b"a\0", b""], [b"a\0", b""]),
        ([b"a\0", "b\0"], [b"a\0", b"b\0"]),
        (("a", "bc\0"), [b"a", b"bc\0"]),
        ([np.bytes_(b"a\0")], [b"a\0"]),
        ([["a", b""], ["\0", b"\0\0"]], [[b"a", b""], [b"\0", b"\0\0"]]),
        ([[[b"x"], [b"y"]]], [[[b"x"], [b"y"]]]),
        (np.array([b"a", b"bcd"]), [b"a", b"bcd"]),
        (np.array([b"a\0b"]), [b"a\0b"]),
        (np.array(["ü", ""]), [b"\xc3\xbc", b""]),
        (np.array(["ü"], ">U3"), [b"\xc3\xbc"]),
        (np.array([["a", "b"], ["c", "d"]]).T, [[b"a", b"c"], [b"b", b"d"]]),
        (np.array([b"a\0", "b\0"], object), [b"a\0", b"b\0"]),
        (np.array([b"a", b"b", b"c"], object)[::-2], [b"c", b"a"]),
        (np.array("a", object), b"a"),
        (np.array(["a\0b", "ü"], np.dtypes.StringDType()), [b"a\0b", b"\xc3\xbc"]),
        (np.empty((0, 2), "S3"), np.empty((0, 2)).tolist()),
    ],
    ids=repr,
)
def test_strings_arrive_as_bytes(value: Any, strings: object) -> None:
    arrived = travel(value)
    assert arrived.dtype == object
    assert arrived.tolist() == strings
    assert arrived.shape == np.shape(value)
    assert {type(element) for element in arrived.reshape(-1).tolist()} <= {bytes}
    assert not weak(value)


@pytest.mark.parametrize("base", [0, 7, 2**60])
def test_the_ends_of_strings_count_from_anywhere(base: int) -> None:
    header = TensorHeader("x", "string", (3,), False)
    buffer = struct.pack("<3Q", base + 2, base + 2, base + 5) + b"a\0xyz"
    assert decode_tensor(header, buffer).tolist() == [b"a\0", b"", b"xyz"]


@pytest.mark.parametrize(
    ("ends", "blob", "complaint"),
    [
        ((2, 1), b"abc", "2 bytes belong to no string"),
        ((4, 3), b"abc", "string 0 ends before it begins, or past the end"),
        ((1, 2), b"abc", "1 bytes belong to no string"),
        ((2**64 - 9, 2**64 - 1), b"abc", "string 0 ends before it begins, or past the end"),
        ((), b"abc", "3 bytes belong to no string"),
    ],
)
def test_ends_that_cut_no_strings_are_a_bad_frame(ends: tuple[int, ...], blob: bytes, complaint: str) -> None:
    header = TensorHeader("x", "string", (len(ends),), False)
    with pytest.raises(BadFrame, match=complaint):
        decode_tensor(header, struct.pack(f"<{len(ends)}Q", *ends) + blob)


# --- Python's own values -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (True, "bool", True),
        (3, "int64", 3),
        (-(2**63), "int64", -(2**63)),
        (2**63, "uint64", 2**63),
        (2**64 - 1, "uint64", 2**64 - 1),
        (1.5, "float64", 1.5),
        (1j, "complex128", 1j),
        ([1, 2], "int64", [1, 2]),
        ((1, 2.5), "float64", [1.0, 2.5]),
        ([[True], [False]], "bool", [[True], [False]]),
        ([1, 2**63 + 1], "uint64", [1, 2**63 + 1]),
        ([[2**64 - 1], [0]], "uint64", [[2**64 - 1], [0]]),
        ([1e300, 2**63], "float64", [1e300, 2.0**63]),
        ([float("inf"), 1], "float64", [float("inf"), 1.0]),
        ([], "float64", []),
        ([[], []], "float64", [[], []]),
        (range(3), "int64", [0, 1, 2]),
    ],
    ids=repr,
)
def test_python_numbers_are_weak(value: object, dtype: str, expected: object) -> None:
    arrived = travel(value)
    assert dtype_name(arrived.dtype) == dtype
    assert arrived.tolist() == expected
    assert weak(value)


def cyclic() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ([[1], [2, 3]], "inhomogeneous"),
        ([1, [2]], "inhomogeneous"),
        ([["a"], "b"], "inhomogeneous"),
        (cyclic(), "maximum number of dimension"),
        (nested(70), "maximum number of dimension"),
        ({}, "neither a number nor a string: dict"),
        ([{"a": 1}], "neither a number nor a string: dict"),
        (None, "neither a number nor a string: NoneType"),
        ([1.5, None], "number"),
        ([b"a", None], "neither a number nor a string: NoneType"),
        ({1, 2}, "neither a number nor a string: set"),
        (Ellipsis, "neither a number nor a string: ellipsis"),
        (["a", 1], "a number .int. among objects: give numbers alone, or strings alone"),
        ([True, "a"], "a number .bool. among objects"),
        (np.array([1, 2], object), "a number .int. among objects"),
        (np.array([b"a", 1.5], object), "a number .float. among objects"),
        (np.array([b"a", [b"b"]], object), "neither a number nor a string: list"),
        (2**64, "an integer does not fit into 64 bits"),
        (-(2**63) - 1, "an integer does not fit into 64 bits"),
        ([1, 10**5000], "an integer does not fit into 64 bits"),
        ([1.5, 2**70], "an integer does not fit into 64 bits"),
        ([-1, 2**63], "its integers fit neither int64 nor uint64"),
        (np.datetime64("2020-01-01"), "dtype datetime64.D. is not one of TensorFlow's"),
        (np.array(["2020"], "M8[s]"), "dtype datetime64.s. is not one of TensorFlow's"),
        (datetime.date(2020, 1, 1), "neither a number nor a string: date"),
        (np.timedelta64(1, "s"), "is not one of TensorFlow's"),
        (np.zeros(2, "i4,f4"), "is not one of TensorFlow's"),
        (np.void(b"ab"), "is not one of TensorFlow's"),
        (np.longdouble(1), "is not one of TensorFlow's"),
        ("\ud800", "surrogates not allowed"),
        (["a", "\udcff"], "surrogates not allowed"),
        (np.array(["\udcff"]), "surrogates not allowed"),
    ],
    ids=lambda value: repr(value)[:40] if not isinstance(value, list) else f"list of {len(value)}",
)
def test_what_is_no_tensor_is_told_why(value: object, complaint: str) -> None:
    with pytest.raises((TypeError, ValueError), match=complaint):
        to_array(value)
