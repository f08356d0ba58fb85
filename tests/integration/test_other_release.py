"""The package's files are replaced under a running pool, as by an upgrade: what slots, clients and people see of it."""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.service_manager import Manager
from pool.processes.deaths import RESTART_NEEDED
from pool.wire.frames import VERSION
from pool.wire.records import Slot
from support.commands import run_command
from support.pool_process import PoolProcess, stub_config
from support.processes import eventually, pid_of

pytestmark = pytest.mark.replacement

ROOT = Path(__file__).parents[2]
QUICK = '[restart]\nperiod = "1s"\nbackoff_max = "1s"\n'


class Package:
    """A copy of the package, which only the processes of one pool import."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("pool", "workers"):
            shutil.copytree(ROOT / name, folder / name)
        self._wire = folder / "pool" / "wire" / "hot.py"
        self._own = self._wire.read_text()
        # A file that is replaced twice within a second is not told from its compiled one.
        self.environ = {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        shutil.rmtree(self._wire.parent / "__pycache__", ignore_errors=True)

    def speak(self, version: int) -> None:
        """Its wire is of this version from now on."""
        text, count = re.subn(r"(?m)^VERSION = \d+$", f"VERSION = {version}", self._own)
        assert count == 1
        self._wire.write_text(text)

    def put_back(self) -> None:
        self._wire.write_text(self._own)

    def command(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """`pool` as the copy has it now."""
        return run_command(None, *arguments, environ=self.environ)


@pytest.fixture
def package(tmp_path: Path) -> Package:
    return Package(tmp_path / "package")


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(tmp_path / "notify")
    yield manager
    manager.close()


def started(package: Package, config: str, **environ: str) -> PoolProcess:
    return PoolProcess(config, {**package.environ, **environ}).start().await_ready()


def slots(pool: PoolProcess) -> tuple[Slot, ...]:
    with pool.client() as client:
        return client.status().slots


def states(pool: PoolProcess) -> list[str]:
    return [slot.state for slot in slots(pool)]


def lose(pool: PoolProcess, slot: int) -> None:
    """Its worker dies, and the next one is refused."""
    pid = pid_of(slots(pool)[slot])
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: bool(slots(pool)[slot].other_release), saw=lambda: pool.text()[-2000:])


@pytest.mark.parametrize("version", [VERSION + 1, VERSION - 1])
def test_the_slot_waits_the_others_serve_on_and_people_are_told(
    package: Package, manager: Manager, version: int
) -> None:
    pool = started(package, stub_config(), NOTIFY_SOCKET=str(manager.path))
    try:
        with pool.client() as client:
            assert client.run("echo", 1.0)["x"] == 1.0
            package.speak(version)
            lose(pool, 1)
            status = client.status()
            waiting = status.slots[1]
            said = f"protocol version {VERSION} from the other side, {version} here"
            assert waiting.state == "BACKOFF"
            assert waiting.reason.startswith(f"exit status 77 OTHER_RELEASE: {RESTART_NEEDED} ({said}")
            assert status.restart_needed == RESTART_NEEDED
            assert status.slots[0].state == "READY"
            assert [reason for reason in status.dropped if f"protocol version {version}" in reason]
            for number in range(20):
                assert client.run("echo", float(number))["x"] == number
            eventually(lambda: any(f"1 of 2 slots serve; {RESTART_NEEDED}" in each for each in manager.said("STATUS")))

            # It is no crash: one report, of the worker that was killed; and no second try so soon.
            assert client.status().slots[1].incarnation == 2
            pool.await_log("OTHER_RELEASE")  # the log and the disk are threads'
            folder = pool.state / "pool" / "crash_reports"
            eventually(lambda: folder.exists() and any(path.suffix == ".json" for path in folder.iterdir()))
            kept = [path.name for path in folder.iterdir()]
            assert [name.split("-")[-2:] for name in kept] == [["slot1", "1.json"]]
            assert pool.text().count("OTHER_RELEASE") == 1

            # What was installed cannot speak to this pool, and says why.
            newer = package.command("status", "--endpoint", pool.endpoint)
            assert newer.returncode == 1
            assert said in newer.stderr
            assert "restart a pool that was started before" in newer.stderr

            # Nobody is taken out who could not be followed.
            package.put_back()
            asked = package.command("restart", "0", "--endpoint", pool.endpoint)
            assert asked.returncode == 1
            assert f"slot 0 keeps its worker, because a new one could not start: {RESTART_NEEDED}" in asked.stderr
            shown = package.command("status", "--endpoint", pool.endpoint)
            assert RESTART_NEEDED in shown.stdout.splitlines()
            told = json.loads(package.command("status", "--json", "--endpoint", pool.endpoint).stdout)
            assert told["restart_needed"] == RESTART_NEEDED

            back = package.command("restart", "1", "--endpoint", pool.endpoint)
            assert back.returncode == 0, back.stderr
            status = client.status()
            assert [slot.state for slot in status.slots] == ["READY", "READY"]
            assert status.restart_needed is None
            assert client.run("echo", 7.0, device="slot:1")["x"] == 7.0
        assert pool.stop() == 0, pool.text()
    finally:
        pool.kill()


def test_a_slot_that_waits_serves_by_itself_when_the_files_are_back(package: Package) -> None:
    pool = started(package, stub_config(rest=QUICK))
    try:
        package.speak(VERSION + 1)
        lose(pool, 1)
        refused = package.command("restart", "1", "--endpoint", pool.endpoint)
        assert refused.returncode == 1, "of another version itself"
        package.put_back()
        eventually(lambda: states(pool) == ["READY", "READY"])
        assert pool.stop() == 0
    finally:
        pool.kill()


def test_a_restart_that_is_refused_says_so_at_once(package: Package) -> None:
    pool = started(package, stub_config())
    try:
        package.speak(VERSION + 1)
        lose(pool, 1)
        asked = run_command(pool, "restart", "1")
        assert asked.returncode == 1
        assert f"slot 1 is BACKOFF: exit status 77 OTHER_RELEASE: {RESTART_NEEDED}" in asked.stderr
        assert slots(pool)[1].incarnation == 3
        assert pool.stop() == 0
    finally:
        pool.kill()


def test_when_no_slot_is_left_the_pool_ends_and_the_next_one_has_the_jobs(package: Package) -> None:
    pool = started(package, stub_config(devices='["cpu"]'))
    try:
        with pool.client() as client:
            sleeps = [client.submit("faults", 60.0, signature="sleep", timeout=90) for _ in range(slots(pool)[0].lanes)]
            eventually(lambda: slots(pool)[0].busy_lanes == len(sleeps))
            waits = client.submit("echo", 5.0, timeout=90)
            eventually(lambda: client.status().queue.queued == 1)
            package.speak(VERSION + 1)
            workers = pool.workers()
            os.kill(workers[0], signal.SIGKILL)
            assert pool.wait() == 3, "for which systemd starts it again"
            pool.assert_clean(workers)
            assert f"no slot is left that could serve: exit status 77 OTHER_RELEASE: {RESTART_NEEDED}" in pool.text()
            assert not waits.done()
            for each in sleeps:
                each.cancel()
            package.put_back()
            pool.log.unlink()
            pool.start().await_ready()
            assert waits.result(60)["x"] == 5.0
            assert waits.timeline.attempts == 1  # type: ignore[union-attr]
        assert pool.stop() == 0
    finally:
        pool.kill()
