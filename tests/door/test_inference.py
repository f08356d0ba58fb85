"""The Open Inference Protocol as `tritonclient` speaks it, which is not changed for it.

What is wrong in a request is said with its status: no job is run, and the next request is served.
"""

import asyncio
import contextlib
import http.client
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from tritonclient.utils import InferenceServerException

from pool.wire.datatypes import DATATYPES
from support.doors import VALUES, RunningDoor
from support.pools import RunningPool, until

pytestmark = pytest.mark.door

del triton.InferenceServerClient.__del__  # it closes once more, in whatever thread the garbage is collected


@pytest.fixture(scope="module")
def client(door: RunningDoor) -> Iterator[triton.InferenceServerClient]:
    with contextlib.closing(triton.InferenceServerClient(door.address)) as made:
        yield made


def tensor(array: Any, datatype: str = "FP32", binary_data: bool = True, name: str = "x") -> triton.InferInput:
    made = triton.InferInput(name, list(np.shape(array)), datatype)
    made.set_data_from_numpy(np.asarray(array, np.float32 if datatype == "FP32" else None), binary_data=binary_data)
    return made


def ones(value: float = 1.0) -> triton.InferInput:
    return tensor([[value]])


def test_what_is_told_of_the_server_and_its_models(client: triton.InferenceServerClient) -> None:
    assert (client.is_server_live(), client.is_server_ready()) == (True, True)
    places = (("double", ""), ("double", "1"), ("double", "2"), ("nobody", ""))
    assert [client.is_model_ready(*each) for each in places] == [True, True, False, False]
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    assert client.get_model_metadata("numbered")["versions"] == ["3", "12"]
    assert client.get_model_metadata("double")["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 1]}]
    assert client.get_model_metadata("string")["outputs"] == [{"name": "y", "datatype": "BYTES", "shape": [-1]}]
    for model, rows, kind, dims in (("double", 32, "FP32", [1]), ("string", 0, "STRING", [-1])):
        told, output = client.get_model_config(model), {"name": "y", "data_type": f"TYPE_{kind}", "dims": dims}
        assert (told["max_batch_size"], told["output"]) == (rows, [output])
    index = {(each["name"], each["version"]): each["state"] for each in client.get_model_repository_index()}
    assert index[("double", "1")] == index[("numbered", "3")] == index[("numbered", "12")] == "READY"


def test_statistics_count_jobs(client: triton.InferenceServerClient) -> None:
    client.infer("numbered", [ones()])
    with pytest.raises(InferenceServerException, match=r"\[500\]"):
        client.infer("numbered", [ones(-1.0)])  # a row that fails
    [told] = client.get_inference_statistics("numbered", "12")["model_stats"]
    assert told["inference_count"] == told["inference_stats"]["success"]["count"] >= 1
    assert told["inference_stats"]["fail"]["count"] == 1


@pytest.mark.parametrize("datatype", DATATYPES)
def test_each_datatype_comes_back_as_it_went(client: triton.InferenceServerClient, datatype: str) -> None:
    model = DATATYPES[datatype]
    dtype = {"BF16": np.float32, "BYTES": object}.get(datatype) or np.dtype(model)
    output = triton.InferRequestedOutput("y", binary_data=False)
    for values, shape in ((VALUES[datatype], (3,)), (VALUES[datatype], (3, 1, 1)), (VALUES[datatype][2], ())):
        array = np.array(values, dtype).reshape(shape)
        result = client.infer(model, [tensor(array, datatype)])
        assert (result.get_output("y")["datatype"], result.as_numpy("y").tolist()) == (datatype, array.tolist())
        result = client.infer(model, [tensor(array, datatype)], outputs=[output])
        expected = [each.decode() for each in array.ravel()] if datatype == "BYTES" else array.ravel().tolist()
        assert result.get_output("y")["data"] == expected
        if datatype not in ("FP16", "BF16"):  # which tritonclient does not write as JSON
            result = client.infer(model, [tensor(array, datatype, binary_data=False)])
            assert result.as_numpy("y").tolist() == array.tolist()


def test_empty_and_large_tensors_and_bytes_that_are_no_text(client: triton.InferenceServerClient) -> None:
    output = triton.InferRequestedOutput("y", binary_data=False)
    assert client.infer("float32", [tensor(np.zeros((0, 3), np.float32))]).as_numpy("y").shape == (0, 3)
    floats = np.arange(1 << 20, dtype=np.float32).reshape(1024, 1024)
    assert (client.infer("float32", [tensor(floats)]).as_numpy("y") == floats).all()
    result = client.infer("float32", [tensor(floats[:99], binary_data=False)], outputs=[output])
    assert (result.as_numpy("y") == floats[:99]).all()
    texts = np.array([b"%d" % each for each in range(60_000)], object)
    assert (client.infer("string", [tensor(texts, "BYTES")]).as_numpy("y") == texts).all()
    texts = np.array([b"\xff\0", b"\xfe"], object)
    assert client.infer("string", [tensor(texts, "BYTES")]).as_numpy("y").tolist() == texts.tolist()
    with pytest.raises(InferenceServerException, match="not UTF-8; ask for it with binary_data"):
        client.infer("string", [tensor(texts, "BYTES")], outputs=[output])


def test_ids_come_back_and_equal_requests_stay_apart(client: triton.InferenceServerClient) -> None:
    for number, own_id in enumerate(["7", 'a "quoted" one', "\u2603", "{}", "", "7"]):
        result = client.infer("double", [ones(float(number))], request_id=own_id)
        assert result.get_response().get("id", "") == own_id
        assert result.as_numpy("y").tolist() == [[2.0 * number]]


def test_versions_by_number_and_label(client: triton.InferenceServerClient) -> None:
    for version, factor in (("", 12.0), ("-1", 12.0), ("12", 12.0), ("3", 3.0), ("old", 3.0)):
        result = client.infer("numbered", [ones()], model_version=version)
        assert result.as_numpy("y").tolist() == [[factor]]
        assert result.get_response()["model_version"] == str(int(factor))
    for model, version in (("numbered", "4"), ("double", "2"), ("numbered", "new")):
        with pytest.raises(InferenceServerException, match=r"\[404\]"):
            client.infer(model, [ones()], model_version=version)
    assert client.infer("double", [ones()], model_version="1").get_response()["model_version"] == "1"


def test_priorities_timeouts_and_parameters_of_others(
    running: RunningPool, door: RunningDoor, jobs: Callable[[], int]
) -> None:
    async def ask() -> None:
        async with triton_aio.InferenceServerClient(door.address) as client:
            asked = []
            for count, priority in enumerate((9, 1000, 150, 0, 1), 1):  # the first one is in the only lane
                asked.append(asyncio.ensure_future(client.infer("gated", [ones(priority)], priority=priority)))
                await asyncio.to_thread(until, lambda count=count: jobs() == count, "the job waits")
            with pytest.raises(InferenceServerException, match=r"\[504\]"):
                await client.infer("gated", [ones(7.0)], timeout=50_000)
            (running.folder / "gate").touch()
            await asyncio.gather(*asked)
            await client.infer("double", [ones()], parameters={"mine": "x", "signature": "serving_default"})

    asyncio.run(ask())
    ran = (running.folder / "runs").read_text().splitlines()
    assert [line.split()[1] for line in ran] == ["9", "1", "0", "150", "1000"]


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_packed_both_ways(client: triton.InferenceServerClient, door: RunningDoor, algorithm: str) -> None:
    for binary_data in (True, False):
        sent, outputs = tensor([0.0] * 5000, binary_data=binary_data), [triton.InferRequestedOutput("y", binary_data)]
        algorithms = {"request_compression_algorithm": algorithm, "response_compression_algorithm": algorithm}
        assert (client.infer("float32", [sent], outputs=outputs, **algorithms).as_numpy("y") == 0.0).all()
        body, size = client.generate_request_body([sent], outputs=outputs)
        for accepted in ("identity", "gzip", "deflate, gzip"):
            headers = {"Accept-Encoding": accepted} | ({"Inference-Header-Content-Length": str(size)} if size else {})
            with urlopen(Request(f"{door.url}/v2/models/float32/infer", body, headers)) as response:
                is_packed = response.headers["Content-Encoding"] == "gzip"
            # Tensors are packed only for who takes nothing else.
            assert is_packed == (accepted == "gzip" or (accepted == "deflate, gzip" and not binary_data))


def test_what_is_not_built_says_its_name(client: triton.InferenceServerClient) -> None:
    region, shared = ones(), triton.InferRequestedOutput("y")
    for each in (region, shared):
        each.set_shared_memory("r", 4)
    for name, method, *arguments in (
        ("sharedmemory", "get_system_shared_memory_status"),
        ("trace", "get_trace_settings"),
        ("logging", "get_log_settings"),
        ("unload", "unload_model", "double"),
        ("classification", "infer", "double", [ones()], "", [triton.InferRequestedOutput("y", class_count=3)]),
        ("shared_memory_region", "infer", "double", [region]),
        ("shared_memory_region", "infer", "double", [ones()], "", [shared]),
    ):
        with pytest.raises(InferenceServerException, match=rf"\[501\].* has no {name}$"):
            getattr(client, method)(*arguments)


X = {"name": "x", "datatype": "FP32", "shape": [1, 1]}
ONE = b"\0\0\x80?"


def binary(nbytes: Any = 4, **changed: Any) -> dict[str, Any]:
    return {**X, "parameters": {"binary_data_size": nbytes}, **changed}


def head(*inputs: Any, **more: Any) -> dict[str, Any]:
    return {"inputs": [*inputs], **more}


BAD: dict[str, tuple[Any, bytes, str]] = {
    "an unknown datatype": (head(binary(datatype="FP8")), ONE, "no datatype 'FP8'; there are "),
    "a negative axis": (head(binary(shape=[-1, 1])), ONE, "give up to 32 lengths"),
    "a huge empty one": (head(binary(0, shape=[0, 1 << 46, 1 << 46])), b"", "array is too big"),
    "too small for its shape": (head(binary(shape=[2])), ONE, "got 4 bytes: that takes 8"),
    "more behind than said": (head(binary()), ONE + b"\0", "1 bytes follow that belong to no input"),
    "less behind than said": (head(binary()), ONE[:-1], "too small"),
    "a negative size": (head(binary(-4, datatype="BYTES", shape=[0])), b"", "got -4 bytes"),
    "a bool of 2": (head(binary(1, datatype="BOOL")), b"\2", "a byte of 0 or 1"),
    "a string of 4 GB": (head(binary(datatype="BYTES")), b"\xff" * 4, "1 elements of 4294967299 bytes"),
    "too little data": (head(dict(X, data=[1.0], shape=[2, 1])), b"", "cannot reshape array of size 1 into"),
    "ragged data": (head(dict(X, data=[[1, 2], [3]])), b"", "got other elements, or lists of several lengths"),
    "texts for numbers": (head(dict(X, data=["1" * 99, "2"])), b"", "expected float32 [1, 1], got other elements"),
    "a fraction for an integer": (head(dict(X, data=[1.5], datatype="INT32")), b"", "expected int32 [1, 1], got f"),
    "a number for a text": (head(dict(X, data=[1], datatype="BYTES")), b"", "expected string [1, 1], got other"),
    "an input twice": (head(dict(X, data=[1]), binary()), ONE, "input 'x' is given twice"),
    "half a character": (head(binary(name="\ud800")), ONE, "surrogates not allowed"),
    "an id that is none": (head(binary(), id=7), ONE, "id is 7; give a text"),
    "a negative timeout": (head(binary(), parameters={"timeout": -1}), ONE, "timeout is -1"),
    "a sequence": (head(binary(), parameters={"sequence_id": 5}), ONE, "there are no sequences"),
}
RAW: dict[str, tuple[bytes, str | None, int, str]] = {
    "not JSON": (b"{", None, 400, "JSON Parse error"),
    "JSON of many digits": (b"{}", "9" * 5000, 400, "the body has 2 bytes"),
    "a tensor alone": (ONE, "0", 501, "send JSON before it"),
}


@pytest.fixture(scope="module")
def connection(door: RunningDoor) -> Iterator[http.client.HTTPConnection]:
    """One for all refusals: after each it goes on."""
    with contextlib.closing(http.client.HTTPConnection(door.address, timeout=30)) as made:
        yield made


def ask(connection: http.client.HTTPConnection, body: bytes, length: str | None, method: str = "POST") -> Any:
    headers = {} if length is None else {"Inference-Header-Content-Length": length}
    connection.request(method, "/v2/models/double/infer", body, headers)
    with connection.getresponse() as response:
        return response.status, response.read()


@pytest.mark.parametrize("what", [*BAD, *RAW])
def test_what_is_wrong_is_said(connection: http.client.HTTPConnection, what: str) -> None:
    if what in BAD:
        told, behind, text = BAD[what]
        body, status = json.dumps(told).encode(), 400
        answered = ask(connection, body + behind, str(len(body)))
    else:
        body, length, status, text = RAW[what]
        answered = ask(connection, body, length)
    error = json.loads(answered[1])
    assert (answered[0], error.keys()) == (status, {"error"})
    assert text in error["error"]
    good = json.dumps(head(binary(), parameters={"binary_data_output": True})).encode()
    assert ask(connection, good + ONE, str(len(good)))[1].endswith(b"}]}\0\0\0@"), "two"
    assert ask(connection, b"", None, "GET")[0] == 405
