"""The gateway's processes as their parent has them: started, listened to, replaced, ended, and seen to be gone.

Each inherits the listening socket, a file in memory with its settings, and one end of a socketpair, its link: up it
sends a byte a second, and its end of file tells that the parent is gone. They share two files in memory: one with their
counts, and one with what they hold, which those with other settings do not share.
"""

import contextlib
import logging
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pool.logs import about
from pool.loop import Loop
from pool.processes.gateways.launch import gateway_launch
from pool.processes.gateways.life import GatewayState, Kill, Life, Order, Pace, Spawn, Terminate
from pool.processes.gateways.listener import address_of
from pool.processes.output import Output
from pool.wire.codec import pack
from pool.wire.gateway import GatewaySettings

__all__ = ["Gateways"]

log = logging.getLogger("pool.gateway")

REAP_RETRY_S = 0.05
KILL_S = 1.0  # SIGKILL is immediate unless the process is stuck in the kernel
CHUNK_BYTES = 65536  # of beats at a turn: a process that says more than it is asked is soon read to its end


@dataclass(eq=False, slots=True)
class Process:
    life: Life
    incarnation: int
    popen: "subprocess.Popen[bytes]"
    link: socket.socket
    output: Output
    output_fd: int
    is_told: bool = False  # to end; told twice, it ends at once
    killed: bool = False  # by us
    has_hung_up: bool = False  # so it ends, or has ended


class Gateways:
    """Used from one loop's thread, which spawns them all: the kernel ends them with this thread."""

    def __init__(
        self,
        settings: GatewaySettings,
        listener: socket.socket,
        environ: Mapping[str, str],
        loop: Loop,
        on_serving: Callable[[], None] = lambda: None,
        pace: Pace | None = None,
    ) -> None:
        """Starts nothing yet. The listener is closed by `close`. `on_serving` is called once, when all serve."""
        self._settings = replace(settings, listen=address_of(listener))
        self._listener = listener
        self._counts_fd = os.memfd_create("gateway-requests", os.MFD_CLOEXEC)
        self._accounts_fd = _accounts()
        self._environ = environ
        self._loop = loop
        self._on_serving: Callable[[], None] | None = on_serving
        self._on_gone: Callable[[], None] | None = None
        self.stops = False
        """Whether they were told to."""
        self._pace = pace or Pace()
        self._turn = loop.alarm(self._tend)
        self._rng = random.Random()
        self._lives: list[Life] = []
        self._surplus: list[Life] = []  # of numbers that are not wanted any more
        self._processes: list[Process] = []
        self._unspawned: list[tuple[Life, int, str]] = []

    @property
    def url(self) -> str:
        return self._settings.url

    # --- orders ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        extra = about("gateway_listening", url=self.url, processes=self._settings.processes)
        log.info("gateway: listens at %s", self.url, extra=extra)
        self._resize()

    def adopt(self, settings: GatewaySettings) -> None:
        """Other settings, but for where it listens. Each process is replaced; a new connection waits at most.

        Does nothing where they are the same, or once they were told to stop.
        """
        settings = replace(settings, listen=self._settings.listen)
        if settings == self._settings or self.stops:
            return
        former, self._settings = self._settings, settings
        os.close(self._accounts_fd)
        self._accounts_fd = _accounts()
        extra = about("gateway_replaced", processes=settings.processes)
        log.info("gateway: each process is replaced, for other settings", extra=extra)
        now = time.monotonic()
        for life in self._lives[settings.processes :]:
            self._lives.remove(life)
            self._surplus.append(life)
            self._follow(life, life.stop(former.drain_timeout_s, now))
        for life in self._lives:
            self._follow(life, life.replace(former.drain_timeout_s, now))
        self._resize()

    def stop(self, on_gone: Callable[[], None]) -> None:
        """They accept nothing any more and finish what they have; who takes too long is killed.

        `on_gone` is called once when none is left, by the loop.
        """
        self.stops, self._on_gone = True, on_gone
        now = time.monotonic()
        for life in self._all():
            self._follow(life, life.stop(self._settings.drain_timeout_s, now))
        self._turn.soon()

    def kill(self) -> None:
        """All that are left, at once; nobody follows."""
        self.stops = True
        now = time.monotonic()
        for life in self._all():
            self._follow(life, life.kill(now))

    def close(self, patience_s: float) -> None:
        """Kills those that do not end within so many seconds. No process is left, but for one that the kernel holds."""
        self._turn.clear()
        for process in self._processes:
            _tell_to_end(process)
        _await(self._processes, patience_s)
        for process in self._processes:
            _kill(process)
        _await(self._processes, KILL_S)
        for process in self._processes[:]:
            self._let_go(process)
        self._listener.close()
        os.close(self._counts_fd)
        os.close(self._accounts_fd)

    def status(self) -> dict[str, Any]:
        """As `pool.wire.records.Gateway` has it."""
        return {"url": self.url, "processes": [self._status(life) for life in self._lives]}

    # --- what follows ---------------------------------------------------------------------------------------------

    def _status(self, life: Life) -> dict[str, Any]:
        process = self._process(life, life.incarnation)
        return {
            "number": life.number,
            "pid": None if process is None else process.popen.pid,
            "incarnation": life.incarnation,
            "state": life.state.name,
            "restarts": life.restarts,
            "reason": life.reason,
        }

    def _all(self) -> list[Life]:
        return [*self._lives, *self._surplus]

    def _process(self, life: Life, incarnation: int) -> Process | None:
        found = (each for each in self._processes if each.life is life and each.incarnation == incarnation)
        return next(found, None)

    def _resize(self) -> None:
        for number in range(len(self._lives), self._settings.processes):
            life = Life(number, self._rng, self._pace)
            self._lives.append(life)
            self._follow(life, life.begin(time.monotonic()))

    def _follow(self, life: Life, orders: Sequence[Order]) -> None:
        """What a life has ordered, and then the log and the next instant."""
        for order in orders:
            process = self._process(life, order.incarnation)
            if isinstance(order, Spawn):
                try:
                    self._processes.append(self._spawn(life, order.incarnation))
                except OSError as error:  # the machine has no process, memory or descriptor left
                    self._unspawned.append((life, order.incarnation, f"cannot be spawned: {error}"))
                    self._turn.soon()
            elif process is not None and isinstance(order, Terminate):
                _tell_to_end(process)
            elif process is not None and isinstance(order, Kill):
                _kill(process)
                extra = about("gateway_killed", gateway=life.number, pid=process.popen.pid)
                log.warning("gateway %d: pid %d is killed", life.number, process.popen.pid, extra=extra)
        self._say(life)
        self._turn.by(life.next_deadline())

    def _say(self, life: Life) -> None:
        if life.state is life.said:
            return
        life.said = life.state
        number, process = life.number, self._process(life, life.incarnation)
        pid = None if process is None else process.popen.pid
        match life.state:
            case GatewayState.STARTING:
                extra = about("gateway_starting", gateway=number, pid=pid)
                log.info("gateway %d: pid %s starts", number, pid, extra=extra)
            case GatewayState.SERVING:
                extra = about("gateway_serving", gateway=number, pid=pid, url=self.url)
                log.info("gateway %d: pid %s serves at %s", number, pid, self.url, extra=extra)
            case GatewayState.BACKOFF:
                extra = about("gateway_backoff", gateway=number, reason=life.reason)
                text = "gateway %d died: %s; the next one starts in %.1f s"
                log.warning(text, number, life.reason, life.pause_s, extra=extra)
            case GatewayState.STOPPING:
                extra = about("gateway_stopping", gateway=number, pid=pid)
                log.info("gateway %d: stops, and finishes what it has", number, extra=extra)
            case GatewayState.STOPPED:
                log.info("gateway %d: stopped", number, extra=about("gateway_stopped", gateway=number))

    def _tend(self) -> None:
        now = time.monotonic()
        for process in [each for each in self._processes if each.has_hung_up]:
            self._reap(process)
        unspawned, self._unspawned = self._unspawned, []
        for life, incarnation, how in unspawned:
            self._follow(life, life.exited(incarnation, how, now))
        for life in self._all():
            if life.next_deadline() <= now:
                self._follow(life, life.tick(now))
        self._surplus = [life for life in self._surplus if not life.is_gone]
        for life in self._all():
            self._turn.by(life.next_deadline())
        if self._on_gone is not None and all(life.is_gone for life in self._all()):
            on_gone, self._on_gone = self._on_gone, None
            on_gone()

    # --- processes ------------------------------------------------------------------------------------------------

    def _spawn(self, life: Life, incarnation: int) -> Process:
        """Raises `OSError`."""
        with contextlib.ExitStack() as ends:
            settings_fd = ends.enter_context(_in_memory(pack(replace(self._settings, number=life.number))))
            ours, theirs = socket.socketpair()
            ends.enter_context(theirs)
            undo = ends.enter_context(contextlib.ExitStack())
            undo.enter_context(ours)
            ours.setblocking(False)
            launch = gateway_launch(
                number=life.number,
                link_fd=theirs.fileno(),
                settings_fd=settings_fd,
                socket_fd=self._listener.fileno(),
                counts_fd=self._counts_fd,
                accounts_fd=self._accounts_fd,
                parent_pid=os.getpid(),
                environ=self._environ,
                python=sys.executable,
            )
            nothing = ends.enter_context(Path(os.devnull).open("rb"))
            popen = subprocess.Popen(
                launch.argv,
                env=dict(launch.env),
                pass_fds=[theirs.fileno(), settings_fd, self._listener.fileno(), self._counts_fd, self._accounts_fd],
                stdin=nothing,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                process_group=0,  # a terminal's Ctrl-C is the parent's to handle
            )
            undo.pop_all()
        assert popen.stdout is not None
        output_fd = popen.stdout.fileno()
        os.set_blocking(output_fd, False)
        process = Process(life, incarnation, popen, ours, Output.of_gateway(output_fd, life.number), output_fd)
        self._loop.register(output_fd, partial(self._read_output, process))
        self._loop.register(ours.fileno(), partial(self._read_link, process))
        return process

    def _read_output(self, process: Process) -> None:
        if not process.output.read():
            self._loop.unregister(process.output_fd)

    def _read_link(self, process: Process) -> None:
        try:
            beats = process.link.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            beats = b""
        if beats:
            self._follow(process.life, process.life.alive(process.incarnation, time.monotonic()))
            if self._on_serving is not None and all(life.state is GatewayState.SERVING for life in self._lives):
                on_serving, self._on_serving = self._on_serving, None
                on_serving()
            return
        process.has_hung_up = True
        self._loop.unregister(process.link.fileno())
        self._turn.soon()

    def _reap(self, process: Process) -> None:
        """It hangs up a moment before it can be reaped."""
        if process.popen.poll() is None:
            self._turn.by(time.monotonic() + REAP_RETRY_S)
            return
        how = _how(process, self._let_go(process))
        self._follow(process.life, process.life.exited(process.incarnation, how, time.monotonic()))

    def _let_go(self, process: Process) -> tuple[str, ...]:
        """Returns its last lines."""
        assert process.popen.stdout is not None
        last_output = process.output.finish()
        self._processes.remove(process)
        self._loop.unregister(process.output_fd)
        self._loop.unregister(process.link.fileno())
        process.popen.stdout.close()
        process.link.close()
        return last_output


def _how(process: Process, last_output: Sequence[str]) -> str:
    """How it ended, in words; what it printed last says more than a status of its own."""
    status = process.popen.returncode
    if status < 0:
        name = signal.Signals(-status).name if -status in signal.valid_signals() else f"signal {-status}"
        return f"{name} (out of memory?)" if name == "SIGKILL" and not process.killed else name
    return f"exit status {status}{f': {last_output[-1]}' if last_output and status else ''}"


def _tell_to_end(process: Process) -> None:
    if not process.is_told:
        process.is_told = True
        process.popen.send_signal(signal.SIGTERM)


def _kill(process: Process) -> None:
    process.killed = True
    process.popen.kill()


def _await(processes: Sequence[Process], patience_s: float) -> None:
    ends = time.monotonic() + patience_s
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.popen.wait(max(0.0, ends - time.monotonic()))


def _accounts() -> int:
    return os.memfd_create("gateway-accounts", os.MFD_CLOEXEC)


@contextlib.contextmanager
def _in_memory(data: bytes) -> Iterator[int]:
    """A file with this in it, that has no name and that nobody waits for."""
    descriptor = os.memfd_create("gateway-settings", os.MFD_CLOEXEC)
    with open(descriptor, "wb", buffering=0) as file:
        file.write(data)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
