"""The last rows of the crash matrix: the pool, or a client, dies while a worker is at each of its moments."""

import contextlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from faults.crash_matrix import CELLS, MODELS, MOMENTS, OF_A_SLOT, ON_THE_WAY_UP, cpus
from pool import errors
from support.fault_orders import Orders, descriptors
from support.pool_process import PoolProcess, stub_config
from support.processes import alive, eventually

pytestmark = pytest.mark.faults


def row(fault: str) -> dict[str, str]:
    """What the table has, by moment."""
    return {moment: outcome for (name, moment), outcome in CELLS.items() if name == fault}


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
            eventually(lambda: all(client.status().slots[slot].state == "READY" for slot in serving), 40)
        for slot, moment in enumerate(MOMENTS):
            if moment in ON_THE_WAY_UP:
                orders.await_claim(self.whose(slot))  # by then it has the connections that it will have
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
            eventually(lambda: client.status().slots[draining].state == "DRAINING")
        self.orders.go(self.whose(draining))
        return [self.orders.await_claim(self.whose(slot)).pid for slot in range(len(MOMENTS))]


@contextlib.contextmanager
def parked(fault: str) -> Iterator[tuple[PoolProcess, Parked]]:
    with tempfile.TemporaryDirectory(prefix="po-") as folder:
        orders = Orders(Path(folder))
        pool = PoolProcess(
            stub_config('lanes = 1\nready = "any"', cpus(len(MOMENTS)), MODELS, '[restart]\nreplacement = "off"\n'),
            orders.environ,
        )
        try:
            yield pool, Parked(pool, orders, fault)
        finally:
            pool.kill()


def test_the_death_of_the_pool_takes_each_worker_along_and_every_caller_hears_of_it() -> None:
    """No worker can help itself: each keeps the interpreter's lock, so that the kernel has to end it."""
    assert row("death of the pool") == dict.fromkeys(MOMENTS, "gone")
    with parked("loop in C") as (pool, workers), pool.client(reconnect_timeout=0) as client:
        futures = [
            client.submit("rows", np.array([slot], np.float32), signature="double", timeout=60, device=f"slot:{slot}")
            for slot in range(len(MOMENTS))
        ]
        pids = workers.await_all()
        pool.running.kill()
        assert [type(future.exception(20)) for future in futures] == [errors.PoolUnreachable] * len(MOMENTS)
        eventually(lambda: not [pid for pid in pids if alive(pid)])
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
    assert row("death of the client") == {**dict.fromkeys(MOMENTS, "freed"), "idle": "-"}
    with parked("wait") as (pool, workers), pool.client() as other:
        assert other.status().state == "SERVING"  # it is connected
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
        eventually(lambda: other.status().queue.jobs == 0)
        eventually(lambda: all(slot.state == "READY" for slot in other.status().slots), 40)
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
