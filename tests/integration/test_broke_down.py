"""A fault in the pool's core: written down, told to the clients, no worker is left, and a status of its own.

The fault is planted: `core_hook` raises once the core has handled an event, before anything of it is done.
"""

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from integration.core_hook.sitecustomize import PlantedFault, environ_for, plant
from pool import errors
from pool.core.machine import Machine
from pool.recorder.fault_report import replay, summary
from pool.systemd.unit import unit
from support.pool_process import PoolProcess, stub_config
from support.processes import eventually

pytestmark = pytest.mark.faults

MARKED = np.frombuffer(b"not to be written down, as it is", np.float32)


def started(fault: str, rest: str = "") -> PoolProcess:
    return PoolProcess(stub_config(rest=rest), environ_for(fault)).start().await_ready()


@pytest.fixture
def pool() -> Iterator[PoolProcess]:
    """It breaks down at the fourth job."""
    pool = started("JobArrived:4")
    yield pool
    pool.kill()


def report_of(pool: PoolProcess) -> tuple[Path, dict[str, Any]]:
    (path,) = (pool.state / "pool" / "crash_reports").glob("*-pool-*.json")  # beside reports of workers
    report = json.loads(path.read_text())
    assert isinstance(report, dict)
    return path, report


@pytest.mark.promise(1)
def test_the_pool_ends_with_a_report_and_every_caller_hears_of_it(pool: PoolProcess) -> None:
    workers = pool.workers()
    with pool.client(reconnect_timeout=0) as one, pool.client(reconnect_timeout=0) as other:
        assert one.run("echo", MARKED)["x"].tobytes() == MARKED.tobytes()
        sleeps = one.submit("faults", 60.0, signature="sleep", timeout=90)
        # Its worker is in the middle of it. Of two clients the second's jobs might come first: the fourth is the fault.
        eventually(lambda: any(slot.busy_lanes for slot in one.status().slots))
        waits = other.submit("counter", 1.0, signature="add", timeout=90)
        assert waits.result(30)
        last = other.submit("echo", 1.0, timeout=90)
        for future in (sleeps, last):
            with pytest.raises(errors.PoolUnreachable, match="it has broken down"):
                future.result(20)
    assert pool.wait(20) == 4
    pool.assert_clean(workers)
    text = pool.text()
    assert "the pool broke down: JobArrived: PlantedFault: as ordered" in text
    path, _ = report_of(pool)
    assert f"the events that led to it are in {path}" in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_report_replays(pool: PoolProcess) -> None:
    with pool.client(reconnect_timeout=0) as client:
        for number in range(2):
            client.run("echo", MARKED + number)
        with pytest.raises(errors.ModelFailed):
            client.run("faults", b"as told", signature="fail")
        with pytest.raises(errors.PoolUnreachable):
            client.run("echo", 1.0)
    assert pool.wait(20) == 4
    path, report = report_of(pool)
    assert report["left_out"] == 0
    assert report["events"][-1][2]["JobArrived"]["model"] == "echo"
    assert "PlantedFault" in report["traceback"]
    assert "core_hook" in report["traceback"]
    assert MARKED.tobytes().hex() not in path.read_text()

    machine = replay(report)
    machine.validate()
    assert summary(machine) == report["state"]
    assert report["state"]["answered"] == {"done": 2, "model-failed": 1}
    assert report["state"]["jobs"] == 1

    def with_the_fault(machine: Machine) -> Machine:
        plant(machine, "JobArrived:4")
        return machine

    with pytest.raises(PlantedFault):
        replay(report, with_the_fault)
    replay({**report, "events": report["events"][:-1]}, with_the_fault)


def test_a_client_that_waits_has_its_answer_from_the_next_pool(pool: PoolProcess) -> None:
    with pool.client() as client:
        assert [client.run("echo", float(number))["x"] for number in range(3)] == [0.0, 1.0, 2.0]
        future = client.submit("echo", 7.0, timeout=60)
        assert pool.wait(20) == 4
        pool.log.unlink()
        pool.start().await_ready()
        assert future.result(60)["x"] == 7.0
    assert pool.stop() == 0


def test_a_fault_at_a_workers_death_is_no_other() -> None:
    pool = started("WorkerExited:1")
    try:
        workers = pool.workers()
        broke_down = pytest.raises(errors.PoolUnreachable, match="it has broken down")
        with pool.client(reconnect_timeout=0) as client, broke_down:
            client.run("faults", 9, signature="kill")
        assert pool.wait(20) == 4
        pool.assert_clean(workers)
        _, report = report_of(pool)
        assert summary(replay(report)) == report["state"]
    finally:
        pool.kill()


def test_where_nothing_may_be_kept_the_log_has_the_traceback() -> None:
    pool = started("JobArrived:1", '[crash_reports]\nkeep = "off"\n')
    try:
        with pool.client(reconnect_timeout=0) as client, pytest.raises(errors.PoolUnreachable):
            client.run("echo", 1.0)
        assert pool.wait(20) == 4
        assert "the events that led to it are not stored" in pool.text()
        assert "PlantedFault" in pool.text()
        assert not (pool.state / "pool" / "crash_reports").exists()
    finally:
        pool.kill()


def test_reports_are_bounded_in_number() -> None:
    """As many as reports of workers: they share a folder and its bounds."""
    pool = started("JobArrived:1", "[crash_reports]\nkeep = 2\n")
    try:
        for _ in range(3):
            with pool.client(reconnect_timeout=0) as client, pytest.raises(errors.PoolUnreachable):
                client.run("echo", 1.0)
            assert pool.wait(20) == 4
            last = max((pool.state / "pool" / "crash_reports").iterdir())
            pool.log.unlink()
            pool.start().await_ready()
        kept = list((pool.state / "pool" / "crash_reports").iterdir())
        assert len(kept) == 2
        assert last in kept
        eventually(lambda: len(pool.workers()) == 2)
    finally:
        pool.kill()


def test_systemd_starts_it_again() -> None:
    text = unit(executable="/usr/bin/python3", config="/etc/pool.toml", user_unit=True, start_s=1.0, stop_s=1.0)
    assert "\nRestart=on-failure\n" in text
    (prevented,) = [line for line in text.splitlines() if line.startswith("RestartPreventExitStatus=")]
    assert "4" not in prevented.split("=")[1].split()
