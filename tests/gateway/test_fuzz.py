"""Mutated requests as raw bytes, beside an honest client: its answers stay right, and nothing is left of the others.

Runs some seconds by default, minutes with `pytest -m fuzz`. The seed is in every failure, and $FUZZ_SEED sets it.
"""

import gzip
import json
import os
import random
import socket
import threading
from collections import Counter

import numpy as np
import pytest
import tritonclient.http as triton

from gateway.running import Gateway
from support.pool_process import PoolProcess
from support.processes import eventually

SEED = os.environ.get("FUZZ_SEED", "20261124")
REQUESTS, MANY_REQUESTS = 400, 40_000
ANSWER_S = 10.0
NUMBERS = (b"0", b"-1", b"9" * 30, b"1e999", b"NaN", b"null")
WORDS = (*NUMBERS, b"{}", b"[[[[", b'"', b"\0", b"\r\n", b"\r\n\r\n", b"%00", b"\xff\xfe")


def _post(path: str, body: bytes, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def _corpus() -> list[bytes]:
    """What real clients send, of each kind."""
    tensor = {"name": "x", "shape": [1, 3], "datatype": "FP32"}
    data = np.ones(3, np.float32).tobytes()
    binary = json.dumps({"inputs": [{**tensor, "parameters": {"binary_data_size": len(data)}}]}).encode()
    plain = json.dumps({"inputs": [{**tensor, "data": [1.0, 2.0, 3.0]}], "id": "7"}).encode()
    rows = json.dumps({"instances": [[1.0, 2.0, 3.0]]}).encode()
    columns = json.dumps({"inputs": {"x": [[1.0, 2.0, 3.0]]}}).encode()
    examples = json.dumps({"examples": [{"x": 1.0, "s": {"b64": "YQ=="}}]}).encode()
    infer, predict = "/v2/models/echo/infer", "/v1/models/echo:predict"
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(plain), plain)
    chunked = f"POST {infer} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode() + chunks
    gets = ("/v2", "/v2/health/ready", "/v2/models/echo", "/v2/models/echo/config", "/v2/models/echo/stats", "/metrics")
    more = ("/v1/models/echo", "/v1/models/echo/metadata", "/v1/models/echo/versions/1", "/v1/models/echo/labels/a")
    return [
        _post(infer, binary + data, f"Inference-Header-Content-Length: {len(binary)}"),
        _post(infer, plain),
        _post(infer, gzip.compress(plain), "Content-Encoding: gzip", "Accept-Encoding: gzip"),
        chunked,
        _post(predict, rows),
        _post(predict, columns),
        _post("/v1/models/echo:classify", examples),
        _post("/v1/models/echo:regress", examples),
        _post("/v2/repository/index", b""),
        _post("/v2/repository/models/echo/unload", b"{}"),
        _post("/v2/systemsharedmemory/region/a/register", b"{}"),
        *(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() for path in (*gets, *more)),
    ]


def _mutated(rng: random.Random, corpus: list[bytes]) -> bytes:
    data = bytearray(rng.choice(corpus))
    for _ in range(rng.randint(0, 4)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(6):
            case 0:
                data[at : at + 1] = rng.randbytes(1)
            case 1:
                data[at : at + rng.choice((0, 1, 8))] = rng.choice(WORDS)
            case 2:
                del data[at : at + rng.choice((1, 4, 50))]
            case 3:
                other = rng.choice(corpus)
                data[at:] = other[min(at, len(other)) :]
            case 4:
                data[at:at] = data[at : at + 40]
            case 5:
                data += rng.choice(corpus)
    return bytes(data)


def _sent(port: int, data: bytes, rng: random.Random) -> bytes:
    """What comes back until the server closes, or for as long as a sender of half a request would wait."""
    with socket.create_connection(("127.0.0.1", port), ANSWER_S) as peer:
        got = b""
        try:
            cut = rng.randrange(len(data) + 1) if rng.random() < 0.3 else len(data)
            peer.sendall(data[:cut])
            if rng.random() < 0.1:
                return got
            peer.sendall(data[cut:])
            peer.shutdown(socket.SHUT_WR)
            while more := peer.recv(65536):
                got += more
        except OSError:
            pass  # it had enough, and the connection is gone at whatever step
    return got


class Honest(threading.Thread):
    """A real client, whose answers are its own throughout."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.answers = 0
        self.failure: BaseException | None = None
        self.over = threading.Event()
        self._address = address

    def run(self) -> None:
        try:
            client = triton.InferenceServerClient(self._address)
            while not self.over.is_set():
                value = np.full((2, 3), self.answers, np.float32)
                given = triton.InferInput("x", value.shape, "FP32")
                given.set_data_from_numpy(value)
                answer = client.infer("echo", [given])
                np.testing.assert_array_equal(answer.as_numpy(answer.get_response()["outputs"][0]["name"]), value)
                self.answers += 1
            client.close()
        except BaseException as error:
            self.failure = error


def _fuzz(pool: PoolProcess, door: Gateway, requests: int) -> None:
    rng, corpus = random.Random(SEED), _corpus()
    with pool.client() as client:
        workers = [slot.pid for slot in client.status().slots]
        honest = Honest(door.address)
        honest.start()
        statuses: Counter[bytes] = Counter()
        sent = 0
        try:
            while sent < requests or honest.answers <= requests / 20:  # it is to be beside them
                sent += 1
                got = _sent(door.port, _mutated(rng, corpus), rng)
                assert not got or got.startswith(b"HTTP/1.1 "), (SEED, got[:200])
                statuses.update(part[:3] for part in got.split(b"HTTP/1.1 ")[1:])
                assert honest.failure is None, (SEED, honest.failure)
        finally:
            honest.over.set()
            honest.join(60)
        assert honest.failure is None, (SEED, honest.failure)
        # A bug of ours is a 500; what is refused is a 4xx, and some of what was sent was right.
        assert statuses[b"500"] == 0, (SEED, statuses)
        assert min(statuses[b"200"], statuses[b"400"], statuses[b"404"]) > requests / 100, statuses
        eventually(lambda: client.status().queue.jobs == 0)
        assert [slot.pid for slot in client.status().slots] == workers


def test_mutated_requests_hurt_nobody(pool: PoolProcess, door: Gateway) -> None:
    _fuzz(pool, door, REQUESTS)


@pytest.mark.fuzz
@pytest.mark.timeout(1800)
def test_mutated_requests_hurt_nobody_for_minutes(pool: PoolProcess, door: Gateway) -> None:
    _fuzz(pool, door, MANY_REQUESTS)
