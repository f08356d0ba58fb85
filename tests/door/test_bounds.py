"""What comes over a raw socket has a bound in bytes, number and time; then the door, the pool and all others go on."""

import gzip
import os
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest

from pool import Client
from support.doors import RunningDoor, connected, infer, start_door
from support.pools import RunningPool, row, until

pytestmark = pytest.mark.door

MOST = 1 << 20
MIB = bytes(MOST)
GET = b"GET /held HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /echo HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
INFER = b"POST /v2/models/%s/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"


@pytest.fixture(scope="module")
def bare_door(running: RunningPool) -> Iterator[RunningDoor]:
    with start_door(running, 'max_body = "1MiB"\n', str(Path(__file__).with_name("bare.py"))) as door:
        yield door


@pytest.fixture
def door(running: RunningPool, bare_door: RunningDoor, client: Client) -> Iterator[RunningDoor]:
    """After each test it holds nothing, and it and the pool answer."""
    yield bare_door
    until(lambda: held(bare_door) == 0, "nothing is held", 20)
    assert infer(bare_door.address).json()["outputs"][0]["data"] == [42.0]
    assert client.run("double", row(4))["y"] == 8
    assert "ERROR" not in (running.folder / f"door{bare_door.address[-5:]}.log").read_text()


def held(door: RunningDoor) -> int:
    with suppress(httpx.TransportError):  # there are too many connections
        return int(httpx.get(f"{door.url}/held").text)
    return -1


def told(door: RunningDoor, *data: bytes, pause_s: float = 0.0) -> bytes:
    """All that the door says to this until it hangs up."""
    said = b""
    with connected(door.address) as peer, suppress(ConnectionError):
        for each in data:
            peer.sendall(each)
        while part := peer.recv(1 << 20):
            said += part
            time.sleep(pause_s)
    return said


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def packed(name: str, data: bytes) -> bytes:
    return CHUNKED[:-2] + b"Content-Encoding: %s\r\n\r\n" % name.encode() + chunk(data) + b"0\r\n\r\n"


BAD = {
    "a head without end": (b"GET / HTTP/1.1\r\na: " + MIB, 400),
    "many headers": (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 101 + b"\r\n", 400),
    "a trailer without end": (CHUNKED + chunk(b"a") + b"0\r\na: " + MIB, 400),
    "an extension without end": (CHUNKED + b"1;a=" + b"a" * MOST, 400),
    "thousands of requests at once": ((GET + b"\r\n") * 5000, 400),
    "junk": (b"\xff" + os.urandom(5000), 400),
    "HTTP/0.9": (b"GET /held\r\n\r\n", 421),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), 400),
    "two hosts": (GET + b"Host: localhost\r\n\r\n", 400),
    "two lengths": (POST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\na", 400),
    "a length and chunks": (POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"a"), 400),
    "a negative length": (POST + b"Content-Length: -1\r\n\r\n", 400),
    "a length of 19 digits": (POST + b"Content-Length: 9223372036854775807\r\n\r\n", 413),
    "a body too large": (POST + b"Content-Length: %d\r\n\r\n" % (MOST + 1) + MIB + b"a", 413),
    "chunks without end": (CHUNKED + chunk(MIB) * 20, 413),
    "a bomb of gzip": (packed("gzip", gzip.compress(MIB * 50)), 413),
    "a bomb of deflate": (packed("deflate", zlib.compress(MIB * 50)), 413),
    "gzip of nothing without end": (packed("gzip", b"\x1f\x8b\x08" + bytes(7) + b"\0\0\0\xff\xff" * MOST), 413),
    "gzip, and more": (packed("gzip", gzip.compress(b"a") + MIB), 400),
    "a packing that is not known": (packed("br", b"a"), 415),
    "a slow head": (b"GET /held HTTP/1.1\r\nHo", None),
    "a slow body": (POST + b"Content-Length: 9\r\n\r\na", 408),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_refused_and_its_connection_ends(door: RunningDoor, name: str) -> None:
    data, status = BAD[name]
    assert told(door, data)[:13] == (b"HTTP/1.1 %d " % status if status else b"")


@pytest.mark.parametrize("path", ["v2/models/double/infer", "v1/models/double:predict"])
def test_json_is_read_only_as_long_as_others_can_wait(running: RunningPool, path: str) -> None:
    with start_door(running) as door:
        answer = httpx.post(f"{door.url}/{path}", content=b" " * (17 << 20), timeout=30)
        assert (answer.status_code, answer.json()["error"][:23]) == (413, "17825792 bytes of JSON,")
        assert infer(door.address).json()["outputs"][0]["data"] == [42.0]


def test_what_is_unusual_but_right_is_answered(door: RunningDoor) -> None:
    for name, pack in (("gzip", gzip.compress), ("Deflate", zlib.compress)):
        assert told(door, packed(name, pack(MIB))).endswith(b"\r\n\r\n%d" % MOST)
    assert told(door, b"GET /held HTTP/1.0\r\n\r\n").endswith(b"\r\n\r\n0")
    ahead = told(door, *(POST + b"Content-Length: %d\r\n\r\n%s" % (n, b"a" * n) for n in range(5)))
    assert [answer[-1:] for answer in ahead.split(b"HTTP/1.1 200 OK")[1:]] == [b"0", b"1", b"2", b"3", b"4"]


def test_who_sends_fast_enough_has_time_and_who_trickles_has_not(door: RunningDoor) -> None:
    with connected(door.address) as fast, connected(door.address) as slow, connected(door.address) as idle:
        for peer in (fast, slow):
            peer.sendall(POST + b"Content-Length: %d\r\n\r\n" % MOST)
        slow.sendall(bytes(MOST // 2))  # which buys no time for the rest
        idle.sendall(GET + b"\r\n")
        for _ in range(16):
            fast.sendall(bytes(MOST // 16))
            for peer, byte in ((slow, b"a"), (idle, b"\r\n")):  # with which no request begins
                with suppress(ConnectionError):
                    peer.sendall(byte)
            time.sleep(0.1)  # 640 KiB/s, and 10 bytes/s
        assert fast.recv(1000).endswith(b"%d" % MOST)
        for peer in (slow, idle):
            with suppress(ConnectionError):
                while peer.recv(1000):
                    pass


def test_connections_have_a_bound_and_the_silent_ones_end(door: RunningDoor) -> None:
    with ExitStack() as stack:

        def is_full() -> bool:
            for _ in range(100):
                stack.enter_context(connected(door.address))
            return held(door) < 0

        until(is_full, "nobody comes in any more")
        until(lambda: held(door) == 0, "somebody comes in again, while all of them wait")


def test_who_does_not_read_a_large_answer_is_left(door: RunningDoor) -> None:
    large = GET.replace(b"held", b"large?bytes=30000000") + b"Connection: close\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(connected(door.address)).sendall(large)
        until(lambda: held(door) > 4 << 20, "the answers are held")
        assert infer(door.address).status_code == 503
        until(lambda: held(door) == 0, "all four are left")
    assert len(told(door, large, pause_s=0.02)) > 30_000_000  # who reads slowly, but not too slowly, has all


def test_who_hangs_up_withdraws_his_job(door: RunningDoor, running: RunningPool, jobs: Callable[[], int]) -> None:
    body = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [99]}]}'
    with ThreadPoolExecutor() as threads:
        first = threads.submit(infer, door.address, 1.0, "gated")
        until(lambda: jobs() == 1, "the first one runs")
        with connected(door.address) as alone, connected(door.address) as ahead:
            alone.sendall(INFER % (b"gated", len(body), body))
            ahead.sendall(INFER % (b"gated", len(body), body) + GET + b"\r\n")
            until(lambda: jobs() == 3, "two wait")
        until(lambda: jobs() == 1, "both were withdrawn")
        (running.folder / "gate").touch()
        assert first.result().status_code == 200
    assert [line.split()[1] for line in (running.folder / "runs").read_text().splitlines()] == ["1"]
