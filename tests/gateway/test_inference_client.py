"""`tritonclient.http`, as it is, against a gateway of a pool with stub models."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput, InferResult
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from gateway.running import Gateway, gateway
from pool.wire.tensors import Array
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import eventually

VERSIONED = """
[[model]]
name = "rows"
path = "stub:rows"
[[model]]
name = "numbered"
path = "stub:files?@folder@"
"""


@pytest.fixture(scope="module")
def client(door: Gateway) -> Iterator[InferenceServerClient]:
    with InferenceServerClient(door.address, concurrency=4) as client:
        yield client


def tensor(array: Array, name: str = "x", binary: bool = True) -> InferInput:
    found = InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
    return found.set_data_from_numpy(array, binary_data=binary)


def echoed(client: InferenceServerClient, array: Array, signature: str, **options: Any) -> InferResult:
    return client.infer("echo", [tensor(array)], parameters={"signature": signature}, **options)


def refusal(status: int, text: str) -> Any:
    return pytest.raises(InferenceServerException, match=rf"\[{status}\] .*{text}")


NUMBERS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32"]


@pytest.mark.parametrize("dtype", [*NUMBERS, "float64", "bfloat16"])
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4), (300, 400)])
def test_a_tensor_of_each_dtype_returns_as_it_was(
    client: InferenceServerClient, dtype: str, shape: tuple[int, ...]
) -> None:
    array = (np.arange(np.prod(shape, dtype=int)) % 100).reshape(shape).astype(getattr(ml_dtypes, dtype, dtype))
    found = echoed(client, array, dtype).as_numpy("x")
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    assert found.tobytes() == array.tobytes()


@pytest.mark.parametrize("shape", [(4,), (2, 2), (0,)])
def test_strings_are_any_bytes(client: InferenceServerClient, shape: tuple[int, ...]) -> None:
    elements = [b"", b"\xff\0", "é".encode(), b"x" * 100_000][: int(np.prod(shape))]
    array = np.array(elements, object).reshape(shape)
    found = echoed(client, array, "string").as_numpy("x")
    assert (found.shape, found.tolist()) == (shape, array.tolist())


def test_inputs_may_begin_anywhere_in_the_body(client: InferenceServerClient) -> None:
    """What lies in shared memory is cut there, whatever it is aligned to."""
    for rows in (3, 100_000):
        a, b = np.arange(rows, dtype=np.int8)[:, None], np.arange(rows, dtype=np.float64)[:, None]
        header = echoed(client, b, "float64", request_id="i" * (rows % 7))
        assert header.as_numpy("x").tolist() == b.tolist()
        assert echoed(client, a, "int8").as_numpy("x").tolist() == a.tolist()


def test_json_goes_both_ways(client: InferenceServerClient) -> None:
    for array, signature in ((np.array([[1.5, np.nan]], "f4"), "float32"), (np.array(["é", ""], object), "string")):
        outputs = [InferRequestedOutput("x", binary_data=False)]
        inputs = [tensor(array, binary=False)]
        result = client.infer("echo", inputs, outputs=outputs, parameters={"signature": signature})
        assert result.get_output("x").get("parameters") is None
        np.testing.assert_array_equal(result.as_numpy("x"), array)


def test_half_numbers_are_not_sent_as_json(client: InferenceServerClient) -> None:
    array = np.zeros(2, np.float16)
    with refusal(400, "sending FP16 data via JSON is not supported"):
        echoed(client, array, "float16", outputs=[InferRequestedOutput("x", binary_data=False)])
    with refusal(400, "receiving FP16 data via JSON is not supported"):
        client.infer("echo", [tensor(array, binary=False)])


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
@pytest.mark.parametrize("size", [8, 100_000])
def test_bodies_may_be_compressed_both_ways(client: InferenceServerClient, algorithm: str, size: int) -> None:
    array = np.zeros(size, "f4")
    array[-1] = 1
    how = {"request_compression_algorithm": algorithm, "response_compression_algorithm": algorithm}
    result = client.infer("echo", [tensor(array)], request_id="7", headers={}, **how)
    assert result.as_numpy("x").tobytes() == array.tobytes()
    assert result.get_response()["id"] == "7"


def test_an_id_is_given_back_and_so_are_names(client: InferenceServerClient) -> None:
    array = np.zeros(1, "f4")
    for request_id in ("1", 'é"\\/\n', "1"):
        head = client.infer("echo", [tensor(array)], request_id=request_id).get_response()
        assert (head["id"], head["model_name"], head["model_version"]) == (request_id, "echo", "1")
    assert "id" not in client.infer("echo", [tensor(array)]).get_response()


def test_a_body_alone_is_the_only_input(client: InferenceServerClient) -> None:
    def posted(signature: str, body: bytes) -> tuple[int, bytes, int]:
        headers = {"Inference-Header-Content-Length": 0}
        found = client._post("v2/models/counter/infer", body, headers, {"signature": signature})
        return found.status_code, bytes(found.read()), int(found.get("Inference-Header-Content-Length") or 0)

    status, body, length = posted("add", np.array(5).tobytes())
    assert status == 200, body
    result = InferenceServerClient.parse_response_body(body, header_length=length)
    assert result.as_numpy("total").item() >= 5
    status, body, _ = posted("add", b"1234")
    assert (status, b"to which 4 bytes have no single shape" in body) == (400, True)
    assert posted("nope", b"")[0] == 404


def test_many_requests_at_once_each_get_their_own(client: InferenceServerClient) -> None:
    arrays = [np.full((size, 2), size, "f4") for size in range(1, 40)]
    asked = [client.async_infer("echo", [tensor(array)], request_id=str(len(array))) for array in arrays]
    for array, each in zip(arrays, asked, strict=True):
        result = each.get_result()
        assert result.as_numpy("x").tolist() == array.tolist()
        assert result.get_response()["id"] == str(len(array))


def test_what_the_pool_refuses_is_refused_in_its_words(client: InferenceServerClient) -> None:
    x = np.zeros(1, "f4")
    with refusal(404, "no model 'ecko'; did you mean 'echo'"):
        client.infer("ecko", [tensor(x)])
    with refusal(400, "expected float32 of any shape, got string"):
        client.infer("echo", [tensor(np.array([b"1"], object))])
    with refusal(400, "nope"):
        client.infer("echo", [tensor(x)], outputs=[InferRequestedOutput("nope")])
    with refusal(400, "no_such"):
        echoed(client, x, "no_such")
    with refusal(500, "in vain"):
        client.infer("faults", [tensor(np.array(b"in vain", object), "text")], parameters={"signature": "fail"})


def test_a_timeout_is_in_microseconds(client: InferenceServerClient) -> None:
    with refusal(504, ""):  # of any larger unit there would be enough for an answer
        client.infer("faults", [tensor(np.array(9.0), "seconds")], timeout=200_000, parameters={"signature": "sleep"})


def test_sequences_classes_regions_traces_and_logging_are_refused_with_the_reason(
    client: InferenceServerClient,
) -> None:
    x = tensor(np.zeros(3, "f4"))
    with refusal(400, "there are no sequences here"):
        client.infer("echo", [x], sequence_id=7, sequence_start=True)
    with refusal(501, "classification"):
        client.infer("echo", [x], outputs=[InferRequestedOutput("x", class_count=2)])
    region = InferInput("x", [3], "FP32").set_shared_memory("r", 12)
    with refusal(501, "shared memory regions"):
        client.infer("echo", [region])
    for ask in (
        client.get_system_shared_memory_status,
        lambda: client.register_system_shared_memory("r", "/r", 12),
        client.unregister_system_shared_memory,
        client.get_cuda_shared_memory_status,
        lambda: client.register_cuda_shared_memory("r", "aGk=", 0, 12),
        client.get_trace_settings,
        lambda: client.update_trace_settings("echo", {}),
        client.get_log_settings,
        lambda: client.update_log_settings({}),
    ):
        with refusal(501, "extension is not served here"):
            ask()


def test_what_is_there_can_be_asked(client: InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("echo")
    assert client.is_model_ready("echo", "1")
    assert not client.is_model_ready("echo", "2")
    assert not client.is_model_ready("nothing")
    server = client.get_server_metadata()
    assert server["name"] == "tf-worker-pool"
    assert "binary_tensor_data" in server["extensions"]
    assert client.get_model_metadata("echo") == {
        "name": "echo",
        "versions": ["1"],
        "platform": "tensorflow_savedmodel",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1]}],
        "outputs": [{"name": "x", "datatype": "FP32", "shape": [-1]}],
    }
    other = client.get_model_metadata("faults", query_params={"signature": "crash"})
    assert {"name": "words", "datatype": "BYTES", "shape": []} in other["inputs"]
    with refusal(400, r"no default signature; add \?signature=NAME, of crash"):
        client.get_model_metadata("faults")
    with refusal(404, "no signature 'nope'"):
        client.get_model_metadata("faults", query_params={"signature": "nope"})
    with refusal(404, "no model 'nothing'"):
        client.get_model_config("nothing")
    names = {each["name"]: each for each in client.get_model_repository_index()}
    assert names["echo"] == {"name": "echo", "version": "1", "state": "READY", "reason": ""}
    config = client.get_model_config("echo")
    assert (config["name"], config["platform"], config["backend"]) == ("echo", "tensorflow_savedmodel", "tensorflow")
    assert config["max_batch_size"] == 0
    assert (config["input"][0]["data_type"], config["input"][0]["dims"]) == ("TYPE_FP32", [-1])


def test_jobs_are_counted(client: InferenceServerClient) -> None:
    def counted() -> tuple[int, int]:
        [stats] = client.get_inference_statistics("echo")["model_stats"]
        times = stats["inference_stats"]
        assert stats["inference_count"] >= times["success"]["count"]
        assert times["success"]["ns"] >= times["compute_infer"]["ns"]
        assert times["queue"]["count"] == times["compute_infer"]["count"] == times["success"]["count"]
        return times["success"]["count"], times["fail"]["count"]

    client.infer("echo", [tensor(np.zeros(1, "f4"))])
    eventually(lambda: counted()[0] > 0)
    done, failed = counted()
    client.infer("echo", [tensor(np.zeros(1, "f4"))])
    with refusal(400, ""):
        client.infer("echo", [tensor(np.array([b"1"], object))])
    eventually(lambda: counted() == (done + 1, failed + 1))
    assert {each["name"] for each in client.get_inference_statistics()["model_stats"]} == {"echo", "faults", "counter"}


def test_paths_and_verbs_that_are_none_are_refused(client: InferenceServerClient) -> None:
    for path, status in (("v2/nothing", 404), ("v2/models", 404), ("v2/models/echo/infer", 405), ("v2/health", 404)):
        found = client._get(path, None, None)
        assert found.status_code == status, path
        assert b'"error"' in found.read()
    assert client._post("v2/models/echo", b"", None, None).status_code == 405


@pytest.fixture
def changing(tmp_path: Path) -> Iterator[tuple[PoolProcess, InferenceServerClient]]:
    """A pool of two models, one of them with numbered versions, and a client that may load and unload."""
    for number in (3, 12):
        folder = tmp_path / "numbered" / str(number)
        folder.mkdir(parents=True)
        (folder / "saved_model.pb").write_text(f"tell?n={number}")
    models = VERSIONED.replace("@folder@", str(tmp_path / "numbered")) + 'versions = "all"\nlabels = { stable = 3 }\n'
    with (
        pool_process(stub_config(models=models)) as pool,
        gateway(pool.endpoint, repository_control=True) as door,
        InferenceServerClient(door.address) as client,
    ):
        yield pool, client


def told(client: InferenceServerClient, version: str) -> tuple[float, str]:
    result = client.infer("numbered", [tensor(np.zeros(1, "f4"))], version)
    [output] = result.get_response()["outputs"]
    return result.as_numpy(output["name"]).item(), result.get_response()["model_version"]


def test_versions_are_chosen_in_the_path_and_models_come_and_go(
    changing: tuple[PoolProcess, InferenceServerClient],
) -> None:
    _, client = changing
    assert [told(client, version) for version in ("", "-1", "3", "12", "stable")] == [
        (12.0, "12"),
        (12.0, "12"),
        (3.0, "3"),
        (12.0, "12"),
        (3.0, "3"),
    ]
    with refusal(404, "version 1 is not served"):
        told(client, "1")
    assert client.get_model_metadata("numbered")["versions"] == ["3", "12"]
    counted = client.get_inference_statistics("numbered")["model_stats"]
    assert {each["version"] for each in counted} == {"3", "12"}
    assert client.get_inference_statistics("numbered", "3")["model_stats"][0]["version"] == "3"
    assert client.is_model_ready("numbered", "3")
    assert not client.is_model_ready("numbered", "1")
    config = client.get_model_config("rows", query_params={"signature": "double"})
    assert config["max_batch_size"] > 0
    assert config["input"][0]["dims"] == []

    rows = [tensor(np.ones(1, "f4"))]
    double = {"signature": "double"}
    assert client.infer("rows", rows, "1", parameters=double).as_numpy("y").tolist() == [2.0]
    client.unload_model("rows")
    eventually(lambda: not client.is_model_ready("rows"))
    assert "rows" not in [each["name"] for each in client.get_model_repository_index() if each["state"] == "READY"]
    with refusal(404, "rows"):
        client.infer("rows", rows, "1", parameters=double)
    client.load_model("rows")
    assert client.is_model_ready("rows")
    assert client.infer("rows", rows, "1", parameters=double).as_numpy("y").tolist() == [2.0]


def test_a_model_is_loaded_by_its_name_in_the_configuration_alone(
    changing: tuple[PoolProcess, InferenceServerClient],
) -> None:
    pool, client = changing
    with refusal(400, "never from a request"):
        client.load_model("rows", config='{"name": "rows"}')
    found = client._post(
        "v2/repository/models/rows/load", b'{"parameters": {"file:1/model.savedmodel": "aGk="}}', None, None
    )
    assert (found.status_code, b"never from a request" in found.read()) == (400, True)
    with refusal(400, "has no model 'elsewhere'; there are: rows, numbered"):
        client.load_model("elsewhere")
    with refusal(404, "elsewhere"):
        client.unload_model("elsewhere")
    with pool.client() as own:
        assert {model.model for model in own.models()} == {"rows", "numbered"}


def test_unless_the_configuration_allows_it_nobody_loads_or_unloads(client: InferenceServerClient) -> None:
    with refusal(403, "`repository_control = true`"):
        client.load_model("echo")
    with refusal(403, "`repository_control = true`"):
        client.unload_model("echo")
    assert client.is_model_ready("echo")
