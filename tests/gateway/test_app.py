"""What every request passes, whatever protocol it is of."""

import asyncio
import hashlib
import socket
import zlib

import numpy as np
import pytest
import requests

from gateway.echo import response
from gateway.running import Gateway, gateway
from pool import AsyncClient
from pool.gateway.accounts import Accounts
from pool.gateway.app import Application
from pool.gateway.callers import Caller, Callers
from pool.gateway.hosts import Hosts
from pool.gateway.http import Limits, Refused, Request, Response, Server
from pool.wire.gateway import GatewaySettings, Token
from support.pool_process import PoolProcess


def tokens_of(*names: str) -> tuple[Token, ...]:
    """Each is its own name."""
    return tuple(Token(name, hashlib.sha256(name.encode()).digest()) for name in names)


def test_a_path_of_no_protocol_says_which_there_are(door: Gateway) -> None:
    answer = requests.get(f"{door.url}/", timeout=20)
    assert answer.status_code == 404
    assert answer.headers["Content-Type"] == "application/json"
    assert "/v1 (TensorFlow Serving)" in answer.json()["error"]


def test_a_page_that_calls_this_address_by_its_own_name_is_refused(door: Gateway) -> None:
    for headers, status in (({"Host": "evil.example"}, 421), ({"Origin": "http://evil.example"}, 403)):
        assert requests.get(f"{door.url}/v2", headers=headers, timeout=20).status_code == status


def test_a_token_is_needed_where_there_are_any(pool: PoolProcess) -> None:
    with gateway(pool.endpoint, tokens=tokens_of("alice")) as door:
        for header in (None, "Bearer wrong", "Basic alice", "Bearer", "Bearer alicé", "alice"):
            headers = {} if header is None else {"Authorization": header.encode("latin-1")}
            answer = requests.get(f"{door.url}/v2/models/echo", headers=headers, timeout=20)
            assert answer.status_code == 401
            assert answer.headers["WWW-Authenticate"] == "Bearer"
        with_token = {"Authorization": "Bearer alice"}
        assert requests.get(f"{door.url}/v2/models/echo", headers=with_token, timeout=20).status_code == 200
        assert requests.get(f"{door.url}/nothing", headers=with_token, timeout=20).status_code == 404


def test_each_token_is_a_client_of_its_own_in_the_pool(pool: PoolProcess) -> None:
    with gateway(pool.endpoint, tokens=tokens_of("carol", "dave")) as door, pool.client() as client:

        def connections() -> dict[str, int]:
            """Of these two alone: clients of another test may still leave."""
            names = "token:carol", "token:dave"
            return {each.name: each.connections for each in client.status().accounts if each.name in names}

        for name, expected in (
            ("carol", {"token:carol": 1}),
            ("carol", {"token:carol": 1}),
            ("dave", {"token:carol": 1, "token:dave": 1}),
        ):
            with_token = {"Authorization": f"Bearer {name}"}
            assert requests.get(f"{door.url}/v2/models/echo", headers=with_token, timeout=20).status_code == 200
            assert connections() == expected


def test_what_a_compressed_body_becomes_is_on_the_account_of_all_bodies() -> None:
    limits = Limits(body_bytes=60_000, bodies_bytes=100_000)
    settings = GatewaySettings(("ipc:///x",), "127.0.0.1:1")
    accounts = Accounts(settings)
    callers = Callers(settings, accounts)
    begun, goes_on = asyncio.Event(), asyncio.Event()

    class Waits:
        async def answer(self, request: Request, client: AsyncClient) -> Response:
            assert (len(request.body), client) == (60_000, callers.anybody.client)
            begun.set()
            await goes_on.wait()
            return Response(200)

    async def scenario() -> None:
        application = Application(callers, Hosts(), {"v2": Waits()}, limits, accounts.bodies)

        def bomb() -> Request:
            body = np.frombuffer(zlib.compress(bytes(60_000)), np.uint8)
            return Request("POST", "/v2/x", headers={"content-encoding": "deflate"}, body=body)

        first = asyncio.create_task(application.answer(bomb(), callers.anybody))
        await begun.wait()
        assert 59_000 < accounts.bodies.own <= 60_000
        with pytest.raises(Refused, match="as many bytes") as refused:
            await application.answer(bomb(), callers.anybody)
        assert refused.value.status == 503
        goes_on.set()
        assert (await first).status == 200
        assert accounts.bodies.own == 0
        assert (await application.answer(bomb(), callers.anybody)).status == 200
        await callers.close()

    asyncio.run(scenario())


GET, PROMISED = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n", b"Content-Length: 1000\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
BODIES = {
    "promised": PROMISED + b"\r\n",
    "promised, if it is wanted": PROMISED + b"Expect: 100-continue\r\n\r\n",
    "begun": PROMISED + b"\r\n" + bytes(500),
    "whole": PROMISED + b"\r\n" + bytes(1000),
    "gzip": PROMISED + b"Content-Encoding: gzip\r\n\r\n" + bytes(500),
    "in chunks": CHUNKED + b"\r\n1f4\r\n" + bytes(500),
    "in chunks, if it is wanted": CHUNKED + b"Expect: 100-continue\r\n\r\n",
}


@pytest.mark.parametrize("body", BODIES)
def test_who_needs_no_token_can_have_no_body_held(body: str) -> None:
    limits = Limits(body_bytes=10_000, bodies_bytes=10_000)
    settings = GatewaySettings(("ipc:///x",), "127.0.0.1:1", tokens=tokens_of("alice"))
    accounts = Accounts(settings)
    held: list[int] = []

    class Held(Application):
        def hold(self, caller: Caller, size_bytes: int) -> None:
            held.append(size_bytes)
            super().hold(caller, size_bytes)

    class Live:
        async def answer(self, request: Request, client: AsyncClient) -> Response:
            del request, client
            return Response(200)

    async def scenario() -> None:
        callers = Callers(settings, accounts)
        server = Server(Held(callers, Hosts(), {"v2": Live()}, limits, accounts.bodies), limits)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            await server.open(listening)
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            for no_body in (b"\r\n", b"Content-Length: 0\r\n\r\n"):
                writer.write(GET + no_body)
                assert (await response(reader))[0] == 200
            writer.write(GET + BODIES[body])
            status, headers, text = await response(reader)
            assert (status, headers["connection"], b"no body" in text) == (413, "close", True)
            writer.write_eof()
            assert await asyncio.wait_for(reader.read(), 20) == b"", "nothing behind it is taken for a request"
            writer.close()
            await server.close()
        assert not any(held)
        await callers.close()

    asyncio.run(scenario())


def test_one_token_leaves_room_for_the_bodies_of_others() -> None:
    limits = Limits(body_bytes=1000, bodies_bytes=1000)
    settings = GatewaySettings(("ipc:///x",), "127.0.0.1:1", tokens=tokens_of("alice", "bob"))
    accounts = Accounts(settings)
    callers = Callers(settings, accounts)
    application = Application(callers, Hosts(), {}, limits, accounts.bodies)
    headers = ({"authorization": f"Bearer {name}"} for name in ("alice", "bob"))
    alice, bob = (application.admit(Request("POST", "/", headers=each), None) for each in headers)
    application.hold(alice, 800)
    with pytest.raises(Refused, match="as many bytes of alice as it may beside others") as refused:
        application.hold(alice, 1)
    assert (refused.value.status, refused.value.retry_after_s) == (429, 1.0)
    assert accounts.bodies.own == 800, "what was refused is not held"
    application.hold(bob, 150)
    application.hold(callers.anybody, 50)
    with pytest.raises(Refused, match="as many bytes of requests") as refused:
        application.hold(bob, 1)
    assert refused.value.status == 503
    application.hold(alice, -800)
    application.hold(alice, 600)
    assert accounts.bodies.own == 800
