"""The cells of the crash matrix (`crash_matrix.TABLE`) that are faults of a worker itself.

The cells run in rounds, eight slots of one pool at once, so that their waiting overlaps. After each round every slot
answers a fresh job, no process and no file is left but what is meant to be, and the pool holds no descriptor more.
"""

import contextlib
import re
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from faults.crash_matrix import (
    CELLS,
    ERRORS,
    FILES,
    MODELS,
    OF_A_SLOT,
    OF_WORKERS,
    ON_THE_WAY_UP,
    OUTCOMES,
    SHORT,
    SLOTS,
    WAY_UP,
    Cell,
    cpus,
    ids,
    rounds,
    way_of,
)
from pool import Client
from support.fault_orders import Orders, descriptors, states_since
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import alive, eventually, pid_of

pytestmark = pytest.mark.faults

PROOF = ("SIGKILL", "mid-batch")
"""Its round is run by default: the promise that a job outlives its worker."""


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
                self._start(cell, slot, client, mark)
                for slot, (cell, client) in enumerate(zip(cells, clients, strict=True))
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

    def _start(self, cell: Cell, slot: int, client: Client, mark: int) -> tuple[Cell, str, "Future[Any]"]:
        fault, moment = cell
        number = list(CELLS).index(cell)
        whose = f"slot-{slot}" if moment in OF_A_SLOT else f"job-{number}"
        self._orders.give(whose, moment, fault)
        if moment in ON_THE_WAY_UP:
            client.restart(slot)
        elif moment == "idle":
            self._orders.await_claim(whose)
            if CELLS[cell] in ("dies", "broken"):  # nobody finds out by the job, so it comes later
                eventually(lambda: states_since(self.pool, mark, slot) != [])
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
            eventually(lambda: all(slot.state == "READY" for slot in client.status().slots), 40)
            for slot in range(SLOTS):
                fresh = client.run("rows", [-1.0 - slot], signature="double", device=f"slot:{slot}", timeout=20)
                assert fresh["y"].tolist() == [-2.0 - 2 * slot]
            pids = sorted(pid_of(slot) for slot in client.status().slots)
        assert self.pool.workers() == pids


def _seen(future: "Future[Any]") -> Any:
    error = future.exception(90)
    return future.result()["y"].tolist() if error is None else error


@pytest.fixture(scope="module")
def orders() -> Iterator[Orders]:
    with tempfile.TemporaryDirectory(prefix="po-") as folder:
        yield Orders(Path(folder))


@pytest.fixture(scope="module")
def matrix(orders: Orders) -> Iterator[Matrix]:
    config = stub_config("lanes = 1", cpus(SLOTS), MODELS, SHORT)
    with pool_process(config, orders.environ) as pool:
        yield Matrix(pool, orders)
        assert "Traceback" not in "\n".join(line for line in pool.text().splitlines() if " | " not in line)
        kept = {path.relative_to(pool.state).parts[:2] for path in pool.state.rglob("*") if path.is_file()}
        assert kept <= {("pool", "crash_reports")}


@pytest.mark.parametrize(
    "cell",
    [pytest.param(cell, marks=pytest.mark.promise(2)) if cell == PROOF else cell for cell in OF_WORKERS],
    ids=ids(OF_WORKERS),
)
def test_a_fault_of_a_worker(matrix: Matrix, cell: Cell) -> None:
    outcome, record = OUTCOMES[CELLS[cell]], matrix.record(cell)
    if outcome.seen == "result":
        assert record.seen == [2.0 * list(CELLS).index(cell)]
    else:
        assert type(record.seen) is ERRORS[cell[0]]
    assert record.way == way_of(cell)
    assert re.search(outcome.reason, " ".join(reason for _, reason in record.states))
    assert not way_of(cell) or way_of(cell) == WAY_UP or not alive(record.pid)
