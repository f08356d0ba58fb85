"""The crash matrix: each fault at each moment of a worker's life, what its caller sees, and the way of its slot.

The cells run in rounds, eight slots of one pool at once, so that their waiting overlaps. After each round every slot
answers a fresh job, no process and no file is left but what is meant to be, and the pool holds no descriptor more.
"""

import contextlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fault_orders import Orders, descriptors, states_since
from harness import PoolProcess, alive, eventually, pool_process, stub_config
from pool import Client, errors

TABLE = """
                    start   import  load    warm-up idle    receiving mid-batch answering draining
SIGKILL             dies    dies    dies    dies    dies    dies      dies      dies      dies
SIGSEGV             dies    dies    dies    dies    dies    dies      dies      dies      dies
exit(0)             dies    dies    dies    dies    dies    dies      dies      dies      dies
sys.exit(0)         dies    dies    dies    dies    dies    dies      dies      dies      dies
exception           dies    dies    dies    dies    dies    dies      fails     dies      fails
out of memory       dies    dies    dies    dies    dies    dies      fails     dies      fails
garbage             passes  broken  broken  broken  broken  broken    broken    broken    broken
SIGSTOP             hangs   hangs   hangs   hangs   hangs   hangs     hangs     hangs     hangs
loop in C           hangs   hangs   hangs   hangs   hangs   hangs     hangs     hangs     hangs
loop in Python      hangs   hangs   hangs   hangs   passes  hangs     hangs     hangs     hangs
silence             hangs   hangs   hangs   hangs   passes  passes    passes    passes    lingers
death of the pool   gone    gone    gone    gone    gone    gone      gone      gone      gone
death of the client freed   freed   freed   freed   -       freed     freed     freed     freed
"""
# An idle worker holds nothing of a client's, so there is nothing to see of its death: "-".


@dataclass(frozen=True, slots=True)
class Outcome:
    """`way`: the slot's states from the fault on, until its next worker starts; "" where the worker lives on."""

    seen: str
    way: str
    reason: str = ""


OUTCOMES = {
    "dies": Outcome("result", "BACKOFF"),
    "hangs": Outcome("result", "STOPPING BACKOFF", "within .* may be too short|has run batch .*hung_after"),
    "broken": Outcome("result", "STOPPING BACKOFF", "sent what cannot be understood"),
    "lingers": Outcome("result", "STOPPING BACKOFF", "did not exit within 5 s of being told to"),
    "fails": Outcome("error", ""),
    "passes": Outcome("result", ""),
}
ERRORS = {"exception": errors.ModelFailed, "out of memory": errors.OutOfMemory}
# What a new worker goes through before the fault; one that drains is replaced whatever comes of it.
BEFORE = {
    "start": "STARTING",
    "import": "STARTING LOADING",
    "load": "STARTING LOADING",
    "warm-up": "STARTING LOADING",
    "draining": "DRAINING",
}
WAY_UP = "STARTING LOADING READY"
ON_THE_WAY_UP = ("start", "import", "load", "warm-up")
OF_A_SLOT = (*ON_THE_WAY_UP, "idle")

MODELS = '[[model]]\nname = "rows"\npath = "stub:rows"\ndevices = "all"\nmax_batch = 1\n'
SLOTS = 8
# What is honest has to fit in, while eight workers start on a busy machine.
SHORT = """
[health]
heartbeat = "100ms"
hung_after = "1200ms"
import_timeout = "12s"
load_timeout = "2500ms"
warmup_timeout = "2500ms"
[restart]
intensity = 1000
backoff_max = "100ms"
"""

Cell = tuple[str, str]  # fault, moment


def table() -> dict[Cell, str]:
    heading, *lines = TABLE.strip("\n").splitlines()
    moments = heading.split()
    # The names of the faults have spaces in them, the outcomes have none.
    rows = [line.rsplit(maxsplit=len(moments)) for line in lines]
    return {(row[0].strip(), moment): cell for row in rows for moment, cell in zip(moments, row[1:], strict=True)}


CELLS = table()
OF_WORKERS = [cell for cell, outcome in CELLS.items() if outcome in OUTCOMES]
MOMENTS = list(dict.fromkeys(moment for _, moment in CELLS))


def ids(cells: Sequence[Cell]) -> list[str]:
    return [f"{fault}@{moment}".replace(" ", "-") for fault, moment in cells]


def way_of(cell: Cell) -> str:
    """The states that the slot is to go through."""
    outcome = OUTCOMES[CELLS[cell]]
    before = BEFORE.get(cell[1], "")
    if outcome.way:
        return f"{before} {outcome.way} {WAY_UP}".strip()
    if cell[1] == "draining":
        return f"{before} STOPPING BACKOFF {WAY_UP}"
    return WAY_UP if before else ""


def rounds() -> list[list[Cell]]:
    """Cells that can run at the same time, so that none of them is held up by another or meets it in its slot."""
    kinds: dict[tuple[Any, ...], list[Cell]] = {}
    for fault, moment in OF_WORKERS:
        outcome = CELLS[fault, moment]
        when = "way up" if moment in ON_THE_WAY_UP else moment if moment in ("idle", "draining") else "job"
        waits = (outcome, moment == "start" or moment == "import") if outcome == "hangs" and when == "way up" else ()
        kinds.setdefault((when, bool(way_of((fault, moment))), waits), []).append((fault, moment))
    return [cells[first : first + SLOTS] for cells in kinds.values() for first in range(0, len(cells), SLOTS)]


@dataclass(frozen=True, slots=True)
class Record:
    """What came of a cell. `seen`: the result's y, or the error."""

    slot: int
    pid: int
    seen: Any
    states: list[tuple[str, str]]

    @property
    def way(self) -> str:
        return " ".join(state for state, _ in self.states)


class Matrix:
    """One pool in which each cell runs once, with its round, when it is asked for."""

    def __init__(self, pool: PoolProcess, orders: Orders) -> None:
        self.pool = pool
        self._orders = orders
        self._rounds = {cell: cells for cells in rounds() for cell in cells}
        self._records: dict[Cell, Record] = {}
        self.assert_all_answer()
        self._descriptors = descriptors(pool.pid)

    def record(self, cell: Cell) -> Record:
        if cell not in self._records:
            self._run(self._rounds[cell])
        return self._records[cell]

    def _run(self, cells: Sequence[Cell]) -> None:
        mark = len(self.pool.text())
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(self.pool.client()) for _ in cells]
            started = [
                self._start(cell, slot, client) for slot, (cell, client) in enumerate(zip(cells, clients, strict=True))
            ]
            for cell, whose, _ in started:
                if cell[1] == "draining":
                    slot = self._orders.await_claim(whose).slot
                    clients[0].restart(slot)
                    eventually(lambda slot=slot: states_since(self.pool, mark, slot)[-1:] != [])  # type: ignore[misc]
                    self._orders.go(whose)
            seen = {cell: _seen(future) for cell, _, future in started}
        for cell, whose, _ in started:
            claim = self._orders.await_claim(whose)
            eventually(lambda slot=claim.slot, cell=cell: self._is_back(mark, slot, cell))  # type: ignore[misc]
            states = states_since(self.pool, mark, claim.slot)
            if cell[1] in ON_THE_WAY_UP:
                states = states[[state for state, _ in states].index("STARTING") :]  # after the restart that was asked
            self._records[cell] = Record(claim.slot, claim.pid, seen[cell], states)
        self._end_round()

    def _start(self, cell: Cell, slot: int, client: Client) -> tuple[Cell, str, "Future[Any]"]:
        fault, moment = cell
        number = list(CELLS).index(cell)
        whose = f"slot-{slot}" if moment in OF_A_SLOT else f"job-{number}"
        self._orders.give(whose, moment, fault)
        if moment in ON_THE_WAY_UP:
            client.restart(slot)
        elif moment == "idle":
            self._orders.await_claim(whose)
        device = f"slot:{slot}" if moment in OF_A_SLOT else None
        value = np.array([number], np.float32)
        return cell, whose, client.submit("rows", value, signature="double", timeout=60, device=device)

    def _is_back(self, mark: int, slot: int, cell: Cell) -> bool:
        states = [state for state, _ in states_since(self.pool, mark, slot)]
        return not way_of(cell) or (states[-1:] == ["READY"] and states.count("READY") >= 1)

    def _end_round(self) -> None:
        """Sees that all is well, and has those replaced that live on without a word, by the same way out as ever."""
        with self.pool.client() as client:
            mute = [
                record.slot
                for cell, record in self._records.items()
                if CELLS[cell] == "passes" and cell[1] != "start" and alive(record.pid)
            ]
            for slot in mute:
                client.restart(slot)
        self.assert_all_answer()
        eventually(lambda: descriptors(self.pool.pid) <= self._descriptors)
        assert {path.name for path in self.pool.folder.iterdir()} == FILES
        self._orders.clear()

    def assert_all_answer(self) -> None:
        """Each slot has one worker, which answers; there is no other process."""
        with self.pool.client() as client:
            eventually(lambda: all(slot["state"] == "READY" for slot in client.status()["slots"]), 40)
            for slot in range(SLOTS):
                fresh = client.run("rows", [-1.0 - slot], signature="double", device=f"slot:{slot}", timeout=20)
                assert fresh["y"].tolist() == [-2.0 - 2 * slot]
            pids = sorted(slot["pid"] for slot in client.status()["slots"])
        assert self.pool.workers() == pids


FILES = {"config.toml", "log", "p.sock", "p.sock.lock", "p.sock.workers"}


def _seen(future: "Future[Any]") -> Any:
    error = future.exception(90)
    return future.result()["y"].tolist() if error is None else error


@pytest.fixture(scope="module")
def orders() -> Iterator[Orders]:
    with tempfile.TemporaryDirectory(prefix="po-") as folder:
        yield Orders(Path(folder))


@pytest.fixture(scope="module")
def matrix(orders: Orders) -> Iterator[Matrix]:
    config = stub_config("lanes = 1", str(["cpu"] * SLOTS).replace("'", '"'), MODELS, SHORT)
    with pool_process(config, orders.environ) as pool:
        yield Matrix(pool, orders)
        assert "Traceback" not in "\n".join(line for line in pool.text().splitlines() if " | " not in line)
        kept = {path.relative_to(pool.state).parts[:2] for path in pool.state.rglob("*") if path.is_file()}
        assert kept <= {("pool", "flight")}


@pytest.mark.parametrize("cell", OF_WORKERS, ids=ids(OF_WORKERS))
def test_a_fault_of_a_worker(matrix: Matrix, cell: Cell) -> None:
    outcome, record = OUTCOMES[CELLS[cell]], matrix.record(cell)
    if outcome.seen == "result":
        assert record.seen == [2.0 * list(CELLS).index(cell)]
    else:
        assert type(record.seen) is ERRORS[cell[0]]
    assert record.way == way_of(cell)
    assert re.search(outcome.reason, " ".join(reason for _, reason in record.states))
    assert not way_of(cell) or way_of(cell) == WAY_UP or not alive(record.pid)


class Parked:
    """A pool of a slot a moment, in which each worker has come to its own and stays there; a job is out for each."""

    def __init__(self, pool: PoolProcess, orders: Orders, fault: str) -> None:
        self._pool = pool
        self.orders = orders
        for slot, moment in enumerate(MOMENTS):
            if moment in ON_THE_WAY_UP:
                orders.give(f"slot-{slot}", moment, fault)
        pool.start().await_ready()
        serving = [slot for slot, moment in enumerate(MOMENTS) if moment not in ON_THE_WAY_UP]
        with pool.client() as client:
            eventually(lambda: all(client.status()["slots"][slot]["state"] == "READY" for slot in serving), 40)
        for slot in serving:
            orders.give(self.whose(slot), MOMENTS[slot], fault)
        orders.await_claim(self.whose(MOMENTS.index("idle")))  # before a job comes

    def whose(self, slot: int) -> str:
        return f"slot-{slot}" if MOMENTS[slot] in OF_A_SLOT else f"job-{slot}"

    def await_all(self) -> list[int]:
        """Until each is where it is to be; returns their pids."""
        draining = MOMENTS.index("draining")
        with self._pool.client() as client:
            self.orders.await_claim(self.whose(draining))
            client.restart(draining)
            eventually(lambda: client.status()["slots"][draining]["state"] == "DRAINING")
        self.orders.go(self.whose(draining))
        return [self.orders.await_claim(self.whose(slot)).pid for slot in range(len(MOMENTS))]


@contextlib.contextmanager
def parked(fault: str) -> Iterator[tuple[PoolProcess, Parked]]:
    devices = str(["cpu"] * len(MOMENTS)).replace("'", '"')
    with tempfile.TemporaryDirectory(prefix="po-") as folder:
        orders = Orders(Path(folder))
        pool = PoolProcess(stub_config('lanes = 1\nready = "any"', devices, MODELS), orders.environ)
        try:
            yield pool, Parked(pool, orders, fault)
        finally:
            pool.kill()
            shutil.rmtree(pool.folder)
            shutil.rmtree(pool.state)


def test_the_death_of_the_pool_takes_each_worker_along_and_every_caller_hears_of_it() -> None:
    """No worker can help itself: each keeps the interpreter's lock, so that the kernel has to end it."""
    assert {cell: CELLS[cell] for cell in CELLS if cell[0] == "death of the pool"} == dict.fromkeys(
        (("death of the pool", moment) for moment in MOMENTS), "gone"
    )
    with parked("loop in C") as (pool, workers), pool.client(reconnect_timeout=0) as client:
        futures = [
            client.submit("rows", np.array([slot], np.float32), signature="double", timeout=60, device=f"slot:{slot}")
            for slot in range(len(MOMENTS))
        ]
        pids = workers.await_all()
        pool.running.kill()
        began = time.monotonic()
        assert [type(future.exception(20)) for future in futures] == [errors.PoolUnreachable] * len(MOMENTS)
        eventually(lambda: not [pid for pid in pids if alive(pid)], 5.0)
        assert time.monotonic() - began < 8
        pool.wait()
        pool.log.unlink()
        pool.start().await_ready()
        assert client.run("rows", [3.0], signature="double", timeout=30)["y"].tolist() == [6.0]
        assert pool.stop() == 0, "it leaves nothing of the former one either"


SUBMITTER = """
import sys, time
import numpy as np
from pool import Client
client = Client(sys.argv[1])
for slot in range(int(sys.argv[2])):
    client.submit("rows", np.array([slot], np.float32), signature="double", timeout=600, device=f"slot:{slot}")
print("out", flush=True)
time.sleep(600)
"""


def test_the_death_of_a_client_frees_what_it_had_wherever_that_was() -> None:
    """The worker of an idle slot has nothing of it, so it is not held there, but serves."""
    with parked("wait") as (pool, workers), pool.client() as other:
        assert other.status()["state"] == "SERVING"  # it is connected
        # Those on the way up have no connection of a lane yet, the first of them none at all.
        expected = descriptors(pool.pid) + len(ON_THE_WAY_UP) + 1
        arguments = [sys.executable, "-c", SUBMITTER, pool.endpoint, str(len(MOMENTS))]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as submitter:
            assert submitter.stdout is not None
            assert submitter.stdout.readline() == "out\n"
            pids = workers.await_all()
            submitter.send_signal(signal.SIGKILL)
        workers.orders.go()
        # The first answer that finds nobody tells that the client is gone; what had not started then never does.
        eventually(lambda: other.status()["queue"]["jobs"] == 0)
        eventually(lambda: all(slot["state"] == "READY" for slot in other.status()["slots"]), 40)
        for slot in range(len(MOMENTS)):
            answer = other.run("rows", [-2.0], signature="double", device=f"slot:{slot}", timeout=20)
            assert answer["y"].tolist() == [-4.0]
        draining = pids[MOMENTS.index("draining")]
        assert [pid for pid in pids if not alive(pid)] == [draining], "nobody else's worker ended"
        assert "BACKOFF" not in "".join(
            line for line in pool.text().splitlines() if f" slot {MOMENTS.index('draining')} " not in line
        )
        eventually(lambda: descriptors(pool.pid) <= expected)
        assert pool.stop() == 0
