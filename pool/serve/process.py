"""One worker's process: its start, its output, its stacks, and its end."""

import fcntl
import os
import secrets
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Mapping
from contextlib import suppress

from pool.devices import command
from pool.wire.bodies import TOKEN_BYTES
from pool.wire.exits import Exit
from pool.wire.link import SEALS, Link

__all__ = ["Process", "exit_text"]

STACKS_BYTES = 256 << 10
LINES = 200
READ_BYTES = 64 << 10


class Process:
    """REQUIRES the main thread: the kernel ends a worker with the thread that started it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Raises `OSError`."""
        self.token = secrets.token_bytes(TOKEN_BYTES)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.link = Link(ours)
        self._stacks = os.memfd_create("stacks", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        self.output, sink = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.lines: deque[str] = deque(maxlen=LINES)
        self._rest = b""
        try:
            ours.setblocking(False)
            os.ftruncate(self._stacks, STACKS_BYTES)
            fcntl.fcntl(self._stacks, fcntl.F_ADD_SEALS, SEALS)  # it cannot fill the memory
            fcntl.fcntl(sink, fcntl.F_SETFL, 0)
            self._popen = subprocess.Popen(
                command(theirs.fileno(), os.getpid(), self._stacks),
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
        """The exit status, negative for a signal; None while it lives."""
        return self._popen.poll()

    def kill(self) -> None:
        """With all that it has started. REQUIRES that its exit was not seen: then its pid may be another's."""
        if self._popen.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            with suppress(ProcessLookupError):
                self._popen.kill()

    def ask_stacks(self) -> None:
        """The stacks of all threads, soon in `stacks`. An early worker would die of the signal."""
        with suppress(OSError, ValueError):
            status = open(f"/proc/{self.pid}/status").read()  # noqa: SIM115
            caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
            if int(caught.split()[1], 16) >> (signal.SIGUSR1 - 1) & 1:
                os.kill(self.pid, signal.SIGUSR1)

    def stacks(self) -> str:
        return os.pread(self._stacks, STACKS_BYTES, 0).rstrip(b"\0").decode("utf-8", "replace")

    def read(self) -> list[str] | None:
        """Whole lines of its output since the last call. None: it has ended."""
        try:
            data = os.read(self.output, READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data:
            return None
        *whole, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-READ_BYTES:]
        lines = [line.decode("utf-8", "backslashreplace") for line in whole]
        self.lines.extend(line[:1000] for line in lines)
        return lines

    def close(self) -> None:
        """Gives up what the pool holds of it. After its exit was seen."""
        self.link.close()
        for descriptor in (self.output, self._stacks):
            with suppress(OSError):
                os.close(descriptor)


def exit_text(status: int) -> str:
    """An exit by its name."""
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        return f"{name} (out of memory?)" if -status == signal.SIGKILL else name
    try:
        return f"{Exit(status).name} ({status})"
    except ValueError:
        return f"exit status {status}"
