"""The metrics of a gateway with several processes: the same whichever answers, and nothing lost with one that dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from pool.wire.records import Gateway
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import eventually, freeze

Counted = dict[tuple[str, str], float]


def gateway_of(pool: PoolProcess) -> Gateway:
    with pool.client() as client:
        found = client.status().gateway
    assert found is not None
    return found


def serving(pool: PoolProcess) -> tuple[str, int, int]:
    """The url, and the pids of both processes."""

    def serve() -> bool:
        return [each.state for each in gateway_of(pool).processes] == ["SERVING", "SERVING"]

    eventually(serve, 60.0, lambda: gateway_of(pool))
    gateway = gateway_of(pool)
    one, other = (each.pid for each in gateway.processes)
    assert one is not None
    assert other is not None
    return gateway.url, one, other


@pytest.fixture(scope="module")
def pool() -> Iterator[PoolProcess]:
    with pool_process(stub_config(rest='[gateway]\nlisten = "127.0.0.1:0"\nprocesses = 2\n')) as running:
        yield running


@contextmanager
def only(other: int) -> Iterator[None]:
    """While the other process answers nothing."""
    freeze(other)
    try:
        yield
    finally:
        os.kill(other, signal.SIGCONT)


def counted(url: str) -> Counted:
    """Requests by route and code."""
    families = text_string_to_metric_families(requests.get(f"{url}/metrics", timeout=40).text)
    return {
        (sample.labels["route"], sample.labels["code"]): sample.value
        for family in families
        for sample in family.samples
        if sample.name == "pool_gateway_requests_total"
    }


def test_each_process_tells_the_requests_of_both(pool: PoolProcess) -> None:
    url, one, other = serving(pool)
    before = counted(url)
    for frozen in (one, other):
        with only(frozen):
            for _ in range(3):
                assert requests.get(f"{url}/nothing", timeout=40).status_code == 404
    missing, scrapes = ("other", "404"), ("metrics", "200")
    for frozen, told in ((one, 1), (other, 2)):
        with only(frozen):
            found = counted(url)
            assert found[missing] == before.get(missing, 0) + 6
            assert found[scrapes] == before.get(scrapes, 0) + told, "the scrapes before this one"


def test_no_count_goes_with_a_process_that_dies(pool: PoolProcess) -> None:
    url, one, other = serving(pool)
    with only(other):
        for _ in range(5):
            requests.get(f"{url}/nothing", timeout=40)
        before = counted(url)
    os.kill(one, signal.SIGKILL)
    eventually(lambda: one not in [each.pid for each in gateway_of(pool).processes], 40.0)
    url, follower, other = serving(pool)
    with only(other):  # the one that followed, which has the dead one's place
        requests.get(f"{url}/nothing", timeout=40)
        after = counted(url)
    assert follower != one
    assert after["other", "404"] == before["other", "404"] + 1
    assert after["metrics", "200"] == before["metrics", "200"] + 1
