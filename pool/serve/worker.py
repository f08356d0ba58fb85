"""One worker: its seat, its process, its output, its stacks and its end."""

import fcntl
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from math import inf
from typing import Any

from pool.core.jobs import Worker as CoreWorker
from pool.plan.rollout import Seat
from pool.wire import Exit
from pool.wire.bodies import TOKEN_BYTES
from pool.wire.link import SEALS, Link

STACKS_BYTES = 256 << 10
READ_BYTES, PIPE_BYTES = 1 << 10, 64 << 10  # of output: at a time, for each line costs the loop, and all that waits


class Worker:
    """One incarnation. REQUIRES the main thread: the kernel ends a worker with the thread that started it."""

    def __init__(self, seat: Seat, environment: Mapping[str, str], now: float) -> None:
        """Raises `OSError`."""
        self.seat = seat
        self.token = secrets.token_bytes(TOKEN_BYTES)
        self.core: CoreWorker | None = None  # once it is READY
        self.routes: set[bytes] = set()
        self.arenas: set[int] = set()  # that it was sent
        self.signatures: dict[tuple[str, str], dict[str, Any]] = {}  # by model and name
        self.loaded: dict[str, dict[str, Any]] = {}  # by model, what it said of it
        self.traces: dict[int, dict[str, Any] | None] = {}  # by question, what it says of a traced run; None: not yet
        self.phase = "import"
        self.loading = ""  # the model that it loads or warms up
        self.heard_at = now
        self.ending = ""  # its own last words
        self.killed_for = ""
        self.dies_at = inf  # it hangs, and writes its stacks until then
        self.link_ended = False
        self._rest = b""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.link = Link(ours)
        self._stacks = os.memfd_create("stacks", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        self.output, sink = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            ours.setblocking(False)
            os.ftruncate(self._stacks, STACKS_BYTES)
            fcntl.fcntl(self._stacks, fcntl.F_ADD_SEALS, SEALS)  # it cannot fill the memory
            fcntl.fcntl(sink, fcntl.F_SETFL, 0)
            self._popen = subprocess.Popen(
                # The working directory must not stand in for `workers` or `tensorflow`.
                [sys.executable, "-P", "-m", "workers", *map(str, (theirs.fileno(), os.getpid(), self._stacks))],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                pass_fds=[theirs.fileno(), self._stacks],
                process_group=0,  # Ctrl-C is not for workers, and all that a worker starts ends with it
            )
        except OSError:
            self.close()
            raise
        finally:
            theirs.close()
            os.close(sink)
        self.pid = self._popen.pid

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None while it lives. All that it has started ends with it."""
        with suppress(OSError):
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):  # not reaped: the pid is still its
                os.killpg(self.pid, signal.SIGKILL)
        return self._popen.poll()

    def kill(self) -> None:
        with suppress(OSError):
            if self.poll() is None:
                os.killpg(self.pid, signal.SIGKILL)

    def stacks(self) -> list[str]:
        """Of all threads, once a worker that was READY has got SIGUSR1."""
        return os.pread(self._stacks, STACKS_BYTES, 0).rstrip(b"\0").decode("utf-8", "replace").splitlines()

    def read(self, most: int) -> list[str] | None:
        """Whole lines of so many bytes of its output. None: it has ended."""
        try:
            data = os.read(self.output, most)
        except BlockingIOError:
            return []
        if not data:
            return None
        *whole, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-PIPE_BYTES:]
        return [line.decode("utf-8", "backslashreplace") for line in whole]

    def close(self) -> None:
        """Gives up what the pool holds of it. After its exit was seen."""
        self.link.socket.close()
        os.close(self.output)
        os.close(self._stacks)


def exit_text(status: int) -> str:
    with suppress(ValueError):
        if status >= 0:
            return f"{Exit(status).name} ({status})"
        return signal.Signals(-status).name + (" (out of memory?)" if status == -signal.SIGKILL else "")
    return f"exit status {status}"
