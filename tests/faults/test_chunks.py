"""Chunks over real processes: whatever happens to one of them, each of its members ends by itself and as it should.

A chunk is gathered by `submit_many`, since the client was told what a row takes; the premise of each test is that the
members did leave as one, which the histories of their jobs tell.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool import Client, errors
from pool.client.request import Request
from support.fake_pool import TIMELINE
from support.fault_orders import Orders
from support.pool_process import READY_S, PoolProcess, stub_config
from support.processes import eventually

pytestmark = pytest.mark.faults

MODELS = """
[[model]]
name = "rows"
path = "stub:rows"
batching = "always"
max_batch = 64
"""
CONFIG = stub_config("lanes = 1\ndrain_timeout = 0.2", '["cpu"]', MODELS)


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return Orders(tmp_path)


@pytest.fixture
def pool(orders: Orders) -> Iterator[PoolProcess]:
    pool = PoolProcess(CONFIG, orders.environ)
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
    with Client(f"ipc://{way}/p.sock", reconnect_timeout=READY_S) as client:
        for signature in ("double", "fail", "kill"):
            quick = replace(TIMELINE, run_s=1e-6, batch_rows=1)
            client._connected().grain.learn(Request("rows", signature), quick, True)
        yield client


def chunk(client: Client, signature: str, *values: float) -> list[Any]:
    return client.submit_many("rows", [np.array([value], np.float32) for value in values], signature=signature)


def answers(futures: list[Any]) -> list[Any]:
    """What each ends with: the row of its answer, or its error's type."""
    ended = [future.exception(60) or future.result()["y"].tolist() for future in futures]
    return [each if isinstance(each, list) else type(each) for each in ended]


def histories(client: Client) -> list[str]:
    """Of all jobs that the pool remembers, the oldest first."""
    jobs = sorted(client.explain().jobs, key=lambda job: job.job)
    return ["\n".join(client.explain(job.job).history) for job in jobs]


def runs(told: list[str]) -> set[str]:
    """The batches that these were in."""
    return {number for history in told for number in re.findall(r"in batch (\d+) of", history)}


@contextmanager
def busy(
    pool: PoolProcess, orders: Orders, number: int = 77, ended: type[BaseException] | None = None
) -> Iterator[None]:
    """The only lane runs another client's job until this ends; then that has its answer, or this error."""
    orders.give(f"job-{number}", "mid-batch", "wait")
    with pool.client(reconnect_timeout=0) as other:
        running = other.submit("rows", np.array([number], np.float32), signature="double")
        orders.await_claim(f"job-{number}")
        try:
            yield
        finally:
            orders.go()
        assert isinstance(running.exception(20), ended or type(None))


# --- a worker dies ------------------------------------------------------------------------------------------------


def test_members_of_a_lost_chunk_come_back_alone_before_what_their_client_sent_later(
    pool: PoolProcess, client: Client
) -> None:
    order: list[float] = []
    futures = chunk(client, "kill", 1, 2, -3, 4)
    later = [client.submit("rows", np.array([value], np.float32), signature="double") for value in (10, 20)]
    for value, future in zip((1, 2, -3, 4, 10, 20), (*futures, *later), strict=True):
        future.add_done_callback(lambda _, value=value: order.append(value))
    assert answers(futures) == [[1], [2], errors.Quarantined, [4]]
    assert answers(later) == [[20], [40]]
    assert order[-2:] == [10, 20], order
    told = histories(client)
    assert [history for history in told if "unpacked: slot 0" in history and "SIGKILL" in history], told
    members = [history for history in told if "was one of 4 jobs" in history]
    assert len(members) == 4
    assert all(" of 1 rows" in history for history in members), members
    assert all(history.count("leased") == 1 for history in members), "with the chunk's death it is the second attempt"
    assert pool.whole_log().count("BACKOFF") == 2


# --- a run fails --------------------------------------------------------------------------------------------------


def test_of_many_the_one_bad_member_alone_fails_after_a_few_runs(client: Client) -> None:
    futures = chunk(client, "fail", *range(40), -1, *range(41, 64))
    expected = [[float(number)] for number in range(64)]
    assert answers(futures) == [*expected[:40], errors.ModelFailed, *expected[41:]]
    told = histories(client)
    assert any("was one of 64 jobs" in history for history in told), "they did not leave as one"
    assert len(told) == 1 + 2 * 6, "as halves, each time of one that failed"
    # Each halving is a run of the two together, since they came together, and then one of each.
    assert len(runs(told)) <= 1 + 3 * 6, sorted(runs(told))


# --- the pool ends ------------------------------------------------------------------------------------------------


def start_again(pool: PoolProcess, way: Path) -> None:
    """The next pool has described its models before the client finds it."""
    there = way.readlink()
    way.unlink()
    pool.log.unlink()
    pool.start().await_ready()
    way.symlink_to(there)


def test_of_a_killed_pool_each_member_comes_alone_to_the_next(
    pool: PoolProcess, client: Client, orders: Orders, way: Path
) -> None:
    orders.give("job-5", "mid-batch", "wait")
    futures = chunk(client, "double", 5, 6, 7)
    orders.await_claim("job-5")
    pool.running.kill()
    pool.wait()
    start_again(pool, way)
    assert answers(futures) == [[10], [12], [14]]
    told = histories(client)
    assert len(told) == 3
    assert not [history for history in told if "was one of" in history], "they came as a chunk, which was not taken"
    assert all("the pool ended unexpectedly once while it held the job" in history for history in told), told
    assert {future.timeline.attempts for future in futures} == {2}


def test_what_a_stopping_pool_gives_back_comes_to_the_next_as_it_was(
    pool: PoolProcess, client: Client, orders: Orders, way: Path
) -> None:
    with busy(pool, orders, ended=errors.PoolError):
        futures = chunk(client, "double", 5, 6, 7)
        eventually(lambda: client.status().queue.jobs == 4)
        assert pool.stop() == 0
    start_again(pool, way)
    assert answers(futures) == [[10], [12], [14]]
    told = histories(client)
    assert [history.count("of 3 rows") for history in told] == [1], told


# --- a member is cancelled ----------------------------------------------------------------------------------------


def test_of_a_chunk_that_waits_a_cancelled_member_never_runs(pool: PoolProcess, client: Client, orders: Orders) -> None:
    with busy(pool, orders):
        futures = chunk(client, "double", 5, 6, 7, 8)
        eventually(lambda: client.status().queue.jobs == 5)
        assert futures[1].cancel()
        eventually(lambda: client.status().queue.jobs == 4)
    assert answers([futures[0], *futures[2:]]) == [[10], [14], [16]]
    assert {int(future.result()["batch"][0]) for future in (futures[0], *futures[2:])} == {3}, "they run together"
    assert [history for history in histories(client) if "one of its jobs was cancelled" in history]


def test_of_a_chunk_that_runs_a_cancelled_member_disturbs_nobody(client: Client, orders: Orders) -> None:
    orders.give("job-5", "mid-batch", "wait")
    futures = chunk(client, "double", 5, 6, 7, 8)
    orders.await_claim("job-5")
    assert futures[1].cancel()
    client.status()  # read after the cancellation
    orders.go()
    assert answers([futures[0], *futures[2:]]) == [[10], [14], [16]]
    assert {int(future.result()["batch"][0]) for future in (futures[0], *futures[2:])} == {4}, "it ran once, as it was"
    assert len(runs(histories(client))) == 1
    eventually(lambda: client.status().queue.jobs == 0)
