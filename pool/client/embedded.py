"""A pool that lives as long as a block of Python."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from pool.client.client import READY_S, Client
from pool.errors import InvalidConfig, PoolUnreachable

STOP_S = 45.0
POLL_S = 0.02
LAST_BYTES = 4000


class EmbeddedPool(Client):
    """A `Client` of a pool of its own, which ends with the block, and with this process, however it ends.

    `with start("config.toml") as pool: …` waits until all of its models are served. `config`: None is the demo model.
    `environ`: of the pool and its workers. Raises `InvalidConfig`, and `PoolUnreachable` with the pool's last words.
    """

    def __init__(
        self,
        config: str | os.PathLike[str] | None = None,
        *,
        timeout: float = READY_S,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._owner, self._folder = os.getpid(), tempfile.mkdtemp(prefix="pool-")
        self._log = Path(self._folder, "log")
        self.endpoint = f"ipc://{self._folder}/pool.sock"
        self._tie, theirs = socket.socketpair()  # the pool stops at its end of file
        command = [sys.executable, "-P", "-m", "pool", "start", "--embedded", str(theirs.fileno())]
        if config is not None:
            command += ["--config", os.path.abspath(config)]
        with theirs, self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                env={**environ, "POOL_ENDPOINT": self.endpoint},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the caller
            )
        try:
            self._wait(time.monotonic() + timeout)
        except BaseException:
            self._end()
            raise

    def _wait(self, until: float) -> None:
        while True:
            try:
                super().__init__(self.endpoint, reconnect_timeout=0.0)
                break
            except PoolUnreachable as error:
                if self._process.poll() is not None:
                    words = self._log.read_text(errors="replace").strip()[-LAST_BYTES:]
                    raise (InvalidConfig if self._process.returncode == 2 else PoolUnreachable)(words) from None
                if time.monotonic() > until:
                    raise error from None
            time.sleep(POLL_S)
        self.wait_ready(max(0.0, until - time.monotonic()))

    def close(self) -> None:
        """Ends the pool: running jobs finish first."""
        super().close()
        self._end()

    def _end(self) -> None:
        self._tie.close()
        if self._owner != os.getpid():  # after a fork: the pool is the parent's
            return
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


start = EmbeddedPool
