"""Whatever JSON comes, it becomes a call or is refused in few words; what becomes a tensor is what was sent."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gateway.told import Spec, model, signature
from pool.gateway import json_text
from pool.gateway.http import Refused
from pool.gateway.serving.answers import predictions
from pool.gateway.serving.calls import call_of
from pool.gateway.serving.columns import Format
from pool.gateway.serving.paths import Method

NAMES = st.sampled_from(["instances", "inputs", "examples", "context", "signature_name", "x", "s", "b64", "y", ""])
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["AAAA", "serving_default", "\ud800"]),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES | st.text(max_size=3), inner, max_size=4),
    max_leaves=25,
)
BODIES = VALUES | st.dictionaries(NAMES, VALUES, min_size=1, max_size=3)
DTYPES_TAKEN = ("float32", "float64", "bfloat16", "int8", "int64", "uint64", "bool", "int4")
TAKES: list[dict[str, Spec]] = [{"x": dtype} for dtype in DTYPES_TAKEN]
TAKES += [
    {"inputs": "string"},
    {"x": "float32", "s": "string"},
    {"x": ("float32", (-1, 1))},
    {"x": "complex64"},
    {},
]
MODELS = [
    model({"serving_default": signature(inputs, {"y": "float32", "outputs": "float32", "scores": "float32"})})
    for inputs in TAKES
]


def made_or_refused(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Refused as refused:
        return refused


@given(body=BODIES, known=st.sampled_from(MODELS), method=st.sampled_from(list(Method)[:3]))
def test_any_json_becomes_a_call_or_is_refused(body: Any, known: Any, method: Method) -> None:
    made = made_or_refused(lambda: call_of(method, body, known))
    if isinstance(made, Refused):
        assert made.status in (400, 501)
        assert 0 < len(made.text) < 2500
        json_text.write({"error": made.text})
    else:
        assert made.inputs.keys() == known.signatures["serving_default"].inputs.keys()


@given(data=st.binary(max_size=200) | st.text(max_size=100).map(lambda text: f'{{"instances": [NaN, {text}'.encode()))
def test_any_bytes_are_json_or_refused(data: bytes) -> None:
    read = made_or_refused(lambda: json_text.read(data))
    if isinstance(read, Refused):
        assert read.status == 400
        assert len(read.text) < 400


@pytest.mark.parametrize("text", ["1e400", "[NaN, 1e400]", "[NaN, -1e400]", "[NaN, 1" + "0" * 400 + ".5]"])
def test_a_number_beyond_a_double_is_no_json(text: str) -> None:
    refused = made_or_refused(lambda: json_text.read(text.encode()))
    assert isinstance(refused, Refused), refused


DTYPES = st.sampled_from([np.float32, np.float64, np.float16, np.int8, np.int32, np.int64, np.uint64, np.bool_])
SHAPES = arrays.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4)


@given(sent=DTYPES.flatmap(lambda dtype: arrays.arrays(dtype, SHAPES)), form=st.sampled_from(list(Format)))
def test_a_tensor_that_is_written_and_read_is_the_same(sent: Any, form: Format) -> None:
    """NaNs are all one, and a list without elements says nothing of the axes in it."""
    text = predictions({"y": sent}, form).decode()
    assert json.loads(text).keys() == ({"predictions"} if form is Format.ROW else {"outputs"})
    body = text.replace("predictions", "instances").replace("outputs", "inputs")
    told = model({"serving_default": signature({"x": sent.dtype.name})})
    if form is Format.ROW and not len(sent):
        with pytest.raises(Refused, match="empty list"):
            call_of(Method.PREDICT, json_text.read(body.encode()), told)
        return
    back = call_of(Method.PREDICT, json_text.read(body.encode()), told).inputs["x"]
    assert back.dtype == sent.dtype
    assert back.size == sent.size
    if sent.size:
        assert back.shape == sent.shape
        np.testing.assert_array_equal(back, sent)
