"""Random kills and stops under load, of workers, clients and the pool: what comes of each job, and what is left.

Each job of a client that lives is answered once, with its own answer or an allowed error; nothing runs twice beyond
what its attempts permit; and no process, descriptor, memory or file is left of anybody. `pytest -m chaos` runs it for
minutes; the seed is printed, and $CHAOS_SEED sets it.
"""

import gc
import itertools
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from faults import chaos_client
from faults.chaos_checks import check_jobs, lost_state, served
from faults.chaos_crowd import Crowd
from faults.chaos_pool import SLOTS, Configuration
from faults.chaos_report import Done, Kill, report
from faults.crash_matrix import FILES
from faults.evidence import keep_log, kept
from pool import Client
from pool.serve.status import resident_bytes
from support.fault_orders import descriptors, segments
from support.pool_process import PoolProcess, pool_process
from support.processes import children, eventually, pid_of

LOCAL, REMOTE = 3, 1  # clients
FREED_S = 40.0  # the pool calls a client gone that has said nothing for 30 s
SERVED_S = 60.0
STOPPED_S = 30.0
LONGER_S = 60.0  # a slow machine has not seen enough deaths in the time that the plan gives
GROWTH_BYTES = 48 << 20
CHANGES = ("load", "reload", "reload workers", "unload")


@dataclass(frozen=True, slots=True)
class Plan:
    """How long, and what befalls whom besides the workers, in turn and evenly over that time; later, if need be."""

    seconds: float
    clients: Sequence[str]
    """`SIGSTOP`: for a moment; `forgotten`: for longer than the pool remembers it; `SIGKILL frozen`: both, at once."""
    pool: Sequence[int] = ()
    changes: Sequence[str] = CHANGES
    """As `Configuration.change` knows them."""


def replace_pool(pool: PoolProcess, number: int, folder: Path) -> None:
    """The pool is killed, or told to stop, and another follows; its clients are to come back by themselves."""
    pool.running.send_signal(number)
    assert pool.wait(60) == (0 if number == signal.SIGTERM else -number)
    keep_log(pool, folder)
    pool.log.unlink()  # its "ready" is not the next one's
    pool.start().await_ready()


def evenly(what: Sequence[object], seconds: float) -> "Iterator[float]":
    """When each of them is due, and then never."""
    began = time.monotonic()
    for turn in range(len(what)):
        yield began + seconds * (turn + 1) / (len(what) + 1)
    yield from itertools.repeat(float("inf"))


def harm_client(crowd: Crowd, how: str, rng: random.Random) -> bool:
    """False: there is nobody yet."""
    victim = crowd.pick(rng)
    if victim is None:
        return False
    match how:
        case "SIGKILL":
            crowd.kill(victim)
        case "SIGSTOP":
            crowd.freeze(victim, rng.uniform(0.5, 4.0))
        case "forgotten":
            crowd.freeze(victim, 33.0)
        case "SIGKILL frozen":
            crowd.freeze(victim, 0.0)
            crowd.kill(victim)
    return True


def chaos(run: "Run", crowd: Crowd, rng: random.Random, plan: Plan) -> Done:
    """Kills and stops workers for so long, and whom else the plan says. A stopped one is killed by the pool."""
    done, pool = Done(), run.pool
    ends = time.monotonic() + plan.seconds
    client_turns, pool_turns = evenly(plan.clients, plan.seconds), evenly(plan.pool, plan.seconds)
    change_turns = evenly(plan.changes, plan.seconds)
    client_due, pool_due, change_due = next(client_turns), next(pool_turns), next(change_turns)
    with pool.client() as watcher:
        while (
            time.monotonic() < ends
            or min(client_due, pool_due, change_due) < float("inf")
            or (time.monotonic() < ends + LONGER_S and not lost_state(crowd.members))
        ):
            time.sleep(rng.uniform(0.2, 1.2))
            crowd.tend()
            if time.monotonic() >= pool_due:
                replace_pool(pool, plan.pool[done.pools], run.folder)
                pool_due = next(pool_turns)
                done.pools += 1
                done.deaths += SLOTS
            if time.monotonic() >= client_due:
                how = plan.clients[done.clients.total()]
                if harm_client(crowd, how, rng):
                    client_due = next(client_turns)
                    done.clients[how] += 1
            if time.monotonic() >= change_due:
                what = plan.changes[done.changes.total()]
                run.configuration.change(what, pool, watcher)
                change_due = next(change_turns)
                done.changes[what] += 1
            ready = [slot for slot in watcher.status().slots if slot.state == "READY"]
            if not ready:
                continue
            victim = rng.choice(ready)
            number = rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP])
            try:
                os.kill(pid_of(victim), number)
            except ProcessLookupError:
                continue
            done.deaths += 1
            if number == signal.SIGKILL:
                done.kills.append(Kill(victim.slot, pid_of(victim), time.monotonic()))
    return done


def holds(pid: int) -> dict[str, int]:
    return {"descriptors": descriptors(pid), "segments": segments(pid)}


def holds_more(pid: int, before: dict[str, int]) -> bool:
    return any(number > before[what] for what, number in holds(pid).items())


@dataclass(frozen=True, slots=True)
class Run:
    seed: int
    folder: Path
    configuration: Configuration
    pool: PoolProcess


def run_chaos(folder: Path, plan: Plan) -> None:
    seed = int(os.environ.get("CHAOS_SEED", "20261121"))
    configuration = Configuration(folder)
    gc.collect()  # what other tests have left goes now, and not meanwhile
    own, others = holds(os.getpid()), children(os.getpid())
    with pool_process(str(configuration)) as pool:
        before, size_bytes = holds(pool.pid), resident_bytes(pool.pid)
        with kept(pool, folder, f"chaos, seed {seed}"):
            run = Run(seed, folder, configuration, pool)
            with Crowd([pool.endpoint] * LOCAL + [configuration.remote] * REMOTE, folder, seed) as crowd:
                done = chaos(run, crowd, random.Random(seed), plan)
                await_each_kind(run, crowd)
                crowd.finish()
            report(seed, done, [job for member in crowd.members for job in member.jobs() if member.awake(job)])
            happened = Counter(plan.clients), len(plan.pool), Counter(plan.changes)
            assert (done.clients, done.pools, done.changes) == happened
            check_jobs(crowd, configuration, done, seed)
            check_left(pool, before)
            check_logs(run)
            assert (resident_bytes(pool.pid) or 0) - (size_bytes or 0) < GROWTH_BYTES, seed
    assert not holds_more(os.getpid(), own)
    assert set(children(os.getpid())) <= set(others)


def await_each_kind(run: Run, crowd: Crowd) -> None:
    """On a slow machine some may not have happened yet, and clients that came last may not have begun.

    The second model may have gone with its pool.
    """
    with run.pool.client() as client:
        if served(crowd.members)["second"] == 0:
            run.configuration.change("load", run.pool, client)
    young = [member for member in crowd.living() if member.thaws is None]
    eventually(
        lambda: all(served([member]) for member in young), SERVED_S, lambda: [served([member]) for member in young]
    )
    kinds = {*chaos_client.KINDS}
    eventually(lambda: not kinds - served(crowd.members).keys(), SERVED_S, lambda: served(crowd.members))
    remote = [member for member in crowd.members if member.remote]
    eventually(lambda: bool(served(remote)), SERVED_S)


def states(client: Client) -> list[str]:
    return [slot.state for slot in client.status().slots]


def unread(client: Client) -> tuple[int, int]:
    status = client.status()
    return status.queue.bytes, status.unread_bytes


def check_left(pool: PoolProcess, before: dict[str, int]) -> None:
    """The pool serves on all slots and holds nothing of those who were there; nobody and nothing else is left."""
    with pool.client() as client:
        eventually(lambda: client.status().queue.jobs == 0, FREED_S, lambda: client.status().queue)
        # One that was stopped while it was idle is found by the next job that it is given.
        for slot in range(SLOTS):
            fresh = client.run("rows", np.ones(1, np.float32), signature="double", device=f"slot:{slot}", timeout=30)
            assert fresh["y"].tolist() == [2.0]
        eventually(lambda: not client.status().rolling_update.left, SERVED_S, lambda: client.status().rolling_update)
        eventually(lambda: set(states(client)) == {"READY"}, 40, lambda: states(client))
        # Those that were replaced leave; one that was stopped is killed when its time to stop is over.
        eventually(lambda: len(pool.workers()) == SLOTS, STOPPED_S, lambda: pool.workers())
        eventually(lambda: unread(client) == (0, 0), 20, lambda: unread(client))
        assert pool.workers() == sorted(pid_of(slot) for slot in client.status().slots)
        # A worker lets go of lent memory when it hears that its client is gone.
        eventually(lambda: not any(map(segments, pool.workers())), 20, lambda: [*map(segments, pool.workers())])
    eventually(lambda: not holds_more(pool.pid, before), 20, lambda: (before, holds(pool.pid)))
    # The digits alone may be in anybody's name.
    assert not [name for name in os.listdir("/dev/shm") if str(pool.pid) in re.findall(r"[0-9A-Za-z]+", name)]
    assert {path.name for path in pool.folder.iterdir()} == FILES


def check_logs(run: Run) -> None:
    """Of all the pools."""
    for path in (*run.folder.glob("pool-*.log"), run.pool.log):
        own_lines = [line for line in path.read_text(errors="replace").splitlines() if " | " not in line]
        assert not [line for line in own_lines if "Traceback" in line or "Error" in line], (run.seed, path)


@pytest.mark.faults
def test_chaos(tmp_path: Path) -> None:
    run_chaos(tmp_path, Plan(12.0, ("SIGKILL", "SIGSTOP", "SIGKILL frozen", "SIGKILL")))


@pytest.mark.faults
def test_chaos_in_which_the_pool_itself_is_replaced(tmp_path: Path) -> None:
    changes = ("reload", "reload workers", "load")
    run_chaos(tmp_path, Plan(12.0, ("SIGKILL", "SIGSTOP"), (signal.SIGKILL, signal.SIGTERM), changes))


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_chaos_for_minutes(tmp_path: Path) -> None:
    seconds = float(os.environ.get("CHAOS_S", "240"))
    a_minute = ("SIGKILL", "SIGSTOP", "SIGKILL frozen", "SIGSTOP") * 4
    minutes = max(1, int(seconds / 60))
    clients = (*a_minute, "forgotten") * minutes
    run_chaos(tmp_path, Plan(seconds, clients, (signal.SIGKILL, signal.SIGTERM) * minutes, CHANGES * minutes))
