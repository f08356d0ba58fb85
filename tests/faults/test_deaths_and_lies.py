"""Workers that die or lie, over real processes: what one job does to its worker must not become anybody else's loss."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pool import errors
from support.fault_orders import Orders, descriptors
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import eventually

pytestmark = pytest.mark.faults

MODELS = """
[[model]]
name = "rows"
path = "stub:rows?run_ms=10"
batching = "always"
devices = "all"
max_batch = 32
[[model]]
name = "faults"
path = "stub:faults"
devices = "all"
"""
# What a worker does with its next answer is in the file that $LIE names.
LIAR = """
import os, sys, threading
if "workers" in sys.orig_argv and os.environ.get("LIE"):
    from workers import lane
    from pool.wire.worker_messages import Done

    class Liar:
        def __init__(self, connection):
            self.receive, self._connection = connection.receive, connection

        def send(self, message, payload):
            try:
                lie = open(os.environ["LIE"]).read()
                os.unlink(os.environ["LIE"])
            except OSError:
                lie = ""
            payload = list(payload)
            if lie == "too few frames":
                payload = payload[:-1]
            elif lie == "too many frames":
                payload.append(b"x")
            elif lie == "failures without parts":
                message = Done(message.batch, (0,) * len(message.frames), (), 0.0, 0.0)
            elif lie == "twice":
                self._connection.send(message, payload)
            elif lie == "no time":
                message = Done(message.batch, message.frames, message.failures, float("nan"), 0.0)
            elif lie == "negative time":
                message = Done(message.batch, message.frames, message.failures, 0.1, -1.0)
            elif lie == "another batch":
                self._connection.send(Done(message.batch + 1000, message.frames, (), 0.0, 0.0), payload)
            self._connection.send(message, payload)
            if lie == "hangs up":
                self._connection.socket.close(linger=-1)
                threading.Event().wait()

    serve = lane.Lane._serve
    lane.Lane._serve = lambda self, connection, *others: serve(self, Liar(connection), *others)
"""


@pytest.fixture
def pool() -> Iterator[PoolProcess]:
    with pool_process(stub_config(extra_pool="lanes = 1", devices='["cpu", "cpu", "cpu"]', models=MODELS)) as running:
        yield running


@pytest.mark.parametrize("status", [71, 74])
def test_a_job_that_exits_like_a_worker_that_cannot_start_does_not_end_its_slots(
    pool: PoolProcess, status: int
) -> None:
    with pool.client() as client:
        for _ in range(2):
            with pytest.raises(errors.Quarantined):
                client.run("faults", status, signature="exit", timeout=20)
        assert client.run("rows", [1.0], signature="double", timeout=20)["y"].tolist() == [2.0]
        assert "FATAL" not in {slot.state for slot in client.status().slots}


def test_a_large_job_outlives_more_deaths_than_it_has_attempts(tmp_path: Path) -> None:
    """Each time other rows are lost, and they run well the next time: the job is not to blame."""
    values = np.arange(15_000, dtype=np.float32)
    orders = Orders(tmp_path)
    lost = [f"job-{first}" for first in range(0, 12_800, 32 * 100)]  # each the first row of a batch
    for each in lost:
        orders.give(each, "mid-batch", "SIGKILL")
    config = stub_config(extra_pool="lanes = 1", devices='["cpu", "cpu", "cpu"]', models=MODELS)
    with pool_process(config, orders.environ) as pool, pool.client() as client:
        future = client.submit("rows", values, signature="double", timeout=90)
        assert future.result()["y"].tolist() == (2 * values).tolist()
        claims = [orders.claim(each) for each in lost]
        assert None not in claims, claims
        assert len({claim.pid for claim in claims if claim is not None}) == len(lost) == 4


def test_a_stream_with_poison_in_it_does_not_stop_the_others(pool: PoolProcess) -> None:
    with pool.client() as evil, pool.client() as good:
        poison, futures = [], []
        for n in range(1500):
            if n % 75 == 0:
                poison.append(evil.submit("rows", np.array([-1], np.float32), signature="kill", timeout=90))
            value = np.array([n + 1], np.float32)
            futures.append((value, good.submit("rows", value, signature="kill", timeout=90)))
            time.sleep(0.01)
        assert all(future.result()["y"].tolist() == value.tolist() for value, future in futures)
        assert {type(future.exception()) for future in poison} == {errors.Quarantined}


@pytest.mark.parametrize(
    "lie",
    [
        "too few frames",
        "too many frames",
        "failures without parts",
        "twice",
        "another batch",
        "no time",
        "negative time",
    ],
)
def test_an_answer_that_cannot_be_understood_costs_nobody_a_timeout(tmp_path: Path, lie: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(LIAR)
    order = tmp_path / "lie"
    environ = {"PYTHONPATH": str(tmp_path), "LIE": str(order)}
    with pool_process(stub_config(extra_pool="lanes = 1", models=MODELS), environ) as pool, pool.client() as client:
        order.write_text(lie)
        futures = [client.submit("rows", np.array([n], np.float32), signature="double", timeout=20) for n in range(8)]
        assert [future.result()["y"].tolist() for future in futures] == [[2.0 * n] for n in range(8)]
        assert not order.exists(), "nobody lied"


def test_a_worker_that_lives_and_cannot_be_reached_is_killed_by_the_pool_and_told_so(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(LIAR)
    order = tmp_path / "lie"
    environ = {"PYTHONPATH": str(tmp_path), "LIE": str(order)}
    config = stub_config(extra_pool="lanes = 1", devices='["cpu"]', models=MODELS)
    with pool_process(config, environ) as pool, pool.client() as client:
        row = np.ones((1,), np.float32)
        client.run("rows", row, signature="double")  # the client's own connections are there from now on
        before = descriptors(pool.pid)
        order.write_text("hangs up")
        client.run("rows", row, signature="double")
        eventually(lambda: descriptors(pool.pid) < before)
        assert client.run("rows", row, signature="double")["y"].tolist() == [2.0]
        pool.await_log("slot 0 cpu:0 BACKOFF: killed by the pool because it cannot be reached in lane 0")
        assert "SIGKILL (out of memory?)" not in pool.whole_log()


# The first worker of slot 0 says what it is told to before its HELLO, from the same connection.
SAYS_FIRST = """
import os, sys
if "workers" in sys.orig_argv and os.environ.get("SAYS_FIRST"):
    from dataclasses import replace
    from pool.wire.frames import NO_INSTANCE
    from pool.wire.worker_messages import Hello
    from workers import connection

    send = connection.Connection.send

    def say(self, message, payload=()):
        told = os.environ["SAYS_FIRST"]
        if isinstance(message, Hello) and message.slot == 0 and message.incarnation == 1:
            if message.lane is None and told.startswith("lane "):
                send(self, replace(message, lane=int(told.split()[1])))
            if message.lane == 1 and told == "control":
                send(self, replace(message, lane=None))
            if message.lane == 1 and told == "other lane":
                send(self, replace(message, lane=0))
        send(self, message, payload)

    connection.Connection.send = say
"""


@pytest.mark.parametrize("told", ["lane 0", "lane 5", "control", "other lane"])
def test_a_hello_that_cannot_be_true_costs_a_worker_and_not_its_slot(tmp_path: Path, told: str) -> None:
    """The pool believed it, and the worker gave up its slot for good: it took WELCOME_LANE for the answer to HELLO."""
    (tmp_path / "sitecustomize.py").write_text(SAYS_FIRST)
    environ = {"PYTHONPATH": str(tmp_path), "SAYS_FIRST": told}
    with pool_process(stub_config("lanes = 2", models=MODELS), environ) as pool, pool.client() as client:
        # One that lies may be READY before its lie is heard.
        eventually(
            lambda: [(slot.state, slot.incarnation) for slot in client.status().slots] == [("READY", 2), ("READY", 1)],
            saw=lambda: client.status().slots,  # nobody lied, or it cost somebody else
        )
        row = np.ones(1, np.float32)
        assert client.run("rows", row, signature="double", device="slot:0")["y"].tolist() == [2.0]
        broken = "killed by the pool because it sent an invalid message: .*HELLO"
        assert re.search(f"slot 0 cpu:0 BACKOFF: {broken}", pool.whole_log())
