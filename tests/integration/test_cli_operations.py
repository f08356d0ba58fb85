"""The commands of whoever runs a pool: health, wait, logs, undrain, completion, JSON of what changes it, progress."""

import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.load_gate import LoadGate
from integration.screen import on_screen
from pool import Client
from pool.errors import PoolError
from support.commands import command_line, in_process, run_command
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import eventually

MODELS = """
[[model]]
name = "echo"
path = "stub:echo"
[[model]]
name = "rows"
path = "stub:rows"
"""
SLOW = """
[[model]]
name = "slow"
path = "stub:rows"
"""
SOME_SECONDS = range(2, 20)  # the display may jump over one
LONG_S = 30.0


@pytest.fixture(scope="module")
def pool() -> Iterator[PoolProcess]:
    """Slot 0 has `echo`, slot 1 has `rows`."""
    with pool_process(stub_config('listen = ["tcp://127.0.0.1:*"]', models=MODELS)) as started:
        yield started


def test_health_is_0_only_if_it_can_serve(pool: PoolProcess) -> None:
    asked = run_command(pool, "health")  # as a probe does, by its exit status
    assert (asked.returncode, asked.stdout) == (0, "the pool serves: 2 of 2 slots READY\n")
    done = in_process("health", "--model", "echo", "--json", pool=pool)
    assert done.status == 0
    assert json.loads(done.out) == {"serves": True, "reason": "", "ready_slots": 1, "slots": 1}
    done = in_process("health", "--model", "nobody", pool=pool)
    assert (done.status, done.err) == (1, "pool: this pool has no model 'nobody'\n")
    done = in_process("health", "--model", "nobody", "--json", pool=pool)
    told = {"serves": False, "reason": "this pool has no model 'nobody'", "ready_slots": 0, "slots": 0}
    assert (done.status, json.loads(done.out)) == (1, told)
    done = in_process("health", "--endpoint", "ipc:///nowhere/at/all.sock")
    assert done.status == 1
    assert done.err.startswith("pool: no pool answers")


def test_a_drained_slot_comes_back_and_health_tells_of_its_model(pool: PoolProcess) -> None:
    done = in_process("drain", "0", "--json", pool=pool)
    assert (done.status, json.loads(done.out)["state"]) == (0, "STOPPED")
    assert in_process("health", pool=pool).status == 0, "the other slot serves its own model"
    done = in_process("health", "--model", "echo", pool=pool)
    assert done.status == 1
    assert done.err.startswith("pool: echo is not served: slot 0 is STOPPED: ")
    done = in_process("health", "--model", "echo", "--json", pool=pool)
    assert (done.status, json.loads(done.out)["serves"]) == (1, False)
    done = in_process("wait", "--model", "echo", "--timeout", "0.3", pool=pool)
    assert done.status == 1
    assert done.err.startswith("pool: after 0.3 s: echo is not served: ")
    done = in_process("undrain", "0", "--json", pool=pool)
    assert (done.status, json.loads(done.out)["state"]) == (0, "READY")
    done = in_process("undrain", "0", pool=pool)
    assert done.status == 1
    assert done.err.startswith("pool: slot 0 is READY, so it is not drained; ")
    assert in_process("health", "--model", "echo", pool=pool).status == 0


def test_restart_prints_its_slots(pool: PoolProcess) -> None:
    done = in_process("restart", "--rolling", "--json", pool=pool)
    assert done.status == 0, done
    assert [(slot["slot"], slot["state"]) for slot in json.loads(done.out)] == [(0, "READY"), (1, "READY")]
    assert done.err == "", "no progress where nobody looks"


def test_a_worker_has_two_names(pool: PoolProcess) -> None:
    told = [
        json.loads(in_process("explain", *words, "--json", pool=pool).out) for words in (["worker", "1"], ["slot:1"])
    ]
    assert [each["slot"]["slot"] for each in told] == [1, 1]
    done = in_process("explain", "worker", pool=pool)
    assert done.status == 2


def test_logs_are_those_of_the_pool_wherever_they_go(pool: PoolProcess) -> None:
    shown = in_process("logs", "-n", "1000", pool=pool).out.splitlines()
    # A thread of the pool writes them, a moment after they can be asked for.
    eventually(lambda: [line for line in pool.text().splitlines() if line in set(shown)] == shown)
    assert any(line.endswith(f"ready: 2 of 2 slots serve at {pool.endpoint}") for line in shown)
    (last,) = in_process("logs", "-n", "1", "--json", pool=pool).out.splitlines()
    assert json.loads(last).keys() >= {"time", "level", "event", "message"}
    assert in_process("logs", "-n", "0", pool=pool).out == ""


def test_logs_go_on(pool: PoolProcess) -> None:
    argv = command_line(pool, "logs", "-f", "-n", "0")
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as process:
        assert process.stdout is not None
        stop = threading.Event()

        def change() -> None:
            with pool.client() as client:
                while not stop.wait(1.0):  # until it has begun to look
                    client.restart(1)

        thread = threading.Thread(target=change)
        thread.start()
        try:
            assert any("slot 1: restart requested" in line for line in process.stdout)
        finally:
            stop.set()
            thread.join()
            process.terminate()


def test_the_log_is_told_to_this_machine_alone(pool: PoolProcess) -> None:
    line = next(line for line in pool.text().splitlines() if "tcp://" in line)
    remote = line[line.index("tcp://") :].split()[0].rstrip(",")
    with Client(remote, connect_timeout=LONG_S) as client, pytest.raises(PoolError, match="only at the local"):
        client.logs()


def test_what_takes_long_says_what_it_waits_for_in_a_terminal(pool: PoolProcess, tmp_path: Path) -> None:
    gate = LoadGate(tmp_path)
    gate.shut()
    before = pool.config.read_text()
    pool.config.write_text(before + SLOW + gate.keys)
    with on_screen(pool, "load", "slow") as screen:
        screen.until("1 left · slot ")
        screen.until(*(f"slow for {seconds} s" for seconds in SOME_SECONDS))
        gate.open()
        assert screen.ended() == 0
    pool.config.write_text(before)
    with on_screen(pool, "wait", "--model", "slow") as screen:
        screen.until("slow is served: 1 of 1 slot READY")
        assert screen.ended() == 0
    with on_screen(pool, "unload", "slow") as screen:
        assert screen.ended() == 0


def test_a_start_says_what_each_slot_does_and_the_log_has_colours(tmp_path: Path) -> None:
    """Waiting for it begins before it does, and its end is told to who asked for it."""
    gate = LoadGate(tmp_path)
    gate.shut()
    with tempfile.TemporaryDirectory(prefix="pt-") as folder:  # pytest's own are too deep for a socket
        config = stub_config(devices='["cpu"]', models=SLOW + gate.keys).replace("@endpoint@", f"ipc://{folder}/p.sock")
        (tmp_path / "config.toml").write_text(config)
        endpoint = ["--endpoint", f"ipc://{folder}/p.sock"]
        done = in_process("wait", "--timeout", "0.5", *endpoint)
        assert done.status == 1
        assert done.err.startswith("pool: after 0.5 s: ")
        with on_screen(None, "start", "--config", str(tmp_path / "config.toml")) as screen:
            screen.until("0 of 1 slots READY · slot 0 cpu:0: ")
            screen.until(*(f"importing the handler of slow for {seconds} s" for seconds in SOME_SECONDS))
            gate.open()
            screen.until("ready: 1 of 1 slots serve")
            assert "\x1b[32mINFO" in screen.written
            done = in_process("stop", "--json", *endpoint)
            assert json.loads(done.out) == {"pid": screen.process.pid}
            assert screen.ended() == 0


@pytest.mark.parametrize(
    ("shell", "place"),
    [
        ("bash", ".local/share/bash-completion/completions/pool"),
        ("zsh", ".local/share/zsh/site-functions/_pool"),
        ("fish", ".config/fish/completions/pool.fish"),
    ],
)
def test_completion_is_written_where_the_shell_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str, place: str
) -> None:
    home = {"HOME": str(tmp_path), "SHELL": f"/usr/bin/{shell}", "XDG_DATA_HOME": "", "XDG_CONFIG_HOME": ""}
    for name, value in home.items():
        monkeypatch.setenv(name, value)
    done = in_process("completion")
    assert done.status == 0, done
    assert str(tmp_path / place) in done.out
    assert "_POOL_COMPLETE" in (tmp_path / place).read_text()
    assert in_process("completion", shell, "--print").out.strip() == (tmp_path / place).read_text().strip()


def test_completion_of_a_shell_that_click_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/sh")
    done = in_process("completion")
    assert (done.status, done.out) == (2, "")


def asks(endpoint: str, *words: str) -> dict[str, str]:
    """The environment in which a shell asks what may follow."""
    return {
        "_POOL_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("pool", *words)),
        "COMP_CWORD": str(len(words)),
        "POOL_ENDPOINT": endpoint,
    }


def completed(printed: str) -> list[str]:
    return [line.partition(",")[2] for line in printed.splitlines()]


def test_models_slots_and_commands_are_completed(pool: PoolProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    assert completed(run_command(None, environ=asks(pool.endpoint, "undr")).stdout) == ["undrain"]
    for words, found in (
        (("submit", "r"), ["rows"]),
        (("bench", "run", "ec"), ["echo"]),
        (("health", "--model", "e"), ["echo"]),
        (("drain", ""), ["0", "1"]),
    ):
        for name, value in asks(pool.endpoint, *words).items():
            monkeypatch.setenv(name, value)
        assert completed(in_process().out) == found


def test_without_a_pool_nothing_is_completed_and_nothing_is_said() -> None:
    done = run_command(None, environ=asks("ipc:///nowhere/at/all.sock", "drain", ""))
    assert (done.stdout.strip(), done.stderr) == ("", "")
