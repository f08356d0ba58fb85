"""What a caller waits for that nobody will give: after the pool's death, its own freeze, or Ctrl-C."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from harness import PoolProcess, eventually, pool_process, stub_config
from pool import Client, errors

MODELS = """
[[model]]
name = "rows"
path = "stub:rows"
devices = "all"
max_batch = 8
[[model]]
name = "slow"
path = "stub:rows?run_ms=20"
devices = "all"
max_batch = 1
[[model]]
name = "faults"
path = "stub:faults"
devices = "all"
"""
ONE_LANE = stub_config("lanes = 1", '["cpu"]', MODELS, "[queue]\nmax_jobs = 20")
WIDE = stub_config("lanes = 1", '["cpu"]', MODELS)

FROZEN = """
import sys
import numpy as np
from pool import Client
with Client(sys.argv[1]) as client:
    one = np.ones(1, np.float32)
    client.run("rows", one, signature="double")
    futures = [client.submit("rows", one, signature="double", timeout=8) for _ in range(600)]
    print("out", flush=True)
    print(sum(future.exception() is None for future in futures), flush=True)
"""


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
    pool = PoolProcess(ONE_LANE).start().await_ready()
    try:
        with pool.client(reconnect_timeout=0) as client:

            def consume() -> None:
                try:
                    for _ in client.map("slow", (floats(n) for n in range(10**6)), signature="double", in_flight=64):
                        pass
                except errors.PoolError as error:
                    ended.append(error)

            thread = threading.Thread(target=consume, daemon=True)
            thread.start()
            eventually(lambda: client.status()["slots"][0]["jobs_done"] > 50)
            pool.kill()
            thread.join(15.0)
            assert [type(error) for error in ended] == [errors.PoolUnreachable]
    finally:
        pool.kill()


def test_a_client_that_was_frozen_does_not_count_that_as_the_pool_s_pace(pool: PoolProcess) -> None:
    process = subprocess.Popen([sys.executable, "-c", FROZEN, pool.endpoint], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "out\n"
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(4.5)
        os.kill(process.pid, signal.SIGCONT)
        assert int(process.communicate(timeout=30)[0]) == 600
    finally:
        process.kill()
        process.wait(10)


def test_nobody_is_refused_by_the_median_of_what_runs_now(client: Client) -> None:
    """What runs has been as short as 20 ms, so it is not certain that it takes 2 s this time."""
    for n in range(4):
        client.run("rows", floats(n), signature="double")
    for seconds in (1.5, 0.02, 1.5, 0.02, 1.5, 0.02, 1.5):
        client.run("faults", seconds, signature="sleep")
    client.run("rows", floats(1), signature="double")
    client.submit("faults", 0.1, signature="sleep")
    eventually(lambda: client.status()["slots"][0]["busy_lanes"] == 1)
    assert client.run("rows", floats(1), signature="double", timeout=1.0)["y"].tolist() == [2]


def test_a_run_that_was_interrupted_leaves_no_job_behind(client: Client) -> None:
    """As `submit(block=True)` does: nobody has the future."""
    client.submit("faults", 2.0, signature="sleep")
    eventually(lambda: client.status()["slots"][0]["busy_lanes"] == 1)
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.4, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        client.run("rows", floats(1), signature="double")
    timer.join()
    time.sleep(0.2)
    assert {model["name"]: model["queued_jobs"] for model in client.status()["models"]}["rows"] == 0
    # The client lives on.
    assert client.run("rows", floats(2), signature="double")["y"].tolist() == [4]
