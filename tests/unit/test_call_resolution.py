"""A call held against the model's signatures: what fits is fed exactly, what does not is refused in one line."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pool.wire.calls import TensorHeader
from pool.wire.codec import BadFrame
from pool.wire.faults import Fault
from pool.wire.signatures import DEFAULT_SIGNATURE, ModelInfo, Refused, Signature, TensorSpec
from pool.wire.tensors import DTYPES, Array, dtype_name, to_array
from support.encoded import encode_tensor
from workers.batch import whole
from workers.casts import cast
from workers.signatures import resolve

X = TensorSpec("float32", (-1, 8))
Y = TensorSpec("float32", (-1,))


def model(**signatures: Signature) -> ModelInfo:
    return ModelInfo("m", "/models/m", signatures, False)


def taking(inputs: Mapping[str, TensorSpec], outputs: Sequence[str] = ("y",)) -> ModelInfo:
    return model(s=Signature(inputs, dict.fromkeys(outputs, Y)))


@dataclass
class Asked:
    """What is run and with which feeds."""

    signature: str
    outputs: Sequence[str]
    feeds: dict[str, Array]


def run(
    info: ModelInfo,
    signature: str | None,
    outputs: Sequence[str] | None,
    inputs: Sequence[tuple[str, Array, bool]],
) -> Asked:
    """As a worker gets it: headers, which are resolved, and buffers, which are read."""
    encoded = [encode_tensor(*each) for each in inputs]
    invocation = resolve(info, signature, outputs, [header for header, _ in encoded])
    feeds = {
        each.name: whole(each.read(buffer), each.dtype, each.header.shape)
        for each, (_, buffer) in zip(invocation.inputs, encoded, strict=True)
    }
    return Asked(invocation.signature, invocation.outputs, feeds)


def ask(
    info: ModelInfo,
    *inputs: tuple[str, object],
    signature: str | None = None,
    outputs: tuple[str, ...] | None = None,
) -> Asked:
    """As a client sends it: `to_array` says what is weak."""
    return run(info, signature, outputs, [(name, *to_array(value)) for name, value in inputs])


def refusal(*arguments: Any, **options: Any) -> str:
    with pytest.raises(Refused) as caught:
        ask(*arguments, **options)
    assert caught.value.fault is Fault.INVALID_INPUT
    text = str(caught.value)
    assert "\n" not in text
    return text


def fed(value: object, dtype: str, shape: tuple[int, ...] | None = None) -> Array:
    invocation = ask(taking({"x": TensorSpec(dtype, shape)}), ("x", value))
    return invocation.feeds["x"]


# --- shapes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ((2, 3, 8), "[2, 3, 8]"),
        ((8,), "[8]: add an axis (`x[None]`)"),
        ((2, 7), "[2, 7]"),
        ((), "[]"),
        ((0, 9), "[0, 9]"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused(shape: tuple[int, ...], text: str) -> None:
    expected = f"model m, signature s, input 'x': expected float32 [?, 8], got float32 {text}"
    assert refusal(taking({"x": X}), ("x", np.zeros(shape, np.float32))) == expected


@pytest.mark.parametrize(
    ("name", "shape", "wanted", "hint"),
    [
        ("pixels", (64,), (-1, 64), ": add an axis (`pixels[None]`)"),
        ("pixels", (), (1,), ": add an axis (`pixels[None]`)"),
        ("serving x", (28, 28), (-1, -1, 28), ": add an axis (`array[None]`)"),
        ("pixels", (32,), (-1, 64), " in this part of the job: add an axis (`pixels[None]`)"),
        ("pixels", (65,), (-1, 64), ""),
        ("pixels", (2, 3), (-1,), ""),
        ("pixels", (14, 28), (-1, 28, 28, 1), ""),
        ("pixels", (2, 2, 64), (-1, 64), ""),
        ("pixels", (64,), (8, 64), ""),
    ],
)
def test_a_row_in_the_place_of_a_batch_gets_a_hint(
    name: str, shape: tuple[int, ...], wanted: tuple[int, ...], hint: str
) -> None:
    spec = TensorSpec("float32", wanted)
    got = f"model m, signature s, input {name!r}: expected {spec}, got {TensorSpec('float32', shape)}"
    assert refusal(taking({name: spec}), (name, np.zeros(shape, np.float32))) == got + hint


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        ((2, 8), (-1, 8)),
        ((0, 8), (-1, 8)),
        ((2, 8), (-1, -1)),
        ((2, 8), (2, 8)),
        ((2, 8), None),
        ((), None),
        ((), ()),
        ((1, 0), (-1, 0)),
    ],
)
def test_a_shape_that_fits_is_fed(shape: tuple[int, ...], wanted: tuple[int, ...] | None) -> None:
    array = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    assert np.array_equal(fed(array, "float32", wanted), array)


# --- dtypes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "target"),
    [
        ("bool", "int32"),
        ("bool", "float32"),
        ("bool", "int4"),
        ("uint8", "int16"),
        ("uint8", "float16"),
        ("uint8", "bfloat16"),
        ("int32", "int64"),
        ("int32", "float64"),
        ("float16", "float32"),
        ("bfloat16", "float32"),
        ("float8_e5m2", "float16"),
        ("float8_e4m3fn", "bfloat16"),
        ("float32", "complex64"),
        ("int4", "int8"),
        ("uint4", "uint8"),
        ("uint2", "int4"),
    ],
)
def test_safe_casts_are_done(given: str, target: str) -> None:
    array = np.array([0, 1, 1], DTYPES[given])
    result = fed(array, target)
    assert dtype_name(result.dtype) == target
    assert np.array_equal(result.astype(np.complex128), array.astype(np.complex128))


@pytest.mark.parametrize(
    ("given", "target"),
    [
        ("float32", "int32"),
        ("int32", "float32"),
        ("int8", "uint8"),
        ("uint8", "int8"),
        ("int8", "bool"),
        ("float32", "bfloat16"),
        ("float16", "bfloat16"),
        ("bfloat16", "float16"),
        ("complex64", "float32"),
        # numpy calls all of these safe, and none is:
        ("int8", "float8_e5m2"),
        ("uint8", "float8_e4m3fn"),
        ("int4", "float4_e2m1fn"),
        ("float8_e4m3fn", "int4"),
        ("float8_e4m3fn", "uint2"),
        ("float8_e4m3fn", "float8_e5m2fnuz"),
        ("float8_e4m3fnuz", "float8_e4m3fn"),
        ("float8_e5m2fnuz", "float4_e2m1fn"),
        ("float4_e2m1fn", "int4"),
    ],
)
def test_unsafe_casts_are_refused_whatever_the_values(given: str, target: str) -> None:
    array = np.zeros(2, DTYPES[given])
    expected = f"input 'x': expected {target} of any shape, got {given} [2], which cannot be cast without loss"
    assert refusal(taking({"x": TensorSpec(target, None)}), ("x", array)).endswith(expected)


@pytest.mark.parametrize("target", ["float64", "complex128"])
def test_large_integers_become_floats_only_if_these_are_the_same(target: str) -> None:
    assert fed(np.array([2**53, -(2**63)]), target).tolist() == [2.0**53, -(2.0**63)]
    for value in (2**53 + 1, 2**63 - 1, -(2**53) - 1):
        refusal(taking({"x": TensorSpec(target, None)}), ("x", np.array([value])))
    refusal(taking({"x": TensorSpec(target, None)}), ("x", np.array([2**64 - 1], np.uint64)))


@pytest.mark.parametrize("pair", [("string", "int32"), ("int32", "string"), ("bool", "string"), ("string", "bool")])
def test_strings_are_never_cast(pair: tuple[str, str]) -> None:
    given, target = pair
    array = np.array([b"1"], object) if given == "string" else np.ones(1, DTYPES[given])
    assert f"expected {target} [?], got {given} [1]" in refusal(taking({"x": TensorSpec(target, (-1,))}), ("x", array))


def test_a_bool_of_another_byte_is_refused() -> None:
    odd = np.array([0, 1, 2], np.uint8).view(np.bool_)
    for target in ("bool", "int32"):
        text = refusal(taking({"x": TensorSpec(target, None)}), ("x", odd))
        assert text.endswith("got bool [3] with a byte that is neither 0 nor 1")


# --- Python's numbers -------------------------------------------------------------------------------------------

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (3, "uint8", 3),
        (3, "float32", 3.0),
        (3, "bfloat16", 3.0),
        (3, "int4", 3),
        (-8, "int4", -8),
        (3, "float8_e4m3fn", 3.0),
        (3, "complex64", 3 + 0j),
        (0, "int2", 0),
        (1, "bool", True),
        (True, "int32", 1),
        (True, "bfloat16", 1.0),
        (True, "complex64", 1 + 0j),
        (2.0, "int32", 2),
        (-(2.0**63), "int64", -(2**63)),
        (2**63, "uint64", 2**63),
        (1.5 * 2**63, "uint64", 3 * 2**62),
        (2**64 - 1, "uint64", 2**64 - 1),
        (16777216, "float32", 16777216.0),
        (0.1, "float32", float(np.float32(0.1))),
        (0.1, "bfloat16", 0.10009765625),
        (3.4028235e38, "float32", float(np.finfo(np.float32).max)),
        (65519.0, "float16", 65504.0),
        (6.5, "float4_e2m1fn", 6.0),
        (1e-60, "float32", 0.0),
        (INF, "float32", INF),
        (-INF, "float16", -INF),
        (INF, "float8_e5m2", INF),
        (complex(INF, 0), "complex64", complex(INF, 0)),
        (1.5, "complex64", 1.5 + 0j),
        ([1, 2], "int8", [1, 2]),
        ([[1.5, 2]], "float32", [[1.5, 2.0]]),
        ([], "int4", []),
        ([], "string", []),
        ([[], []], "complex64", [[], []]),
    ],
)
def test_python_numbers_take_the_inputs_dtype(value: object, dtype: str, expected: Any) -> None:
    result = fed(value, dtype)
    assert result.dtype == DTYPES[dtype]
    assert result.shape == np.shape(expected)
    assert result.tolist() == expected


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16", "float8_e4m3fn", "float8_e5m2fnuz", "complex64"])
def test_nan_is_nan_where_there_is_one(dtype: str) -> None:
    assert math.isnan(complex(fed(NAN, dtype)).real)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (300, "uint8"),
        (-1, "uint8"),
        (-1, "uint64"),
        ([2, -1], "uint64"),
        (2**63, "int64"),
        (2**64 - 1, "int64"),
        (8, "int4"),
        (-9, "int4"),
        (16, "uint4"),
        (2, "int2"),
        (2, "bool"),
        (-1, "bool"),
        (0.5, "bool"),
        (1.5, "int32"),
        (NAN, "int32"),
        (INF, "int64"),
        (2.0**63, "int64"),
        (2.0**64, "uint64"),
        (-1.0, "uint8"),
        (2147483648.0, "int32"),
        (16777217, "float32"),
        (2**53 + 1, "float64"),
        (2**63 - 1, "float64"),
        (2**63 - 1, "float32"),
        (2**64 - 1, "float32"),
        (257, "bfloat16"),
        (65536, "float16"),
        (1e39, "float32"),
        (-1e39, "float32"),
        (65520.0, "float16"),
        (1e39j, "complex64"),
        (1e9, "float4_e2m1fn"),
        (INF, "float4_e2m1fn"),
        (NAN, "float4_e2m1fn"),
        (449.0e3, "float8_e4m3fn"),
        (INF, "float8_e4m3fn"),
        (INF, "float8_e5m2fnuz"),
        (1j, "float32"),
        (1 + 0j, "int32"),
        (1, "string"),
        (b"1", "int32"),
        ([1.0, 1e39], "float32"),
    ],
)
def test_python_numbers_that_would_change_are_refused(value: object, dtype: str) -> None:
    text = refusal(taking({"x": TensorSpec(dtype, None)}), ("x", value))
    assert text.startswith(f"model m, signature s, input 'x': expected {dtype} of any shape, got ")


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ([1.0], "float32"),
        ([1.0], "int32"),
        ([0.1, -2.5], "float32"),
        ([1, 2], "int32"),
        ([1, 2], "float16"),
        ([1j], "complex64"),
        (1.5, "bfloat16"),
        ([2**64 - 1], "uint64"),
    ],
)
def test_an_array_of_the_dtype_that_numpy_gives_them_goes_where_python_numbers_go(value: Any, dtype: str) -> None:
    assert np.array_equal(fed(np.array(value), dtype), fed(value, dtype))


@pytest.mark.parametrize(
    ("value", "dtype"), [([1.5], "int32"), ([1e39], "float32"), ([2**31], "int32"), ([-1], "uint8"), ([1j], "float32")]
)
def test_and_nowhere_else(value: Any, dtype: str) -> None:
    refusal(taking({"x": TensorSpec(dtype, None)}), ("x", np.array(value)))


def test_an_array_of_another_dtype_is_not_weak() -> None:
    """Its owner chose the dtype; to call it weak is a client's lie."""
    refusal(taking({"x": TensorSpec("float16", None)}), ("x", np.ones(1, np.float32)))
    with pytest.raises(Refused, match="cannot be cast without loss"):
        run(taking({"x": TensorSpec("float16", None)}), None, None, [("x", np.ones(1, np.float32), True)])


def test_what_fits_already_is_not_copied() -> None:
    array = np.arange(8, dtype=np.float32)
    array.flags.writeable = False
    assert np.shares_memory(fed(array, "float32"), array)


@pytest.mark.parametrize("source", [name for name in DTYPES if name != "string" and DTYPES[name].itemsize <= 2])
def test_every_value_of_a_small_dtype_survives_where_the_cast_is_taken(source: str) -> None:
    dtype = DTYPES[source]
    count = {"bool": 2, "float4_e2m1fn": 16}.get(source, 1 << 8 * dtype.itemsize)
    values = np.arange(count).astype(f"u{dtype.itemsize}").view(dtype)
    with np.errstate(invalid="ignore"):
        numbers = values.astype(np.float64)
        for target in (DTYPES[name] for name in DTYPES if name != "string"):
            made = cast(values, target, weak=False)
            if made is not None:
                back = made.real.astype(np.float64) if target.kind == "c" else made.astype(np.float64)
                assert np.array_equal(back, numbers, equal_nan=True), target
            elif dtype.kind != "V" and target.itemsize > 2:  # between numpy's own dtypes it is not stricter than numpy
                assert not np.can_cast(dtype, target, "safe"), target


# --- names ------------------------------------------------------------------------------------------------------

TWO = {"a": X, "b": X}
ROWS = np.zeros((2, 8), np.float32)


def test_the_default_signature_is_serving_default_else_the_only_one() -> None:
    plain = Signature({"x": X}, {"y": Y})
    several = model(other=plain, **{DEFAULT_SIGNATURE: plain})
    assert ask(several, ("x", ROWS)).signature == DEFAULT_SIGNATURE
    assert ask(several, ("x", ROWS), signature="other").signature == "other"
    assert ask(model(only=plain), ("x", ROWS)).signature == "only"
    text = refusal(model(two=plain, one=plain), ("x", ROWS))
    assert text == "model m has several signatures; name one of them: one, two"
    assert refusal(model(), ("x", ROWS)) == "model m has several signatures; name one of them: none"


RAGGED = Signature(
    {"r": TensorSpec("float32", (-1,)), "r_1": TensorSpec("int64", (-1,)), "s.indices": TensorSpec("int64", None)},
    {"y": Y},
    True,
    {"r.flat_values": "r", "r.row_splits_0": "r_1", "gone.flat_values": "gone"},
)


def test_parts_of_a_ragged_tensor_go_by_two_names() -> None:
    splits, indices = np.array([0, 3]), ("s.indices", np.zeros((1, 2), np.int64))
    for values, cuts in (("r", "r_1"), ("r.flat_values", "r.row_splits_0"), ("r", "r.row_splits_0")):
        asked = ask(model(serving_default=RAGGED), (values, np.ones(3, np.float32)), (cuts, splits), indices)
        assert list(asked.feeds) == ["r", "r_1", "s.indices"]
    refused = refusal(model(serving_default=RAGGED), ("r", np.ones(3, np.float32)), ("r.flat_values", np.ones(3)))
    assert refused.endswith("input 'r' is given twice")
    assert "no input 'gone.flat_values'" in refusal(model(serving_default=RAGGED), ("gone.flat_values", splits))


def test_who_gives_one_array_for_it_is_told_how_it_is_given() -> None:
    info = model(serving_default=RAGGED)
    assert refusal(info, ("r", np.ones((2, 2), np.float32))).endswith(
        "input 'r': expected float32 [?], got float32 [2, 2];"
        " it is a ragged tensor: give the inputs `pool.Ragged.from_rows(…).parts('r')`"
    )
    assert refusal(info, ("s", np.ones(2))).endswith(
        "no input 's'; it is a sparse tensor: give the inputs `pool.Sparse.from_dense(…).parts('s')`"
    )


def test_an_unknown_signature_is_told_the_nearest_or_all() -> None:
    info = model(predict=Signature({"x": X}, {"y": Y}), classify=Signature({"x": X}, {"y": Y}))
    text = refusal(info, ("x", ROWS), signature="predikt")
    assert text == "model m: no signature 'predikt'; did you mean 'predict'?"
    text = refusal(info, ("x", ROWS), signature="zzz")
    assert text == "model m: no signature 'zzz'; there are: classify, predict"
    assert "no signature ''" in refusal(info, ("x", ROWS), signature="")
    text = refusal(replace(info, left_out={"zzz": "it declares no outputs"}), ("x", ROWS), signature="zzz")
    assert text == "model m: signature 'zzz' is not offered: it declares no outputs"


def test_inputs_that_are_unknown_missing_or_there_twice() -> None:
    info = taking({"content": X, "mask": X})
    where = "model m, signature s"
    assert refusal(info, ("contnt", ROWS)) == f"{where}: no input 'contnt'; did you mean 'content'?"
    assert refusal(info, ("q", ROWS)) == f"{where}: no input 'q'; there are: content, mask"
    assert refusal(info, ("mask", ROWS)) == f"{where}: missing input 'content' (float32 [?, 8])"
    assert refusal(info) == f"{where}: missing input 'content' (float32 [?, 8]), 'mask' (float32 [?, 8])"
    assert refusal(info, ("mask", ROWS), ("mask", ROWS)) == f"{where}: input 'mask' is given twice"


def test_an_input_alone_is_the_only_input() -> None:
    assert list(ask(taking({"x": X}), ("", ROWS)).feeds) == ["x"]
    assert list(ask(taking({"": X}), ("", ROWS)).feeds) == [""]
    text = refusal(taking(TWO), ("", ROWS))
    assert text == "model m, signature s: a single array needs exactly one input; give a dict of a, b"
    assert "needs exactly one input; give a dict of none" in refusal(taking({}), ("", ROWS))
    assert "given twice" in refusal(taking({"x": X}), ("", ROWS), ("x", ROWS))


def test_outputs_are_all_or_those_asked_for_each_once() -> None:
    info = taking({"x": X}, ["label", "score"])
    assert ask(info, ("x", ROWS)).outputs == ("label", "score")
    assert ask(info, ("x", ROWS), outputs=("score",)).outputs == ("score",)
    assert ask(info, ("x", ROWS), outputs=()).outputs == ()
    assert ask(info, ("x", ROWS), outputs=("score", "label") * 1000).outputs == ("score", "label")
    text = refusal(info, ("x", ROWS), outputs=("label", "scor"))
    assert text == "model m, signature s: no output 'scor'; did you mean 'score'?"


def test_a_model_without_inputs_is_run_without() -> None:
    assert ask(taking({})).feeds == {}


@pytest.mark.parametrize("where", ["signature", "input", "output"])
def test_a_long_name_makes_no_long_text(where: str) -> None:
    """The text goes back in a header, and a header that is too long is dropped, with the batch's other answers."""
    name = "\0" * 3_000_000
    options: dict[str, Any] = {"signature": name} if where == "signature" else {}
    options |= {"outputs": (name,)} if where == "output" else {}
    text = refusal(taking({"x": X}), (name if where == "input" else "x", ROWS), **options)
    assert f"no {where} " in text
    assert len(text) < 500


@pytest.mark.parametrize(
    ("header", "buffer"),
    [
        (TensorHeader("x", "complex33", (1,), False), bytes(8)),
        (TensorHeader("x", "float32", (-1,), False), bytes(4)),
        (TensorHeader("x", "float32", (2,), False), bytes(4)),
        (TensorHeader("x", "float32", (1,) * 65, False), bytes(4)),
        (TensorHeader("x", "float32", (0, 2**62), False), b""),
    ],
)
def test_what_is_no_tensor_is_a_bad_frame(header: TensorHeader, buffer: bytes) -> None:
    with pytest.raises(BadFrame):
        resolve(taking({"x": TensorSpec("float32", None)}), None, None, [header]).inputs[0].read(buffer)


# --- whatever comes ---------------------------------------------------------------------------------------------

names = st.sampled_from(["x", "y", "", "z"])
dtypes = st.sampled_from(list(DTYPES))
specs = st.builds(TensorSpec, dtypes, st.none() | st.lists(st.sampled_from([-1, 0, 1, 2]), max_size=2).map(tuple))
signatures = st.builds(
    Signature, st.dictionaries(names, specs, max_size=2), st.dictionaries(names, specs, min_size=1, max_size=2)
)
steady = settings(deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def arrays(draw: st.DrawFn, dtype: str | None = None) -> Array:
    kind = DTYPES[dtype or draw(dtypes)]
    shape = tuple(draw(st.lists(st.integers(0, 2), max_size=2)))
    size = math.prod(shape)
    if kind.hasobject:
        strings = np.empty(size, object)
        strings[:] = [draw(st.binary(max_size=3)) for _ in range(size)]
        return strings.reshape(shape)
    length = size * kind.itemsize
    return np.frombuffer(draw(st.binary(min_size=length, max_size=length)), np.uint8).view(kind).reshape(shape)


def check(
    info: ModelInfo,
    signature: str | None,
    outputs: tuple[str, ...] | None,
    inputs: Sequence[tuple[str, Array, bool]],
) -> None:
    try:
        asked = run(info, signature, outputs, inputs)
    except Refused as error:
        text = str(error)
    else:
        found = info.signatures[asked.signature]
        assert set(asked.feeds) == set(found.inputs)
        assert set(asked.outputs) <= set(found.outputs)
        for name, spec in found.inputs.items():
            array = asked.feeds[name]
            assert array.dtype == DTYPES[spec.dtype]
            assert array.dtype.isnative
            assert spec.shape is None or len(spec.shape) == array.ndim
            assert all(axis in (-1, size) for axis, size in zip(spec.shape or array.shape, array.shape, strict=True))
        return
    assert text.startswith(f"model {info.name}")
    assert "\n" not in text


@settings(steady, max_examples=500)
@given(
    st.dictionaries(st.sampled_from(["s", "t", DEFAULT_SIGNATURE]), signatures, max_size=2),
    st.none() | st.sampled_from(["s", "t", "u"]),
    st.none() | st.lists(names, max_size=3).map(tuple),
    st.lists(st.tuples(names, arrays(), st.booleans()), max_size=3),
)
def test_any_call_is_an_invocation_that_fits_or_refused(
    offered: dict[str, Signature],
    signature: str | None,
    outputs: tuple[str, ...] | None,
    inputs: list[tuple[str, Array, bool]],
) -> None:
    check(model(**offered), signature, outputs, inputs)


@pytest.mark.parametrize("source", DTYPES)
@settings(steady, max_examples=6)
@given(data=st.data())
def test_any_dtype_for_any_other(source: str, data: st.DataObject) -> None:
    array = data.draw(arrays(source))
    for target in DTYPES:
        for weak in (False, True):
            check(taking({"x": TensorSpec(target, None)}), None, None, [("x", array, weak)])
