"""`pool.start(…)`: a pool that lives as long as a block, or as its program."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import pool
from harness import STUBS, alive, children, eventually
from pool import errors

ECHO = {"model": [{"name": "echo", "path": "stub:echo", "devices": "all"}], "pool": {"devices": ["cpu", "cpu"]}}


def folders() -> set[str]:
    return {entry for entry in os.listdir(tempfile.gettempdir()) if entry.startswith("pool-")}


def test_it_lives_as_long_as_the_block() -> None:
    before = folders()
    with pool.start(ECHO) as running:
        assert running.submit("echo", 1.0).result(10)["x"] == 1.0
        assert list(running.map("echo", [1.0, 2.0]))[1]["x"] == 2.0
        process = running.pid
        workers = children(process)
        assert len(workers) == 2
    assert not alive(process)
    assert not any(alive(worker) for worker in workers)
    assert folders() == before


def test_a_file_and_its_own_endpoint(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    socket = tempfile.mktemp(prefix="pe-", suffix=".sock")
    config.write_text(f'[pool]\ndevices = ["cpu"]\nendpoint = "ipc://{socket}"\n{STUBS}')
    with pool.start(config) as running:
        assert running.endpoint == f"ipc://{socket}"
        with pool.Client(f"ipc://{socket}") as other:
            assert other.run("echo", 1.0)["x"] == 1.0
    assert not Path(socket).exists()


def test_what_is_wrong_is_raised() -> None:
    before = folders()
    with pytest.raises(errors.InvalidConfig, match="lanez"):
        pool.start({**ECHO, "pool": {"lanez": 3}})
    with pytest.raises(errors.PoolError, match="cannot-load"):
        pool.start({"model": [{"name": "broken", "path": "stub:cannot-load"}], "pool": {"devices": ["cpu"]}})
    with pytest.raises(errors.PoolError, match=r"not ready within 1 s"):
        pool.start(
            {"model": [{"name": "slow", "path": "stub:load-hang"}], "pool": {"devices": ["cpu"]}}, ready_timeout=1
        )
    assert folders() == before


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
