"""What a caller waits for that nobody will give: after the pool's death, its own freeze, or Ctrl-C."""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pool import Client, errors
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import eventually, state
from support.run_ledger import Ledger

pytestmark = pytest.mark.faults

MODELS = """
[[model]]
name = "rows"
path = "stub:rows"
batching = "always"
devices = "all"
max_batch = 8
[[model]]
name = "slow"
path = "stub:rows?run_ms=20"
batching = "always"
devices = "all"
max_batch = 1
[[model]]
name = "faults"
path = "stub:faults"
devices = "all"
"""
ONE_LANE = stub_config("lanes = 1", '["cpu"]', MODELS, "[queue]\nmax_jobs = 20")
HELD = """
[[model]]
name = "held"
path = "stub:counter?@ledger@"
"""
WIDE = stub_config("lanes = 1\ndrain_timeout = 0.2", '["cpu"]', MODELS + HELD)

# It stops itself in its I/O thread, with the first jobs sent and the others behind them: the window is 128. The signal
# is that thread's own: it goes no step further, as it may where the kernel picks who takes one of the process. How long
# it was frozen is what its clock tells it afterwards: then no time of the jobs passes while this machine is busy.
FROZEN = """
import signal, sys, threading, time
clock, frozen_s = time.monotonic, 0.0
time.monotonic = lambda: clock() + frozen_s
import numpy as np
from pool import Client
from pool.client.dialogue import Dialogue
from pool.client.dispatch import Dispatch

out = threading.Event()
out.set()
take, where = Dialogue._take_outbox, getattr(Dispatch, sys.argv[2])

def take_all(self):
    out.wait(10)
    take(self)

def stop(self, *arguments):
    global frozen_s
    where(self, *arguments)
    if len(self._behind) == 172 or (self._behind and sys.argv[2] == "finish"):
        setattr(Dispatch, sys.argv[2], where)
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        frozen_s += float(sys.argv[3])

Dialogue._take_outbox = take_all
setattr(Dispatch, sys.argv[2], stop)
with Client(sys.argv[1]) as client:
    one = np.ones(1, np.float32)
    client.run("rows", one, signature="double")
    out.clear()
    # Neighbours differ, so that none leave as one chunk.
    futures = [client.submit("rows", one, signature="double", timeout=100, priority=n % 2) for n in range(300)]
    out.set()
    print(sum(future.exception() is None for future in futures), flush=True)
"""
FREEZE_S = 55.0  # of the hundred, and more than is left


def floats(*values: float) -> "np.ndarray[tuple[int], np.dtype[np.float32]]":
    return np.array(values, np.float32)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path)


@pytest.fixture
def pool(ledger: Ledger) -> Iterator[PoolProcess]:
    with pool_process(WIDE.replace("@ledger@", str(ledger.path))) as running:
        yield running


@pytest.fixture
def client(pool: PoolProcess) -> Iterator[Client]:
    with pool.client() as client:
        yield client


def test_map_ends_soon_after_the_pool_died() -> None:
    """It has an error to raise, and must not first submit the rest of `in_flight` to nobody, 5 s each."""
    ended: list[BaseException] = []
    pool = PoolProcess(ONE_LANE)
    try:
        pool.start().await_ready()
        with pool.client(reconnect_timeout=0) as client:

            def consume() -> None:
                try:
                    for _ in client.map("slow", (floats(n) for n in range(10**6)), signature="double", in_flight=64):
                        pass
                except errors.PoolError as error:
                    ended.append(error)

            thread = threading.Thread(target=consume, daemon=True)
            thread.start()
            eventually(lambda: client.status().slots[0].jobs_done > 50)
            pool.running.kill()
            eventually(lambda: not thread.is_alive(), 60.0)
            assert [type(error) for error in ended] == [errors.PoolUnreachable]
    finally:
        pool.kill()


@pytest.mark.parametrize("where", ["send", "send_waiting", "finish"])
def test_a_client_that_was_frozen_does_not_count_that_as_the_pool_s_pace(pool: PoolProcess, where: str) -> None:
    argv = [sys.executable, "-P", "-c", FROZEN, pool.endpoint, where, str(FREEZE_S)]
    with pool.client() as other, subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            eventually(lambda: state(process.pid) == "T")
            eventually(lambda: other.status().queue.jobs == 0)  # their answers are there when it goes on
            process.send_signal(signal.SIGCONT)
            assert int(process.communicate(timeout=90)[0]) == 300
        finally:
            process.kill()


def test_nobody_is_refused_by_the_median_of_what_runs_now(client: Client) -> None:
    """What runs has been as short as 20 ms, so it is not certain that it takes 2 s this time."""
    for n in range(4):
        client.run("rows", floats(n), signature="double")
    for seconds in (1.5, 0.02, 1.5, 0.02, 1.5, 0.02, 1.5):
        client.run("faults", seconds, signature="sleep")
    client.run("rows", floats(1), signature="double")
    client.submit("faults", 600.0, signature="sleep")
    eventually(lambda: client.status().slots[0].busy_lanes == 1)
    with pytest.raises(errors.DeadlineExceeded) as late:
        client.run("rows", floats(1), signature="double", timeout=1.0)
    assert "it would take" not in str(late.value), "it was refused, and could not wait for its time"


@pytest.mark.usefixtures("interruptible")
def test_a_run_that_was_interrupted_leaves_no_job_behind(pool: PoolProcess, client: Client, ledger: Ledger) -> None:
    """As `submit(block=True)` does: nobody has the future."""
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        """As soon as the pool has the job, whose caller waits then."""
        with pool.client() as other:
            eventually(lambda: other.status().queue.jobs == 2)
        signal.pthread_kill(main, signal.SIGINT)

    with ledger.occupied(client, "held"):
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            client.run("rows", floats(1), signature="double")
        thread.join()
        eventually(lambda: client.status().answered.get("cancelled") == 1)
    # The client lives on.
    assert client.run("rows", floats(2), signature="double")["y"].tolist() == [4]
