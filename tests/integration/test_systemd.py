"""What a service manager hears from a real pool, from its start to its end."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.service_manager import Manager
from pool import errors
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import eventually, freeze, pid_of

WATCHDOG_S = 0.6


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(tmp_path / "notify")
    yield manager
    manager.close()


@pytest.fixture
def pool(manager: Manager) -> Iterator[PoolProcess]:
    environ = {"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": str(int(WATCHDOG_S * 1e6))}
    with pool_process(stub_config(), environ) as running:
        yield running


def test_the_manager_hears_of_the_start_each_loss_and_the_end(manager: Manager, pool: PoolProcess) -> None:
    eventually(lambda: manager.said("READY") == ["1"])
    first_ready = next(index for index, message in enumerate(manager.heard) if "READY" in message)
    before = manager.heard[:first_ready]
    assert any("EXTEND_TIMEOUT_USEC" in message for message in before), "models may take long to load"
    assert any("STARTING" in message.get("STATUS", "") for message in before)
    assert manager.heard[first_ready]["STATUS"] == "2 of 2 slots serve"

    with pool.client() as client:
        victim = pid_of(client.status().slots[1])
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: any(status.startswith("1 of 2 slots serve; last: slot 1 ") for status in manager.said("STATUS")))
    eventually(lambda: manager.said("STATUS")[-1].startswith("2 of 2 slots serve; "))

    assert pool.stop() == 0
    manager.catch_up()
    assert manager.said("STOPPING") == ["1"]
    assert manager.said("READY") == ["1"], "once"


def test_a_reload_is_told_and_so_is_its_end(manager: Manager, pool: PoolProcess) -> None:
    eventually(lambda: manager.said("READY") == ["1"])
    before = time.monotonic_ns() // 1000
    pool.config.write_text(pool.config.read_text() + "[queue]\nmax_jobs = 7\n")
    with pool.client() as client:
        client.reload()
        eventually(lambda: manager.said("READY") == ["1", "1"])
        pool.config.write_text("wrong")
        with pytest.raises(errors.InvalidConfig):
            client.reload()
        eventually(lambda: manager.said("READY") == ["1", "1", "1"])
    said = [message for message in list(manager.heard) if "RELOADING" in message or "READY" in message]
    assert ["RELOADING" in message for message in said] == [False, True, False, True, False], "in this order"
    assert before <= int(said[1]["MONOTONIC_USEC"]) <= int(said[3]["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
    assert said[2]["STATUS"] == "reloaded"
    assert said[4]["STATUS"] == "not reloaded; see the log"


def test_a_stop_may_take_as_long_as_the_configuration_of_now_says(manager: Manager, pool: PoolProcess) -> None:
    eventually(lambda: manager.said("READY") == ["1"])
    pool.config.write_text(pool.config.read_text().replace("[pool]\n", '[pool]\ndrain_timeout = "100s"\n'))
    with pool.client() as client:
        client.reload()
    manager.catch_up()
    heard = len(manager.said("EXTEND_TIMEOUT_USEC"))
    assert pool.stop() == 0
    manager.catch_up()
    assert [int(usec) for usec in manager.said("EXTEND_TIMEOUT_USEC")[heard:]] == [115_000_000]


def test_the_watchdog_is_fed_while_the_loop_turns_and_by_nobody_else(manager: Manager, pool: PoolProcess) -> None:
    """Three times in its time, while nothing else happens; seldom where the pool or this test is held up."""

    def is_fed() -> bool:
        before = len(manager.said("WATCHDOG"))
        time.sleep(WATCHDOG_S)
        return len(manager.said("WATCHDOG")) >= before + 2

    eventually(is_fed)

    freeze(pool.pid)
    manager.catch_up()
    frozen = len(manager.said("WATCHDOG"))
    time.sleep(2 * WATCHDOG_S)  # nothing is to come, so there is nothing to wait for
    manager.catch_up()
    assert len(manager.said("WATCHDOG")) == frozen
    os.kill(pool.pid, signal.SIGCONT)
    eventually(lambda: len(manager.said("WATCHDOG")) > frozen)


def test_the_workers_cannot_speak_for_the_pool(manager: Manager, pool: PoolProcess) -> None:
    assert manager.path.exists()
    workers = pool.workers()
    assert len(workers) == 2
    for pid in workers:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
        assert b"NOTIFY_SOCKET" not in environ
        assert b"WATCHDOG_USEC" not in environ
