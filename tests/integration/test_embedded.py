"""`pool.start(…)`: a pool that lives as long as a block, or as its program."""

import importlib
import logging
import os
import pty
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import msgpack
import pytest

import pool
from integration.screen import Screen
from pool import errors
from support.pool_process import STUBS
from support.processes import alive, children, eventually

ECHO = {"model": [{"name": "echo", "path": "stub:echo", "devices": "all"}], "pool": {"devices": ["cpu"]}}


@pytest.fixture(autouse=True)
def _own_temporary_folder(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,  # noqa: ARG001  # pytest makes its own folders before, or they would be gone with this one
) -> Iterator[None]:
    """Other pools of this machine make their folders elsewhere. Short, for the socket's path."""
    with tempfile.TemporaryDirectory(prefix="pe-") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setenv("TMPDIR", folder)
        yield


def folders() -> set[str]:
    return {entry for entry in os.listdir(tempfile.gettempdir()) if entry.startswith("pool-")}


def test_it_lives_as_long_as_the_block() -> None:
    before = folders()
    with pool.start(ECHO) as running:
        assert running.submit("echo", 1.0).result(10)["x"] == 1.0
        assert list(running.map("echo", [1.0, 2.0]))[1]["x"] == 2.0
        process = running.pid
        workers = children(process)
        assert len(workers) == 1
        # Its log is beside its socket.
        log = Path(running.endpoint.removeprefix("ipc://")).with_name("log")
        eventually(lambda: "ready: 1 of 1 slots serve" in log.read_text())
        # What is printed past the log goes to its end, as the log does after a change of files.
        flags = int(Path(f"/proc/{running.pid}/fdinfo/2").read_text().split("flags:")[1].split()[0], 8)
        assert flags & os.O_APPEND
    assert not alive(process)
    assert not any(alive(worker) for worker in workers)
    assert folders() == before


def test_a_file_and_its_own_endpoint(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    path = tempfile.mktemp(prefix="pe-", suffix=".sock")
    config.write_text(f'[pool]\ndevices = ["cpu"]\nendpoint = "ipc://{path}"\n{STUBS}')
    with pool.start(config) as running:
        assert running.endpoint == f"ipc://{path}"
        with pool.Client(f"ipc://{path}") as other:
            assert other.run("echo", 1.0)["x"] == 1.0
    assert not Path(path).exists()


def test_what_is_wrong_is_raised() -> None:
    before = folders()
    with pytest.raises(errors.InvalidConfig, match="lanez"):
        pool.start({**ECHO, "pool": {"lanez": 3}})
    with pytest.raises(errors.PoolUnreachable, match="cannot-load"):
        pool.start({"model": [{"name": "broken", "path": "stub:cannot-load"}], "pool": {"devices": ["cpu"]}})
    with pytest.raises(errors.DeadlineExceeded, match=r"not ready within 1 s"):
        pool.start(
            {"model": [{"name": "slow", "path": "stub:load-hang"}], "pool": {"devices": ["cpu"]}}, ready_timeout=1
        )
    assert folders() == before


def test_a_model_that_cannot_be_loaded_is_warned_of() -> None:
    config = {**ECHO, "model": [*ECHO["model"], {"name": "broken", "path": "stub:cannot-load"}]}
    with pytest.warns(RuntimeWarning, match=r"the pool could not load model broken; status\(\) says why") as warned:
        running = pool.start(config)
    with running:
        assert warned[0].filename == __file__
        assert running.run("echo", 1.0)["x"] == 1.0
        assert [each.model for each in running.status().unloadable] == ["broken"]


def test_its_death_is_the_end_of_its_jobs() -> None:
    """Nobody starts it again."""
    models = [{"name": "faults", "path": "stub:faults"}]
    with pool.start({"model": models, "pool": {"devices": ["cpu"]}}) as running:
        future = running.submit("faults", 30.0, signature="sleep")
        running.status()
        # A thread of the pool writes its log, a moment after the pool has told this program that it is ready.
        log = Path(running.endpoint.removeprefix("ipc://")).with_name("log")
        eventually(lambda: "ready: 1 " in log.read_text())
        os.kill(running.pid, signal.SIGKILL)
        with pytest.raises(errors.PoolUnreachable, match="went away before it answered"):
            future.result(5)
        # No new connection looks for it, which would take the five seconds of `connect_timeout`.
        for ask in (lambda: running.run("faults", {}, signature="pid"), running.status):
            with pytest.raises(
                errors.PoolUnreachable, match=r"of this program has ended \(exit status -9\):\n(.*\n)*.*ready: 1 "
            ):
                ask()
        with pytest.raises(errors.PoolUnreachable, match="has ended"):
            running.submit("faults", {}, signature="pid").result(0)


PROGRAM = """
import os, pool, signal, sys, time
running = pool.start({"model": [{"name": "f", "path": "stub:faults"}], "pool": {"devices": ["cpu"]}})
future = running.submit("f", 30.0, signature="sleep")
print(running.pid, flush=True)
signal.pause()
"""


def test_it_ends_with_its_program_even_by_sigkill() -> None:
    before = folders()
    with subprocess.Popen([sys.executable, "-P", "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            process = int(program.stdout.readline())
            workers = children(process)
            assert workers
        finally:
            program.send_signal(signal.SIGKILL)
    # Nobody is left to want the answer of the job that runs for half a minute.
    eventually(lambda: not any(alive(pid) for pid in (process, *workers)), 15.0)
    assert folders() == before


FORKS = """
import os, pool, sys, warnings
warnings.simplefilter("ignore")
running = pool.start({"model": [{"name": "echo", "path": "stub:echo"}], "pool": {"devices": ["cpu"]}})
folder = os.path.dirname(running.endpoint.removeprefix("ipc://"))
for leave in (lambda: None, running.close, lambda: running.__exit__(None, None, None)):
    pid = os.fork()
    if pid == 0:
        assert running.run("echo", 1.0)["x"] == 1.0
        leave()
        sys.exit(7)  # with atexit
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert os.path.exists(folder + "/pool.sock")
    assert pool.Client(running.endpoint).run("echo", 2.0)["x"] == 2.0
    assert running.run("echo", 2.0)["x"] == 2.0
running.close()
assert not os.path.exists(folder)
"""


def test_a_forked_child_ends_nothing_of_its_parents() -> None:
    subprocess.run([sys.executable, "-P", "-c", FORKS], check=True, timeout=90)


PROGRAM_WITH_CHILD = """
import os, pool, signal, sys, time, warnings
warnings.simplefilter("ignore")
running = pool.start({"model": [{"name": "echo", "path": "stub:echo"}], "pool": {"devices": ["cpu"]}})
child = os.fork()
if child == 0:
    time.sleep(60)
    os._exit(0)
print(running.pid, child, flush=True)
signal.pause()
"""


def test_a_forked_child_does_not_keep_the_pool_of_a_dead_program() -> None:
    before = folders()
    with subprocess.Popen([sys.executable, "-P", "-c", PROGRAM_WITH_CHILD], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        process, child = map(int, program.stdout.readline().split())
        workers = children(process)
        program.send_signal(signal.SIGKILL)
        program.wait(10)
        try:
            eventually(lambda: not any(alive(pid) for pid in (process, *workers)), 15.0)
            assert alive(child)
            assert folders() == before
        finally:
            os.kill(child, signal.SIGKILL)


IN_A_TERMINAL = """
import os, pool, signal, sys
slow = {"name": "slow", "path": "stub:rows?load_ms=1500"}
with pool.start({"model": [slow], "pool": {"devices": ["cpu"]}}) as running:
    print("it serves", flush=True)
    os.kill(running.pid, signal.SIGKILL)
    try:
        while True:
            running.status()
    except pool.errors.PoolUnreachable:
        pass
    try:
        running.wait_ready(timeout=60)
    except pool.errors.PoolUnreachable as error:
        print(str(error).splitlines()[0])
"""


def test_a_start_in_a_terminal_says_what_it_waits_for() -> None:
    """In a line that does not stay. What the pool has told of it does not hide its end."""
    ours, its = pty.openpty()
    argv = [sys.executable, "-P", "-c", IN_A_TERMINAL]
    with subprocess.Popen(argv, stdin=its, stdout=its, stderr=its, start_new_session=True) as program:
        os.close(its)
        try:
            screen = Screen(ours, program)
            screen.until("\r0 of 1 slots READY · slot 0 cpu:0: ")
            screen.until("\rit serves")
            screen.until("the pool of this program has ended (exit status -9)")
            assert screen.ended() == 0
        finally:
            program.kill()
            os.close(ours)


def test_a_start_that_nobody_watches_writes_nothing() -> None:
    program = IN_A_TERMINAL.partition("    os.kill")[0]
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("it serves\n", "")


class TestTheChildsSide:
    """`pool start --embedded` when its program goes at an awkward moment."""

    module = importlib.import_module("pool.cli.start")

    def request(self, folder: Path, config: object) -> tuple[socket.socket, socket.socket]:
        ours, theirs = socket.socketpair()
        message = {
            "pid": os.getppid(),
            "config": config,
            "base": "/",
            "endpoint": f"ipc://{folder}/pool.sock",
            "log": None,
            "is_watched": False,
        }
        ours.sendall(msgpack.packb(message))
        return ours, theirs

    def test_the_folder_goes_with_the_program_whatever_is_raised(self, tmp_path: Path) -> None:
        folder = tmp_path / "pool-x"
        folder.mkdir()
        ours, theirs = self.request(folder, {"pool": {"lanez": 1}})
        ours.close()
        with theirs, pytest.raises(errors.InvalidConfig, match="lanez"):
            self.module._start_embedded(theirs, logging.INFO)
        assert not folder.exists()

    def test_the_folder_is_left_to_a_program_that_lives(self, tmp_path: Path) -> None:
        ours, theirs = self.request(tmp_path, {"pool": {"lanez": 1}})
        with ours, theirs, pytest.raises(errors.InvalidConfig, match="lanez"):
            self.module._start_embedded(theirs, logging.INFO)
        assert tmp_path.exists()

    def test_nobody_is_left_to_be_told_that_it_is_ready(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        class Ready:
            """A service whose program dies in the round in which it becomes ready."""

            def __init__(
                self,
                _plan: object,
                _environ: object,
                on_ready: Callable[[int, int, Sequence[str]], None],
                _notifier: object,
                _source: object,
            ) -> None:
                self._on_ready = on_ready

            def run(self, _link: int) -> SimpleNamespace:
                ours.close()
                self._on_ready(1, 1, ())
                return SimpleNamespace(failed=False, reason="the program went away")

        monkeypatch.setattr(self.module, "Service", Ready)
        ours, theirs = self.request(tmp_path / "pool-x", ECHO)
        with theirs:
            self.module._start_embedded(theirs, logging.INFO)
