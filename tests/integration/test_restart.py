"""`pool restart`: new workers under load, and no job is lost for it."""

import os
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from pool import errors
from support.commands import run_command
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import alive, eventually, pid_of
from support.run_ledger import Ledger

pytestmark = pytest.mark.replacement

RECYCLED_S = 60.0  # the core looks every 5 s, and one slot after the other
MODELS = """
[[model]]
name = "rows"
path = "stub:rows?run_ms=5"
batching = "always"
devices = "all"
max_batch = 4
[[model]]
name = "faults"
path = "stub:faults"
devices = "all"
"""


@pytest.fixture
def pool() -> Iterator[PoolProcess]:
    with pool_process(stub_config(models=MODELS)) as running:
        yield running


def restart(pool: PoolProcess, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return run_command(pool, "restart", *arguments)


def test_all_workers_are_replaced_one_after_the_other_and_no_job_is_lost(pool: PoolProcess) -> None:
    before = pool.workers()
    over, done = threading.Event(), [0]
    wrong: list[object] = []

    def load() -> None:
        with pool.client() as client:
            inputs = iter(lambda: None if over.is_set() else np.ones(1, np.float32), None)
            for result in client.map("rows", inputs, signature="double"):
                done[0] += 1
                if result["y"].tolist() != [2.0]:
                    wrong.append(result)

    def load_all() -> None:
        try:
            load()
        except errors.PoolError as error:
            wrong.append(error)

    threads = [threading.Thread(target=load_all) for _ in range(3)]
    for thread in threads:
        thread.start()
    eventually(lambda: done[0] > 20)
    found = restart(pool, "--rolling")
    over.set()
    for thread in threads:
        thread.join(30)
    assert found.returncode == 0, found.stderr
    assert [line.split(":")[0] for line in found.stdout.splitlines()] == ["slot 0 cpu", "slot 1 cpu"], found.stdout
    assert not wrong
    eventually(lambda: len(pool.workers()) == 2)  # the last one may still be leaving
    after = pool.workers()
    assert not set(before) & set(after)
    assert not [pid for pid in before if alive(pid)]
    with pool.client() as client:
        assert [slot.incarnation for slot in client.status().slots] == [2, 2]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path)


def gated(ledger: Ledger) -> str:
    """A model whose jobs keep their lanes until the test lets them go."""
    return f'[[model]]\nname = "gated"\npath = "stub:tally?{ledger.path}"\nbatching = "off"\ndevices = "all"\n'


def test_what_runs_is_finished_first(ledger: Ledger) -> None:
    with pool_process(stub_config(models=MODELS + gated(ledger))) as pool, pool.client() as client:
        futures = [client.submit("gated", {"n": [-1]}, signature="gated") for _ in range(4)]
        eventually(lambda: sum(slot.busy_lanes for slot in client.status().slots) == 4)
        assert client.restart(0) == 2
        eventually(lambda: client.status().slots[0].state == "DRAINING", 40.0)
        assert not any(future.done() for future in futures)
        ledger.open_for_all(futures)
        assert [future.exception(20) for future in futures] == [None] * 4
        eventually(lambda: [slot.incarnation for slot in client.status().slots] == [2, 1])


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        (["7"], 1, "pool: there is no slot 7; the last is 1"),
        ([], 2, "name a SLOT, or give --rolling for all of them"),
        (["0", "--rolling"], 2, "name a SLOT, or give --rolling for all of them"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    pool: PoolProcess, arguments: list[str], status: int, complaint: str
) -> None:
    found = restart(pool, *arguments)
    assert found.returncode == status
    assert found.stderr.splitlines()[-1].removeprefix("Error: ") == complaint


def test_a_slot_that_was_given_up_serves_again() -> None:
    with pool_process(stub_config(models=MODELS, rest="[restart]\nintensity = 1")) as pool, pool.client() as client:
        for _ in range(2):
            eventually(lambda: client.status().slots[0].state == "READY")
            killed = pid_of(client.status().slots[0])
            os.kill(killed, signal.SIGKILL)
            # Its follower may be READY before anybody has looked.
            eventually(lambda killed=killed: client.status().slots[0].pid != killed)  # type: ignore[misc]
        eventually(lambda: client.status().slots[0].state == "FATAL")
        found = restart(pool, "0")
        assert found.returncode == 0, found.stderr
        assert re.fullmatch(r"slot 0 cpu:0: READY, pid \d+, incarnation 3\n", found.stdout)
        assert client.run("rows", np.ones(1, np.float32), signature="double", device="slot:0")["y"].tolist() == [2.0]


def test_a_drained_slot_loses_no_job_and_comes_back_when_it_is_asked_for(ledger: Ledger) -> None:
    """What runs there is finished, what waits runs elsewhere."""
    with pool_process(stub_config() + gated(ledger)) as pool, pool.client() as client:
        futures = [client.submit("gated", {"n": [-1]}, signature="gated") for _ in range(8)]
        eventually(lambda: all(slot.busy_lanes == 2 for slot in client.status().slots))
        with ThreadPoolExecutor(1) as threads:
            drained = threads.submit(run_command, pool, "drain", "0")
            eventually(lambda: client.status().slots[0].state == "DRAINING")
            assert not any(future.done() for future in futures)
            ledger.open_for_all(futures)
            done = drained.result()
        assert (done.returncode, done.stdout) == (0, "slot 0 cpu:0: STOPPED; `pool undrain 0` brings it back\n"), done
        assert [future.exception(20) for future in futures] == [None] * 8
        assert Counter(future.result().slot for future in futures) == {0: 2, 1: 6}
        assert client.status().slots[0].pid is None
        assert client.run("echo", 1.0)["x"] == 1.0
        again = run_command(pool, "drain", "0")
        assert (again.returncode, again.stderr) == (
            1,
            "pool: slot 0 is already STOPPED: drain requested; `pool undrain` brings it back\n",
        )
        assert run_command(pool, "restart", "0").returncode == 0
        assert client.run("echo", 1.0, device="slot:0")["x"] == 1.0


@pytest.mark.faults
def test_a_worker_that_has_done_its_jobs_is_recycled_under_load() -> None:
    with pool_process(stub_config(rest="[recycle]\njobs = 200\n")) as pool, pool.client() as client:
        sent, began = 0, time.monotonic()
        while "[recycle] jobs" not in pool.text() or client.status().slots[0].incarnation == 1:
            values = [float(sent + n) for n in range(50)]
            assert [float(answer["x"]) for answer in client.map("echo", values, timeout=20)] == values
            sent += 50
            assert time.monotonic() < began + RECYCLED_S, f"{sent} jobs later it is still there"
        assert "BACKOFF" not in pool.whole_log(), "its replacement was there"


@pytest.mark.faults
def test_a_worker_that_holds_too_much_memory_is_recycled() -> None:
    with pool_process(stub_config(rest='[recycle]\nhost_memory = "1MiB"\n[health]\nheartbeat = "100ms"')) as pool:
        pool.await_log("iB of memory ([recycle] host_memory)")
