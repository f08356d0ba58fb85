import asyncio
import gzip
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.gateway.http import Refused, Request, Response, compressed, decompressed

MOST = 100_000
GZIP = gzip.compress(b"a" * 50_000, mtime=0)
DEFLATE = zlib.compress(b"a" * 50_000)


def request(coding: str, body: bytes) -> Request:
    return Request("POST", "/", headers={"content-encoding": coding}, body=np.frombuffer(body, np.uint8))


@pytest.mark.parametrize(
    ("coding", "body"), [("gzip", GZIP), ("x-gzip", GZIP), ("deflate", DEFLATE)], ids=["gzip", "x-gzip", "deflate"]
)
def test_a_compressed_body_is_what_it_was(coding: str, body: bytes) -> None:
    asked = request(coding, body)
    asyncio.run(decompressed(asked, MOST))
    assert asked.body.tobytes() == b"a" * 50_000


def test_a_body_without_a_coding_stays_where_it_is() -> None:
    asked = request("identity", GZIP)
    body = asked.body
    asyncio.run(decompressed(asked, 10))
    assert asked.body is body


WRONG = {
    "unknown": ("br", GZIP, 415),
    "not gzip": ("gzip", b"hello", 400),
    "cut": ("gzip", GZIP[:-5], 400),
    "nothing": ("deflate", b"", 400),
    "two": ("gzip", GZIP + GZIP, 400),
    "bomb": ("gzip", gzip.compress(bytes(50 << 20)), 413),
    "bomb that a thread takes apart": ("deflate", zlib.compress(bytes(100 << 20), 1), 413),
    "one byte over": ("deflate", zlib.compress(bytes(MOST + 1)), 413),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_as_said_is_refused(name: str) -> None:
    coding, body, status = WRONG[name]
    with pytest.raises(Refused) as refused:
        asyncio.run(decompressed(request(coding, body), MOST))
    assert refused.value.status == status


def test_a_bomb_takes_no_more_memory_than_the_limit() -> None:
    import tracemalloc

    body = request("gzip", gzip.compress(bytes(50 << 20)))
    tracemalloc.start()
    with pytest.raises(Refused):
        asyncio.run(decompressed(body, MOST))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 20 * MOST


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("gzip", "gzip"),
        ("deflate", "deflate"),
        ("gzip, deflate, br", "gzip"),
        ("gzip;q=0.1, deflate;q=0.5", "deflate"),
        ("gzip;q=0", None),
        ("br", None),
        ("identity", None),
        ("gzip;q=x", None),
        ("", None),
    ],
)
def test_an_answer_leaves_as_is_wished(accepted: str, coding: str | None) -> None:
    body = (b"abc" * 20_000, memoryview(bytes(10)))
    response = asyncio.run(compressed(Response(200, (("A", "b"),), body), accepted))
    joined = b"".join(response.body)
    if coding is None:
        assert response.headers == (("A", "b"),)
        assert joined == b"".join(body)
    else:
        assert list(response.headers) == [("A", "b"), ("Content-Encoding", coding)]
        assert zlib.decompress(joined, zlib.MAX_WBITS | 32) == b"".join(body)


@given(st.text())
def test_any_wish_has_an_answer(accepted: str) -> None:
    response = asyncio.run(compressed(Response(200, (), (bytes(300),)), accepted))
    assert response.status == 200
