"""`pool top` and `pool status --watch` in a terminal, with a pool that works."""

import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import ioctl

import pytest

from pool import Client
from support.commands import command_line
from support.pool_process import PoolProcess, pool_process, stub_config

LONGEST_S = 20.0


ECHO = '[[model]]\nname = "echo"\npath = "stub:echo"\n'


CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # of colours and places


class Screen:
    """A command in a terminal of its own, and all that it has written."""

    def __init__(self, fd: int, process: "subprocess.Popen[bytes]") -> None:
        self.fd, self.process, self.written = fd, process, ""

    def until(self, word: str) -> None:
        deadline = time.monotonic() + LONGEST_S
        while word not in CODES.sub("", self.written):
            assert time.monotonic() < deadline, self.written[-3000:]
            assert self._read(), f"it ended before it wrote {word!r}: {self.written[-3000:]}"

    def _read(self) -> bool:
        """False once it has ended."""
        if not select.select([self.fd], [], [], 1.0)[0]:
            return True
        try:
            self.written += os.read(self.fd, 65536).decode(errors="replace")
        except OSError:
            return False
        return True

    def press(self, keys: str) -> None:
        self.written = ""
        os.write(self.fd, keys.encode())

    def ended(self) -> int:
        deadline = time.monotonic() + LONGEST_S
        while self._read():  # what it writes last must be read
            assert time.monotonic() < deadline, self.written[-3000:]
        return self.process.wait(LONGEST_S)


@contextmanager
def on_screen(pool: PoolProcess, *arguments: str, columns: int = 100, lines: int = 24) -> Iterator[Screen]:
    ours, its = pty.openpty()
    ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    environ = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        command_line(pool, *arguments),
        stdin=its,
        stdout=its,
        stderr=its,
        env={**environ, "TERM": "xterm"},
        start_new_session=True,
    )
    os.close(its)
    try:
        yield Screen(ours, process)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.fixture(scope="module")
def pool() -> Iterator[PoolProcess]:
    config = stub_config(devices='["cpu", "cpu"]', models=ECHO + 'devices = "all"\n')
    with pool_process(config) as started:
        yield started


def test_top_shows_rates_and_obeys_its_keys(pool: PoolProcess) -> None:
    with on_screen(pool, "top", "--interval", "0.2") as screen, Client(pool.endpoint) as client:
        screen.until("echo")
        for _ in range(50):
            client.run("echo", [[1.0]])
        screen.until("≤ ")  # its latencies
        screen.press("m")
        screen.until("MODEL")
        screen.press("\t")
        screen.until("SLOT")
        ioctl(screen.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 8, 30, 0, 0))
        screen.written = ""
        screen.until("echo")
        screen.press("q")
        assert screen.ended() == 0


def test_top_goes_on_while_the_pool_is_away() -> None:
    config = stub_config(devices='["cpu"]', models=ECHO)
    with pool_process(config) as gone, on_screen(gone, "top", "--interval", "0.2") as screen:
        screen.until("echo")
        assert gone.process is not None
        gone.process.kill()
        screen.until("trying again")
        screen.process.send_signal(signal.SIGINT)
        assert screen.ended() == 0


def test_top_needs_a_terminal(pool: PoolProcess) -> None:
    done = subprocess.run(command_line(pool, "top"), capture_output=True, text=True, timeout=LONGEST_S, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "pool: pool top needs a terminal; `pool status --json` is for programs\n"


def test_status_again_and_again(pool: PoolProcess) -> None:
    with on_screen(pool, "status", "--watch", "0.1") as screen:
        screen.until("DEVICE TIME")
        screen.written = ""
        screen.until("DEVICE TIME")
        screen.process.send_signal(signal.SIGINT)
        assert screen.ended() == 0


def test_status_again_and_again_for_a_program(pool: PoolProcess) -> None:
    argv = command_line(pool, "status", "--watch", "0.1", "--json")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ups = [json.loads(process.stdout.readline())["uptime_s"] for _ in range(3)]
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(LONGEST_S) == 0
    assert ups == sorted(set(ups)), "a line a look, so that a program can read them"
