"""Random kills and stops of workers under load: each job is answered once, with its own answer or an allowed error.

`pytest -m chaos` runs it for minutes; the seed is printed, and $CHAOS_SEED sets it.
"""

import itertools
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crash_matrix import FILES, cpus
from fault_orders import descriptors
from harness import PoolProcess, eventually, pool_process, stub_config
from pool import Client, errors

SLOTS = 3
CLIENTS = 4
IN_FLIGHT = 24
RECOVERY_S = 1.0
CONFIG = """
[health]
heartbeat = "200ms"
hung_after = "1500ms"
[queue]
max_attempts = 3
[restart]
intensity = 100000
backoff_max = "200ms"
"""
MODELS = """
[[model]]
name = "rows"
path = "stub:rows?run_ms=2"
devices = "all"
max_batch = 8
[[model]]
name = "counter"
path = "stub:counter?{ledger}"
devices = "all"
"""
# What a job may end in that lost one worker after the other; the stateful ones at their first.
ALLOWED: dict[str, tuple[type[errors.PoolError], ...]] = {
    "double": (errors.Quarantined, errors.WorkerLost),
    "sleep": (errors.Quarantined, errors.WorkerLost),
    "add": (errors.WorkerLost,),
}


@dataclass(slots=True)
class Sent:
    signature: str
    number: int
    began: float
    future: "Future[Any]"
    answers: int = 0
    ended: float = 0.0

    @property
    def took_s(self) -> float:
        return self.ended - self.began


@dataclass(slots=True)
class Kill:
    slot: int
    pid: int
    at: float


@dataclass(slots=True)
class Load:
    """One client that keeps some jobs in flight until it is told to stop."""

    client: Client
    number: int
    rng: random.Random
    sent: list[Sent] = field(default_factory=list)

    def run(self, stop: threading.Event) -> None:
        room = threading.Semaphore(IN_FLIGHT)
        for count in itertools.count():
            if stop.is_set():
                return
            room.acquire()
            number = self.number * 1_000_000 + count
            signature = self.rng.choices(["double", "sleep", "add"], [6, 2, 2])[0]
            job = Sent(signature, number, time.monotonic(), self._submit(signature, number))
            self.sent.append(job)

            def done(_: object, job: Sent = job) -> None:
                job.answers += 1
                job.ended = time.monotonic()
                room.release()

            job.future.add_done_callback(done)
            time.sleep(self.rng.uniform(0.0, 0.004))

    def _submit(self, signature: str, number: int) -> "Future[Any]":
        if signature == "add":
            return self.client.submit("counter", number, signature="add", timeout=60)
        value = np.array([number], np.float32) if signature == "double" else np.zeros(1)
        return self.client.submit("rows", value, signature=signature, timeout=60)


def replace_pool(pool: PoolProcess, number: int) -> None:
    """The pool is killed, or told to stop, and another follows; its clients are to come back by themselves."""
    pool.running.send_signal(number)
    assert pool.wait(60) == (0 if number == signal.SIGTERM else -number)
    pool.log.unlink()  # its "ready" is not the next one's
    pool.start().await_ready()


def chaos(pool: PoolProcess, rng: random.Random, seconds: float, pool_kills: Sequence[int] = ()) -> list[Kill]:
    """Kills and stops workers for so long; returns the kills. A stopped one is killed by the pool, for its batch.

    `pool_kills`: by these signals, evenly over that time, the pool itself ends and is started again.
    """
    due = [time.monotonic() + seconds * (turn + 1) / (len(pool_kills) + 1) for turn in range(len(pool_kills))]
    kills: list[Kill] = []
    ends = time.monotonic() + seconds
    with pool.client() as watcher:
        while time.monotonic() < ends:
            time.sleep(rng.uniform(0.2, 1.2))
            if due and time.monotonic() >= due[0]:
                replace_pool(pool, pool_kills[-len(due)])
                del due[0]
            ready = [slot for slot in watcher.status()["slots"] if slot["state"] == "READY"]
            if not ready:
                continue
            victim = rng.choice(ready)
            number = rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP])
            try:
                os.kill(victim["pid"], number)
            except ProcessLookupError:
                continue
            if number == signal.SIGKILL:
                kills.append(Kill(victim["slot"], victim["pid"], time.monotonic()))
    return kills


def next_answers_s(kills: Sequence[Kill], jobs: Sequence[Sent]) -> list[float]:
    """From each SIGKILL to the first answer that another worker of its slot gave."""
    found = []
    for kill in kills:
        others = (
            job.ended - kill.at
            for job in jobs
            if job.signature == "sleep"
            and job.future.exception() is None
            and job.future.timeline.slot == kill.slot  # type: ignore[attr-defined]
            and job.ended > kill.at
            and int(job.future.result()["pid"][0]) != kill.pid
        )
        if (first := min(others, default=None)) is not None:
            found.append(first)
    return found


def p99_ms(jobs: Sequence[Sent]) -> float:
    return float(np.percentile([job.took_s for job in jobs], 99)) * 1000 if jobs else float("nan")


def run_chaos(tmp_path: Path, seconds: float, pool_kills: Sequence[int] = ()) -> None:
    seed = int(os.environ.get("CHAOS_SEED", "20261121"))
    ledger = tmp_path / "ledger"
    config = stub_config(devices=cpus(SLOTS), models=MODELS.format(ledger=ledger), rest=CONFIG)
    with pool_process(config) as pool:
        before = descriptors(pool.pid)
        loads = [Load(pool.client(), number, random.Random(f"{seed}/{number}")) for number in range(CLIENTS)]
        stop = threading.Event()
        threads = [threading.Thread(target=load.run, args=(stop,), daemon=True) for load in loads]
        for thread in threads:
            thread.start()
        kills = chaos(pool, random.Random(seed), seconds, pool_kills)
        stop.set()
        for thread in threads:
            thread.join(60)
        jobs = [job for load in loads for job in load.sent]
        for job in jobs:
            job.future.exception(60)
        eventually(lambda: all(job.answers for job in jobs))
        for load in loads:
            load.client.close()

        report(seed, kills, jobs)
        check_answers(jobs, seed)
        check_ledger(ledger, jobs, seed)
        with pool.client() as client:
            # One that was stopped while it was idle is found by the next job that it is given.
            for slot in range(SLOTS):
                fresh = client.run(
                    "rows", np.ones(1, np.float32), signature="double", device=f"slot:{slot}", timeout=30
                )
                assert fresh["y"].tolist() == [2.0]
            eventually(lambda: all(slot["state"] == "READY" for slot in client.status()["slots"]), 40)
            assert client.status()["queue"]["jobs"] == 0
            assert pool.workers() == sorted(slot["pid"] for slot in client.status()["slots"])
        eventually(lambda: descriptors(pool.pid) <= before)
        assert not list(Path("/dev/shm").glob(f"*{pool.pid}*"))
        assert {path.name for path in pool.folder.iterdir()} == FILES
        own_lines = [line for line in pool.text().splitlines() if " | " not in line]
        assert not [line for line in own_lines if "Traceback" in line or "Error" in line]


def report(seed: int, kills: Sequence[Kill], jobs: Sequence[Sent]) -> None:
    nexts = next_answers_s(kills, jobs)
    recovering = {
        id(job): any(job.began < kill.at + RECOVERY_S and job.ended > kill.at for kill in kills) for job in jobs
    }
    recovery, calm = ([job for job in jobs if recovering[id(job)] is which] for which in (True, False))
    failed = Counter(type(job.future.exception()).__name__ for job in jobs if job.future.exception() is not None)
    slowest = f"{np.median(nexts):.2f} s in the median, {max(nexts):.2f} s at most" if nexts else "none"
    print(  # noqa: T201  # `pytest -s` shows it
        f"\nchaos, seed {seed}: {len(jobs)} jobs, {len(kills)} SIGKILL; failed: {dict(failed)};"
        f" p99 {p99_ms(recovery):.0f} ms within {RECOVERY_S:g} s of one, else {p99_ms(calm):.0f} ms;"
        f" from SIGKILL to the slot's next answer {slowest}"
    )


def check_answers(jobs: Sequence[Sent], seed: int) -> None:
    for job in jobs:
        assert job.answers == 1, (seed, job)
        error = job.future.exception()
        if error is not None:
            assert isinstance(error, ALLOWED[job.signature]), (seed, job, error)
        elif job.signature == "double":
            assert job.future.result()["y"].tolist() == [2.0 * np.float32(job.number)], (seed, job)
    served = sum(job.future.exception() is None for job in jobs)
    assert served > 0.9 * len(jobs), (seed, served, len(jobs))


def check_ledger(ledger: Path, jobs: Sequence[Sent], seed: int) -> None:
    """What was answered ran once; what was lost at most once."""
    ran = Counter(int(line) for line in ledger.read_text().split())
    assert set(ran.values()) <= {1}, (seed, [number for number, times in ran.items() if times > 1])
    added = {job.number: job for job in jobs if job.signature == "add"}
    assert ran.keys() <= added.keys()
    for number, job in added.items():
        assert job.future.exception() is not None or ran[number] == 1, (seed, job)


@pytest.mark.faults
def test_chaos(tmp_path: Path) -> None:
    run_chaos(tmp_path, 12.0)


@pytest.mark.faults
def test_chaos_in_which_the_pool_itself_is_replaced(tmp_path: Path) -> None:
    run_chaos(tmp_path, 9.0, (signal.SIGKILL, signal.SIGTERM))


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_chaos_for_minutes(tmp_path: Path) -> None:
    seconds = float(os.environ.get("CHAOS_S", "240"))
    run_chaos(tmp_path, seconds, (signal.SIGKILL, signal.SIGTERM) * max(1, int(seconds / 60)))
