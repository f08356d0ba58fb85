"""The stacks of real processes: taken, waited for, bounded, and where there are none, why."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

import pool.processes.stacks
from pool.processes.stacks import STACKS_BYTES, Stacks, threads_of
from support.processes import eventually

TAKE_S = 20.0  # the pool's own is short: on a busy machine it ends before an answer comes

LISTENS = """
import faulthandler, os, signal, sys, time
stacks = int(sys.argv[1])
faulthandler.register(signal.SIGUSR1, stacks, all_threads=True, chain=False)
"""
READY = "os.write(1, b'.')\n"

Run = Callable[[str], int]


@pytest.fixture
def stacks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stacks]:
    monkeypatch.setattr(pool.processes.stacks, "TAKE_S", TAKE_S)
    made = Stacks()
    yield made
    made.close()


@pytest.fixture
def run(stacks: Stacks) -> Iterator[Run]:
    """Starts a program with the file for its stacks; returns its pid once it has written a byte."""
    started: list[subprocess.Popen[bytes]] = []

    def start(program: str) -> int:
        argv = [sys.executable, "-c", program, str(stacks.fd)]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, pass_fds=[stacks.fd], process_group=0)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.read(1) == b"."
        return process.pid

    yield start
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
        assert process.stdout is not None
        process.stdout.close()


def until_settled(stacks: Stacks, pid: int) -> None:
    eventually(lambda: stacks.settled(pid, time.monotonic()), TAKE_S / 2)


def test_a_program_that_hangs_tells_where(stacks: Stacks, run: Run) -> None:
    pid = run(LISTENS + f"def stuck():\n    {READY}    time.sleep(600)\nstuck()")
    assert stacks.text() == ""
    assert stacks.ask(pid, time.monotonic())
    until_settled(stacks, pid)
    assert "in stuck" in stacks.text()
    assert stacks.note == ""
    assert len(stacks.threads) == 1


def test_a_second_dump_follows_the_first(stacks: Stacks, run: Run) -> None:
    pid = run(LISTENS + READY + "time.sleep(600)")
    for count in (1, 2):
        assert stacks.ask(pid, time.monotonic())
        until_settled(stacks, pid)
        assert stacks.text().count("most recent call first") == count


def test_one_that_does_not_listen_is_not_killed_by_the_question(stacks: Stacks, run: Run) -> None:
    pid = run("import os, time\n" + READY + "time.sleep(600)")
    assert not stacks.ask(pid, time.monotonic())
    assert stacks.note == "no stacks could be taken: the process did not listen for the signal yet"
    os.kill(pid, 0)


def test_one_that_is_stopped_is_said_to_be(stacks: Stacks, run: Run) -> None:
    pid = run(LISTENS + READY + "time.sleep(600)")
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: threads_of(pid)[0].partition(": ")[2].startswith("stopped"))
    assert not stacks.ask(pid, time.monotonic())
    assert stacks.note.startswith("no stacks could be taken: the process was stopped (by SIGSTOP")
    assert all(": stopped" in line for line in stacks.threads)


def test_one_that_is_stuck_in_the_kernel_is_waited_for_no_longer_than_it_may_take(stacks: Stacks, run: Run) -> None:
    """A parent of `vfork` is, until its child ends or becomes another program."""
    child = f"{READY}    while True: time.sleep(600)"
    pid = run(LISTENS + f"import ctypes\nlibc = ctypes.PyDLL(None)\nif libc.vfork() == 0:\n    {child}")
    eventually(lambda: any("uninterruptible" in line for line in threads_of(pid)))
    assert stacks.ask(pid, 100.0)
    assert not stacks.settled(pid, 100.0 + TAKE_S * 0.99)
    assert stacks.settled(pid, 100.0 + TAKE_S)
    assert stacks.text() == ""
    assert stacks.note == "no stacks could be taken: the main thread was inside the kernel, where no signal reaches it"


def test_one_that_is_dead_is_said_to_be(stacks: Stacks) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not stacks.ask(process.pid, time.monotonic())
    process.wait(10)
    assert stacks.note == "it died before its stacks could be taken"
    assert not stacks.ask(process.pid, time.monotonic())
    assert threads_of(process.pid) == ()


def test_a_program_that_writes_without_end_fills_no_memory(stacks: Stacks, run: Run) -> None:
    run(
        "import errno, os, sys\nfd = int(sys.argv[1])\n"
        "try:\n    while True: os.write(fd, b'x' * 5000)\n"
        "except OSError as error: assert error.errno == errno.EPERM\n"
        "try: os.ftruncate(fd, 1 << 30)\n"
        "except OSError as error: assert error.errno == errno.EPERM\n"
        "os.lseek(fd, 1 << 40, 0)\n" + READY
    )
    assert os.fstat(stacks.fd).st_size == STACKS_BYTES
    assert stacks.text().endswith("x\n… and more that did not fit")
    assert len(stacks.text()) < STACKS_BYTES + 100


def test_bytes_that_are_no_text_are_one_all_the_same(stacks: Stacks) -> None:
    os.write(stacks.fd, b"\0\xff\xfe in stuck\0")
    assert stacks.text() == "\ufffd\ufffd in stuck"
