"""Rows that are proven independent while jobs come, over real processes."""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pool import Client
from pool.core.queue.independence import ENOUGH
from support.pool_process import PoolProcess
from support.processes import eventually, pid_of

CONFIG = """
[pool]
endpoint = "@endpoint@"
devices = ["cpu"]
lanes = 1

[[model]]
name = "rows"
path = "stub:rows?run_ms=20"
max_batch = 8

[[model]]
name = "whole"
path = "stub:rows"
batching = false
max_batch = 2
"""
RUN_S = 0.02


@pytest.fixture(scope="module")
def pool() -> Iterator[PoolProcess]:
    pool = PoolProcess(CONFIG).start().await_ready()
    yield pool
    pool.stop()


@pytest.fixture
def client(pool: PoolProcess) -> Iterator[Client]:
    with pool.client() as client:
        yield client


def rows_told(client: Client, model: str, signature: str) -> str:
    (found,) = [each for each in client.models() if each.name == model]
    text: str = found.signatures[signature].rows
    return text


def ask(client: Client, values: Any, **how: Any) -> Any:
    return client.submit("rows", np.asarray(values, np.float32), signature="view", **how)


def shared(client: Client) -> bool:
    """Whether jobs that come together run together, each with its own answer."""
    futures = [ask(client, [float(number)]) for number in range(24)]
    for number, future in enumerate(futures):
        assert future.result()["same"].tolist() == [number]
    return max(future.timeline.batch_rows for future in futures) > 1


def test_what_is_compared_costs_no_job_its_deadline_and_then_jobs_are_joined(client: Client) -> None:
    assert not shared(client), "24 jobs are too many to wait for comparisons in between"
    beside = 0
    for number in range(4 * ENOUGH):
        # A run, one more of what is compared at that moment, and what a busy machine needs.
        assert ask(client, [number, 1.0], timeout=50 * RUN_S).result()["same"].tolist() == [number, 1.0]
        beside += 1
        time.sleep(2 * RUN_S)  # half of the time the lane has nothing else to do
        if rows_told(client, "rows", "view").startswith("in batches"):
            break
    assert beside >= 1
    assert rows_told(client, "rows", "view").startswith("in batches")
    assert shared(client)


def test_what_was_proven_outlives_the_worker(client: Client) -> None:
    assert rows_told(client, "rows", "view").startswith("in batches")
    os.kill(pid_of(client.status().slots[0]), signal.SIGKILL)
    eventually(lambda: client.status().slots[0].incarnation == 2 and client.status().slots[0].state == "READY")
    assert shared(client)


def test_an_output_that_depends_on_the_batch_ends_it_for_its_signature(client: Client, pool: PoolProcess) -> None:
    told = rows_told(client, "rows", "double")
    assert told.startswith("job by job: its rows depend on each other: when it warmed up, output 'batch' gave")
    pool.await_log("model rows, signature double: its jobs run one by one, because its rows depend on each other")
    futures = [client.submit("rows", np.ones(1, np.float32), signature="double") for _ in range(12)]
    assert [future.result()["batch"].tolist() for future in futures] == [[1]] * 12


def test_batching_false_joins_nothing_and_cuts_nothing(client: Client) -> None:
    futures = [client.submit("whole", np.ones(5, np.float32), signature="double") for _ in range(12)]
    assert [future.result()["batch"].tolist() for future in futures] == [[5] * 5] * 12
    assert rows_told(client, "whole", "double") == "job by job: batching = false"
