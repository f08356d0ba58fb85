"""Members of a chunk, of a model that counts: none starts that was cancelled before, and none starts twice.

Each run is a line of a ledger. A negative one waits at a gate until the test opens it, so that what happens meanwhile
happens while one member runs and the others wait.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool import Client, JobResult, errors
from pool.client.request import Request
from support.fake_pool import TIMELINE
from support.pool_process import PoolProcess, stub_config
from support.processes import eventually
from support.run_ledger import Ledger

MODELS = """
[[model]]
name = "counter"
path = "stub:counter?{ledger}"
"""
COUNT = Request("counter", "gated")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path)


@pytest.fixture
def pool(ledger: Ledger) -> Iterator[PoolProcess]:
    config = stub_config("lanes = 1\ndrain_timeout = 0.1", '["cpu"]', MODELS.format(ledger=ledger.path))
    pool = PoolProcess(config)
    try:
        yield pool.start().await_ready()
        assert pool.stop() == 0, pool.text()
    finally:
        pool.kill()


@pytest.fixture
def way(pool: PoolProcess) -> Path:
    """By which the client finds the pool."""
    way = pool.state / "way"
    way.symlink_to(pool.folder)
    return way


@pytest.fixture
def client(way: Path) -> Iterator[Client]:
    with Client(f"ipc://{way}/p.sock") as client:
        client._connected().grain.learn(COUNT, replace(TIMELINE, run_s=1e-6, batch_rows=1), True)
        yield client


def chunk(client: Client, *numbers: int) -> list[Any]:
    return client.submit_many("counter", [{"n": [number]} for number in numbers], signature="gated")


def taken_apart(client: Client, members: int) -> bool:
    """Whether the pool was sent a chunk of so many, and runs each of them by itself."""
    histories = [client.explain(job.job).history for job in client.explain().jobs]
    return any(f"was one of {members} jobs" in line for history in histories for line in history)


def count(client: Client, number: int) -> int:
    """One more run, after all that wait."""
    return int(client.run("counter", {"n": [number]}, signature="gated")["total"][0])


# --- cancelled before it starts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 2, 3)])
def test_no_cancelled_member_starts(client: Client, ledger: Ledger, order: tuple[int, ...]) -> None:
    """The first one runs meanwhile; whichever is cancelled last, nobody is left in the chunk then."""
    futures = chunk(client, -1, 2, 3, 4)
    ledger.await_start(-1)
    assert taken_apart(client, 4)
    for index in order:
        assert futures[index].cancel()
    client.status()  # read after the cancellations
    ledger.open_gate()
    assert count(client, 9) == -1 + 9
    assert ledger.started() == [-1, 9]


def test_a_map_that_is_closed_starts_no_more(client: Client, ledger: Ledger) -> None:
    numbers = np.array([0, 1, 2, 3, -4, *range(5, 16)], np.int64)
    results = client.map("counter", numbers[:, None], signature="gated", in_flight=16)
    assert next(results)["total"].tolist() == [0]
    ledger.await_start(-4)
    assert taken_apart(client, 4)
    results.close()  # type: ignore[attr-defined]  # a generator
    client.status()
    ledger.open_gate()
    count(client, 99)
    assert ledger.started() == [0, 1, 2, 3, -4, 99]


def test_what_is_cancelled_while_it_waits_in_the_client_is_never_sent(client: Client, ledger: Ledger) -> None:
    """The client's thread is held up, so all of it leaves at once: the chunk, and then that two are cancelled."""
    held, go_on = threading.Event(), threading.Event()

    def hold_up(_: object) -> None:
        held.set()
        go_on.wait(20)

    with ledger.occupied(client, "counter") as first:  # of one that is done it would run at once, in this thread
        first.add_done_callback(hold_up)
    assert held.wait(20)
    futures = chunk(client, 2, 3, 4)
    alone = [client.submit("counter", {"n": [number]}, signature="gated") for number in (5, 6)]
    for future in (futures[0], futures[2], *alone):
        assert future.cancel()
    go_on.set()
    assert futures[1].result(20)["total"].tolist() == [2]
    assert count(client, 9) == 11
    assert ledger.started() == [-1, 3, 9]


# --- the pool ends ------------------------------------------------------------------------------------------------


def away(way: Path) -> Callable[[], object]:
    """Nobody finds a pool at the client's endpoint, until this is called; who has found one keeps it."""
    there = way.readlink()
    way.unlink()
    return lambda: way.symlink_to(there)


def ends(futures: list[Any]) -> list[Any]:
    """What each ends with: its total's type, or its error's."""
    return [type(future.exception(60) or future.result()) for future in futures]


def test_what_a_stopping_pool_returns_runs_once_and_what_it_ran_never_again(
    pool: PoolProcess, client: Client, ledger: Ledger, way: Path
) -> None:
    """The next pool is READY before it hears of the chunk, so it leases each member that it is sent at once."""
    futures = chunk(client, 1, -2, 3, 4)
    ledger.await_start(-2)
    assert taken_apart(client, 4)
    assert futures[0].result(20)["total"].tolist() == [1]
    assert futures[3].cancel()
    come_back = away(way)
    assert pool.stop() == 0
    pool.log.unlink()
    pool.start().await_ready()
    come_back()
    assert ends(futures[1:3]) == [errors.WorkerLost, JobResult]
    assert futures[2].result(0)["total"].tolist() == [3]
    assert count(client, 9) == 12
    assert ledger.started() == [1, -2, 3, 9]


def test_of_a_killed_pool_no_member_that_may_have_started_runs_again(
    pool: PoolProcess, client: Client, ledger: Ledger, way: Path
) -> None:
    futures = chunk(client, 1, -2, 3, 4)
    ledger.await_start(-2)
    assert taken_apart(client, 4)
    assert futures[0].result(20)
    come_back = away(way)
    os.kill(pool.pid, signal.SIGKILL)
    pool.running.wait(10)
    pool.log.unlink()
    eventually(lambda: client._connected()._dialogue._outage is not None)  # so `later` is sent to nobody
    assert futures[3].cancel()
    later = client.submit("counter", {"n": [5]}, signature="gated")
    pool.start().await_ready()
    come_back()
    assert ends([*futures[1:3], later]) == [errors.WorkerLost, errors.WorkerLost, JobResult]
    assert ledger.started() == [1, -2, 5]


# --- a worker dies ------------------------------------------------------------------------------------------------


def test_of_a_killed_worker_the_member_that_ran_is_lost_and_those_that_waited_run_once(
    pool: PoolProcess, client: Client, ledger: Ledger
) -> None:
    futures = chunk(client, 1, -2, 3, 4)
    ledger.await_start(-2)
    assert taken_apart(client, 4)
    assert futures[3].cancel()
    client.status()  # read after the cancellation
    os.kill(pool.workers()[0], signal.SIGKILL)
    assert ends(futures[:3]) == [JobResult, errors.WorkerLost, JobResult]
    assert futures[2].result(0)["total"].tolist() == [3], "what was written went with its worker"
    assert count(client, 9) == 12
    assert ledger.started() == [1, -2, 3, 9]
