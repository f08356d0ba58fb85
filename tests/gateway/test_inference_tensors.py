"""Any array, as tritonclient sends it, is the same array here, and its answer the same array there."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput, InferResult
from tritonclient.utils import np_to_triton_dtype

from gateway.fakes import Echo, asked, infer
from pool.gateway.http import Response
from pool.gateway.inference import Inference
from pool.gateway.inference.infer import SLOW_ELEMENTS, SLOW_JSON_BYTES
from pool.wire.tensors import Array

SHAPES = st_np.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
NUMBERS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32"]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
JSON_DTYPES = [*NUMBERS, "float64"]
JSON_DTYPES.remove("float16")


def strings(elements: st.SearchStrategy[bytes]) -> st.SearchStrategy[Array]:
    return SHAPES.flatmap(lambda shape: st_np.arrays(object, shape, elements=elements, fill=st.nothing()))


def numbers(dtypes: Sequence[str]) -> st.SearchStrategy[Array]:
    return st.sampled_from(dtypes).flatmap(lambda dtype: st_np.arrays(dtype, SHAPES))


ARRAYS = st.one_of(
    numbers([*NUMBERS, "float64"]),
    st_np.arrays(np.uint16, SHAPES).map(lambda bits: bits.view(BFLOAT16)),
    strings(st.binary(max_size=9)),
)
JSON_ARRAYS = st.one_of(numbers(JSON_DTYPES), strings(st.text(max_size=9).map(str.encode)))


def tensor(name: str, array: Array, binary: bool = True) -> InferInput:
    found = InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
    return found.set_data_from_numpy(array, binary_data=binary)


def sent(arrays: Mapping[str, Array], binary: bool = True, **options: Any) -> tuple[bytes, int | None]:
    inputs = [tensor(name, array, binary) for name, array in arrays.items()]
    body, header_bytes = InferenceServerClient.generate_request_body(inputs, **options)
    return body, header_bytes


def received(response: Response, body: bytes) -> InferResult:
    headers = dict(response.headers)
    length = headers.get("Inference-Header-Content-Length")
    return InferenceServerClient.parse_response_body(body, header_length=None if length is None else int(length))


def assert_same(found: Array, array: Array) -> None:
    assert found.shape == array.shape
    assert found.dtype == array.dtype
    if array.dtype.hasobject:
        assert found.tolist() == array.tolist()
    else:
        assert found.tobytes() == array.tobytes(), "each bit, of a NaN too"


@given(st.dictionaries(st.text(max_size=5), ARRAYS, min_size=1, max_size=4))
def test_binary_data_arrives_and_returns_as_it_was(arrays: dict[str, Array]) -> None:
    client = Echo()
    response, body = asked(Inference(), client, infer(*sent(arrays)))
    assert response.status == 200, body
    [(model, inputs, options)] = client.jobs
    assert (model, options) == ("m", {})
    assert inputs.keys() == arrays.keys()
    result = received(response, body)
    for name, array in arrays.items():
        assert_same(inputs[name], array)
        assert_same(result.as_numpy(name), array)


@given(st.dictionaries(st.text(max_size=5), JSON_ARRAYS, min_size=1, max_size=3))
def test_json_data_arrives_and_returns_as_it_was(arrays: dict[str, Array]) -> None:
    client = Echo()
    outputs = [InferRequestedOutput(name, binary_data=False) for name in arrays]
    body, header_bytes = sent(arrays, binary=False, outputs=outputs)
    assert header_bytes is None
    response, answer = asked(Inference(), client, infer(body, None))
    assert response.status == 200, answer
    [(_, inputs, _)] = client.jobs
    result = received(response, answer)
    for name, array in arrays.items():
        found = result.as_numpy(name)
        if array.dtype.kind == "f":  # JSON has one NaN
            np.testing.assert_array_equal(inputs[name], array, strict=True)
            np.testing.assert_array_equal(found, array, strict=True)
        elif array.dtype.hasobject:
            assert_same(inputs[name], array)
            assert found.tolist() == np.array([e.decode() for e in array.flat], object).reshape(array.shape).tolist()
        else:
            assert_same(inputs[name], array)
            assert_same(found, array)


def test_tensors_look_at_the_body_and_strings_alone_are_copied() -> None:
    client = Echo()
    arrays = {"n": np.arange(6.0).reshape(2, 3), "s": np.array([b"ab"], object), "b": np.array([True])}
    request = infer(*sent(arrays))
    asked(Inference(), client, request)
    inputs = client.jobs[0][1]
    assert np.shares_memory(inputs["n"], request.body)
    assert np.shares_memory(inputs["b"], request.body)


def test_outputs_come_in_their_order_each_as_it_is_asked_for() -> None:
    arrays = {"x": np.arange(3, dtype="f4"), "y": np.array([b"\xff", b""], object), "z": np.array([1, 2])}
    wanted = [InferRequestedOutput("z"), InferRequestedOutput("x", binary_data=False), InferRequestedOutput("y")]
    client = Echo()
    response, body = asked(Inference(), client, infer(*sent(arrays, outputs=wanted, request_id="7")))
    assert client.jobs[0][2] == {"outputs": ("z", "x", "y")}
    result = received(response, body)
    head = result.get_response()
    assert [output["name"] for output in head["outputs"]] == ["z", "x", "y"]
    assert [output.get("parameters") for output in head["outputs"]] == [
        {"binary_data_size": 16},
        None,
        {"binary_data_size": 9},
    ]
    assert (head["id"], head["model_name"], head["model_version"]) == ("7", "m", "1")
    for name, array in arrays.items():
        assert result.as_numpy(name).tolist() == array.tolist()


def test_what_all_outputs_are_to_be_one_may_leave_out() -> None:
    header = {
        "parameters": {"binary_data_output": True},
        "inputs": [{"name": n, "datatype": "INT8", "shape": [1], "data": [5]} for n in "xyz"],
        "outputs": [{"name": "x"}, {"name": "y", "parameters": {"binary_data": False}}],
    }
    _, body = asked(Inference(), Echo(), infer(json.dumps(header).encode(), None))
    assert body.endswith(b'"data":[5]}]}\x05'), "x is behind the head, y in it, and z was not asked for"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_are_numbers_of_json_here(value: float) -> None:
    arrays = {"x": np.array([1.5, value], "f4"), "i": np.array([2**53 + 1])}
    outputs = [InferRequestedOutput(name, binary_data=False) for name in arrays]
    response, body = asked(Inference(), Echo(), infer(*sent(arrays, binary=False, outputs=outputs)))
    result = received(response, body)
    np.testing.assert_array_equal(result.as_numpy("x"), arrays["x"])
    assert result.as_numpy("i").tolist() == [2**53 + 1]


@pytest.mark.parametrize(
    ("shape", "data"),
    [([2, 2], [1, 2, 3, 4]), ([2, 2], [[1, 2], [3, 4]]), ([1, 2, 2], [[1, 2], [3, 4]]), ([], [1]), ([0, 3], [])],
)
def test_json_data_may_be_flat_or_nested(shape: list[int], data: list[Any]) -> None:
    client = Echo()
    header = {"inputs": [{"name": "x", "datatype": "FP32", "shape": shape, "data": data}]}
    response, _ = asked(Inference(), client, infer(json.dumps(header).encode(), None))
    assert response.status == 200
    assert client.jobs[0][1]["x"].tolist() == np.array(data, "f4").reshape(shape).tolist()


def test_an_output_without_a_name_in_the_protocol_is_refused_and_the_others_can_be_had() -> None:
    client = Echo(outputs={"c": np.zeros(1, "c8"), "x": np.zeros(1, "f4")})
    some = {"x": np.zeros(1, "f4")}
    response, body = asked(Inference(), client, infer(*sent(some)))
    assert (response.status, json.loads(body)["error"]) == (
        400,
        "output 'c' is complex64, for which the protocol has no name; leave it out",
    )
    response, _ = asked(Inference(), client, infer(*sent(some, outputs=[InferRequestedOutput("x")])))
    assert response.status == 200


def test_what_takes_long_is_converted_elsewhere_and_is_the_same() -> None:
    """More elements than the event loop converts itself."""
    many = SLOW_ELEMENTS + 1
    arrays = {"s": np.array([b"%d" % number for number in range(many)], object), "f": np.arange(200_000.0)}
    assert len(sent({"f": arrays["f"]}, binary=False)[0]) > SLOW_JSON_BYTES, "its premise"
    for binary in (True, False):
        client = Echo()
        outputs = [InferRequestedOutput(name, binary_data=binary) for name in arrays]
        response, body = asked(Inference(), client, infer(*sent(arrays, binary=binary, outputs=outputs)))
        result = received(response, body)
        for name, array in arrays.items():
            assert client.jobs[0][1][name].tolist() == array.tolist()
        assert result.as_numpy("f").tolist() == arrays["f"].tolist()
        assert result.as_numpy("s").astype("S").tolist() == arrays["s"].tolist()
