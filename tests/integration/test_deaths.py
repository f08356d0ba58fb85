"""The crash matrix: each fault at each moment, and what everybody else sees of it. Stub models alone."""

import os
import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool import Client, errors
from support.pools import RunningPool, StartPool, are_gone, row, until

FAIL, KILL, HANG, HANG_WITH_GIL, NO_MEMORY, EXIT, UNFIT, BUG = (-float(n) for n in range(1, 9))

CONFIG = """
[pool]
devices = ["cpu", "cpu"]
lanes = 2
[health]
hung_after = "2s"
[restart]
intensity = 50
[[model]]
name = "double"
path = "stub:double?log={folder}/ledger&gate={folder}/gate"
batching = "on"
max_batch = 64
[[model]]
name = "count"
path = "stub:count?log={folder}/counts&gate={folder}/gate"
[[model]]
name = "plain"
path = "stub:double?gate={folder}/gate"
"""


def value(future: "Future[Any]") -> Any:
    """What a future ends in: a number, or the error's class."""
    try:
        return future.result(60)["y"].item()
    except errors.PoolError as error:
        return type(error)


@pytest.fixture
def client(running: RunningPool) -> Iterator[Client]:
    """Of the pool that all faults meet. Runs wait at the gate."""
    for name in ("gate", "ledger", "counts"):
        (running.folder / name).unlink(missing_ok=True)
    with Client(running.endpoint) as made:
        until(lambda: made.status()["pool"]["state"] == "READY", "both slots to come back")
        yield made
        (running.folder / "gate").touch()


def busy(client: Client) -> int:
    """A worker that runs something."""
    slots = until(lambda: [slot for slot in client.status()["slots"] if "runs" in slot["doing"]], "a run at the gate")
    return int(slots[0]["pid"])


@pytest.mark.parametrize(
    ("model", "fault", "ends_in"),
    [
        ("double", FAIL, errors.ModelFailed),
        ("double", NO_MEMORY, errors.OutOfMemory),
        ("double", KILL, errors.Quarantined),
        ("double", UNFIT, errors.Quarantined),
        ("plain", BUG, errors.ModelFailed),
        ("plain", EXIT, errors.Quarantined),
    ],
)
def test_a_fault_is_the_guilty_job_s_alone(
    running: RunningPool, client: Client, model: str, fault: float, ends_in: type[Exception]
) -> None:
    """Sixty jobs wait at a gate with one guilty job among them: 59 answers, one error."""
    futures = [client.submit(model, row(fault if n == 30 else n + 1.0)) for n in range(60)]
    busy(client)
    (running.folder / "gate").touch()
    found = [value(future) for future in futures]
    assert found == [ends_in if n == 30 else 2.0 * (n + 1) for n in range(60)]
    if ends_in is not errors.Quarantined:
        is_joined = any(future.result().timeline.together > 1 for future in futures if not future.exception())
        assert is_joined == (model == "double"), "the premise: jobs shared runs"
        return
    (told,) = re.findall(r"inputs are kept in (\S+\.npz)", str(futures[30].exception()))
    assert Path(told).parent == running.folder / "state" / "pool" / "quarantine"
    with np.load(told) as arrays:
        assert arrays["x"].tolist() == [[fault]]


@pytest.mark.parametrize("fault", [HANG, HANG_WITH_GIL])
def test_a_hung_batch_is_ended_with_its_stacks_in_the_log(running: RunningPool, client: Client, fault: float) -> None:
    (running.folder / "gate").touch()
    futures = [client.submit("double", row(fault if n == 3 else n + 1.0), timeout=60) for n in range(10)]
    assert [value(future) for future in futures] == [errors.Quarantined if n == 3 else 2.0 * (n + 1) for n in range(10)]
    log = running.log.read_text()
    assert "it hangs: a batch of 'double' has run for" in log
    assert fault == HANG_WITH_GIL or "workers/stub/__init__.py" in log, "the stacks name the function"


def test_a_killed_worker_s_jobs_run_again_on_another(running: RunningPool, client: Client) -> None:
    """Each job is answered once and rightly; a ledger that the models write shows that none was left out."""
    futures = [client.submit("double", row(n + 1.0)) for n in range(300)]
    os.kill(busy(client), signal.SIGKILL)
    (running.folder / "gate").touch()
    began = time.monotonic()
    assert [value(future) for future in futures] == [2.0 * (n + 1) for n in range(300)]
    assert time.monotonic() - began < 2.0, "its death is told, and not found by its silence"
    assert client.status()["deaths"]
    ran = [float(each) for line in (running.folder / "ledger").read_text().splitlines() for each in line.split()[1:]]
    assert {*ran} >= {n + 1.0 for n in range(300)}


def test_a_stateful_job_is_never_run_twice(running: RunningPool, client: Client) -> None:
    futures = [client.submit("count", row(n + 1.0)) for n in range(20)]
    pid = busy(client)
    os.kill(pid, signal.SIGKILL)
    (running.folder / "gate").touch()
    found = [value(future) for future in futures]
    lost = futures[0].exception()
    assert isinstance(lost, errors.WorkerLost)
    assert not lost.retryable
    assert found[1:] == [*range(19)], "the others ran in order, one after the other, on one worker"
    rows = [line.split() for line in (running.folder / "counts").read_text().splitlines()]
    assert sorted(float(each[1]) for each in rows) == [n + 1.0 for n in range(1, 20)]
    assert len({each[0] for each in rows}) == 1


def test_a_frozen_worker_is_killed_and_its_jobs_run_on_another(running: RunningPool, client: Client) -> None:
    (running.folder / "gate").touch()
    pid = running.workers()[0]
    os.kill(pid, signal.SIGSTOP)
    futures = [client.submit("plain", row(n + 1.0)) for n in range(20)]
    assert [value(future) for future in futures] == [2.0 * (n + 1) for n in range(20)]
    until(lambda: are_gone(pid), "its end")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_jobs_end(start_pool: StartPool, tmp_path: Path, number: int) -> None:
    pool = start_pool(CONFIG.format(folder=tmp_path))
    workers = pool.workers()
    with Client(pool.endpoint, reconnect_timeout=0.1) as client:
        futures = [client.submit("count", row(n + 1.0)) for n in range(5)]
        busy(client)
        pool.process.send_signal(number)
        pool.process.send_signal(signal.SIGHUP)  # the two of a session that ends are one
        pool.wait_for("stopping")
        (tmp_path / "gate").touch()
        assert value(futures[0]) == 0
        assert {value(future) for future in futures[1:]} == {errors.PoolUnreachable}
        assert pool.process.wait(30) == 0
    assert are_gone(*workers)
    assert [each.name for each in pool.folder.iterdir() if each.is_socket()] == []


def test_a_second_pool_at_the_endpoint_is_refused_and_a_killed_one_s_is_taken_over(
    start_pool: StartPool, tmp_path: Path
) -> None:
    pool = start_pool(CONFIG.format(folder=tmp_path))
    (tmp_path / "gate").touch()
    second = start_pool(CONFIG.format(folder=tmp_path), wait=False, folder=pool.folder)
    assert second.process.wait(30) == 1
    assert f"a pool is already running at {pool.endpoint} (pid {pool.pid})" in pool.log.read_text()
    with Client(pool.endpoint) as client:
        assert client.run("double", row(1.0))["y"].item() == 2.0
    pool.kill()
    pool.log.unlink()
    third = start_pool(CONFIG.format(folder=tmp_path), folder=pool.folder)
    with Client(pool.endpoint) as client:
        assert client.status()["pool"]["pid"] == third.pid
        assert client.run("double", row(1.0))["y"].item() == 2.0
