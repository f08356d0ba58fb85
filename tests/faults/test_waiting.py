"""What a caller waits for that nobody will give: after the pool's death, its own freeze, or Ctrl-C."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from pool import Client, errors
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import eventually, state

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
WIDE = stub_config("lanes = 1", '["cpu"]', MODELS)

# It stops itself in its I/O thread, with the first jobs sent and the others behind them: the window is 128. The signal
# is that thread's own: it goes no step further, as it may where the kernel picks who takes one of the process.
FROZEN = """
import signal, sys, threading
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
    where(self, *arguments)
    if len(self._behind) == 172 or (self._behind and sys.argv[2] == "finish"):
        setattr(Dispatch, sys.argv[2], where)
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

Dialogue._take_outbox = take_all
setattr(Dispatch, sys.argv[2], stop)
with Client(sys.argv[1]) as client:
    one = np.ones(1, np.float32)
    client.run("rows", one, signature="double")
    out.clear()
    # Neighbours differ, so that none leave as one chunk.
    futures = [client.submit("rows", one, signature="double", timeout=10, priority=n % 2) for n in range(300)]
    out.set()
    print(sum(future.exception() is None for future in futures), flush=True)
"""
FREEZE_S = 5.5  # of the ten, and more than is left


def floats(*values: float) -> "np.ndarray[tuple[int], np.dtype[np.float32]]":
    return np.array(values, np.float32)


@pytest.fixture
def pool() -> Iterator[PoolProcess]:
    with pool_process(WIDE) as running:
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
            thread.join(15.0)
            assert [type(error) for error in ended] == [errors.PoolUnreachable]
    finally:
        pool.kill()


@pytest.mark.parametrize("where", ["send", "send_waiting", "finish"])
def test_a_client_that_was_frozen_does_not_count_that_as_the_pool_s_pace(pool: PoolProcess, where: str) -> None:
    argv = [sys.executable, "-P", "-c", FROZEN, pool.endpoint, where]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            eventually(lambda: state(process.pid) == "T")
            time.sleep(FREEZE_S)
            process.send_signal(signal.SIGCONT)
            assert int(process.communicate(timeout=30)[0]) == 300
        finally:
            process.kill()


def test_nobody_is_refused_by_the_median_of_what_runs_now(client: Client) -> None:
    """What runs has been as short as 20 ms, so it is not certain that it takes 2 s this time."""
    for n in range(4):
        client.run("rows", floats(n), signature="double")
    for seconds in (1.5, 0.02, 1.5, 0.02, 1.5, 0.02, 1.5):
        client.run("faults", seconds, signature="sleep")
    client.run("rows", floats(1), signature="double")
    client.submit("faults", 0.1, signature="sleep")
    eventually(lambda: client.status().slots[0].busy_lanes == 1)
    assert client.run("rows", floats(1), signature="double", timeout=1.0)["y"].tolist() == [2]


@pytest.mark.usefixtures("interruptible")
def test_a_run_that_was_interrupted_leaves_no_job_behind(client: Client) -> None:
    """As `submit(block=True)` does: nobody has the future."""
    client.submit("faults", 2.0, signature="sleep")
    eventually(lambda: client.status().slots[0].busy_lanes == 1)
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.4, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        client.run("rows", floats(1), signature="double")
    timer.join()
    eventually(lambda: client.status().answered.get("cancelled") == 1)
    # The client lives on.
    assert client.run("rows", floats(2), signature="double")["y"].tolist() == [4]
