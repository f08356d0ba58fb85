"""Pools in processes of their own, as users start them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool import Client

WAIT_S = 60.0


def row(value: float = 1.0, rows: int = 1) -> dict[str, Any]:
    """Inputs of a stub."""
    return {"x": np.full((rows, 1), value, np.float32)}


def until(condition: Callable[[], Any], what: str, seconds: float = WAIT_S) -> Any:
    """Waits for a state, which is asked for; the first true answer."""
    ends = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < ends, f"waited {seconds:g} s for: {what}"
        time.sleep(0.01)
    return found


def are_gone(*pids: int) -> bool:
    """Whether no such process runs. Of one that was killed, an entry stays until its parent has asked for it."""
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                return False
    return True


class RunningPool:
    def __init__(self, folder: Path, config: str, environ: dict[str, str]) -> None:
        self.endpoint = f"ipc://{folder}/pool.sock"
        self.folder = folder
        self.log = folder / "log"
        path = folder / "config.toml"
        path.write_text(config)
        # Tests that use TensorFlow themselves hide the GPUs from it, and quiet it.
        own = ("CUDA_VISIBLE_DEVICES", "TF_CPP_MIN_LOG_LEVEL")
        inherited = {name: value for name, value in os.environ.items() if name not in own}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pool", "start", "--config", str(path)],
                env={**inherited, "POOL_ENDPOINT": self.endpoint, "XDG_STATE_HOME": str(folder / "state"), **environ},
                stdout=log,
                stderr=log,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def workers(self) -> list[int]:
        """Pids of the worker processes that are there now."""
        with suppress(FileNotFoundError, ProcessLookupError):
            return [int(child) for child in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]
        return []

    def wait_for(self, text: str) -> None:
        def is_there() -> bool:
            has_ended = self.process.poll() is not None
            assert text in self.log.read_text() or not has_ended, "the pool has ended"
            return text in self.log.read_text()

        try:
            until(is_there, text)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log.read_text()}") from None

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(WAIT_S)


def command(*argv: object, status: int = 0, **environ: str) -> str:
    """What a command of the pool prints; of a failure without output, what it says."""
    # As for `RunningPool`, the GPUs that other tests hide are there.
    inherited = {name: value for name, value in os.environ.items() if (name, value) != ("CUDA_VISIBLE_DEVICES", "")}
    line = [sys.executable, "-m", "pool", *map(str, argv)]
    done = subprocess.run(line, env={**inherited, **environ}, capture_output=True, text=True, timeout=100)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout or done.stderr


@contextmanager
def pool_in(folder: Path, config: str) -> Iterator[RunningPool]:
    """For the fixtures of whole files. It is ready."""
    running = RunningPool(folder, config, {})
    try:
        running.wait_for("ready:")
        yield running
    finally:
        running.kill()


StartPool = Callable[..., RunningPool]


@pytest.fixture
def start_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartPool]:
    """`start_pool(config, wait=True, **environ)`: ready when it returns."""
    pools: list[RunningPool] = []

    def start(config: str, wait: bool = True, folder: Path | None = None, **environ: str) -> RunningPool:
        running = RunningPool(folder or tmp_path_factory.mktemp("pool"), config, environ)
        pools.append(running)
        if wait:
            running.wait_for("ready:")
        return running

    yield start
    for running in pools:
        workers = running.workers()
        running.kill()
        until(lambda pids=workers: are_gone(*pids), "the workers' end")


STUB = """
[pool]
devices = ["cpu", "cpu"]
[[model]]
name = "double"
path = "stub:double"
batching = "on"
[[model]]
name = "plain"
path = "stub:double"
[[model]]
name = "count"
path = "stub:count"
devices = ["cpu"]
[[model]]
name = "text"
path = "stub:echo?dtype=string"
"""


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPool]:
    """One pool for all tests of a file, with the file's `CONFIG` or that of the stubs. `{folder}` there is its own."""
    folder = tmp_path_factory.mktemp("pool")
    with pool_in(folder, getattr(request.module, "CONFIG", STUB).format(folder=folder)) as made:
        yield made


@pytest.fixture
def client(running: RunningPool) -> Iterator[Client]:
    with Client(running.endpoint) as made:
        yield made
