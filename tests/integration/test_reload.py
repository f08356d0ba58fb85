"""A running pool reads its configuration again: what is wrong changes nothing, and no job is lost for what is right."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pool import Client, errors, start
from support.commands import run_command
from support.fake_nvml import FakeNvml
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import eventually
from support.run_ledger import Ledger
from support.steady_clients import asked_all_the_time

pytestmark = pytest.mark.replacement

ROWS = '[[model]]\nname = "rows"\npath = "stub:rows?run_ms=5"\nbatching = "always"\ndevices = "all"\n'
FAULTS = '[[model]]\nname = "faults"\npath = "stub:faults"\ndevices = "all"\n'
ONE = np.ones(1, np.float32)


@pytest.fixture
def pool() -> Iterator[PoolProcess]:
    with pool_process(stub_config(models=FAULTS + ROWS)) as running:
        yield running


def write(pool: PoolProcess, **parts: str) -> None:
    """The configuration anew, with parts of `stub_config`."""
    text = stub_config(**{"models": FAULTS + ROWS, **parts})
    pool.config.write_text(text.replace("@endpoint@", pool.endpoint))


def reload(pool: PoolProcess, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return run_command(pool, "reload", *arguments)


def test_bounds_and_scheduling_are_felt_by_the_next_job(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    models = f'[[model]]\nname = "told"\npath = "stub:counter?{ledger.path}"\n{ROWS}'
    with pool_process(stub_config("lanes = 1", models=models)) as pool, pool.client() as client:

        def write(models: str = models, rest: str = "") -> None:
            text = stub_config("lanes = 1", models=models, rest=rest)
            pool.config.write_text(text.replace("@endpoint@", pool.endpoint))

        with ledger.occupied(client, "told") as running:
            busy = [running, *(client.submit("told", 1, signature="add") for _ in range(3))]
            eventually(lambda: client.status().queue.jobs == 4)
            write(rest="[queue]\nmax_jobs = 3\n")
            found = reload(pool)
            assert (found.returncode, found.stdout) == (0, "[queue] max_jobs: 10000 → 3\n"), found.stderr
            with pytest.raises(errors.Overloaded, match="max_jobs"):
                client.run("rows", ONE, signature="double")
        assert [future.exception(20) for future in busy] == [None] * 4, "they were in already"
        write(models + 'batch_wait = "300ms"\n')
        assert reload(pool).stdout == "[queue] max_jobs: 3 → 10000\n[[model]] rows batch_wait: off → 300ms\n"
        lone = client.submit("rows", ONE, signature="double")
        assert lone.result(20)["y"].tolist() == [2.0]
        assert lone.timeline is not None
        assert lone.timeline.batch_wait_s >= 0.3, "it waits for company"
        write()
        assert reload(pool).returncode == 0
        lone = client.submit("rows", ONE, signature="double")
        assert lone.result(20)
        assert lone.timeline is not None
        assert lone.timeline.batch_wait_s == 0
        assert [slot.incarnation for slot in client.status().slots] == [1, 1]
        assert reload(pool).stdout == "nothing changed\n"


def test_a_models_own_bounds_are_lifted(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    model = f'[[model]]\nname = "told"\npath = "stub:counter?{ledger.path}"\n'
    bound = stub_config("lanes = 1", models=f'{model}max_jobs = 1\nmax_bytes = "1MiB"\n')
    with pool_process(bound) as pool, pool.client() as client:
        with ledger.occupied(client, "told") as running:
            with pytest.raises(errors.Overloaded, match="max_jobs"):
                client.run("told", 1, signature="add")
            lifted = bound.replace("max_jobs = 1", 'max_jobs = "unlimited"').replace('"1MiB"', '"unlimited"')
            pool.config.write_text(lifted.replace("@endpoint@", pool.endpoint))
            assert reload(pool).stdout.splitlines() == [
                "[[model]] told max_jobs: 1 → unlimited",
                "[[model]] told max_bytes: 1MiB → unlimited",
            ]
            further = [client.submit("told", 1, signature="add") for _ in range(5)]
            eventually(lambda: client.status().queue.jobs == 6)
        assert [future.exception(20) for future in [running, *further]] == [None] * 6


def test_a_client_that_is_connected_hears_of_the_default_timeout(pool: PoolProcess) -> None:
    with pool.client() as client:
        assert client.run("rows", ONE, signature="double")
        write(pool, rest='[queue]\ndefault_timeout = "300ms"\n')
        client.reload()
        assert client.run("rows", ONE, signature="double"), "with this message it hears of it"
        with pytest.raises(errors.DeadlineExceeded):
            client.run("faults", 5.0, signature="sleep")


def test_a_wrong_file_is_refused_whole_with_every_reason(pool: PoolProcess) -> None:
    with pool.client() as client:
        write(pool, rest='[queue]\nmax_jobs = 0\ndefault_timeout = "9 s."\n[restart]\nintensity = 1\n')
        found = reload(pool)
        assert (found.returncode, found.stdout) == (2, "")
        assert [line.split(": ", 2)[1] for line in found.stderr.removeprefix("pool: ").splitlines()] == [
            "[queue] max_jobs",
            "[queue] default_timeout",
        ]
        pool.await_log("not reloaded")
        pool.config.write_text("[pool\n")
        with pytest.raises(errors.InvalidConfig, match="is not TOML"):
            client.reload()
        pool.config.unlink()
        with pytest.raises(errors.InvalidConfig, match="cannot be read"):
            client.reload()
        write(pool, models=FAULTS + ROWS.replace("stub:rows", "/nowhere/rows"))
        with pytest.raises(errors.InvalidConfig, match="there is nothing at /nowhere/rows"):
            client.reload()
        assert client.run("rows", ONE, signature="double")["y"].tolist() == [2.0]
        write(pool)
        assert client.reload().to_dict() == {"changes": [], "slots": []}


def test_what_takes_a_new_pool_is_refused_and_so_is_all_beside_it(pool: PoolProcess) -> None:
    more = '[[model]]\nname = "more"\npath = "stub:echo"\n'
    write(pool, extra_pool="lanes = 3", devices='["cpu"]', models=FAULTS + ROWS + more, rest="[advanced]\nspin_us = 5")
    found = reload(pool)
    assert found.returncode == 2
    lines = found.stderr.removeprefix("pool: ").splitlines()
    end = "this needs a new pool; run `systemctl restart`, or `pool stop` and `pool start`"
    assert lines == [
        f'{pool.config}: [pool] devices: ["cpu", "cpu"] → ["cpu"]: {end}',
        f"{pool.config}: [advanced] spin_us: off → 5: {end}",
    ]
    with pool.client() as client:
        assert [slot.lanes for slot in client.status().slots] == [2, 2]
        assert "more" not in {model.name for model in client.models()}


def test_models_stay_where_they_are_and_one_that_has_to_move_costs_no_job(tmp_path: Path) -> None:
    """Of two cards with 15 GiB free each: a model that becomes the largest stays; one that has no room moves."""

    def text(b: str) -> str:
        sizes = {"a": "8GiB", "b": b, "c": "2GiB"}
        models = "".join(
            f'[[model]]\nname = "{name}"\npath = "stub:tell?n=1"\ndevice_memory = "{sizes[name]}"\n' for name in sizes
        )
        return stub_config(devices="[0, 1]", models=models)

    def placed() -> list[tuple[str, ...]]:
        return [slot.models for slot in client.status().slots]

    with pool_process(text("5GiB"), FakeNvml(tmp_path).environ) as pool, pool.client() as client:
        assert placed() == [("a",), ("b", "c")]
        pool.config.write_text(text("13GiB").replace("@endpoint@", pool.endpoint))
        assert [change.key for change in client.reload().changes] == ["[[model]] b device_memory"]
        assert placed() == [("a",), ("b", "c")]
        with asked_all_the_time(pool, "c"), asked_all_the_time(pool, "b"), asked_all_the_time(pool, "a"):
            pool.config.write_text(text("14GiB").replace("@endpoint@", pool.endpoint))
            found = reload(pool, "--wait")
            assert (found.returncode, found.stderr) == (0, "")
            assert placed() == [("a", "c"), ("b",)]


@pytest.mark.promise(2)
def test_new_workers_come_one_after_the_other_and_no_job_is_lost(pool: PoolProcess) -> None:
    over, done = threading.Event(), [0]
    wrong: list[object] = []

    def load() -> None:
        try:
            with pool.client() as client:
                inputs = iter(lambda: None if over.is_set() else ONE, None)
                for result in client.map("rows", inputs, signature="double"):
                    done[0] += 1
                    if result["y"].tolist() != [2.0]:
                        wrong.append(result)
        except errors.PoolError as error:
            wrong.append(error)

    threads = [threading.Thread(target=load) for _ in range(2)]
    for thread in threads:
        thread.start()
    eventually(lambda: done[0] > 20)
    before = pool.workers()
    write(
        pool,
        extra_pool="lanes = 3",
        models=FAULTS + ROWS.replace("run_ms=5", "run_ms=6"),
        rest="[tensorflow]\njit = true\n[queue]\nmax_attempts = 3\n",
    )
    found = reload(pool, "--wait", "--json")
    over.set()
    for thread in threads:
        thread.join(30)
    assert found.returncode == 0, found.stderr
    answer = json.loads(found.stdout)
    assert answer["slots"] == [0, 1]
    assert {change["key"] for change in answer["changes"]} == {
        "[pool] lanes",
        "[tensorflow] jit",
        "[queue] max_attempts",
        "[[model]] rows path",
    }
    assert not wrong
    eventually(lambda: len(pool.workers()) == 2)  # the last one may still be leaving
    assert not set(before) & set(pool.workers())
    with pool.client() as client:
        slots = client.status().slots
        assert [(slot.incarnation, slot.lanes) for slot in slots] == [(2, 3), (2, 3)]
        assert {model.path for model in client.models() if model.name == "rows"} == {"stub:rows?run_ms=6"}


def test_workers_that_do_not_come_up_are_not_tried_everywhere(pool: PoolProcess) -> None:
    write(pool, models=FAULTS + ROWS.replace("stub:rows?run_ms=5", "stub:load-exit"))
    found = reload(pool, "--wait")
    assert found.returncode == 1
    assert "slot 0 did not start with the new settings and returns to the former ones" in found.stderr
    with pool.client() as client:
        eventually(lambda: all(slot.state == "READY" for slot in client.status().slots))
        assert [slot.incarnation for slot in client.status().slots] == [1, 1]
        for slot in (0, 1):
            assert client.run("rows", ONE, signature="double", device=f"slot:{slot}")["y"].tolist() == [2.0]
        write(pool)
        assert client.reload().slots == (), "all have what the file says again"


def test_many_who_ask_at_once_are_all_answered(pool: PoolProcess) -> None:
    write(pool, rest="[queue]\nmax_jobs = 77\n")
    answers: list[object] = []

    def ask() -> None:
        with pool.client() as client:
            answers.append(client.reload())

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(answers) == 6
    assert any(answer != {"changes": [], "slots": []} for answer in answers)


def test_a_file_that_cannot_be_read_to_its_end_holds_nobody_up(pool: PoolProcess) -> None:
    """As on a server that is gone: here a pipe into which nobody writes."""
    pool.config.unlink()
    os.mkfifo(pool.config)
    with pool.client() as client:
        with pytest.raises(errors.InvalidConfig, match="could not be read within 8 s"):
            client.reload()
        assert client.run("rows", ONE, signature="double")
        with pytest.raises(errors.InvalidConfig, match="the disk has not yet answered the last request"):
            client.reload()
    pool.config.open("w").close()  # lets go of the thread
    pool.config.unlink()
    write(pool)


def test_it_is_asked_at_the_local_endpoint_only() -> None:
    with pool_process(stub_config('listen = ["tcp://127.0.0.1:*"]')) as pool:
        listening = re.search(r"listening at (tcp://\S+) too", pool.text())
        assert listening is not None
        with Client(listening[1]) as client:
            with pytest.raises(errors.NotAllowed, match="only at the local endpoint"):
                client.reload()
            assert client.status().state == "SERVING"


def test_a_programs_own_pool_reloads_its_file(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    text = '[pool]\ndevices = ["cpu"]\n' + ROWS
    config.write_text(text)
    with start(config) as running:
        config.write_text(text + 'batch_wait = "1ms"\n')
        assert [change.key for change in running.reload().changes] == ["[[model]] rows batch_wait"]
    given = {"pool": {"devices": ["cpu"]}, "model": [{"name": "m", "path": "stub:echo"}]}
    with start(given) as running, pytest.raises(errors.InvalidState, match="there is no file to read again"):
        running.reload()


# --- SIGHUP -----------------------------------------------------------------------------------------------------------


class Daemon(PoolProcess):
    """A pool without a terminal, as a service manager starts it; or with one of its own."""

    def __init__(self, config: str, terminal: int | None = None) -> None:
        super().__init__(config)
        self._terminal = terminal

    def start(self, stderr: int | None = None) -> "Daemon":
        assert stderr is None
        code = "import os, sys; os.execv(sys.executable, [sys.executable, '-P', '-m', 'pool', *sys.argv[1:]])"
        if self._terminal is not None:  # the first terminal that the leader of a session opens is the session's
            code = f"import os; os.open({os.ttyname(self._terminal)!r}, os.O_RDWR)\n{code}"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code, "start", "--config", str(self.config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environ,
                start_new_session=True,
            )
        return self


def test_sighup_reloads_a_pool_without_a_terminal() -> None:
    pool = Daemon(stub_config(models=FAULTS + ROWS))
    try:
        pool.start().await_ready()
        with pool.client() as client:
            slow = client.submit("faults", 1.0, signature="sleep")
            write(pool, rest="[tensorflow]\njit = true\n[queue]\nmax_jobs = 5\n")
            pool.running.send_signal(signal.SIGHUP)
            pool.await_log("reloaded: [queue] max_jobs: 10000 → 5")
            pool.await_log("every slot has the new settings")
            assert slow.result(5)
            pool.config.write_text("wrong")
            pool.running.send_signal(signal.SIGHUP)
            pool.await_log("not reloaded: ")
            assert client.run("rows", ONE, signature="double")
        assert pool.stop() == 0
    finally:
        pool.kill()


def test_a_terminal_that_is_closed_ends_the_pool_in_it() -> None:
    ours, theirs = pty.openpty()
    pool = Daemon(stub_config(models=FAULTS + ROWS), theirs)
    try:
        pool.start().await_ready()
        os.close(theirs)
        workers = pool.workers()
        os.close(ours)  # the kernel tells the session's leader
        assert pool.wait() == 0, pool.text()
        assert "stopping: SIGHUP came" in pool.text()
        pool.assert_clean(workers)
    finally:
        pool.kill()
