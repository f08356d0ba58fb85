"""The commands against a pool with the demo model, from its start to its end."""

import json
import os
import pty
import signal
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path

import pytest

from pool import Client
from pool.wire.records import ModelRecord, Status
from support.pools import RunningPool, StartPool, command, row

READY = "READY: 1 of 1 slots ready, 1 of 1 models served\n"
SEVEN = Path(__file__).parents[2] / "workers" / "demo" / "seven.json"


@pytest.mark.tensorflow
def test_from_start_to_stop(start_pool: StartPool, monkeypatch: pytest.MonkeyPatch) -> None:
    running = start_pool('[pool]\ndevices = ["cpu"]\n', wait=False)
    monkeypatch.setenv("POOL_ENDPOINT", running.endpoint)
    assert command("wait", "--model", "digits", "--timeout", "90") == READY
    record = json.loads(command("status", "--json"))
    assert record.keys() == Status.__annotations__.keys()
    assert json.loads(command("models", "--json"))[0].keys() == ModelRecord.__annotations__.keys()
    assert record["pool"]["pid"] == running.pid
    assert record["slots"][0]["models"] == ["digits"]
    answer = json.loads(command("submit", "digits", "--input", f"pixels=@{SEVEN}", "--json"))
    assert answer["outputs"]["label"]["values"] == [7]
    assert "did you mean" in command("submit", "digit", "--input", "1", status=1)

    assert "ready: 1 of 1" in command("logs")
    assert "oneDNN" not in running.log.read_text(), "TensorFlow's words at each import are no news"
    assert "already running" in command("start", status=1)

    command("stop")
    assert running.process.wait(0) == 0
    assert command("health", status=1).startswith("pool: ")


def on_terminal(running: RunningPool, *argv: str) -> tuple[subprocess.Popen[bytes], int]:
    """A command, and the other end of its terminal."""
    screen, terminal = pty.openpty()
    environ = {**os.environ, "POOL_ENDPOINT": running.endpoint, "TERM": "xterm"}
    line = [sys.executable, "-m", "pool", *argv]
    process = subprocess.Popen(line, env=environ, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    return process, screen


def shown(screen: int, until: bytes = b"no such text") -> bytes:
    """What a terminal shows until there is a text in it, or the command has ended."""
    seen = b""
    with suppress(OSError):
        while until not in seen:
            seen += os.read(screen, 65536)
    return seen


def test_logs_are_followed_until_ctrl_c(running: RunningPool) -> None:
    process, screen = on_terminal(running, "logs", "--follow")
    assert b"SIGKILL" not in shown(screen, b"ready: 2 of 2")
    os.kill(running.workers()[0], signal.SIGKILL)
    assert b"SIGKILL" in shown(screen, b"SIGKILL")
    process.send_signal(signal.SIGINT)
    assert b"Traceback" not in shown(screen)
    assert process.wait() == 130


def test_watch_draws_until_ctrl_c_and_leaves_the_terminal_as_it_was(running: RunningPool) -> None:
    process, screen = on_terminal(running, "status", "--watch")
    before = termios.tcgetattr(screen)
    assert b"\x1b[?1049h" in shown(screen, b"ipc://")  # the alternate screen
    process.send_signal(signal.SIGINT)
    left = shown(screen)
    assert b"\x1b[?1049l" in left
    assert b"\x1b[?25h" in left  # the cursor is seen again
    assert b"Traceback" not in left
    assert process.wait() == 130
    assert termios.tcgetattr(screen) == before


def test_wait_and_stop_say_what_they_wait_for(start_pool: StartPool, tmp_path: Path) -> None:
    config = '[pool]\ndevices = ["cpu"]\n[[model]]\nname = "m"\npath = "stub:double?{}"\n'
    hanging = start_pool(config.format("load=hang"), wait=False)
    told = command("wait", "--timeout", "3", status=1, POOL_ENDPOINT=hanging.endpoint)
    assert "STARTING: 0 of 1 slots ready, 0 of 1 models served\npool: " in told
    told = command("health", status=1, POOL_ENDPOINT=hanging.endpoint)
    assert told.startswith("pool: not ready: STARTING: 0 of 1 slots ready")

    running = start_pool(config.format(f"gate={tmp_path}/gate"))
    with Client(running.endpoint) as client:
        job = client.submit("m", row())
        process, screen = on_terminal(running, "stop")
        assert b"jobs that still run: 1" in shown(screen, b": 1")
        (tmp_path / "gate").touch()
        assert process.wait(30) == 0
        assert job.result(0)["y"] == 2


def test_bench_counts_a_job_s_time_from_the_instant_when_it_was_due(start_pool: StartPool) -> None:
    """One lane takes 50 ms a job: it falls behind 40 a second, and a closed loop never sees that."""
    model = '[[model]]\nname = "slow"\npath = "stub:double?sleep=0.05"\n'
    at = start_pool(f'[pool]\ndevices = ["cpu"]\nlanes = 1\n{model}').endpoint
    closed, open_ = (
        json.loads(command("bench", "slow", "--seconds", "1", "--json", *more, POOL_ENDPOINT=at))
        for more in (("--in-flight", "1"), ("--rate", "40"))
    )
    assert 0.05 <= closed["alone"]["run_s"] <= closed["alone"]["p50_s"] < 2 * closed["loaded"]["p50_s"]
    assert open_["loaded"]["max_s"] > 10 * open_["loaded"]["run_s"], "20 jobs wait at the end of the second"
    assert closed["loaded"]["errors"] == open_["loaded"]["errors"] == {}
    rejected = command("bench", "slow", "--input", "x=[[-1.0]]", status=1, POOL_ENDPOINT=at)
    assert "a row that the model does not bear" in rejected
    assert "RUN" in command("bench", "slow", "--seconds", "0.1", POOL_ENDPOINT=at)
