"""The workers as processes: spawned, listened to, killed, and seen to be gone.

Each worker inherits one end of a socketpair, its link. Down it comes the secret by which the worker proves itself; its
end of file tells the worker that the pool is gone, and the pool that the worker is, where pidfd is missing.
"""

import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
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
        ours, theirs = socket.socketpair()
        secret = secrets.token_bytes(32)
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
        try:
            popen = subprocess.Popen(
                launch.argv,
                env=dict(launch.env),
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                process_group=0,  # a terminal's Ctrl-C is the pool's to handle, not each worker's
            )
        except OSError as error:
            ours.close()
            death = Death(f"cannot be spawned: {error}", restartable=True)
            return WorkerExited(action.slot, action.incarnation, death)
        finally:
            theirs.close()
        ours.sendall(secret)
        ours.setblocking(False)
        self._expect(action.slot, action.incarnation, secret)
        self._register(action, popen, ours)
        return WorkerSpawned(action.slot, action.incarnation, popen.pid)

    def _register(self, action: SpawnWorker, popen: "subprocess.Popen[bytes]", link: socket.socket) -> None:
        assert popen.stdout is not None
        output = os.dup(popen.stdout.fileno())
        popen.stdout.close()
        os.set_blocking(output, False)
        try:
            pidfd: int | None = os.pidfd_open(popen.pid)
        except OSError:
            pidfd = None  # an old kernel: the link's end of file tells, `tend` reaps
        process = Process(action.slot, action.incarnation, popen, link, output, pidfd)
        self._processes[action.slot] = process
        for fd in (output, link.fileno(), pidfd):
            if fd is not None:
                self._by_fd[fd] = process

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
        if process.popen.poll() is None:
            return
        self._read_output(process)
        if process.rest:
            self._line(process, process.rest)
        for fd in (process.output, process.link.fileno(), process.pidfd):
            if fd is not None:
                self._by_fd.pop(fd, None)
        os.close(process.output)
        process.link.close()
        if process.pidfd is not None:
            os.close(process.pidfd)
        del self._processes[process.slot]
        death = death_of(process.popen.returncode, tuple(process.tail))
        yield WorkerExited(process.slot, process.incarnation, death)

    # --- output -------------------------------------------------------------------------------------------------

    def _read_output(self, process: Process) -> None:
        for _ in range(16):  # a worker that prints without end must not hold the loop
            try:
                chunk = os.read(process.output, 65536)
            except BlockingIOError:
                return
            if not chunk:
                self._by_fd.pop(process.output, None)
                return
            *lines, process.rest = (process.rest + chunk).split(b"\n")
            for line in lines:
                self._line(process, line)
            if len(process.rest) > LINE_BYTES:
                self._line(process, process.rest)
                process.rest = b""

    def _line(self, process: Process, line: bytes) -> None:
        text = line[:LINE_BYTES].decode(errors="replace").rstrip()
        if is_noise(text, on_gpu=self._devices[process.slot].kind == "gpu"):
            log.debug("slot %d | %s", process.slot, text)
        elif text:
            process.tail.append(text)
            log.info("slot %d | %s", process.slot, text)


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
