"""A rolling restart of a pool with one slot: its clients hardly notice, and nothing is left behind."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from integration.load_gate import LoadGate
from pool import errors
from pool.wire.records import Beside, Slot
from support.commands import command_line, run_command
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import alive, eventually, pid_of

pytestmark = pytest.mark.replacement

LOAD_S = 3.0
ONE = np.ones(1, np.float32)


def config(path: str = f"stub:rows?run_ms=2&load_ms={1000 * LOAD_S:.0f}", rest: str = "", keys: str = "") -> str:
    models = f'[[model]]\nname = "rows"\npath = "{path}"\n{keys}'
    return stub_config(devices='["cpu"]', models=models, rest=rest)


@pytest.fixture
def gate(tmp_path: Path) -> LoadGate:
    """At which a replacement waits for as long as a test wants."""
    return LoadGate(tmp_path)


@pytest.fixture
def pool(gate: LoadGate) -> Iterator[PoolProcess]:
    """The gate is shut once its worker is there."""
    with pool_process(config("stub:rows?run_ms=2", keys=gate.keys)) as pool:
        gate.shut()
        yield pool


class Load:
    """A client that asks without a pause, and for how long each answered job was in the queue, as the pool says."""

    def __init__(self, pool: PoolProcess) -> None:
        self.answers: list[float] = []
        self.wrong: list[object] = []
        self._pool = pool
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def _ask(self) -> None:
        try:
            with self._pool.client() as client:
                while not self._over.is_set():
                    future = client.submit("rows", ONE, signature="double", timeout=30.0)
                    result = future.result()
                    assert future.timeline is not None
                    self.answers.append(future.timeline.queue_s)
                    if result["y"].tolist() != [2.0]:
                        self.wrong.append(result)
        except errors.PoolError as error:
            self.wrong.append(error)

    @contextmanager
    def on(self) -> Iterator[None]:
        self._thread.start()
        try:
            eventually(lambda: len(self.answers) > 10)
            yield
            more = len(self.answers) + 10
            eventually(lambda: len(self.answers) > more or bool(self.wrong))
        finally:
            self._over.set()
            self._thread.join(40)


def the_slot(pool: PoolProcess) -> Slot:
    with pool.client() as client:
        return client.status().slots[0]


def test_a_rolling_restart_of_the_only_slot_keeps_nobody_waiting() -> None:
    with pool_process(config()) as pool:
        (former,) = pool.workers()
        load = Load(pool)
        with load.on():
            found = run_command(pool, "restart", "--rolling")
            assert found.returncode == 0, found.stderr
            eventually(lambda: not alive(former))
        assert not load.wrong
        assert max(load.answers) < LOAD_S, "the load was waited for"
        (worker,) = pool.workers()
        slot = the_slot(pool)
        assert (pid_of(slot), slot.incarnation, slot.replacement, slot.leaving) == (worker, 2, None, ())
        pool.await_log("gets ready beside its worker: a CPU has room for both")


def test_it_is_seen_while_it_gets_ready(pool: PoolProcess, gate: LoadGate) -> None:
    with pool.client() as client:
        client.restart(0)
        seen: list[Beside] = []

        def loads() -> bool:
            if (replacement := client.status().slots[0].replacement) is not None:
                seen.append(replacement)
            doing = "importing the handler of rows for"  # which is the gate
            return bool(seen) and seen[-1].state == "LOADING" and seen[-1].doing.startswith(doing)

        eventually(loads, saw=lambda: seen[-1:])
        assert (seen[-1].incarnation, seen[-1].pid in pool.workers()) == (2, True)
    assert len(pool.workers()) == 2
    gate.open()
    eventually(lambda: the_slot(pool).incarnation == 2)


def test_never_means_that_the_worker_goes_first() -> None:
    with pool_process(config("stub:rows?load_ms=300", '[restart]\nreplacement = "off"')) as pool:
        assert run_command(pool, "restart", "--rolling").returncode == 0
        said = pool.whole_log()
        assert "DRAINING: restart requested" in said or "STOPPING: restart requested" in said
        assert "beside" not in said


def test_settings_with_which_it_does_not_come_up_change_nothing() -> None:
    with pool_process(config("stub:rows?run_ms=2")) as pool:
        before = pool.workers()
        load = Load(pool)
        with load.on():
            pool.config.write_text(config("stub:load-exit").replace("@endpoint@", pool.endpoint))
            found = run_command(pool, "reload", "--wait")
            assert found.returncode == 1
            assert "did not start with the new settings and returns to the former ones: exit status 9" in found.stderr
        assert not load.wrong
        assert pool.workers() == before
        pool.await_log("the stub was told to die while it loads")
        assert (
            json.loads(run_command(pool, "status", "--json").stdout)["slots"][0]["replacement_failure"]["incarnation"]
            == 2
        )


def test_a_restart_whose_replacement_fails_says_so(pool: PoolProcess, gate: LoadGate) -> None:
    restart = subprocess.Popen(
        command_line(pool, "restart", "0"),
        stderr=subprocess.PIPE,
        text=True,
    )
    gate.await_someone()
    (replacement,) = set(pool.workers()) - {the_slot(pool).pid}
    os.kill(replacement, signal.SIGKILL)
    _, complaint = restart.communicate(timeout=30)
    assert restart.returncode == 1
    assert complaint.startswith("pool: slot 0: its replacement failed, so its former worker still serves: SIGKILL")


def test_a_worker_that_dies_is_followed_by_the_replacement_that_is_under_way(pool: PoolProcess, gate: LoadGate) -> None:
    load = Load(pool)
    with load.on():
        with pool.client() as client:
            client.restart(0)
        gate.await_someone()
        former = the_slot(pool).pid
        assert isinstance(former, int)
        os.kill(former, signal.SIGKILL)
        gate.open()
        eventually(lambda: the_slot(pool).state == "READY" and the_slot(pool).incarnation == 2)
    assert not load.wrong
    eventually(lambda: len(pool.workers()) == 1)  # the former one may not be reaped yet


@pytest.mark.parametrize("how", ["SIGTERM", "twice", "drain", "kill"])
def test_nobody_is_left_when_the_end_comes_meanwhile(pool: PoolProcess, gate: LoadGate, how: str) -> None:
    with pool.client() as client:
        client.restart(0)
    gate.await_someone()
    workers = pool.workers()
    assert len(workers) == 2
    if how == "drain":
        assert run_command(pool, "drain", "0").returncode == 0
        eventually(lambda: not [pid for pid in workers if alive(pid)])
    elif how == "kill":
        pool.kill()
        eventually(lambda: not [pid for pid in workers if alive(pid)])
    else:
        pool.running.send_signal(signal.SIGTERM)
        if how == "twice":
            pool.running.send_signal(signal.SIGTERM)
        assert pool.stop() == 0
        pool.assert_clean(workers)


def test_the_only_worker_of_a_model_is_recycled_under_load() -> None:
    with pool_process(config(rest="[recycle]\njobs = 100\n")) as pool:
        load = Load(pool)
        with load.on():
            eventually(lambda: the_slot(pool).incarnation >= 2, 40.0)
        assert not load.wrong
        assert max(load.answers) < LOAD_S, "the load was waited for"
