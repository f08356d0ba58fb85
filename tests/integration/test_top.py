"""`pool top` and `pool status --watch` in a terminal, with a pool that works."""

import json
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from fcntl import ioctl

import pytest

from integration.screen import LONGEST_S, on_screen
from pool import Client
from support.commands import command_line
from support.pool_process import PoolProcess, pool_process, stub_config

ECHO = '[[model]]\nname = "echo"\npath = "stub:echo"\n'


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
