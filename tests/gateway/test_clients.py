"""Whoever shows a token is one client to the pool, whichever gateway he asks, and may what its [[client]] says."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import pytest
import requests

from gateway.running import Gateway, gateway
from pool.wire.gateway import Token
from support.pool_process import STUBS, PoolProcess, pool_process, stub_config
from support.processes import eventually
from support.run_ledger import Ledger

CLIENTS = """
[[client]]
name = "alice"
models = ["echo", "nowhere"]

[[client]]
name = "slow"
rate = 0.01

[[client]]
name = "narrow"
max_jobs = 1

[[client]]
name = "small"
max_bytes = "1KiB"

[[client]]
name = "operator"
may = ["load", "unload"]

[[client]]
name = "visitor"
"""
NAMES = ("alice", "slow", "narrow", "small", "operator", "visitor", "unwritten")
TOKENS = tuple(Token(name, hashlib.sha256(name.encode()).digest()) for name in NAMES)


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """Of what `hold` has sent."""
    return Ledger(tmp_path_factory.mktemp("held"))


@pytest.fixture(scope="module")
def pool(ledger: Ledger) -> Iterator[PoolProcess]:
    held = f'[[model]]\nname = "held"\npath = "stub:counter?{ledger.path}"\n'
    with pool_process(stub_config(models=STUBS + held, rest=CLIENTS)) as running:
        yield running


@pytest.fixture(scope="module")
def doors(pool: PoolProcess) -> Iterator[tuple[Gateway, Gateway]]:
    """Two gateways that know nothing of each other."""
    with (
        gateway(pool.endpoint, tokens=TOKENS, repository_control=True) as one,
        gateway(pool.endpoint, tokens=TOKENS) as other,
    ):
        yield one, other


def ask(door: Gateway, name: str, path: str, body: object = None) -> tuple[int, Any, Mapping[str, str]]:
    """Who shows the token of this name. With a `body` it is a POST."""
    with closing(HTTPConnection(door.address, timeout=60)) as connection:  # it sends a path as it is
        headers = {"Authorization": f"Bearer {name}"}
        connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text.startswith(b"{") else text.decode(), dict(answer.headers)


def job(door: Gateway, name: str, model: str = "echo", numbers: int = 1) -> tuple[int, Any, Mapping[str, str]]:
    given = {"name": "x", "datatype": "FP32", "shape": [numbers], "data": [1.0] * numbers}
    return ask(door, name, f"/v2/models/{model}/infer", {"inputs": [given]})


def hold(door: Gateway, name: str) -> tuple[int, Any, Mapping[str, str]]:
    given = {"name": "n", "datatype": "INT64", "shape": [1], "data": [-1]}
    asked = {"inputs": [given], "parameters": {"signature": "gated"}}
    return ask(door, name, "/v2/models/held/infer", asked)


def test_a_rate_is_of_the_client_and_not_of_a_gateway(doors: tuple[Gateway, Gateway]) -> None:
    one, other = doors
    began = time.monotonic()
    assert job(one, "slow")[0] == 200
    status, said, headers = job(other, "slow")
    passed_s = time.monotonic() - began
    assert status == 429
    assert "client slow may send 0.01 jobs a second" in said["error"]
    assert 99 - passed_s <= int(headers["Retry-After"]) <= 100
    assert job(other, "visitor")[0] == 200


def test_so_are_its_jobs(pool: PoolProcess, doors: tuple[Gateway, Gateway], ledger: Ledger) -> None:
    one, other = doors

    def open_jobs() -> int:
        with pool.client() as client:
            return next((each.jobs for each in client.status().accounts if each.name == "narrow"), 0)

    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(hold, one, "narrow")
        eventually(lambda: open_jobs() == 1)
        status, said, headers = job(other, "narrow")
        assert (status, "its max_jobs (1)" in said["error"]) == (429, True), said
        assert int(headers["Retry-After"]) >= 1
        ledger.open_gate()
        assert running.result()[0] == 200
    assert job(other, "narrow")[0] == 200, "its place is free again"


def test_a_job_that_its_bound_never_takes_is_the_callers_mistake(doors: tuple[Gateway, Gateway]) -> None:
    status, said, _ = job(doors[0], "small", numbers=2000)
    assert (status, "max_bytes of client small" in said["error"]) == (400, True), said


def test_the_status_of_the_pool_shows_who_uses_it_through_which_gateway(
    pool: PoolProcess, doors: tuple[Gateway, Gateway]
) -> None:
    for door in doors:
        assert job(door, "visitor")[0] == job(door, "unwritten")[0] == 200
    with pool.client() as client:
        accounts = {each.name: each for each in client.status().accounts}
    assert accounts["visitor"].connections == 2
    assert accounts["visitor"].taken >= 2
    assert accounts["token:unwritten"].connections == 2
    assert accounts["token:unwritten"].taken >= 2


def test_a_token_has_the_rights_of_its_client_where_the_gateway_gives_any(doors: tuple[Gateway, Gateway]) -> None:
    one, other = doors
    for name in ("visitor", "unwritten"):
        status, said, _ = ask(one, name, "/v2/repository/models/counter/unload", {})
        assert (status, 'the right "unload"' in said["error"]) == (403, True), said
    status, said, _ = ask(other, "operator", "/v2/repository/models/counter/unload", {})
    assert (status, "repository_control" in said["error"]) == (403, True), said
    assert ask(one, "operator", "/v2/repository/models/counter/load", {})[0] == 200, "it is there already"


def test_who_may_use_some_models_is_told_of_no_other(doors: tuple[Gateway, Gateway]) -> None:
    door = doors[0]
    assert job(door, "visitor", "faults")[0] == 400, "there is one, and it takes something else"
    assert job(door, "alice")[0] == 200
    for model in ("counter", "never", "%63ounter"):
        status, said, _ = job(door, "alice", model)
        assert (status, "client alice may not use model" in said["error"]) == (403, True), said
    for path, body in (
        *((f"/v2/models/counter{what}", None) for what in ("", "/ready", "/config", "/stats", "/versions/1")),
        *((f"/v1/models/counter{what}", None) for what in ("", "/metadata")),
        ("/v1/models/counter:predict", {"instances": [1]}),
        ("/v2/repository/models/counter/unload", {}),
    ):
        assert ask(door, "alice", path, body)[0] == 404, path
    for path, body in (
        ("/metrics", None),
        ("/monitoring/prometheus/metrics", None),
        ("/v2/models/stats", None),
        ("/v2/repository/index", {}),
        ("/v2/models/echo/stats", None),
        ("/v2/models/nowhere", None),
        ("/v1/models/nowhere:predict", {"instances": [1]}),
    ):
        _, said, _ = ask(door, "alice", path, body)
        text = json.dumps(said) if isinstance(said, dict) else "".join(re.findall("^[^#].*", said, re.MULTILINE))
        assert "echo" in text or "nowhere" in text, (path, text)
        assert "counter" not in text, path
        assert "faults" not in text, path
    assert "counter" in json.dumps(ask(door, "visitor", "/v1/models/nowhere:predict", {"instances": [1]})[1])


def test_a_reload_counts_at_once_for_the_gateways_that_run(pool: PoolProcess, doors: tuple[Gateway, Gateway]) -> None:
    before = pool.config.read_text()
    for door in doors:
        assert job(door, "visitor")[0] == 200
    changed = before.replace('name = "visitor"\n', 'name = "visitor"\nmodels = ["counter"]\n')
    assert changed != before
    pool.config.write_text(changed)
    with pool.client() as client:
        client.reload()
        for door in doors:
            eventually(lambda: job(door, "visitor")[0] == 403)  # noqa: B023  # it is called at once
        pool.config.write_text(before)
        client.reload()
    for door in doors:
        eventually(lambda: job(door, "visitor")[0] == 200)  # noqa: B023  # it is called at once


def test_another_pool_in_its_place_knows_whom_the_gateway_speaks_for() -> None:
    pool = PoolProcess(stub_config(rest=CLIENTS))
    try:
        pool.start().await_ready()
        with gateway(pool.endpoint, tokens=TOKENS) as door:
            assert job(door, "alice")[0] == job(door, "unwritten")[0] == 200
            pool.running.kill()
            pool.wait()
            pool.log.unlink()
            pool.start().await_ready()
            assert job(door, "alice")[0] == job(door, "unwritten")[0] == 200
            assert job(door, "alice", "counter")[0] == 403
            with pool.client() as client:
                accounts = {each.name: each.taken for each in client.status().accounts}
            assert (accounts["alice"], accounts["token:unwritten"]) == (1, 1)
        assert pool.stop() == 0, pool.text()
    finally:
        pool.kill()


def test_a_gateway_without_tokens_speaks_for_itself(pool: PoolProcess) -> None:
    with gateway(pool.endpoint) as door, pool.client() as client:
        before = {each.name: each.taken for each in client.status().accounts}
        assert requests.get(f"{door.url}/v2/health/ready", timeout=20).status_code == 200
        assert job(door, "nobody")[0] == 200
        after = {each.name: each.taken for each in client.status().accounts}
    assert {name for name in after if after[name] != before.get(name, 0)} == {name for name in after if "uid:" in name}
