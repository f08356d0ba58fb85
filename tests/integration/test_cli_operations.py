"""The commands of whoever runs a pool: health, wait, logs, undrain, completion, JSON of what changes it, progress."""

import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.screen import on_screen
from pool import Client
from pool.errors import PoolError
from support.commands import command_line, run_command
from support.pool_process import PoolProcess, pool_process, stub_config

MODELS = """
[[model]]
name = "echo"
path = "stub:echo"
[[model]]
name = "rows"
path = "stub:rows"
"""
LONG_S = 30.0


@pytest.fixture(scope="module")
def pool() -> Iterator[PoolProcess]:
    """Slot 0 has `echo`, slot 1 has `rows`."""
    with pool_process(stub_config(devices='["cpu", "cpu"]', models=MODELS)) as started:
        yield started


def test_health_is_0_only_if_it_can_serve(pool: PoolProcess) -> None:
    done = run_command(pool, "health")
    assert (done.returncode, done.stdout) == (0, "the pool serves: 2 of 2 slots READY\n")
    done = run_command(pool, "health", "--model", "echo", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout) == {"serves": True, "reason": "", "ready_slots": 1, "slots": 1}
    done = run_command(pool, "health", "--model", "nobody")
    assert (done.returncode, done.stderr) == (1, "pool: this pool has no model 'nobody'\n")
    done = run_command(pool, "health", "--model", "nobody", "--json")
    told = {"serves": False, "reason": "this pool has no model 'nobody'", "ready_slots": 0, "slots": 0}
    assert (done.returncode, json.loads(done.stdout)) == (1, told)
    done = run_command(None, "health", "--endpoint", "ipc:///nowhere/at/all.sock")
    assert done.returncode == 1
    assert done.stderr.startswith("pool: no pool answers")


def test_a_drained_slot_comes_back_and_health_tells_of_its_model(pool: PoolProcess) -> None:
    done = run_command(pool, "drain", "0", "--json")
    assert (done.returncode, json.loads(done.stdout)["state"]) == (0, "STOPPED")
    assert run_command(pool, "health").returncode == 0, "the other slot serves its own model"
    done = run_command(pool, "health", "--model", "echo")
    assert done.returncode == 1
    assert done.stderr.startswith("pool: echo is not served: slot 0 is STOPPED: ")
    done = run_command(pool, "health", "--model", "echo", "--json")
    assert (done.returncode, json.loads(done.stdout)["serves"]) == (1, False)
    done = run_command(pool, "wait", "--model", "echo", "--timeout", "0.3")
    assert done.returncode == 1
    assert done.stderr.startswith("pool: after 0.3 s: echo is not served: ")
    done = run_command(pool, "undrain", "0", "--json")
    assert (done.returncode, json.loads(done.stdout)["state"]) == (0, "READY")
    done = run_command(pool, "undrain", "0")
    assert done.returncode == 1
    assert done.stderr.startswith("pool: slot 0 is READY, so it is not drained; ")
    assert run_command(pool, "health", "--model", "echo").returncode == 0


def test_restart_prints_its_slots(pool: PoolProcess) -> None:
    done = run_command(pool, "restart", "--rolling", "--json")
    assert done.returncode == 0, done
    assert [(slot["slot"], slot["state"]) for slot in json.loads(done.stdout)] == [(0, "READY"), (1, "READY")]
    assert done.stderr == "", "no progress where nobody looks"


def test_a_worker_has_two_names(pool: PoolProcess) -> None:
    told = [
        json.loads(run_command(pool, "explain", *words, "--json").stdout) for words in (["worker", "1"], ["slot:1"])
    ]
    assert [each["slot"]["slot"] for each in told] == [1, 1]
    done = run_command(pool, "explain", "worker")
    assert done.returncode == 2


def test_logs_are_those_of_the_pool_wherever_they_go(pool: PoolProcess) -> None:
    shown = run_command(pool, "logs", "-n", "1000").stdout.splitlines()
    assert shown[: len(shown)] == [line for line in pool.text().splitlines() if line in set(shown)]
    assert any(line.endswith(f"ready: 2 of 2 slots serve at {pool.endpoint}") for line in shown)
    (last,) = run_command(pool, "logs", "-n", "1", "--json").stdout.splitlines()
    assert json.loads(last).keys() >= {"time", "level", "event", "message"}
    assert run_command(pool, "logs", "-n", "0").stdout == ""


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


def test_the_log_is_told_to_this_machine_alone() -> None:
    config = stub_config(devices='["cpu"]', models=MODELS).replace(
        "[pool]", '[pool]\nlisten = ["tcp://127.0.0.1:*"]', 1
    )
    with pool_process(config) as listening:
        line = next(line for line in listening.text().splitlines() if "tcp://" in line)
        remote = line[line.index("tcp://") :].split()[0].rstrip(",")
        with Client(remote, connect_timeout=LONG_S) as client, pytest.raises(PoolError, match="only at the local"):
            client.logs()


def test_waiting_begins_before_the_pool_does() -> None:
    with pool_process(stub_config(devices='["cpu"]', models=MODELS)) as first:
        endpoint = first.endpoint
        done = run_command(first, "stop", "--json")
        assert json.loads(done.stdout) == {"pid": first.pid}
        assert first.running.wait(LONG_S) == 0
    done = run_command(None, "wait", "--endpoint", endpoint, "--timeout", "0.5")
    assert done.returncode == 1
    assert done.stderr.startswith("pool: after 0.5 s: ")


def test_what_takes_long_says_what_it_waits_for_in_a_terminal(pool: PoolProcess) -> None:
    with on_screen(pool, "load", "slow", "stub:rows?load_ms=3000") as screen:
        screen.until("1 left · slot ")
        screen.until("slow for 2 s")
        assert screen.ended() == 0
    with on_screen(pool, "wait", "--model", "slow") as screen:
        screen.until("slow is served: 1 of 1 slot READY")
        assert screen.ended() == 0
    with on_screen(pool, "unload", "slow") as screen:
        assert screen.ended() == 0


def test_a_start_says_what_each_slot_does_and_the_log_has_colours(tmp_path: Path) -> None:
    model = '[[model]]\nname = "slow"\npath = "stub:rows?load_ms=3000"\n'
    with tempfile.TemporaryDirectory(prefix="pt-") as folder:  # pytest's own are too deep for a socket
        config = stub_config(devices='["cpu"]', models=model).replace("@endpoint@", f"ipc://{folder}/p.sock")
        (tmp_path / "config.toml").write_text(config)
        with on_screen(None, "start", "--config", str(tmp_path / "config.toml")) as screen:
            screen.until("0 of 1 slots READY · slot 0 cpu:0: ")
            screen.until("loading slow for 2 s")
            screen.until("ready: 1 of 1 slots serve")
            assert "\x1b[32mINFO" in screen.written
            screen.process.send_signal(signal.SIGINT)
            assert screen.ended() == 0


@pytest.mark.parametrize(
    ("shell", "place"),
    [
        ("bash", ".local/share/bash-completion/completions/pool"),
        ("zsh", ".local/share/zsh/site-functions/_pool"),
        ("fish", ".config/fish/completions/pool.fish"),
    ],
)
def test_completion_is_written_where_the_shell_looks(tmp_path: Path, shell: str, place: str) -> None:
    home = {"HOME": str(tmp_path), "SHELL": f"/usr/bin/{shell}", "XDG_DATA_HOME": "", "XDG_CONFIG_HOME": ""}
    done = run_command(None, "completion", environ=home)
    assert done.returncode == 0, done
    assert str(tmp_path / place) in done.stdout
    assert "_POOL_COMPLETE" in (tmp_path / place).read_text()
    assert run_command(None, "completion", shell, "--print").stdout.strip() == (tmp_path / place).read_text().strip()


def test_completion_of_a_shell_that_click_does_not_know() -> None:
    done = run_command(None, "completion", environ={"SHELL": "/bin/sh"})
    assert (done.returncode, done.stdout) == (2, "")


def completed(pool: PoolProcess, *words: str) -> list[str]:
    environ = {
        "_POOL_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("pool", *words)),
        "COMP_CWORD": str(len(words)),
        "POOL_ENDPOINT": pool.endpoint,
    }
    return [line.partition(",")[2] for line in run_command(None, environ=environ).stdout.splitlines()]


def test_models_slots_and_commands_are_completed(pool: PoolProcess) -> None:
    assert completed(pool, "undr") == ["undrain"]
    assert completed(pool, "submit", "r") == ["rows"]
    assert completed(pool, "bench", "run", "ec") == ["echo"]
    assert completed(pool, "health", "--model", "e") == ["echo"]
    assert completed(pool, "drain", "") == ["0", "1"]


def test_without_a_pool_nothing_is_completed_and_nothing_is_said() -> None:
    environ = {"_POOL_COMPLETE": "bash_complete", "COMP_WORDS": "pool drain ", "COMP_CWORD": "2"}
    done = run_command(None, environ={**environ, "POOL_ENDPOINT": "ipc:///nowhere/at/all.sock"})
    assert (done.stdout.strip(), done.stderr) == ("", "")
