"""A pool of one's own: a child process that lives as long as a `with` block."""

import math
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import NoneType, TracebackType

import msgpack

from pool.client.client import Client
from pool.client.questions import plain
from pool.errors import DeadlineExceeded, InvalidConfig, PoolUnreachable

__all__ = ["EmbeddedPool", "start"]

STOP_MARGIN_S = 20.0  # on top of what the pool says that its end takes at most
KILL_WAIT_S = 10.0
END_S = 0.5  # in which all that a process has open is closed, once one of it is


def start(
    config: "str | os.PathLike[str] | Mapping[str, object] | None" = None,
    *,
    ready_timeout: float = 900.0,
    quiet: bool = True,
) -> "EmbeddedPool":
    """Starts a pool and returns its client once it serves; use it in a `with` block.

    `config`: the path of a `config.toml`, a mapping with its keys, or None for the built-in demo model. It listens in
    a temporary folder unless the configuration names an endpoint. It ends with the block, and with this process,
    whatever ends that. `ready_timeout`: seconds. `quiet`: its log is shown only when it fails; meanwhile the last few
    MiB are beside its socket, in the file `log`. When it does not come up it raises `InvalidConfig`,
    `DeadlineExceeded` or `PoolUnreachable`, with what the pool said. Of models that could not be loaded, where others
    are served, it warns.
    """
    if not isinstance(config, str | os.PathLike | Mapping | NoneType):
        raise TypeError(f"config is {config!r:.80}; give a path, a mapping, or None for the demo model")
    if not 0 < ready_timeout < math.inf:
        raise ValueError(f"ready_timeout is {ready_timeout}; give seconds")
    return EmbeddedPool(config, ready_timeout=ready_timeout, quiet=quiet)


class EmbeddedPool(Client):
    """A `Client` of a pool that belongs to this process.

    In a forked child it is a client like any other: closing it there ends nothing of the parent's.
    """

    def __init__(
        self,
        config: "str | os.PathLike[str] | Mapping[str, object] | None",
        *,
        ready_timeout: float,
        quiet: bool,
    ) -> None:
        self._owner = os.getpid()
        self._stop_within_s = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = ""  # how its process did, once that was asked
        self._link, theirs = socket.socketpair()
        self._folder = tempfile.mkdtemp(prefix="pool-")
        self._log = Path(self._folder, "log")
        # From here on a fork in another thread finds the link and closes the child's copy.
        super().__init__(f"ipc://{self._folder}/pool.sock", reconnect_timeout=0.0)  # once dead, it never returns
        try:
            argv = [sys.executable, "-P", "-m", "pool", "start", "--embedded", str(theirs.fileno())]
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    argv,
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=log if quiet else None,
                    stderr=log if quiet else None,
                    process_group=0,  # Ctrl-C interrupts this program, whose block then ends the pool
                )
            theirs.close()
            self._peer = replace(self._peer, endpoint=self._await_ready(config, ready_timeout, quiet))
        except BaseException:
            theirs.close()
            super().close()
            self._end()
            raise

    @property
    def pid(self) -> int:
        """The pool's process."""
        assert self._process is not None  # `__init__` would have raised
        return self._process.pid

    def _await_ready(self, config: object, timeout_s: float, quiet: bool) -> str:
        """Sends the configuration down the link and waits for the endpoint to come back."""
        from pool.terminal import is_watched, moving_line  # rich comes with them

        if isinstance(config, str | os.PathLike):
            config = os.fspath(Path(config).absolute())
        elif isinstance(config, Mapping):
            config = plain(config)
        deadline = time.monotonic() + timeout_s
        request = {
            "pid": os.getpid(),
            "config": config,
            "base": os.getcwd(),
            "endpoint": self.endpoint,
            "log": str(self._log) if quiet else None,
            "is_watched": is_watched(),
        }
        try:
            with moving_line() as show:
                # As it is: a path that is no UTF-8 is for the pool to refuse.
                self._link.sendall(msgpack.packb(request, unicode_errors="surrogatepass"))
                unpacker = msgpack.Unpacker()
                while True:
                    self._link.settimeout(max(0.001, deadline - time.monotonic()))
                    chunk = self._link.recv(65536)
                    if not chunk:
                        break
                    unpacker.feed(chunk)
                    for told in unpacker:
                        if "endpoint" in told:
                            self._stop_within_s = float(told["stop_within_s"])
                            if unloadable := told["unloadable"]:
                                text = f"the pool could not load model {', '.join(unloadable)}; status() says why"
                                warnings.warn(text, RuntimeWarning, stacklevel=4)
                            return str(told["endpoint"])
                        show(told["doing"])
        except TimeoutError:
            raise DeadlineExceeded(f"the pool was not ready within {timeout_s:g} s{self._last_words()}") from None
        except OSError:
            pass  # it died before it read the configuration
        status = self._wait(KILL_WAIT_S)
        error = InvalidConfig if status == 2 else PoolUnreachable
        raise error(f"the pool did not start (exit status {status}){self._last_words()}")

    def _check_pool(self) -> None:
        """No pool is looked for where this one's process has ended: nobody starts it again."""
        if not self._ended and self._has_ended():
            self._ended = f"the pool of this program has ended (exit status {self._wait(KILL_WAIT_S)})"
            self._ended += self._last_words()
        if self._ended:
            raise PoolUnreachable(self._ended)
        super()._check_pool()

    def _is_gone(self) -> bool:
        return bool(self._ended)

    def _has_ended(self) -> bool:
        """Its link ends with it, a moment before or after the connection that it is missed at."""
        try:
            self._link.settimeout(0.0 if self._connection is None else END_S)
            while self._link.recv(4096):  # what it did just before it was ready
                pass
            return True
        except OSError:  # nothing to read; or a forked child's, to which it is a pool like any other
            return False

    def _last_words(self) -> str:
        try:
            text = self._log.read_text(errors="replace").strip()
        except FileNotFoundError:
            return ""  # it is just being put aside for a new one
        return f":\n{text[-4000:]}" if text else ""

    def close(self) -> None:
        """Stops the pool: own jobs are cancelled, other clients' are finished within its `drain_timeout`.

        Returns when it is gone.
        """
        super().close()
        if os.getpid() == self._owner and self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._wait(self._stop_within_s + STOP_MARGIN_S)
        self._end()

    def _end(self) -> None:
        self._link.close()  # its death pipe: it kills its workers and ends
        if os.getpid() != self._owner:
            return
        if self._process is not None and self._wait(STOP_MARGIN_S) is None:
            self._process.kill()  # its workers follow: their death pipes close
            self._process.wait(KILL_WAIT_S)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _wait(self, timeout_s: float) -> int | None:
        assert self._process is not None
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def _after_fork(self) -> None:
        self._link.close()  # the child's copy: while it is open, the pool would not see the parent's end
        super()._after_fork()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
