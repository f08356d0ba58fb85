"""A real `pool start` for a test: started, awaited, stopped, and seen to leave nothing behind."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pool import Client
from support.processes import alive, children, eventually

READY_S = 90.0
STOP_S = 45.0
LOG_CHARS = 6000

STUBS = """
[[model]]
name = "echo"
path = "stub:echo"
devices = "all"
[[model]]
name = "faults"
path = "stub:faults"
devices = "all"
[[model]]
name = "counter"
path = "stub:counter"
"""


class PoolProcess:
    """`pool start --config` in a folder of its own."""

    def __init__(self, config: str, environ: Mapping[str, str] | None = None, options: Sequence[str] = ()) -> None:
        """`config`: TOML; the endpoint goes where `[pool]` is left out or says `@endpoint@`. `options`: of `start`."""
        self.folder = Path(tempfile.mkdtemp(prefix="pt-"))
        self.socket = self.folder / "p.sock"
        self.endpoint = f"ipc://{self.socket}"
        self.config = self.folder / "config.toml"
        self.config.write_text(config.replace("@endpoint@", self.endpoint))
        self.log = self.folder / "log"
        # What a pool may leave behind goes where a test can look at it, and not into the home of who runs the tests.
        self.state = Path(tempfile.mkdtemp(prefix="pt-state-"))
        self._environ = {**os.environ, "XDG_STATE_HOME": str(self.state), **(environ or {})}
        self._options = options
        self.program = ["-m", "pool"]  # what Python runs
        self.inherited: Sequence[int] = ()  # descriptors
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, stderr: int | None = None) -> "PoolProcess":
        """`stderr`: a descriptor in place of the file `log`."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", *self.program, "start", "--config", str(self.config), *self._options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log if stderr is None else stderr,
                env=self._environ,
                pass_fds=self.inherited,
            )
        return self

    def await_ready(self) -> "PoolProcess":
        self.await_log("ready:", READY_S)
        return self

    def await_log(self, text: str, timeout_s: float = 20.0) -> None:
        def said() -> bool:
            if text in self.text():
                return True
            assert self.running.poll() is None, f"the pool ended with {self.running.returncode}:\n{self.text()}"
            return False

        eventually(said, timeout_s)

    @property
    def running(self) -> "subprocess.Popen[bytes]":
        assert self.process is not None
        return self.process

    @property
    def pid(self) -> int:
        return self.running.pid

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def whole_log(self) -> str:
        """Stops the pool, and returns all that it has said. What it has not said yet is no proof that it will not."""
        assert self.stop() == 0, self.text()
        return self.text()

    def client(self, **options: Any) -> Client:
        return Client(self.endpoint, **options)

    def workers(self) -> list[int]:
        return children(self.pid)

    def wait(self, timeout_s: float = STOP_S) -> int:
        return self.running.wait(timeout_s)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ends the pool and asserts that no process and no file is left."""
        workers = self.workers()
        if self.running.poll() is None:
            self.running.send_signal(number)
        status = self.wait()
        self.assert_clean(workers)
        return status

    def assert_clean(self, workers: list[int]) -> None:
        assert not [pid for pid in workers if alive(pid)], self.text()
        left = {path.name for path in self.folder.iterdir()} - {"config.toml", "log"}
        assert not left, left

    def kill(self) -> None:
        """The last act of a test or a fixture, and its last resort: no process and no folder is left.

        The death pipe takes the workers along. Where something failed, the log is in the test's output.
        """
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        if sys.exception() is not None and self.log.exists():
            print(self.text()[-LOG_CHARS:])  # noqa: T201  # pytest shows it
        for folder in (self.folder, self.state):
            shutil.rmtree(folder, ignore_errors=True)  # it may have been killed before


@contextlib.contextmanager
def pool_process(config: str, environ: Mapping[str, str] | None = None) -> Iterator[PoolProcess]:
    """A pool that serves; stopped with SIGTERM at the end, which must end it with status 0 and leave nothing."""
    pool = PoolProcess(config, environ)
    try:
        pool.start().await_ready()
        yield pool
        if pool.running.poll() is None:
            assert pool.stop() == 0, pool.text()
    finally:
        pool.kill()


def stub_config(extra_pool: str = "", devices: str = '["cpu", "cpu"]', models: str = STUBS, rest: str = "") -> str:
    return f'[pool]\nendpoint = "@endpoint@"\ndevices = {devices}\n{extra_pool}\n{rest}\n{models}'
