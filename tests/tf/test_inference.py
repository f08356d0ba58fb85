"""`tritonclient.http` against TensorFlow models: numbers, strings, signatures, and what TensorFlow itself refuses."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from gateway.running import gateway
from pool.wire.tensors import Array
from support.pool_process import pool_process, stub_config

pytestmark = pytest.mark.tensorflow

STRINGS = {"signature": "strings"}


@pytest.fixture(scope="module")
def client(two_signatures: Path, failing: Path) -> Iterator[InferenceServerClient]:
    models = "".join(
        f'[[model]]\nname = "{name}"\npath = "{path}"\n' for name, path in (("two", two_signatures), ("bad", failing))
    )
    with (
        pool_process(stub_config(models=models, devices='["cpu"]')) as pool,
        gateway(pool.endpoint) as door,
        InferenceServerClient(door.address) as client,
    ):
        yield client


def tensor(name: str, array: Array) -> InferInput:
    return InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype)).set_data_from_numpy(array)


@pytest.mark.parametrize("rows", [1, 50_000])
def test_numbers_are_computed_and_outputs_come_in_the_order_that_is_asked_for(
    client: InferenceServerClient, rows: int
) -> None:
    a = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3) / 1000
    b = np.ones((rows, 3), np.float32)
    wanted = [InferRequestedOutput("product"), InferRequestedOutput("sum", binary_data=False)]
    for request_id in ("", "1", "odd"):  # the tensors begin elsewhere in the body
        inputs = [tensor("a", a), tensor("b", b)]
        result = client.infer("two", inputs, outputs=wanted, request_id=request_id)
        assert [output["name"] for output in result.get_response()["outputs"]] == ["product", "sum"]
        np.testing.assert_array_equal(result.as_numpy("product"), a * b)
        np.testing.assert_allclose(result.as_numpy("sum"), (a + b * [[1.0, 2.0, 3.0]]).sum(), rtol=1e-4)
    every = client.infer("two", [tensor("a", a), tensor("b", b)])
    assert {output["name"] for output in every.get_response()["outputs"]} == {"total", "product", "first", "sum"}


def test_strings_are_any_bytes_both_ways(client: InferenceServerClient) -> None:
    text = np.array([b"", b"\xff\0\n", "é".encode()], object)
    result = client.infer("two", [tensor("text", text)], parameters=STRINGS)
    assert result.as_numpy("same").tolist() == text.tolist()
    assert result.as_numpy("length").tolist() == [0, 3, 2]
    assert result.as_numpy("joined").tolist() == b"".join(text)
    with pytest.raises(InferenceServerException, match="bytes that are not UTF-8"):
        outputs = [InferRequestedOutput("same", binary_data=False)]
        client.infer("two", [tensor("text", text)], outputs=outputs, parameters=STRINGS)


def test_what_a_signature_does_not_take_is_said(client: InferenceServerClient) -> None:
    a, b = np.ones((2, 3), np.float32), np.ones((2, 4), np.float32)
    for inputs, text in (
        ([tensor("a", a)], "'b'"),
        ([tensor("a", a), tensor("b", b)], r"expected float32 \[\?, 3\], got float32 \[2, 4\]"),
        ([tensor("a", a), tensor("b", a), tensor("c", a)], "'c'"),
        ([tensor("a", a), tensor("b", a.astype(np.int32))], "got int32"),
    ):
        with pytest.raises(InferenceServerException, match=text) as caught:
            client.infer("two", inputs)
        assert caught.value.status() == "400"


def test_metadata_and_configuration_are_of_the_signature(client: InferenceServerClient) -> None:
    metadata = client.get_model_metadata("two")
    assert {"name": "a", "datatype": "FP32", "shape": [-1, 3]} in metadata["inputs"]
    assert {"name": "sum", "datatype": "FP32", "shape": []} in metadata["outputs"]
    assert client.get_model_config("two")["max_batch_size"] == 0, "its sum is of all rows"
    strings = client.get_model_config("two", query_params=STRINGS)
    assert [(each["name"], each["data_type"], each["dims"]) for each in strings["input"]] == [
        ("text", "TYPE_STRING", [-1])
    ]
