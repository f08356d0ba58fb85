"""Jobs side by side in shared memory through real pools: one view where one is promised, each job its own answer."""

import contextlib
import os
import signal
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import numpy as np
import pytest

from pool import Client
from pool.wire.lent import LENT_BYTES
from support.feeds import counting, feeds
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import freeze

pytestmark = pytest.mark.memory

ODD = LENT_BYTES // 4 + 617  # floats of a job, each a row: no multiple of 64 bytes, nor of 16
EVEN = LENT_BYTES // 4 + 16
MODELS = """
[[model]]
name = "rows"
path = "stub:rows?run_ms=20"
batching = "always"
devices = "all"
max_batch = 65536
[[model]]
name = "padded"
path = "stub:rows?run_ms=20"
batching = "always"
devices = "all"
max_batch = 65536
allowed_batch_sizes = [65536]
"""
JOBS = 40
Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "feeds").mkdir()
    return tmp_path / "feeds"


@pytest.fixture
def pool(folder: Path) -> Iterator[PoolProcess]:
    config = stub_config(models=MODELS, devices='["cpu"]', rest="[restart]\nbackoff_max = '1s'")
    with pool_process(config, counting(folder)) as running:
        yield running


@pytest.fixture
def client(pool: PoolProcess) -> Iterator[Client]:
    with pool.client() as client:
        for model in ("rows", "padded"):
            client.run(model, {"x": np.ones(EVEN, np.float32)}, signature="double", timeout=60)
        yield client


def job(number: int, count: int) -> Array:
    return (number + np.arange(count, dtype=np.float32) / 8).astype(np.float32)


@contextlib.contextmanager
def at_rest(pool: PoolProcess) -> Iterator[int]:
    """Its worker stands still: what is submitted meanwhile is there together, however busy the machine is."""
    (worker,) = pool.workers()
    freeze(worker)
    try:
        yield worker
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGCONT)


def round_of(pool: PoolProcess, client: Client, count: int, first: int, *, model: str = "rows", drop: int = 0) -> int:
    """Jobs at once, of two signatures in turn by halves; every `drop`th is cancelled. How many were answered."""
    halves = [("double", "y"), ("view", "same")]
    futures = []
    with at_rest(pool):
        for number in range(first, first + JOBS):
            signature, output = halves[number % JOBS // (JOBS // 2)]
            futures.append(
                client.submit(model, {"x": job(number, count)}, signature=signature, outputs=[output], timeout=90)
            )
        for future in futures[::drop] if drop else ():
            future.cancel()
        client.status()  # the pool has read all that was sent before
    answered = 0
    for number, future in enumerate(futures, first):
        try:
            answer = future.result()
        except CancelledError:
            continue
        answered += 1
        given = job(number, count)
        for name, found in answer.items():
            np.testing.assert_array_equal(found, 2 * given if name == "y" else given)
    return answered


@pytest.mark.parametrize("count", [EVEN, ODD])
def test_jobs_of_one_call_are_one_view_and_each_has_its_own_answer(
    pool: PoolProcess, folder: Path, client: Client, count: int
) -> None:
    before = feeds(folder)
    assert sum(round_of(pool, client, count, JOBS * turn) for turn in range(6)) == 6 * JOBS
    found = feeds(folder).since(before)
    assert found.rows_viewed + found.rows_copied == 6 * JOBS * count
    assert found.views + found.copies >= 12, "they ran together"
    if count == EVEN:
        assert found.copies <= found.views, found
    else:
        assert found.views, "those that begin where TensorFlow takes them"


def test_cancelled_neighbours_and_memory_that_is_used_again_at_once_change_nothing(
    pool: PoolProcess, folder: Path, client: Client
) -> None:
    before = feeds(folder)
    answered = [round_of(pool, client, EVEN, JOBS * turn, drop=5) for turn in range(8)]
    assert all(JOBS * 4 // 5 <= count < JOBS for count in answered), "some were cancelled"
    assert feeds(folder).since(before).views


def test_what_is_padded_is_joined(pool: PoolProcess, folder: Path, client: Client) -> None:
    before = feeds(folder)
    assert round_of(pool, client, EVEN, 0, model="padded") == JOBS
    found = feeds(folder).since(before)
    assert found.copies
    assert not found.views, "none of these batches is as large as the size that is allowed"


def test_jobs_of_a_worker_that_died_are_answered_from_where_they_still_lie(
    pool: PoolProcess, folder: Path, client: Client
) -> None:
    before = feeds(folder)
    for turn in range(4):
        futures = [
            client.submit("rows", {"x": job(number, EVEN)}, signature="double", timeout=90) for number in range(JOBS)
        ]
        futures[4].result()
        with at_rest(pool) as worker:
            more = [
                client.submit("rows", {"x": job(-number, EVEN)}, signature="double", timeout=90)
                for number in range(JOBS // 2)
            ]
            # Some are at work, or wait: of the former ones too, unless this test was held up.
            assert client.status().queue.jobs >= JOBS // 2
            os.kill(worker, signal.SIGKILL)
        more += [
            client.submit("rows", {"x": job(-number, EVEN)}, signature="double", timeout=90)
            for number in range(JOBS // 2, JOBS)
        ]
        for sign, each in ((1, futures), (-1, more)):
            for number, future in enumerate(each):
                np.testing.assert_array_equal(future.result()["y"], 2 * job(sign * number, EVEN), f"turn {turn}")
    assert len(list(folder.iterdir())) == 5, "each worker was another"
    assert feeds(folder).since(before).views
