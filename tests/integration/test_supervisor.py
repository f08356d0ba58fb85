"""Workers as processes, without a pool around them."""

import gc
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pool.processes.supervisor
from pool.clock.alarms import Alarms
from pool.core.actions import SpawnWorker
from pool.core.events import Death, Event, WorkerExited, WorkerSpawned
from pool.devices import Device
from pool.devices.gpu_monitor import GpuMonitor
from pool.loop.loop import LONGEST_WAIT_S, Loop
from pool.loop.watch import Source, Watch
from pool.processes.deaths import death_of
from pool.processes.launch import Launch
from pool.processes.output import LINES_A_SECOND, TAIL_LINES
from pool.processes.supervisor import Supervisor
from pool.wire.exits import Exit
from support.processes import alive, eventually

CPU = Device("cpu", (), "cpu:0", "CPU", None)
Play = Callable[[str], None]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """Makes the next workers run a program of the test's."""

    def choose(program: str) -> None:

        def launch(stacks_fd: int | None, **_: object) -> Launch:
            return Launch((sys.executable, "-c", program, str(stacks_fd)), dict(os.environ))

        monkeypatch.setattr(pool.processes.supervisor, "worker_launch", launch)

    return choose


class Looped(Supervisor):
    """With a loop of its own, and what it has told."""

    def __init__(self) -> None:
        self.watch = Watched()
        self.alarms = Alarms()
        self.told: list[Event] = []
        self.loop = Loop(self.watch, self.alarms)
        monitor = GpuMonitor([CPU], os.environ, self.loop)  # of no GPU: it starts nothing
        super().__init__(
            [CPU], "ipc:///none", 1, os.environ, lambda *_: None, 0.0, self.loop, self.told.append, monitor
        )

    def rests(self) -> bool:
        """Whether nothing is awaited, once what was due has found nothing to do."""
        for _ in range(3):
            if self.alarms.left_s(LONGEST_WAIT_S) < LONGEST_WAIT_S:
                self.loop.turn()
        return self.alarms.left_s(LONGEST_WAIT_S) == LONGEST_WAIT_S and not self.told


class Watched(Watch):
    """It knows what it waits for."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: set[Source] = set()

    def add(self, source: Source) -> None:
        super().add(source)
        self.sources.add(source)

    def remove(self, source: Source) -> None:
        super().remove(source)
        self.sources.remove(source)


@pytest.fixture
def supervisor() -> Iterator[Looped]:
    supervisor = Looped()
    yield supervisor
    supervisor.loop.close()


def until_exit(supervisor: Looped) -> WorkerExited:
    """As the pool's loop waits: no longer than the supervisor says."""
    while not supervisor.told:
        supervisor.loop.turn()
    event = supervisor.told.pop(0)
    assert isinstance(event, WorkerExited)
    return event


def test_a_worker_that_is_gone_at_once_is_an_exit_and_nothing_else(play: Play, supervisor: Looped) -> None:
    play("")
    for incarnation in range(30):
        assert isinstance(supervisor.spawn(SpawnWorker(0, incarnation)), WorkerSpawned)
        assert until_exit(supervisor).incarnation == incarnation
    assert not supervisor.watch.sources


def test_without_pidfd_one_whose_link_has_ended_is_looked_for_until_it_is_gone(
    play: Play, supervisor: Looped, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("pool.processes.supervisor.os.pidfd_open", missing)
    play("import os, time; os.closerange(3, 64); time.sleep(0.3)")
    supervisor.spawn(SpawnWorker(0, 1))
    assert len(supervisor.watch.sources) == 2, "its output and its link"
    assert until_exit(supervisor).death.text == "exit status 0"
    assert supervisor.rests()


def test_no_descriptor_left_is_an_exit_too(play: Play, supervisor: Looped) -> None:
    play("")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()
    fds = set(os.listdir("/proc/self/fd"))
    for spare in range(8):
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(fds) + spare, before[1]))
        try:
            event = supervisor.spawn(SpawnWorker(0, spare))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        if isinstance(event, WorkerSpawned):
            event = until_exit(supervisor)
        else:
            assert isinstance(event, WorkerExited)
            assert "cannot be spawned" in event.death.text
            assert event.death.restartable
    assert not supervisor.watch.sources
    # Of those that were there, libzmq may still close some, of another test's clients.
    assert set(os.listdir("/proc/self/fd")) <= fds


def test_a_flood_of_output_is_bounded_and_its_end_is_kept(
    play: Play, supervisor: Looped, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("pool"), "propagate", True)
    play("for n in range(200_000): print('line', n)\nprint('last words')")
    with caplog.at_level(logging.INFO, "pool.worker"):
        began = time.monotonic()
        supervisor.spawn(SpawnWorker(0, 1))
        death = until_exit(supervisor).death
        seconds = time.monotonic() - began
    assert death.last_output[-1] == "last words"
    assert len(death.last_output) <= TAIL_LINES
    assert len(caplog.records) <= (LINES_A_SECOND + 1) * (seconds + 2)
    assert "more lines" in caplog.text


def test_one_that_closes_its_output_and_lives_is_not_read_without_end(play: Play, supervisor: Looped) -> None:
    play("import os, time; os.close(1); os.close(2); time.sleep(600)")
    supervisor.spawn(SpawnWorker(0, 1))
    all_of_it = set(supervisor.watch.sources)
    supervisor.loop.turn()
    assert len(all_of_it - supervisor.watch.sources) == 1, "its output is not waited for, its end is"
    supervisor.kill(0, 1)
    assert until_exit(supervisor).death.text == "SIGKILL"


def test_what_a_worker_prints_is_not_obeyed_by_a_terminal(
    play: Play, supervisor: Looped, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("pool"), "propagate", True)
    play(r"print('\x1b]0;owned\x07\x1b[31mred\x1b[0m\rslot 1 FATAL')")
    with caplog.at_level(logging.INFO, "pool.worker"):
        supervisor.spawn(SpawnWorker(0, 7))
        death = until_exit(supervisor).death
    assert death.last_output == (r"\x1b]0;owned\x07red\rslot 1 FATAL",)
    (record,) = caplog.records
    assert record.getMessage() == f"slot 0 | {death.last_output[0]}"
    assert record.event == "worker_output"  # type: ignore[attr-defined]
    assert record.fields.items() >= {"slot": 0, "incarnation": 7}.items()  # type: ignore[attr-defined]


def test_deaths_are_told_by_name() -> None:
    assert death_of(-9, ()) == Death("SIGKILL (out of memory?)", True, (), untouched=True, cause="SIGKILL")
    assert death_of(-9, (), by_us=True) == Death("SIGKILL", True, (), cause="SIGKILL")
    assert death_of(-11, ()) == Death("SIGSEGV", True, (), untouched=True, cause="SIGSEGV")
    assert death_of(-11, (), by_us=True).untouched, "SIGKILL ends nobody by SIGSEGV"
    assert death_of(3, (), by_us=True) == Death("exit status 3", True, (), untouched=True, cause="OTHER")
    assert {death_of(status, ("last",)).cause for status in Exit} == {status.name for status in Exit}
    told = death_of(Exit.MODEL_CANNOT_LOAD, ("noise", "model m: why"))
    assert told.text == "exit status 74 MODEL_CANNOT_LOAD: model m: why"
    assert (told.restartable, told.last_output) == (False, ("noise", "model m: why"))


@pytest.mark.parametrize("by_itself", [False, True])
def test_what_a_worker_has_spawned_goes_with_it(
    play: Play, supervisor: Looped, tmp_path: Path, by_itself: bool
) -> None:
    pids = tmp_path / "pid"
    play(
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pids)!r}, 'w').write(str(child.pid))\n" + ("sys.exit(3)" if by_itself else "time.sleep(600)")
    )
    supervisor.spawn(SpawnWorker(0, 1))
    eventually(lambda: pids.exists() and bool(pids.read_text()))
    supervisor.kill(0, 1)
    until_exit(supervisor)
    eventually(lambda: not alive(int(pids.read_text())))


# Whoever sees that it listens may ask, or kill it, in that instant: all else has happened by then.
LISTENS = """
import faulthandler, os, signal, sys, time
faulthandler.enable(int(sys.argv[1]))
print("up", flush=True)
def stuck():
    faulthandler.register(signal.SIGUSR1, int(sys.argv[1]), all_threads=True, chain=False)
    time.sleep(600)
stuck()
"""


def up(supervisor: Looped, incarnation: int = 1) -> int:
    """Spawns a worker and waits until it listens; its pid."""
    spawned = supervisor.spawn(SpawnWorker(0, incarnation))
    assert isinstance(spawned, WorkerSpawned)
    caught = 1 << (signal.SIGUSR1 - 1)
    status = Path(f"/proc/{spawned.pid}/status")
    eventually(lambda: bool(int(status.read_text().partition("SigCgt:")[2].split()[0], 16) & caught))
    return spawned.pid


def test_one_that_hangs_says_where_before_it_is_killed(
    play: Play, supervisor: Looped, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pool.processes.stacks.TAKE_S", 60.0)  # the worker may be held up before it answers
    play(LISTENS)
    pid = up(supervisor)
    supervisor.kill(0, 1, stacks=True)
    supervisor.kill(0, 1, stacks=True)
    assert alive(pid), "the loop goes on meanwhile"
    death = until_exit(supervisor).death
    assert death.text == "SIGKILL", "that it may be out of memory is no guess where the pool did it"
    trace = supervisor.trace(0, 1)
    assert trace is not None
    assert (trace.pid, trace.status, trace.note) == (pid, -signal.SIGKILL, "")
    assert trace.stacks.count("in stuck") == 1
    assert supervisor.trace(0, 1) is None, "it is told once"
    assert supervisor.rests()


@pytest.mark.parametrize("threads", [0, 20])
def test_a_kill_from_outside_is_told_even_where_the_pool_kills_before_it_sees_the_exit(
    play: Play, supervisor: Looped, threads: int
) -> None:
    """Its sockets are closed before it can be reaped, so the pool may find that its lanes cannot be reached."""
    thread = "threading.Thread(target=time.sleep, args=(600,))"
    wait = f"import threading\nfor _ in range({threads}): {thread}.start()\nstuck()"
    play(LISTENS.replace("\nstuck()\n", f"\n{wait}\n"))
    for incarnation in range(1, 11):
        os.kill(up(supervisor, incarnation), signal.SIGKILL)
        supervisor.kill(0, incarnation, stacks=incarnation % 2 == 0)
        supervisor.kill(0, incarnation)
        told = Death("SIGKILL (out of memory?)", True, ("up",), untouched=True, cause="SIGKILL")
        assert until_exit(supervisor).death == told


def test_an_order_for_one_that_is_gone_is_nothing(play: Play, supervisor: Looped) -> None:
    play(LISTENS)
    up(supervisor)
    supervisor.kill(0, 1)
    assert until_exit(supervisor).death.text == "SIGKILL"
    for stacks in (True, False):
        supervisor.kill(0, 1, stacks=stacks)
    assert supervisor.rests()


def test_a_second_order_does_not_wait_for_stacks_that_were_asked_for(play: Play, supervisor: Looped) -> None:
    play(LISTENS)
    up(supervisor)
    supervisor.kill(0, 1, stacks=True)
    supervisor.kill(0, 1)
    assert until_exit(supervisor).death.text == "SIGKILL"
    assert supervisor.rests()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
def test_one_that_dies_while_it_is_asked_is_an_exit_like_any_other(
    play: Play, supervisor: Looped, how: signal.Signals
) -> None:
    play(LISTENS)
    pid = up(supervisor)
    supervisor.kill(0, 1, stacks=True)
    os.kill(pid, how)
    eventually(lambda: not alive(pid))  # else its stacks could be there first, and the supervisor's own SIGKILL
    exited = until_exit(supervisor)
    assert exited.death.text.startswith(how.name)
    assert supervisor.rests()
    up(supervisor, 2)
    supervisor.kill(0, 1, stacks=True)  # the former one: not its replacement
    assert supervisor.rests()
    supervisor.kill(0, 2)
    assert until_exit(supervisor).incarnation == 2


def test_a_crash_leaves_its_stacks_without_being_asked(play: Play, supervisor: Looped) -> None:
    play(LISTENS.replace("time.sleep(600)", "import ctypes; ctypes.string_at(0)"))
    supervisor.spawn(SpawnWorker(0, 1))
    assert until_exit(supervisor).death.text == "SIGSEGV"
    trace = supervisor.trace(0, 1)
    assert trace is not None
    assert trace.stacks.startswith("Fatal Python error: Segmentation fault")
    assert "in stuck" in trace.stacks


def test_a_machine_without_such_files_has_workers_without_stacks(
    play: Play, supervisor: Looped, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("pool.processes.stacks.os.memfd_create", missing)
    play("import time, sys; assert sys.argv[1] == 'None'; time.sleep(600)")
    supervisor.spawn(SpawnWorker(0, 1))
    supervisor.kill(0, 1, stacks=True)
    assert until_exit(supervisor).death.text == "SIGKILL"
    trace = supervisor.trace(0, 1)
    assert trace is not None
    assert (trace.stacks, trace.note) == ("", "no stacks can be taken on this machine")
