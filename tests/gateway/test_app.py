"""What every request passes, whatever protocol it is of."""

import asyncio
import hashlib
import zlib
from contextlib import closing
from http.client import HTTPConnection

import numpy as np
import pytest
import requests

from gateway.running import Gateway, gateway
from pool import AsyncClient
from pool.gateway.accounts import Accounts
from pool.gateway.app import Application
from pool.gateway.callers import Caller, Callers
from pool.gateway.hosts import Hosts
from pool.gateway.http import Limits, Refused, Request, Response
from pool.wire.gateway import ClientRules, GatewaySettings, Token
from support.pool_process import PoolProcess


def test_a_path_of_no_protocol_says_which_there_are(door: Gateway) -> None:
    answer = requests.get(f"{door.url}/", timeout=20)
    assert answer.status_code == 404
    assert answer.headers["Content-Type"] == "application/json"
    assert "/v1 (TensorFlow Serving)" in answer.json()["error"]


def test_a_page_that_calls_this_address_by_its_own_name_is_refused(door: Gateway) -> None:
    for headers, status in (({"Host": "evil.example"}, 421), ({"Origin": "http://evil.example"}, 403)):
        assert requests.get(f"{door.url}/v2", headers=headers, timeout=20).status_code == status


def test_a_token_is_needed_where_there_are_any(pool: PoolProcess) -> None:
    token = Token("alice", hashlib.sha256(b"secret").digest())
    with gateway(pool.endpoint, tokens=(token,), clients=(ClientRules("alice", models=("echo",)),)) as door:
        for header in (None, "Bearer wrong", "Basic secret", "Bearer", "Bearer sécret", "secret"):
            headers = {} if header is None else {"Authorization": header.encode("latin-1")}
            answer = requests.get(f"{door.url}/v2/models/echo", headers=headers, timeout=20)
            assert answer.status_code == 401
            assert answer.headers["WWW-Authenticate"] == "Bearer"
        with_token = {"Authorization": "Bearer secret"}
        assert requests.get(f"{door.url}/v2/models/counter", headers=with_token, timeout=20).status_code == 403
        for path in ("%6dodels/counter", "models/%63ounter", "repository/models/counter/unload"):
            plain = HTTPConnection(door.address, timeout=20)  # which sends a path as it is
            plain.request("POST", f"/v2/{path}", headers=with_token)
            with closing(plain), plain.getresponse() as said:
                assert (said.status, b"may not use model counter" in said.read()) == (403, True), path
        for path in ("metrics", "monitoring/prometheus/metrics", "v2/models/stats", "v2/models/stats/"):
            assert requests.get(f"{door.url}/{path}", headers=with_token, timeout=20).status_code == 403, path
        for path in ("v2/repository/index", "v2/repository/%69ndex/"):
            assert requests.post(f"{door.url}/{path}", headers=with_token, timeout=20).status_code == 403, path
        assert requests.get(f"{door.url}/v2/models/echo", headers=with_token, timeout=20).status_code == 200
        assert requests.get(f"{door.url}/v1/models/counter:predict", headers=with_token, timeout=20).status_code == 403
        assert requests.get(f"{door.url}/nothing", headers=with_token, timeout=20).status_code == 404


def test_each_token_is_a_client_of_its_own_in_the_pool(pool: PoolProcess) -> None:
    tokens = tuple(Token(name, hashlib.sha256(name.encode()).digest()) for name in ("alice", "bob"))
    with gateway(pool.endpoint, tokens=tokens) as door, pool.client() as client:
        before = client.status().clients
        for more, name in ((1, "alice"), (1, "alice"), (2, "bob")):
            with_token = {"Authorization": f"Bearer {name}"}
            assert requests.get(f"{door.url}/v2/models/echo", headers=with_token, timeout=20).status_code == 200
            assert client.status().clients == before + more


def caller_of(rules: ClientRules) -> Caller:
    """Who shows the token of alice, to the second of two processes."""
    tokens = (Token("alice", hashlib.sha256(b"secret").digest()),)
    settings = GatewaySettings(("ipc:///x",), "127.0.0.1:1", number=1, processes=2, tokens=tokens, clients=(rules,))
    return Callers(settings, Accounts(settings)).of(Request("POST", "/", headers={"authorization": "bearer secret"}))


def test_tokens_have_bounds_of_their_own() -> None:
    caller = caller_of(ClientRules("alice", rate=0.001, max_jobs=2, max_bytes=100))
    with pytest.raises(Refused, match="100 bytes") as refused:
        caller.begin(101)
    assert refused.value.status == 429
    caller.begin(10)
    assert refused.value.retry_after_s == 1.0
    with pytest.raises(Refused, match=r"0\.001 jobs a second") as refused:
        caller.begin(10)
    assert refused.value.retry_after_s is not None
    assert refused.value.retry_after_s > 900
    caller.end(10)


def test_open_jobs_have_a_bound() -> None:
    caller = caller_of(ClientRules("alice", max_jobs=2, max_bytes=20))
    caller.begin(10)
    caller.begin(10)
    with pytest.raises(Refused, match="2 jobs open") as refused:
        caller.begin(10)
    assert refused.value.status == 429
    caller.end(10)
    caller.begin(10)


def test_a_refused_job_leaves_nothing_on_the_account() -> None:
    caller = caller_of(ClientRules("alice", rate=0.001, max_jobs=1, max_bytes=20))
    with pytest.raises(Refused, match="20 bytes"):
        caller.begin(21)
    caller.begin(20)
    caller.end(20)
    for _ in range(2):
        with pytest.raises(Refused, match="jobs a second"):
            caller.begin(20)


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

        first = asyncio.create_task(application.answer(bomb(), None))
        await begun.wait()
        assert 59_000 < accounts.bodies.own <= 60_000
        with pytest.raises(Refused, match="as many bytes") as refused:
            await application.answer(bomb(), None)
        assert refused.value.status == 503
        goes_on.set()
        assert (await first).status == 200
        assert accounts.bodies.own == 0
        assert (await application.answer(bomb(), None)).status == 200
        await callers.close()

    asyncio.run(scenario())
