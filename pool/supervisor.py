"""The workers as processes: spawned, listened to, killed, and seen to be gone.

Each worker inherits one end of a socketpair, its link. Down it comes the secret by which the worker proves itself; its
end of file tells the worker that the pool is gone, and the pool that the worker is, where pidfd is missing.
"""

import contextlib
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pool.core.actions import SpawnWorker
from pool.core.events import Death, Event, WorkerExited, WorkerSpawned
from pool.devices import Device
from pool.launch import worker_launch
from pool.noise import is_noise
from pool.wire.exits import Exit

__all__ = ["Supervisor", "death_of"]

log = logging.getLogger("pool.worker")

TAIL_LINES = 30
LINE_BYTES = 4096
LINES_A_SECOND = 100  # of each worker, in the log
CHUNK_BYTES = 65536
REAP_RETRY_S = 0.05


@dataclass(eq=False, slots=True)
class Process:
    slot: int
    incarnation: int
    popen: "subprocess.Popen[bytes]"
    link: socket.socket
    output: int
    pidfd: int | None
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))
    rest: bytes = b""
    second: int = 0
    budget: int = LINES_A_SECOND
    dropped: int = 0
    ending: bool = False


class Supervisor:
    """Used from the pool's main thread alone: a worker's death signal follows the thread that spawned it."""

    def __init__(
        self,
        devices: Sequence[Device],
        endpoint: str,
        cpu_share: int,
        environ: Mapping[str, str],
        expect: Callable[[int, int, bytes], None],
    ) -> None:
        """`expect` is told the secret of each new incarnation."""
        self._devices = devices
        self._endpoint = endpoint
        self._cpu_share = cpu_share
        self._environ = environ
        self._expect = expect
        self._processes: dict[int, Process] = {}
        self._by_fd: dict[int, Process] = {}

    # --- orders -------------------------------------------------------------------------------------------------

    def spawn(self, action: SpawnWorker) -> Event:
        """WorkerSpawned; or WorkerExited where the machine has no process, memory or descriptor left for one."""
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            return _not_spawned(action, error)
        try:
            return self._spawn(action, ours, theirs)
        except OSError as error:
            ours.close()
            return _not_spawned(action, error)
        finally:
            theirs.close()

    def _spawn(self, action: SpawnWorker, ours: socket.socket, theirs: socket.socket) -> Event:
        secret = secrets.token_bytes(32)
        # Before the process is there: it may be gone before anything can be sent to it.
        ours.sendall(secret)
        ours.setblocking(False)
        launch = worker_launch(
            slot=action.slot,
            incarnation=action.incarnation,
            device=self._devices[action.slot],
            endpoint=self._endpoint,
            link_fd=theirs.fileno(),
            parent_pid=os.getpid(),
            cpu_share=self._cpu_share,
            environ=self._environ,
            python=sys.executable,
        )
        popen = subprocess.Popen(
            launch.argv,
            env=dict(launch.env),
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            process_group=0,  # a terminal's Ctrl-C is the pool's to handle, not each worker's
        )
        assert popen.stdout is not None
        os.set_blocking(popen.stdout.fileno(), False)
        try:
            pidfd: int | None = os.pidfd_open(popen.pid)
        except OSError:
            pidfd = None  # an old kernel, or no descriptor left: the link's end of file tells, `tend` reaps
        process = Process(action.slot, action.incarnation, popen, ours, popen.stdout.fileno(), pidfd)
        self._processes[action.slot] = process
        for fd in (process.output, ours.fileno(), pidfd):
            if fd is not None:
                self._by_fd[fd] = process
        self._expect(action.slot, action.incarnation, secret)
        return WorkerSpawned(action.slot, action.incarnation, popen.pid)

    def hang_up(self, slot: int, incarnation: int) -> None:
        """Closes the pool's end of the link: a worker that cannot be told otherwise exits by itself."""
        process = self._current(slot, incarnation)
        if process is not None and not process.ending:
            process.link.shutdown(socket.SHUT_WR)

    def kill(self, slot: int, incarnation: int) -> None:
        """SIGKILL to the worker and whatever it has spawned. Its exit is an event like any other."""
        process = self._current(slot, incarnation)
        if process is not None and process.popen.returncode is None:
            try:
                os.killpg(process.popen.pid, signal.SIGKILL)
            except ProcessLookupError:
                process.popen.kill()

    def pid(self, slot: int) -> int | None:
        process = self._processes.get(slot)
        return None if process is None else process.popen.pid

    def _current(self, slot: int, incarnation: int) -> Process | None:
        process = self._processes.get(slot)
        return process if process is not None and process.incarnation == incarnation else None

    # --- what the loop waits for ---------------------------------------------------------------------------------

    def fds(self) -> Sequence[int]:
        """Descriptors that are readable when something happened to a worker."""
        return list(self._by_fd)

    def on_readable(self, fd: int) -> Iterator[Event]:
        process = self._by_fd.get(fd)
        if process is None:
            return  # its exit was handled earlier in this round
        if fd == process.output:
            self._read_output(process)
            return
        if fd == process.link.fileno():
            self._read_link(process)
        yield from self._reap(process)

    def next_deadline(self, now: float) -> float | None:
        """When `tend` is to be called at the latest: while a worker is known to end but cannot be reaped yet."""
        return now + REAP_RETRY_S if any(process.ending for process in self._processes.values()) else None

    def tend(self) -> Iterator[Event]:
        for process in [process for process in self._processes.values() if process.ending]:
            yield from self._reap(process)

    def _read_link(self, process: Process) -> None:
        """A worker writes nothing there, so readable means the end; bytes are thrown away."""
        try:
            ended = process.link.recv(4096) == b""
        except BlockingIOError:
            return
        except OSError:
            ended = True
        if ended:
            process.ending = True
            self._by_fd.pop(process.link.fileno(), None)

    def _reap(self, process: Process) -> Iterator[Event]:
        """Only through Popen: whoever waits behind its back turns a SIGKILL into exit 0."""
        _kill_what_it_left(process)
        if process.popen.poll() is None:
            return
        self._read_output(process)
        if process.rest:
            self._lines(process, [process.rest])
        self._tell_dropped(process)
        for fd in (process.output, process.link.fileno(), process.pidfd):
            if fd is not None:
                self._by_fd.pop(fd, None)
        assert process.popen.stdout is not None
        process.popen.stdout.close()
        process.link.close()
        if process.pidfd is not None:
            os.close(process.pidfd)
        del self._processes[process.slot]
        death = death_of(process.popen.returncode, tuple(process.tail))
        yield WorkerExited(process.slot, process.incarnation, death)

    # --- output -------------------------------------------------------------------------------------------------

    def _read_output(self, process: Process) -> None:
        """One piece a turn: a worker that prints without end must not hold the loop."""
        try:
            chunk = os.read(process.output, CHUNK_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            self._by_fd.pop(process.output, None)
            return
        *lines, process.rest = (process.rest + chunk).split(b"\n")
        if len(process.rest) > LINE_BYTES:
            lines.append(process.rest)
            process.rest = b""
        self._lines(process, lines)

    def _lines(self, process: Process, lines: Sequence[bytes]) -> None:
        """Logs as many as the second allows; of the rest the last ones are kept for the case that it dies."""
        second = int(time.monotonic())
        if second != process.second:
            self._tell_dropped(process)
            process.second, process.budget = second, LINES_A_SECOND
        on_gpu = self._devices[process.slot].kind == "gpu"
        logged, unlogged = lines[: process.budget], lines[process.budget :]
        process.budget -= len(logged)
        process.dropped += len(unlogged)
        for position, line in enumerate((*logged, *unlogged[-TAIL_LINES:])):
            text = line[:LINE_BYTES].decode(errors="replace").rstrip()
            noise = not text or is_noise(text, on_gpu)
            if not noise:
                process.tail.append(text)
            if text and position < len(logged):
                log.log(logging.DEBUG if noise else logging.INFO, "slot %d | %s", process.slot, text)

    def _tell_dropped(self, process: Process) -> None:
        if process.dropped:
            log.warning("slot %d | … %d more lines", process.slot, process.dropped)
            process.dropped = 0


def _kill_what_it_left(process: Process) -> None:
    """A dead worker's own children, which may hold its device; before reaping, while its pid is still its own."""
    if process.pidfd is None or process.popen.returncode is not None:
        return
    # WNOWAIT: looks whether it is dead and leaves the reaping to Popen.
    if os.waitid(os.P_PIDFD, process.pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.popen.pid, signal.SIGKILL)


def _not_spawned(action: SpawnWorker, error: OSError) -> WorkerExited:
    return WorkerExited(action.slot, action.incarnation, Death(f"cannot be spawned: {error}", restartable=True))


def death_of(returncode: int, last_output: tuple[str, ...]) -> Death:
    """A Popen's return code in words; a worker's last line says more than its status where the status is its own."""
    if returncode < 0:
        try:
            name = signal.Signals(-returncode).name
        except ValueError:
            name = f"signal {-returncode}"
        hint = " (out of memory?)" if -returncode == signal.SIGKILL else ""
        return Death(name + hint, True, last_output)
    try:
        status = Exit(returncode)
    except ValueError:
        return Death(f"exit status {returncode}", True, last_output)
    text = f"exit status {returncode}" + ("" if status is Exit.STOPPED else f" {status.name}")
    if not status.restartable and last_output:
        text = f"{text}: {last_output[-1]}"
    return Death(text, status.restartable, last_output)
