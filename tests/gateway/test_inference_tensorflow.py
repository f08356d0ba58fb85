"""`tritonclient.http` against TensorFlow models: numbers, strings, signatures, and what TensorFlow itself refuses."""

import re
import subprocess
import sys
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from gateway.running import Gateway, gateway
from pool.config import demo_folder
from pool.docs import page
from pool.wire.tensors import Array
from support.pool_process import pool_process, stub_config

pytestmark = [pytest.mark.tensorflow, pytest.mark.gateway]

STRINGS = {"signature": "strings"}
MAKE = """
import sys
import tensorflow as tf


class Two(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, 3], name="a"), tf.TensorSpec([None, 3], name="b")])
    def numbers(self, a, b):
        total = a + b * [[1.0, 2.0, 3.0]]
        return {"total": total, "product": a * b, "first": total[:, 0], "sum": tf.reduce_sum(total)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def strings(self, text):
        same = tf.identity(text)
        return {"same": same, "length": tf.strings.length(text), "joined": tf.strings.reduce_join(text)}

    @tf.function(input_signature=[tf.TensorSpec([None], dtype, name=name) for name, dtype in (
        ("half", tf.float16), ("brain", tf.bfloat16), ("flag", tf.bool), ("byte", tf.uint8))])
    def kinds(self, half, brain, flag, byte):
        return {"half": half * 2, "brain": brain * 2, "flag": ~flag, "byte": byte + 1}


two = Two()
tf.saved_model.save(two, sys.argv[1], {"serving_default": two.numbers, "strings": two.strings, "kinds": two.kinds})
"""


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("model") / "two"
    subprocess.run([sys.executable, "-c", MAKE, str(folder)], check=True, capture_output=True, timeout=100)
    paths = {"two": folder, "digits": demo_folder() / "digits"}
    models = "".join(f'[[model]]\nname = "{name}"\npath = "{path}"\n' for name, path in paths.items())
    with pool_process(stub_config(models=models, devices='["cpu"]')) as running, gateway(running.endpoint) as door:
        yield door


@pytest.fixture(scope="module")
def client(door: Gateway) -> Iterator[InferenceServerClient]:
    with InferenceServerClient(door.address) as client:
        yield client


def test_what_the_page_shows_works(door: Gateway) -> None:
    """The first block of Python and of the shell in its section, with another port."""
    section = page("gateway").text.partition("## Triton's clients")[2]
    python, shell = (section.partition(f"```{language}\n")[2].partition("```")[0] for language in ("python", "sh"))
    for text, program in ((python, [sys.executable, "-c"]), (shell, ["bash", "-c"])):
        assert "127.0.0.1:8000" in text
        told = [*program, text.replace("127.0.0.1:8000", door.address)]
        found = subprocess.run(told, capture_output=True, text=True, timeout=60)
        assert found.returncode == 0, found.stderr
        assert re.search(r'\[\d\]|"name":"label","datatype":"INT64","shape":\[1\]', found.stdout), found.stdout


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
    outputs = [InferRequestedOutput("same", binary_data=False)]
    with pytest.raises(InferenceServerException, match="bytes that are not UTF-8"):
        client.infer("two", [tensor("text", text)], outputs=outputs, parameters=STRINGS)


def test_each_kind_of_number_is_computed_with(client: InferenceServerClient) -> None:
    arrays = {
        "half": np.array([1.5, 2], np.float16),
        "brain": np.array([1.5, 2], ml_dtypes.bfloat16),
        "flag": np.array([True, False]),
        "byte": np.array([0, 255], np.uint8),
    }
    inputs = [tensor(name, array) for name, array in arrays.items()]
    result = client.infer("two", inputs, parameters={"signature": "kinds"})
    for name, values in {"half": [3, 4], "brain": [3, 4], "flag": [False, True], "byte": [1, 0]}.items():
        found = result.as_numpy(name)
        assert found.dtype == arrays[name].dtype
        assert found.tolist() == values


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
