"""The pool goes away and returns at the same endpoint, over real processes: what its clients see is latency."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool import AsyncClient, Client, errors
from support.pool_process import PoolProcess, stub_config
from support.processes import eventually, freeze
from support.run_ledger import Ledger

pytestmark = pytest.mark.faults

MODELS = """
[[model]]
name = "slow"
path = "stub:rows?run_ms=15"
batching = "always"
devices = "all"
max_batch = 4
[[model]]
name = "faults"
path = "stub:faults"
devices = "all"
[[model]]
name = "counter"
path = "stub:counter"
"""
THRICE = stub_config(models=MODELS, rest="[queue]\nmax_attempts = 3")


def row(number: float) -> "np.ndarray[tuple[int], np.dtype[np.float32]]":
    return np.array([number], np.float32)


@pytest.fixture
def pool() -> Iterator[PoolProcess]:
    pool = PoolProcess(THRICE)
    try:
        yield pool.start().await_ready()
        assert pool.stop() == 0, pool.text()
    finally:
        pool.kill()


def kill(pool: PoolProcess) -> None:
    """SIGKILL, as by the kernel that is out of memory; its socket stays behind."""
    pool.running.kill()
    pool.running.wait(10)
    pool.log.unlink()


class Counted:
    """The ends of futures, as their callers see them."""

    def __init__(self, futures: "list[Future[Any]]") -> None:
        self.ends = [0] * len(futures)
        for number, future in enumerate(futures):
            future.add_done_callback(lambda _, number=number: self._count(number))  # type: ignore[misc]

    def _count(self, number: int) -> None:
        self.ends[number] += 1


def submit_many(client: Client, first: int, count: int = 200) -> "list[Future[Any]]":
    return [client.submit("slow", row(first + n), signature="double", timeout=90) for n in range(count)]


def assert_right(futures: "list[Future[Any]]", first: int) -> None:
    for number, future in enumerate(futures):
        assert future.result(60)["y"].tolist() == [2 * (first + number)]


@pytest.mark.parametrize("outages", [1, 2])
def test_a_killed_pool_that_returns_costs_no_job_of_two_clients(tmp_path: Path, outages: int) -> None:
    """With a second outage, it is killed again when some of what came again is done.

    So that it holds some whenever it is killed, its workers stand still by then, and one job waits at a gate.
    """
    ledger = Ledger(tmp_path)
    gated = f'[[model]]\nname = "gated"\npath = "stub:tally?{ledger.path}"\nbatching = "off"\n'
    pool = PoolProcess(stub_config(models=MODELS + gated, rest="[queue]\nmax_attempts = 3"))
    try:
        pool.start().await_ready()
        with pool.client() as one, pool.client() as other:
            held: Future[Any] = one.submit("gated", {"n": [-1]}, signature="gated", timeout=110)
            mine, theirs = submit_many(one, 0), submit_many(other, 1000)
            counted = [Counted(each) for each in ([held], mine, theirs)]

            def done() -> int:
                return sum(future.done() for future in mine + theirs)

            for _ in range(outages):
                before = done()
                eventually(lambda before=before: done() >= before + 40, 60)  # type: ignore[misc]
                for worker in pool.workers():
                    freeze(worker)
                more = submit_many(one, len(mine), 40), submit_many(other, 1000 + len(theirs), 40)
                counted += map(Counted, more)
                mine += more[0]
                theirs += more[1]
                eventually(lambda: one.status().queue.jobs >= 1 + 2 * 40)
                kill(pool)
                assert not any(future.done() for future in [held, *more[0], *more[1]])
                pool.start()
            pool.await_ready()
            ledger.open_gate()
            assert held.result(60)
            assert_right(mine, 0)
            assert_right(theirs, 1000)
            attempts = {future.timeline.attempts for future in mine + theirs}  # type: ignore[attr-defined]
            assert {1, 2} <= attempts <= set(range(1, outages + 2))
            assert held.timeline.attempts == outages + 1  # type: ignore[attr-defined]
            assert [ends for each in counted for ends in each.ends] == [1] * (1 + len(mine) + len(theirs))
        assert pool.stop() == 0, pool.text()
    finally:
        pool.kill()


def test_a_restart_in_order_fails_nobody_who_goes_on_submitting(pool: PoolProcess) -> None:
    """As `systemctl restart` does it: those that are held are finished, those that come meanwhile wait."""
    ends: list[Future[Any]] = []
    stop = threading.Event()

    def go_on(client: Client, first: int) -> None:
        number = first
        while not stop.is_set():
            ends.append(client.submit("slow", row(number), signature="double"))
            number += 1
            stop.wait(0.005)

    with pool.client() as one, pool.client() as other:
        threads = [threading.Thread(target=go_on, args=(client, 0)) for client in (one, other)]
        for thread in threads:
            thread.start()
        stateful = [one.submit("counter", 1, signature="add") for _ in range(20)]
        eventually(lambda: len(ends) > 100)
        assert pool.stop() == 0
        pool.log.unlink()
        pool.start().await_ready()
        came = len(ends)
        eventually(lambda: len(ends) > came + 100)
        stop.set()
        for thread in threads:
            thread.join(10)
        assert [type(future.exception(60)) for future in ends] == [type(None)] * len(ends)
        assert {future.timeline.attempts for future in ends} == {1}  # type: ignore[attr-defined]
        assert [future.exception(60) for future in stateful] == [None] * 20


def test_a_stateful_job_that_may_have_started_is_not_run_again(pool: PoolProcess, marker: str) -> None:
    """One that was submitted while the pool was away has not started anywhere."""
    with pool.client() as client:
        assert client.run("counter", 5, signature="add")["total"] == 5
        slow = [client.submit("faults", 60.0, signature="sleep", timeout=90, device="slot:0") for _ in range(2)]
        eventually(lambda: client.status().slots[0].busy_lanes == 2)
        holder = client.models()[[each.name for each in client.models()].index("counter")].ready_slots[0]
        blockers = [client.submit("faults", 60.0, signature="sleep", device=f"slot:{holder}") for _ in range(2)]
        eventually(lambda: client.status().slots[holder].busy_lanes == 2)
        waiting = client.submit("counter", 7, signature="add")
        eventually(lambda: client.status().queue.jobs == 5)
        kill(pool)
        for job in slow + blockers:
            job.cancel()
        fresh = client.submit("counter", 11, signature="add")
        pool.start()
        with pytest.raises(errors.WorkerLost, match="keeps state and the job may have started") as caught:
            waiting.result(60)
        assert not caught.value.retryable
        assert "the pool ended unexpectedly once while it held the job" in str(caught.value)
        assert fresh.result(60)["total"] == 11
        assert client.run("counter", 0, signature="add")["total"] == 11
        # The pool knows by now what the model is.
        again = client.submit("counter", {"signal": int(signal.SIGKILL), "marker": marker}, signature="kill_once")
        with pytest.raises(errors.WorkerLost):
            again.result(60)
        pool.await_ready()


def test_a_pool_that_does_not_return_is_unreachable_when_the_time_is_over(pool: PoolProcess) -> None:
    with pool.client(reconnect_timeout=1.5) as client:
        futures = [client.submit("faults", 30.0, signature="sleep") for _ in range(6)]
        eventually(lambda: client.status().queue.jobs == 6)
        before = time.monotonic()
        pool.running.kill()
        for future in futures:
            with pytest.raises(errors.PoolUnreachable, match=r"and did not come back within 1\.5 s"):
                future.result(20)
        assert time.monotonic() - before >= 1.5
        pool.running.wait(10)
        pool.log.unlink()
        pool.start().await_ready()
        assert client.run("slow", row(1), signature="double")["y"].tolist() == [2]


def test_deadlines_and_cancellations_while_it_is_away(pool: PoolProcess) -> None:
    with pool.client() as client:
        cancelled = client.submit("faults", 30.0, signature="sleep")
        kept = client.submit("slow", row(4), signature="double")
        assert kept.result(10)
        last = client.submit("faults", 0.01, signature="sleep", timeout=60)
        late = client.submit("faults", 30.0, signature="sleep", timeout=3.0)  # it ends after the pool
        kill(pool)
        assert cancelled.cancel()
        with pytest.raises(errors.DeadlineExceeded, match=r"went away(?: before it answered)?, \d+\.\d s ago"):
            late.result(20)
        pool.start().await_ready()
        assert last.result(30)
        assert client.status().queue.jobs == 0


def test_a_job_that_is_held_whenever_its_pool_dies_is_given_up(pool: PoolProcess) -> None:
    """It cannot be told from the one that kills the pool."""
    with pool.client() as client:
        future = client.submit("faults", 60.0, signature="sleep", timeout=100)
        for _ in range(3):
            pool.await_ready()
            eventually(lambda: any(slot.busy_lanes for slot in client.status().slots))
            kill(pool)
            pool.start()
        with pytest.raises(errors.WorkerLost, match=r"ended unexpectedly 3 times while it held the job; 3 are allowed"):
            future.result(60)
        pool.await_ready()


def test_another_configuration_may_return(pool: PoolProcess) -> None:
    with pool.client() as client:
        gone = client.submit("faults", 60.0, signature="sleep")
        eventually(lambda: client.status().queue.jobs == 1)
        before = pool.config.read_text()
        kill(pool)
        pool.config.write_text(before.replace('name = "faults"', 'name = "other"'))
        pool.start()
        with pytest.raises(errors.ModelNotFound, match="no model 'faults'"):
            gone.result(30)
        pool.await_ready()


def test_scatter_map_and_asyncio_go_through_it(pool: PoolProcess) -> None:
    import asyncio

    done: dict[str, Any] = {}

    def begin(name: str, work: Callable[[], Any]) -> threading.Thread:
        thread = threading.Thread(target=lambda: done.__setitem__(name, work()))
        thread.start()
        return thread

    async def awaited() -> list[float]:
        async with AsyncClient(pool.endpoint) as client:
            results = await asyncio.gather(
                *(client.submit("slow", row(n), signature="double", block=True) for n in range(150))
            )
            return [float(result["y"][0]) for result in results]

    with pool.client() as client:
        wide = np.arange(400, dtype=np.float32)
        threads = [
            begin("scatter", lambda: client.scatter("slow", wide, signature="double", pieces=2, reduce="concat")["y"]),
            begin("map", lambda: [r["y"][0] for r in client.map("slow", map(row, range(150)), signature="double")]),
            begin("asyncio", lambda: asyncio.run(awaited())),
        ]
        eventually(lambda: client.status().slots[0].jobs_done > 20)
        kill(pool)
        threads.append(begin("models", client.models))
        pool.start()
        for thread in threads:
            thread.join(60)
        np.testing.assert_array_equal(done["scatter"], 2 * wide)
        assert done["map"] == done["asyncio"] == [2 * n for n in range(150)]
        assert len(done["models"]) == 3
        pool.await_ready()


IMPATIENT = """
from pool.serve import clients, front
front.SILENCE_S, front.LOOK_S, clients.LOOK_S = 2.5, 0.2, 0.2
from pool.cli import main
main()
"""

FROZEN = """
import sys
from pool import Client, errors
with Client(sys.argv[1]) as client:
    jobs = [client.submit("faults", 1.0, signature="sleep", timeout=300) for _ in range(24)]
    print(jobs[0].result()["pid"] > 0, flush=True)
    print(sum(job.exception() is None for job in jobs), {job.timeline.attempts for job in jobs}, flush=True)
"""


def test_a_client_that_was_frozen_until_the_pool_forgot_it_submits_again() -> None:
    pool = PoolProcess(THRICE)
    pool.program = ["-c", IMPATIENT]
    argv = [sys.executable, "-P", "-c", FROZEN, pool.endpoint]
    try:
        pool.start().await_ready()
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as program:
            try:
                assert program.stdout is not None
                assert program.stdout.readline() == "True\n"
                os.kill(program.pid, signal.SIGSTOP)
                pool.await_log("the pool heard nothing from this client")
                os.kill(program.pid, signal.SIGCONT)
                assert program.communicate(timeout=60)[0] == "24 {1}\n"
            finally:
                program.kill()
        assert pool.stop() == 0, pool.text()
    finally:
        pool.kill()


FORK = """
import os, sys, time, warnings
warnings.simplefilter("ignore")
from pool import Client, errors
client = Client(sys.argv[1], connect_timeout=60)
job = client.submit("faults", 30.0, signature="sleep")
client.status()
print("held", flush=True)
sys.stdin.readline()
ends = time.monotonic() + 20
while client._connection._dialogue._outage is None:
    assert time.monotonic() < ends, "it has not noticed"
    time.sleep(0.01)
child = os.fork()
if child == 0:
    assert "before the fork" in str(job.exception(1))
    assert client.run("faults", 0.0, signature="sleep", timeout=60)["pid"]
    os._exit(7)
job.cancel()
assert client.run("faults", 0.0, signature="sleep", timeout=60)["pid"]
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
left = client.submit("faults", 30.0, signature="sleep")
client.status()
"""


def test_a_fork_and_an_exit_while_it_is_away(pool: PoolProcess) -> None:
    """The child connects anew, within its connect_timeout, in which a pool starts; the exit waits for nothing."""
    argv = [sys.executable, "-P", "-c", FORK, pool.endpoint]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            assert program.stdin is not None
            assert program.stdout.readline() == "held\n"
            kill(pool)
            program.stdin.write("\n")
            program.stdin.flush()
            pool.start().await_ready()
            assert program.wait(60) == 0
        finally:
            program.kill()


EXIT = """
import sys
from pool import Client
client = Client(sys.argv[1])
job = client.submit("faults", 30.0, signature="sleep")
client.status()
print("held", flush=True)
sys.stdin.readline()
"""


def test_an_interpreter_may_exit_while_it_is_away(pool: PoolProcess) -> None:
    argv = [sys.executable, "-P", "-c", EXIT, pool.endpoint]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == "held\n"
            kill(pool)
            program.communicate("\n", timeout=20)  # it would wait for half a minute
            assert program.returncode == 0
        finally:
            program.kill()
    pool.start().await_ready()


def test_a_pool_that_hung_and_wakes_runs_nothing_for_those_who_left(pool: PoolProcess, tmp_path: Path) -> None:
    """SIGSTOP for longer than its silence is borne: the same instance answers in the end."""
    program = f"""
import sys
from pool import Client
from pool.client import dialogue, pulse
pulse.PING_S, pulse.SILENCE_S, dialogue.SILENCE_S = 0.1, 0.8, 0.8
with Client(sys.argv[1]) as client:
    client.run("faults", 0.0, signature="sleep")
    jobs = [client.submit("faults", 0.5, signature="sleep", timeout=60) for _ in range(8)]
    client.status()
    open({str(tmp_path / "held")!r}, "w").close()
    assert all(job.result()["pid"] for job in jobs)
    assert {{job.timeline.attempts for job in jobs}} == {{1}}
"""
    with subprocess.Popen([sys.executable, "-P", "-c", program, pool.endpoint]) as client:
        try:
            eventually((tmp_path / "held").exists)
            pool.running.send_signal(signal.SIGSTOP)
            time.sleep(2.5)
            pool.running.send_signal(signal.SIGCONT)
            assert client.wait(60) == 0
        finally:
            client.kill()
