"""Bodies, specs and tensors: exact both ways, and no bytes raise anything but `BadMessage`."""

import math
from contextlib import suppress
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pool.wire.bodies import HEAD, Kind, bodies, failure, failure_of, letters, pack, plain
from pool.wire.signatures import Signature, TensorInfo, signature_name
from pool.wire.specs import BadMessage, Tensor, job_spec, parse_answer, parse_job, unpack
from pool.wire.tensors import DTYPE_NAMES, DTYPES, Layout, describe, encode

settings.register_profile("steady", deadline=None)
settings.load_profile("steady")


@given(st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=200)), max_size=6))
def test_bodies_in_a_frame_come_out_as_they_went_in(parts: list[tuple[bytes, bytes]]) -> None:
    frame = b"".join(HEAD.pack(Kind.JOB, 0, 0, 0, *map(len, each), 1, 1.0, 0.0) + b"".join(each) for each in parts)
    found = [*bodies(frame)]
    assert [(each.spec, frame[each.begins : each.ends]) for each in found] == parts
    assert b"".join(each.whole for each in found) == frame


JSONISH = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=20,
)


@given(st.binary(max_size=200) | JSONISH.map(pack))
def test_no_bytes_raise_anything_but_bad_message(data: bytes) -> None:
    for read in (lambda data: [*bodies(data)], parse_job, parse_answer, failure_of, unpack):
        with suppress(BadMessage):
            read(data)


def array_of(name: str, shape: tuple[int, ...]) -> "np.ndarray[Any, Any]":
    dtype, count = DTYPES[name], math.prod(shape)
    if dtype.hasobject:
        return np.array([bytes([index]) * (index % 5) + b"\0" for index in range(count)], object).reshape(shape)
    raw = np.random.default_rng(7).integers(0, 2 if dtype.itemsize == 1 else 255, count * dtype.itemsize, np.uint8)
    return raw.view(dtype).reshape(shape)


def facts(array: "np.ndarray[Any, Any]") -> tuple[Any, ...]:
    return array.dtype, array.shape, array.tolist() if array.dtype.hasobject else array.tobytes()


@pytest.mark.parametrize("name", sorted(DTYPES))
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (2, 3, 4)])
def test_every_dtype_comes_back_bit_by_bit(name: str, shape: tuple[int, ...]) -> None:
    arrays = {"a": array_of(name, shape), "b": array_of("string", (3,)), "c": np.arange(3.0)}
    spec = job_spec("m", "s", ("y",), describe(arrays))
    layout = Layout(parse_job(spec).tensors)
    data = b"".join(encode([*arrays.values()]))
    views = layout.views(b"??" + data, 2, 2 + len(data))
    assert all(facts(views[key]) == facts(arrays[key]) for key in arrays)


def test_all_dtypes_of_tensorflow_that_numpy_can_hold_are_there() -> None:
    extended = {"bfloat16", "int4", "uint4", "int2", "uint2", "float8_e5m2", "float8_e4m3fn", "float4_e2m1fn"}
    assert extended <= set(DTYPES)
    assert DTYPE_NAMES[np.dtype(ml_dtypes.bfloat16)] == "bfloat16"
    with pytest.raises(KeyError):
        describe({"x": np.zeros(2, ">f4")})


@given(st.lists(st.integers(0, 2**64 - 1), min_size=3, max_size=3), st.binary(max_size=12))
def test_ends_of_strings_are_believed_only_if_they_can_be(ends: list[int], texts: bytes) -> None:
    layout = Layout([Tensor("x", "string", (3,), 24)])
    data = np.array(ends, np.uint64).tobytes().ljust(64, b"\0") + texts
    try:
        strings = layout.views(data, 0, len(data))["x"].tolist()
    except BadMessage:
        return
    assert b"".join(strings) == texts


def test_data_of_another_length_is_refused() -> None:
    layout = Layout([Tensor("x", "float32", (4,), 16)])
    for length in (0, 16, 63, 65):
        with pytest.raises(BadMessage):
            layout.views(bytes(length), 0, length)


def test_texts_travel_whatever_they_hold() -> None:
    assert failure_of(failure(7, "ModelFailed", "\udcff and é")[HEAD.size :]) == ("ModelFailed", "\\udcff and é")


SIGNATURE = Signature(
    {"x": TensorInfo("float32", (-1, 64)), "k": TensorInfo("int32", ())},
    {"y": TensorInfo("float32", None)},
    frozenset({"k"}),
)


def test_a_signature_says_what_is_wrong_and_what_would_be_right() -> None:
    def why(outputs: tuple[str, ...] | None = None, **shapes: tuple[int, ...]) -> str:
        return SIGNATURE.mismatch([Tensor(name, "float32", shape, 0) for name, shape in shapes.items()], outputs)

    assert why(x=(2, 64)) == ""
    assert why(x=(64,)) == "input 'x': expected float32 [?, 64], got float32 [64]: add an axis (`array[None]`)"
    assert why() == "missing input 'x' (float32 [?, 64])"
    assert why(x=(1, 64), z=(1,)) == "no input 'z'; there are: k, x"
    assert why(x=(1, 64), k=()) == "input 'k': expected int32 [], got float32 []"
    assert why(("yy",), x=(1, 64)) == "no output 'yy'; did you mean 'y'?"
    assert Signature.from_record(unpack(pack(SIGNATURE.record()))) == SIGNATURE


def test_a_job_without_a_signature_means_the_default_or_the_only_one() -> None:
    assert signature_name("", ["a"]) == "a"
    assert signature_name("", ["a", "serving_default"]) == "serving_default"
    for asked, names in (("", ["a", "b"]), ("c", ["a"]), ("", [])):
        with pytest.raises(LookupError):
            signature_name(asked, names)


def test_a_question_travels_alone() -> None:
    job, question = (plain(kind) for kind in (Kind.JOB, Kind.ASK))
    waiting = [job, job, question, question, job, question]
    assert [*letters(waiting)] == [job * 2, question, question, job, question]
