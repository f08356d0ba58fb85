"""The limits of a gateway with several processes: each holds for all of them together, whichever gets the requests."""

from __future__ import annotations

import http.client
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from pool.kept import add_token
from pool.wire.records import Gateway
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import eventually, freeze

pytestmark = pytest.mark.gateway

JOB = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [1]}]}'
CONNECTIONS = 8


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[tuple[PoolProcess, str]]:
    """With alice's token: one job in 100 seconds."""
    tokens = tmp_path / "tokens"
    token = add_token(tokens, "alice")
    gateway = f'listen = "127.0.0.1:0"\nprocesses = 2\nmax_connections = {CONNECTIONS}\ntokens = "{tokens}"'
    client = '[[client]]\nname = "alice"\nrate = 0.01'
    with pool_process(stub_config(rest=f"[gateway]\n{gateway}\n{client}\n")) as running:
        yield running, token


def serving(pool: PoolProcess, gone: int = 0) -> tuple[str, int, int]:
    """The address, and the pids of both processes, once both serve and neither is the one that is `gone`."""
    found: list[Gateway] = []
    with pool.client() as client:

        def serve() -> bool:
            told = client.status().gateway
            assert told is not None
            found.append(told)
            return all(each.state == "SERVING" and each.pid not in (None, gone) for each in told.processes)

        eventually(serve, 60.0, client.status)
    one, other = (each.pid or 0 for each in found[-1].processes)
    return found[-1].url.removeprefix("http://"), one, other


@contextmanager
def only(other: int) -> Iterator[None]:
    """While the other process answers nothing."""
    freeze(other)
    try:
        yield
    finally:
        os.kill(other, signal.SIGCONT)


def opened(address: str, stack: ExitStack) -> int:
    """The status of a first answer. The connection stays open as long as the stack."""
    connection = stack.enter_context(closing(http.client.HTTPConnection(address, timeout=40)))
    connection.request("GET", "/v2/health/live")
    answer = connection.getresponse()
    answer.read()
    return answer.status


def test_connections_count_over_all_and_those_of_a_dead_process_are_free_again(
    pool: tuple[PoolProcess, str],
) -> None:
    address, one, other = serving(pool[0])
    with ExitStack() as stack:
        with only(other):
            assert [opened(address, stack) for _ in range(5)] == [200] * 5
        with only(one):
            assert [opened(address, stack) for _ in range(4)] == [200, 200, 200, 503]
        os.kill(one, signal.SIGKILL)
        address, one, other = serving(pool[0], gone=one)
        with only(other):
            assert [opened(address, stack) for _ in range(6)] == [200] * 5 + [503]


def test_a_rate_counts_over_all(pool: tuple[PoolProcess, str]) -> None:
    address, one, other = serving(pool[0])

    def job() -> tuple[int, bytes]:
        with closing(http.client.HTTPConnection(address, timeout=40)) as connection:
            headers = {"Authorization": f"Bearer {pool[1]}"}
            connection.request("POST", "/v2/models/echo/infer", JOB, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()

    with only(other):
        status, text = job()
        assert status == 200, text
    with only(one):
        status, text = job()
        assert (status, b"alice may send 0.01 jobs a second" in text) == (429, True), text
