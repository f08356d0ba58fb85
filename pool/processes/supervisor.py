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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from pool.core.actions import SpawnReplacement, SpawnStandby, SpawnWorker
from pool.core.events import Death, Event, SpawnHeld, WorkerExited, WorkerSpawned
from pool.devices import Claims, Device, GpuMonitor
from pool.logs import about
from pool.loop import Loop
from pool.processes.deaths import death_of, is_ending, not_spawned
from pool.processes.launch import worker_launch
from pool.processes.output import Output
from pool.processes.stacks import LOOK_S, Stacks, Trace
from pool.wire.device_memory import DeviceHeld, DeviceWait
from pool.wire.exits import Exit
from pool.wire.load_steps import LONGEST_STEP, LoadStep
from pool.wire.segment import Grant, send_grant

__all__ = ["Supervisor"]

log = logging.getLogger("pool.worker")

REAP_RETRY_S = 0.05
NOT_ASKED = 'NVML is not asked ([health] device_free_timeout is "off")'
MOST_STEPS = 1000  # that a dead worker's link may still hold: three a model

Spawn = SpawnWorker | SpawnReplacement | SpawnStandby


@dataclass(eq=False, slots=True)
class Process:
    slot: int
    incarnation: int
    popen: "subprocess.Popen[bytes]"
    link: socket.socket
    output: Output
    output_fd: int
    pidfd: int | None
    stacks: Stacks | None
    spawned: float
    has_device: bool  # it has the device, or will have as soon as it is told of its models; a standby has not
    follows: bool  # another one that lives, if that still does when this one comes to the device
    must_fit: bool  # beside that one
    ending: bool = False
    killed: bool = False
    step: LoadStep = field(default_factory=LoadStep)  # the last that it has told

    def trace(self) -> Trace:
        """As it is now."""
        pid, status, up_s = self.popen.pid, self.popen.returncode, time.monotonic() - self.spawned
        if self.stacks is None:
            return Trace(pid, status, up_s, "", (), "no stacks can be taken on this machine")
        text = self.stacks.text()
        return Trace(pid, status, up_s, text, self.stacks.threads, "" if text else self.stacks.note)


class Supervisor:
    """Used from the pool's main thread alone: a worker's death signal follows the thread that spawned it."""

    def __init__(
        self,
        devices: Sequence[Device],
        endpoint: str,
        cpu_share: int,
        environ: Mapping[str, str],
        expect: Callable[[int, int, bytes], None],
        device_free_timeout_s: float,
        loop: Loop,
        tell: Callable[[Event], None],
        gpu_monitor: GpuMonitor,
        cores: Sequence[Sequence[int]] = (),
    ) -> None:
        """`expect` is told the secret of each new incarnation; `device_free_timeout_s` 0: NVML is never asked.

        `tell` is told what happens to a worker; it is not called within an order.
        `cores`: of each slot, those that its workers bind themselves to; none where there are none.
        """
        self._devices = devices
        self._endpoint = endpoint
        self._cpu_share = cpu_share
        self._cores = cores or [()] * len(devices)
        self._environ = environ
        self._expect = expect
        self._loop = loop
        self._tell = tell
        self._turn = loop.alarm(self._tend)
        self._processes: dict[tuple[int, int], Process] = {}
        self._asked: list[Process] = []  # for their stacks, before they are killed
        self._traces: dict[tuple[int, int], Trace] = {}
        self._after: dict[int, SpawnWorker] = {}  # by slot: who comes when the workers of the slot are gone
        self._claims = Claims(devices, device_free_timeout_s)
        self._lost: set[int] = set()  # slots whose GPU was gone when a worker came last
        self._gpu_monitor = gpu_monitor
        self._cancelled: list[WorkerExited] = []

    def adopt(self, device_free_timeout_s: float) -> None:
        """REQUIRES that neither this nor the former one is 0."""
        self._claims.timeout_s = device_free_timeout_s

    # --- orders -------------------------------------------------------------------------------------------------

    def spawn(self, action: Spawn) -> Event:
        """WorkerSpawned; or SpawnHeld, while a former worker's process is there: then what follows is told later.

        WorkerExited where the machine has no process, memory or descriptor left for one, or where nobody may be asked
        if a device has room for two.
        """
        if isinstance(action, SpawnWorker) and (former := self._of_slot(action.slot)):
            self._after[action.slot] = action
            pids = ", ".join(str(process.popen.pid) for process in former)
            return SpawnHeld(action.slot, action.incarnation, f"waiting for pid {pids} to be gone")
        if isinstance(action, SpawnReplacement):
            gpu = bool(self._devices[action.slot].uuids)
            if gpu and action.must_fit and not self._claims.timeout_s:
                return WorkerExited(action.slot, action.incarnation, Death(NOT_ASKED, restartable=True, no_room=True))
            if not (gpu and action.must_fit):  # else it says so itself, once it has looked
                _say_beside(action, '[restart] replacement is "always"' if gpu else "a CPU has room for both")
        return self._spawn(action)

    def device_wait(self, slot: int, incarnation: int) -> DeviceWait | None:
        """What a worker that is told of its models waits for before it touches its GPUs. A standby has the slot now."""
        process = self._current(slot, incarnation)
        if process is None:
            return None
        process.has_device = True
        beside = {each.incarnation for each in self._of_slot(slot) if process.follows and each is not process}
        return self._claims.wait(slot, incarnation, beside, must_fit=process.must_fit)

    def device_held(self, slot: int, incarnation: int, held: DeviceHeld) -> None:
        """A worker has said what it takes of its GPUs."""
        if self._current(slot, incarnation) is not None:
            self._lost.discard(slot)
            alive = {process.incarnation for process in self._of_slot(slot)}
            self._claims.said(slot, incarnation, held, alive)

    def is_lost(self, slot: int) -> bool:
        """Whether the slot's GPU was gone when a worker was to come to it last."""
        return slot in self._lost

    def _of_slot(self, slot: int) -> list[Process]:
        """Those that have its device."""
        return [process for process in self._processes.values() if process.slot == slot and process.has_device]

    def _spawn(self, action: Spawn) -> Event:
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            return not_spawned(action, error)
        stacks = _stacks_file()
        try:
            return self._start(action, ours, theirs, stacks)
        except OSError as error:
            ours.close()
            if stacks is not None:
                stacks.close()
            return not_spawned(action, error)
        finally:
            theirs.close()

    def _start(self, action: Spawn, ours: socket.socket, theirs: socket.socket, stacks: Stacks | None) -> Event:
        secret = secrets.token_bytes(32)
        # Before the process is there: it may be gone before anything can be sent to it.
        ours.sendall(secret)
        ours.setblocking(False)
        stacks_fd = None if stacks is None else stacks.fd
        launch = worker_launch(
            slot=action.slot,
            incarnation=action.incarnation,
            device=self._devices[action.slot],
            endpoint=self._endpoint,
            link_fd=theirs.fileno(),
            stacks_fd=stacks_fd,
            parent_pid=os.getpid(),
            cpu_share=self._cpu_share,
            cores=self._cores[action.slot],
            environ=self._environ,
            python=sys.executable,
        )
        # Opened here: before Python 3.11.4 `Popen` leaves its own open where there is no descriptor left for the rest.
        with Path(os.devnull).open("rb") as nothing:
            popen = subprocess.Popen(
                launch.argv,
                env=dict(launch.env),
                pass_fds=[fd for fd in (theirs.fileno(), stacks_fd) if fd is not None],
                stdin=nothing,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                process_group=0,  # a terminal's Ctrl-C is the pool's to handle, not each worker's
            )
        assert popen.stdout is not None
        output_fd = popen.stdout.fileno()
        os.set_blocking(output_fd, False)
        try:
            pidfd: int | None = os.pidfd_open(popen.pid)
        except OSError:
            pidfd = None  # an old kernel, or no descriptor left: the link's end of file tells, `_tend` reaps
        output = Output.of_worker(output_fd, action.slot, action.incarnation, self._devices[action.slot].kind == "gpu")
        spawned = time.monotonic()
        process = Process(
            action.slot,
            action.incarnation,
            popen,
            ours,
            output,
            output_fd,
            pidfd,
            stacks,
            spawned,
            has_device=not isinstance(action, SpawnStandby),
            follows=isinstance(action, SpawnReplacement),
            must_fit=isinstance(action, SpawnReplacement) and action.must_fit,
        )
        self._processes[(action.slot, action.incarnation)] = process
        self._loop.register(output_fd, partial(self._read_output, process))
        self._loop.register(ours.fileno(), partial(self._read_link, process))
        if pidfd is not None:
            self._loop.register(pidfd, partial(self._reap, process))
        self._expect(action.slot, action.incarnation, secret)
        return WorkerSpawned(action.slot, action.incarnation, popen.pid)

    def hang_up(self, slot: int, incarnation: int) -> None:
        """Closes the pool's end of the link: a worker that cannot be told otherwise exits by itself."""
        self._cancel(slot, incarnation)
        process = self._current(slot, incarnation)
        if process is not None and not process.ending:
            process.link.shutdown(socket.SHUT_WR)

    def kill(self, slot: int, incarnation: int, stacks: bool = False) -> None:
        """SIGKILL to the worker and whatever it has spawned. Its exit is an event like any other.

        With `stacks` it is asked for those of its threads before, and killed as soon as they are there or a moment has
        passed. A second order without them kills it at once.
        """
        self._cancel(slot, incarnation)
        process = self._current(slot, incarnation)
        if process is None or process.popen.returncode is not None or (stacks and process in self._asked):
            return
        if stacks and process.stacks is not None and process.stacks.ask(process.popen.pid, time.monotonic()):
            self._asked.append(process)
            self._turn.by(time.monotonic() + LOOK_S)
        else:
            _kill(process)

    def kill_all(self) -> None:
        """SIGKILL to all that is left, and nobody follows. For a pool that has broken down."""
        self._after.clear()
        for process in list(self._processes.values()):
            _kill(process)

    def await_exits(self, timeout_s: float) -> None:
        """Until all that were killed are reaped, or for so long: one that is stuck in the kernel is let be."""
        ends = time.monotonic() + timeout_s
        for process in list(self._processes.values()):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.popen.wait(max(0.0, ends - time.monotonic()))

    def grant(self, slot: int, incarnation: int, grant: Grant, fd: int | None) -> bool:
        """Tells a worker of a segment; False where that cannot be, as it does not read, or is about to end."""
        process = self._current(slot, incarnation)
        if process is None or process.ending:
            return False
        try:
            send_grant(process.link, grant, fd)
        except OSError:
            return False
        return True

    def trace(self, slot: int, incarnation: int) -> Trace | None:
        """What the process of this incarnation is leaving, or, to be asked for once, has left; None: nothing."""
        process = self._current(slot, incarnation)
        if process is not None:
            return process.trace()
        return self._traces.pop((slot, incarnation), None)

    def _cancel(self, slot: int, incarnation: int) -> None:
        """Of a worker that is not spawned yet; its end is told later, as if it had been there."""
        after = self._after.get(slot)
        if after is not None and after.incarnation == incarnation:
            del self._after[slot]
            self._turn.soon()
            death = Death("it was not spawned yet", restartable=True, cause=Exit.STOPPED.name)
            self._cancelled.append(WorkerExited(slot, incarnation, death))

    def pid(self, slot: int, incarnation: int) -> int | None:
        process = self._current(slot, incarnation)
        return None if process is None else process.popen.pid

    def _current(self, slot: int, incarnation: int) -> Process | None:
        return self._processes.get((slot, incarnation))

    # --- what the loop has it do ---------------------------------------------------------------------------------

    def _read_output(self, process: Process) -> None:
        if not process.output.read():
            self._loop.unregister(process.output_fd)

    def _read_link(self, process: Process) -> None:
        """A worker writes its steps there, and else nothing until its end."""
        try:
            packet = process.link.recv(LONGEST_STEP)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        process.ending = packet == b""
        if not process.ending:
            process.step = LoadStep.unpack(packet)
        if process.ending:
            self._loop.unregister(process.link.fileno())
            self._reap(process)

    def _tend(self) -> None:
        """While something is awaited that no descriptor tells of."""
        for process in self._asked[:]:
            if process.stacks is None or process.stacks.settled(process.popen.pid, time.monotonic()):
                self._asked.remove(process)
                _kill(process)
        for process in [process for process in self._processes.values() if process.ending]:
            self._reap(process)
        for slot, action in [(slot, after) for slot, after in self._after.items() if not self._of_slot(slot)]:
            del self._after[slot]
            self._tell(self.spawn(action))
        while self._cancelled:
            self._tell(self._cancelled.pop(0))
        if self._asked:
            self._turn.by(time.monotonic() + LOOK_S)

    def _reap(self, process: Process) -> None:
        """Only through Popen: whoever waits behind its back turns a SIGKILL into exit 0."""
        _kill_what_it_left(process)
        if process.popen.poll() is None:
            self._turn.by(time.monotonic() + REAP_RETRY_S)
            return
        last_output = process.output.finish()
        self._read_steps(process)
        for fd in (process.output_fd, process.link.fileno(), process.pidfd):
            if fd is not None:
                self._loop.unregister(fd)
        assert process.popen.stdout is not None
        process.popen.stdout.close()
        process.link.close()
        if process.pidfd is not None:
            os.close(process.pidfd)
        self._traces[(process.slot, process.incarnation)] = process.trace()
        if process.stacks is not None:
            process.stacks.close()
        if process in self._asked:
            self._asked.remove(process)
        del self._processes[(process.slot, process.incarnation)]
        self._turn.soon()  # for who is to follow
        death = death_of(process.popen.returncode, last_output, by_us=process.killed, step=process.step)
        if process.popen.returncode == Exit.DEVICE_LOST:
            self._lost.add(process.slot)
            said = self._gpu_monitor.error_of(process.slot)
            death = replace(death, text=f"{death.text} ({said})") if said else death
        self._tell(WorkerExited(process.slot, process.incarnation, death))

    def _read_steps(self, process: Process) -> None:
        """What a dead worker has written last. A child that it left may write on, and is not waited for."""
        with contextlib.suppress(OSError):
            for _ in range(MOST_STEPS):
                if not (packet := process.link.recv(LONGEST_STEP)):
                    return
                process.step = LoadStep.unpack(packet)


def _say_beside(action: SpawnReplacement, why: str) -> None:
    extra = about("replacement_fits", slot=action.slot, incarnation=action.incarnation, reason=why)
    text = "slot %d: incarnation %d gets ready beside its worker: %s"
    log.info(text, action.slot, action.incarnation, why, extra=extra)


def _kill(process: Process) -> None:
    process.killed = process.killed or not is_ending(process.popen.pid)
    try:
        os.killpg(process.popen.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.popen.kill()


def _is_dead(process: Process) -> bool:
    """Whether it has ended and is not reaped yet, as far as that can be seen."""
    if process.pidfd is None:
        return False
    # WNOWAIT: the reaping is left to Popen.
    return os.waitid(os.P_PIDFD, process.pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _stacks_file() -> Stacks | None:
    try:
        return Stacks()
    except OSError:
        return None  # a worker serves without, too


def _kill_what_it_left(process: Process) -> None:
    """A dead worker's own children, which may hold its device; before reaping, while its pid is still its own."""
    if process.popen.returncode is None and _is_dead(process):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.popen.pid, signal.SIGKILL)
