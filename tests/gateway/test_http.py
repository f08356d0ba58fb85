"""The gateway's HTTP: what is right is answered however its bytes come; what is wrong is refused, and harms nothing."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.echo import response, said, sent, serving
from pool.gateway.http import Limits, Server
from pool.gateway.http.connection import Connection
from pool.gateway.http.head import read_head

CLOSE = b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
BODY = b"abc" * 700


def post(path: str = "/p", body: bytes = BODY, more: bytes = b"") -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%b\r\n%b" % (path.encode(), len(body), more, body)


def chunked(body: bytes, size: int, more: bytes = b"") -> bytes:
    chunks = [body[at : at + size] for at in range(0, len(body), size)]
    framed = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return b"POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n%b\r\n%b0\r\n\r\n" % (more, framed)


def run(scenario: Callable[..., Awaitable[None]], **limits: Any) -> None:
    async def main() -> None:
        async with serving(**limits) as (server, echo, port):
            await scenario(server, echo, port)
            # Whatever has happened, the next one is answered.
            assert (await said(port, CLOSE)).startswith(b"HTTP/1.1 200 OK")

    asyncio.run(main())


# --- what is right ------------------------------------------------------------------------------------------------


def test_requests_of_one_connection_are_answered_in_order() -> None:
    async def scenario(_server: Server, _echo: Any, port: int) -> None:
        answer = await said(port, post("/a?x=1") + post("/b", b"") + CLOSE)
        bodies = [part.split(b"\r\n\r\n")[1] for part in answer.split(b"HTTP/1.1 ")[1:]]
        assert bodies == [b"POST /a?x=1 2100 205800", b"POST /b? 0 0", b"GET /last? 0 0"]
        assert answer.count(b"Connection: close") == 1

    run(scenario)


class Pipe:
    """A transport that a test reads."""

    def __init__(self) -> None:
        self.written = b""
        self.is_closed = False
        self.is_paused = False

    def write(self, data: bytes) -> None:
        assert not self.is_closed
        self.written += data

    def writelines(self, parts: list[Any]) -> None:
        self.write(b"".join(parts))

    def close(self) -> None:
        self.is_closed = True

    def pause_reading(self) -> None:
        assert not self.is_paused
        self.is_paused = True

    def resume_reading(self) -> None:
        assert self.is_paused
        self.is_paused = False


ASKS = post("/b", b"", b"Expect: 100-continue\r\n")
STREAM = post("/a") + ASKS + b"\r\n" + post("/big", bytes(9000)) + chunked(BODY, 99)


@given(st.lists(st.integers(1, 3000), max_size=40))
def test_the_answers_are_the_same_however_the_bytes_are_cut(sizes: list[int]) -> None:
    async def answers(sizes: list[int]) -> bytes:
        from gateway.echo import Echo

        server = Server(echo := Echo(1 << 30), Limits(head_bytes=4096))
        pipe = Pipe()
        connection = Connection(server)
        connection.connection_made(pipe)  # type: ignore[arg-type]
        left = STREAM
        while left:
            size = sizes.pop(0) if sizes else len(left)
            into = connection.get_buffer(-1)
            assert len(into)
            taken = left[: min(size, len(into))]
            into[: len(taken)] = taken
            into.release()
            connection.buffer_updated(len(taken))
            left = left[len(taken) :]
            while pipe.is_paused:
                await asyncio.sleep(0)
            if not sizes:
                await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert pipe.is_closed
        connection.connection_lost(None)
        assert echo.held_bytes == 0
        return b"\r\n".join(line for line in pipe.written.split(b"\r\n") if not line.startswith(b"Date"))

    cut, whole = asyncio.run(answers(sizes)), asyncio.run(answers([]))
    # A body that is there with its head needs no leave to come.
    assert cut.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"") == whole.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"")
    assert whole.count(b"HTTP/1.1 200 OK") == 4


def test_a_large_body_is_received_where_its_handler_wants_it_and_its_tensors_are_aligned() -> None:
    async def scenario(_server: Server, echo: Any, port: int) -> None:
        body = np.arange(300_000, dtype=np.uint32).tobytes()
        more = b"Inference-Header-Content-Length: 77\r\nConnection: close\r\n"
        await said(port, post("/p", body, more))
        got = echo.requests[0].body
        assert got.tobytes() == body
        assert np.shares_memory(got, echo.placed[0])
        into = got.__array_interface__["data"][0] + 77 - echo.placed[0].__array_interface__["data"][0]
        assert into % 64 == 0

    run(scenario)


def test_a_sender_that_asks_is_told_to_go_on() -> None:
    async def scenario(_server: Server, _echo: Any, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(post("/p", BODY, b"Expect: 100-continue\r\n")[: -len(BODY)])
        assert await asyncio.wait_for(reader.readline(), 20) == b"HTTP/1.1 100 Continue\r\n"
        await reader.readline()
        writer.write(BODY)
        assert (await response(reader))[0] == 200
        writer.close()

    run(scenario)


def test_head_has_no_body_and_http_1_0_closes() -> None:
    async def scenario(_server: Server, _echo: Any, port: int) -> None:
        head = await said(port, b"HEAD /h HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b"Content-Length: 12" in head
        assert head.endswith(b"\r\n\r\n")
        refused = await said(port, b"HEAD /forbidden HTTP/1.1\r\nHost: x\r\n\r\n")
        assert refused.startswith(b"HTTP/1.1 401 ")
        assert refused.endswith(b"\r\n\r\n")
        assert (await said(port, b"GET /old HTTP/1.0\r\n\r\n")).endswith(b"GET /old? 0 0")

    run(scenario)


@pytest.mark.parametrize(
    ("target", "path", "host"),
    [
        ("http://other/a/b?c", "/a/b", "other"),
        ("http://other", "/", "other"),
        ("/a/http://other/", "/a/http://other/", "x"),
    ],
)
def test_the_host_in_a_target_counts_and_a_path_is_none(target: str, path: str, host: str) -> None:
    head, _ = read_head(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert (head.request.path, head.request.headers["host"]) == (path, host)


# --- what is wrong ------------------------------------------------------------------------------------------------

WRONG = {
    "no request": (b"hello\r\n\r\n", 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", 400),
    "length and chunks": (chunked(BODY, 99, b"Content-Length: 3\r\n"), 400),
    "two lengths": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400),
    "negative length": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -3\r\n\r\n", 400),
    "length with a sign": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +3\r\n\r\nabc", 400),
    "length no number": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0x3\r\n\r\nabc", 400),
    "endless length": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"9" * 40 + b"\r\n\r\n", 400),
    "other coding": (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 400),
    "coding behind chunks": (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", 400),
    "space before the colon": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length : 3\r\n\r\nabc", 400),
    "folded header": (b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", 400),
    "bare line feeds": (b"GET / HTTP/1.1\nHost: x\n\n\r\n\r\n", 400),
    "NUL in a header": (b"GET / HTTP/1.1\r\nHost: x\r\nA: \0\r\n\r\n", 400),
    "bad chunk size": (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    "long head": (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 9000, 431),
    "long path": (b"GET /" + b"a" * 40_000, 431),
    "too large": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\nabc", 413),
    "too large in chunks": (chunked(bytes(200_000), 50_000), 413),
    "not allowed": (post("/forbidden"), 401),
    "not allowed in chunks": (chunked(BODY, 99).replace(b"/c", b"/forbidden"), 401),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused_and_the_connection_ends(name: str) -> None:
    async def scenario(_server: Server, echo: Any, port: int) -> None:
        data, status = WRONG[name]
        answer = await said(port, data, ends=True)
        assert answer.startswith(b"HTTP/1.1 %d " % status), answer[:300]
        assert b"Connection: close" in answer
        assert answer.count(b"HTTP/1.1") == 1
        assert not echo.requests

    run(scenario, body_bytes=100_000)


def test_an_error_of_the_handler_is_an_answer_and_the_connection_stays(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(_server: Server, _echo: Any, port: int) -> None:
        answer = await said(port, post("/bug") + post("/refused") + CLOSE)
        assert [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"500", b"404", b"200"]

    with caplog.at_level(logging.ERROR, "pool.gateway"):
        run(scenario)
    assert "ZeroDivisionError" in caplog.text


def test_an_answer_that_cannot_be_sent_ends_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(_server: Server, _echo: Any, port: int) -> None:
        assert await said(port, post("/no-status") + post("/a")) == b""

    with caplog.at_level(logging.ERROR, "pool.gateway"):
        run(scenario)
    assert "POST /no-status cannot be sent" in caplog.text


def test_the_rest_of_a_refused_body_is_read_so_that_the_refusal_is() -> None:
    async def scenario(_server: Server, echo: Any, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        whole = post("/forbidden", bytes(900_000))
        writer.write(whole[:1000])
        status, _, _ = await response(reader)
        assert status == 401
        for at in range(1000, len(whole), 100_000):
            writer.write(whole[at : at + 100_000])
            await writer.drain()
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()
        assert not echo.requests

    run(scenario)


# --- time, number and bytes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"GET / HT", post()[:-100], chunked(BODY, 99)[:-9]], ids=["head", "body", "chunks"])
def test_who_sends_too_slowly_is_told_so(data: bytes) -> None:
    async def scenario(_server: Server, echo: Any, port: int) -> None:
        assert (await said(port, data)).startswith(b"HTTP/1.1 408 ")
        assert not echo.requests

    run(scenario, read_timeout_s=0.1, slowest_bytes_s=1 << 30)


def test_a_large_body_that_is_promised_gives_no_time_before_it_comes() -> None:
    promise = b"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 200000000\r\n\r\nabc"  # at the slowest rate in an hour

    async def scenario(_server: Server, echo: Any, port: int) -> None:
        assert (await said(port, promise)).startswith(b"HTTP/1.1 408 ")
        assert not echo.requests

    run(scenario, read_timeout_s=0.1)


@pytest.mark.parametrize("data", [post(body=bytes(60_000)), chunked(bytes(60_000), 9000)], ids=["length", "chunks"])
def test_what_has_come_of_a_body_gives_time_for_the_rest(data: bytes) -> None:
    async def scenario(_server: Server, _echo: Any, port: int) -> None:
        reader, writer = await sent(port, data[:50_000])
        await asyncio.sleep(1.2)  # the server has looked who is late
        writer.write(data[50_000:])
        assert (await response(reader))[0] == 200
        writer.close()

    run(scenario, read_timeout_s=0.1, slowest_bytes_s=1000)


def test_who_says_nothing_is_left() -> None:
    async def scenario(_server: Server, _echo: Any, port: int) -> None:
        assert await said(port, b"") == b""
        assert (await said(port, post())).startswith(b"HTTP/1.1 200")

    run(scenario, read_timeout_s=0.1, idle_timeout_s=0.1)


def test_who_does_not_read_its_answer_is_left() -> None:
    async def scenario(server: Server, _echo: Any, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        while not server.connections:
            await asyncio.sleep(0.01)
        while server.connections:  # pytest's own time-out ends this
            await asyncio.sleep(0.05)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(8 << 20)
        writer.close()

    run(scenario, write_timeout_s=0.2)


def test_connections_have_a_bound_and_the_next_is_told() -> None:
    async def scenario(server: Server, _echo: Any, port: int) -> None:
        writers = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(3)]
        while server.connections < 3:
            await asyncio.sleep(0.01)
        answer = await said(port, b"")
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 1" in answer
        for writer in writers:
            writer.close()
        while server.connections:
            await asyncio.sleep(0.01)

    run(scenario, connections=3)


def test_the_bytes_of_all_bodies_have_a_bound() -> None:
    async def scenario(_server: Server, echo: Any, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(post("/waits", bytes(60_000)))
        await echo.has_begun.wait()
        assert echo.held_bytes == 60_000
        assert (await said(port, post("/p", bytes(60_000)))).startswith(b"HTTP/1.1 503 ")
        assert (await said(port, chunked(bytes(60_000), 5000))).startswith(b"HTTP/1.1 503 ")
        echo.goes_on.set()
        assert (await response(reader))[0] == 200
        writer.close()
        assert (await said(port, post("/p", bytes(60_000), b"Connection: close\r\n"))).startswith(b"HTTP/1.1 200 ")

    run(scenario, bodies_bytes=100_000)


def test_who_hangs_up_cancels_his_request() -> None:
    async def scenario(_server: Server, echo: Any, port: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(post("/waits"))
        await echo.has_begun.wait()
        writer.transport.abort()
        while not echo.cancelled:
            await asyncio.sleep(0.01)

    run(scenario)


def test_a_server_that_stops_ends_what_it_has_begun() -> None:
    async def main() -> None:
        async with serving(stop_timeout_s=20.0) as (server, echo, port):
            idle, idle_writer = await asyncio.open_connection("127.0.0.1", port)
            idle_writer.write(post())
            assert (await response(idle))[0] == 200
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(post("/waits"))
            await echo.has_begun.wait()
            stopping = asyncio.create_task(server.close())
            assert await asyncio.wait_for(idle.read(), 20) == b""
            idle_writer.close()
            with pytest.raises(ConnectionError):
                await asyncio.open_connection("127.0.0.1", port)
            assert not stopping.done()
            echo.goes_on.set()
            status, headers, _ = await response(reader)
            assert (status, headers["connection"]) == (200, "close")
            await asyncio.wait_for(stopping, 20)
            writer.close()

    asyncio.run(main())


def test_the_first_request_of_a_new_connection_is_answered_by_a_server_that_stops() -> None:
    """It is on its way. Its sender has no reason to think that the server stops, and would not send it again."""

    async def main() -> None:
        async with serving(stop_timeout_s=20.0) as (server, _, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            silent, silent_writer = await asyncio.open_connection("127.0.0.1", port)
            while server.connections < 2:
                await asyncio.sleep(0.01)
            stopping = asyncio.create_task(server.close())
            await asyncio.sleep(0)
            assert server.stops
            writer.write(post())
            status, headers, _ = await response(reader)
            assert (status, headers["connection"]) == (200, "close")
            assert not stopping.done()
            assert await asyncio.wait_for(silent.read(), 15) == b"", "for a moment, not for `stop_timeout_s`"
            await asyncio.wait_for(stopping, 20)
            for each in (writer, silent_writer):
                each.close()

    asyncio.run(main())


def test_a_server_that_stops_does_not_wait_for_ever() -> None:
    async def main() -> None:
        async with serving(stop_timeout_s=0.1) as (server, echo, port):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(post("/waits"))
            await echo.has_begun.wait()
            await server.close()
            while not echo.cancelled:
                await asyncio.sleep(0.01)
            writer.close()

    asyncio.run(main())
