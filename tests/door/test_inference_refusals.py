"""What is wrong in a request is said with its status: no job is run, and the next request is served."""

import contextlib
import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from support.doors import start_door
from support.pools import RunningPool

pytestmark = pytest.mark.door

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
    "too little data": (
        head(dict(X, data=[1.0], shape=[2, 1])),
        b"",
        "cannot reshape array of size 1 into shape (2,1)",
    ),
    "ragged data": (head(dict(X, data=[[1, 2], [3]])), b"", "got other elements, or lists of several lengths"),
    "texts for numbers": (head(dict(X, data=["1" * 99, "2"])), b"", "expected float32 [1, 1], got other elements"),
    "a fraction for an integer": (head(dict(X, data=[1.5], datatype="INT32")), b"", "expected int32 [1, 1], got f"),
    "a number for a text": (head(dict(X, data=[1], datatype="BYTES")), b"", "expected string [1, 1], got other"),
    "half a character": (head(binary(name="\ud800")), ONE, "surrogates not allowed"),
    "an id that is none": (head(binary(), id=7), ONE, "id is 7; give a text"),
    "a negative timeout": (head(binary(), parameters={"timeout": -1}), ONE, "timeout is -1"),
    "a sequence": (head(binary(), parameters={"sequence_id": 5}), ONE, "there are no sequences"),
    "a reserved name": (head(binary(), parameters={"triton_x": 1}), ONE, "'triton_x' is reserved"),
}
RAW: dict[str, tuple[bytes, str | None, int, str]] = {
    "not JSON": (b"{", None, 400, "JSON Parse error"),
    "too deep": (b'{"inputs":' + b"[" * 100_000, None, 400, "JSON Parse error"),
    "a number of 5,000 digits": (b'{"inputs":' + b"9" * 5000 + b"}", None, 400, "JSON Parse error"),
    "JSON of many digits": (b"{}", "9" * 5000, 400, "the body has 2 bytes"),
    "a tensor alone": (ONE, "0", 501, "send JSON before it"),
}


@pytest.fixture(scope="module")
def connection(running: RunningPool) -> Iterator[http.client.HTTPConnection]:
    """One for all tests: after a refusal it goes on."""
    with start_door(running) as door, contextlib.closing(http.client.HTTPConnection(door.address, timeout=30)) as made:
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
