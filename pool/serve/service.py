"""The pool's process: one loop that waits for everything at once, and visits what is ready or due.

sockets ─┐
deaths  ─┼─► Loop ─► what came is told ─► Machine.dispatch ─► orders ─► sockets, processes, log
signals ─┤             ▲                                        │
alarms  ─┘             └──────────── spawned, died ◄────────────┘

Whatever is wrong with what one peer sends ends that message, or that peer. What raises beyond that is a bug: the pool
writes it down and ends, see `_broke_down`. It never goes on with a state that it can't trust.
"""

import logging
import os
import random
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import zmq

from pool import logs
from pool.clock import Alarms
from pool.core import Batch, Machine
from pool.core import actions as do
from pool.core.events import (
    BatchUnsent,
    Death,
    Event,
    Start,
    StopAsked,
    Tick,
    WorkerBeat,
    WorkerExited,
    WorkerMeasured,
)
from pool.core.fleet import SlotState
from pool.devices import GpuMonitor
from pool.endpoint import MEMORY_SUFFIX, WORKERS_SUFFIX, EndpointLock, admit, ipc_path, prepare_folder
from pool.kept import KeptJob, Quarantine
from pool.keys import KeyFolder
from pool.logs import about
from pool.loop import Doorbell, Loop, Watch, descriptors
from pool.plan import Footprints, Plan, Reconciler, Source
from pool.processes import Supervisor, inherited
from pool.recorder import Recorder, Shelf, fault_report
from pool.serve.admin import Admin
from pool.serve.back import Back
from pool.serve.connections import Connections
from pool.serve.entrance import Entrance
from pool.serve.front import Front
from pool.serve.gate import Gates
from pool.serve.handouts import Handouts
from pool.serve.layouts import memory_of
from pool.serve.loop import CoreFault, Way
from pool.serve.payload import owned
from pool.serve.rows import Inputs
from pool.serve.shared_memory import JobRegions, Segment, SharedMemory
from pool.serve.signal_pipe import SignalPipe
from pool.serve.slot_log import SlotLog
from pool.serve.standing import Standings
from pool.serve.status import doing, resident_bytes, restart_needed, without
from pool.serve.zap import Zap
from pool.systemd import Notifier
from pool.wire import client_messages as wire
from pool.wire.segment import Grant
from pool.wire.worker_messages import DeviceHeld, EndSessions, Stop, Welcome

__all__ = ["BrokeDown", "Service"]

log = logging.getLogger("pool")

DOWN = (SlotState.BACKOFF, SlotState.STOPPED, SlotState.FATAL)
TELL_S = 1.0  # until a worker that did not read is told again of lent memory that has ended
PROGRESS_S = 1.0  # between two looks at a start
DISK_S = 2.0  # how long the pool's end waits for the disk
MOST_CONNECTIONS = 1000  # over TCP where nobody is asked for a key
KILL_S = 3.0  # how long it waits for workers that it has killed, where it ends by its own fault


@dataclass(frozen=True, slots=True)
class BrokeDown:
    """The pool has ended by its own fault. Its workers are gone, its clients were told."""

    reason: str


class Service:
    """One start of the pool. `run` returns when it is over."""

    def __init__(
        self,
        plan: Plan,
        environ: Mapping[str, str],
        on_ready: Callable[[int, int, Sequence[str]], None],
        notifier: Notifier,
        source: Source | None = None,
        *,
        reload_on_hangup: bool = False,
    ) -> None:
        """`on_ready(serving, slots, unloadable)` is called once, when the pool serves, with the models that no slot has
        because they could not be loaded. `notifier` tells the service manager.

        `source` is what the plan was made of, where that can be read again. `reload_on_hangup`: SIGHUP has it read
        again; otherwise it stops the pool, as SIGTERM does.
        """
        self._reload_on_hangup = reload_on_hangup and source is not None and source.read is not None
        self._environ = environ
        self._on_ready = on_ready
        self._notifier = notifier
        self._instance = secrets.token_bytes(8)
        self._version = version("tf-worker-pool")  # once: another may be installed while this one runs
        self._started = time.monotonic()
        self._signals: deque[str] = deque()
        self._stopped: do.PoolStopped | None = None
        self._zap: Zap | None = None
        self._kept: deque[JobRegions | None] = deque()  # of jobs that are on the disk; filled by the threads that write
        self._kept_in: dict[tuple[bytes, int], Path] = {}  # of quarantined jobs, until their clients are told
        self._written = Doorbell()  # which they ring
        self._alarms = Alarms()
        self._front_turn = self._alarms.alarm(self._tend_front)
        self._memory_turn = self._alarms.alarm(self._tell_of_segments)
        self._core_turn = self._alarms.alarm(self._tick)
        self._plan_turn = self._alarms.alarm(self._tend_plan)
        self._notifier_turn = self._alarms.alarm(self._tell_alive)
        self._progress_turn = self._alarms.alarm(self._tell_progress)
        self._broken: BrokeDown | None = None
        self._began_with = plan.policy, plan.slots()
        self._machine = Machine(*self._began_with, random.Random(self._instance), owned)
        state = plan.world.here.state
        self._footprints = Footprints(state)
        self._slot_log = SlotLog(plan.devices, plan.placement)
        self._ended = 0  # jobs, when the reconciler was told of it last
        self._end: do.PoolStopped | None = None
        self._reconciler = Reconciler(
            plan,
            self._machine,
            source or Source(""),
            notifier,
            feed=self._feed,
            adopt=self._adopt,
            is_lost=self._is_lost,
            turn=self._plan_turn,
        )
        quarantine, reports = plan.settings.quarantine, plan.settings.crash_reports
        self._quarantine = Quarantine(state, quarantine.keep or 0, quarantine.max_bytes)
        self._recorder = Recorder(
            self._machine.fleet,
            [device.label for device in plan.devices],
            Shelf(state, reports.keep or 0, reports.max_bytes, plan.endpoint),
            self._whose,
        )
        self._tell = Way(self._machine, self._prepare, self._recorder.ran, self._act, self._unsent)

    @property
    def _whose(self) -> dict[str, Any]:
        """What a report says of the pool that wrote it."""
        return {
            "pool": self._version,
            "instance": self._instance.hex(),
            "endpoint": self._plan.endpoint,
        }

    def run(self, parent_fd: int | None = None, *, finishes: bool = False) -> do.PoolStopped | BrokeDown:
        """Serves until it is told to stop, no slot is left, or it breaks down. Leaves no process and no file behind.

        `parent_fd`: a descriptor whose end of file means that the program the pool belongs to is gone. `finishes`: the
        pool has other clients than that program, so it finishes their jobs then.
        Raises `EndpointInUse`, `InvalidConfig`, or `OSError` for an endpoint that cannot be opened.
        """
        path = ipc_path(self._plan.endpoint)
        workers_path, memory_path = (path.with_name(path.name + suffix) for suffix in (WORKERS_SUFFIX, MEMORY_SUFFIX))
        prepare_folder(path, self._plan.settings.pool.group)
        descriptors.allow_all()
        # The signals come first and go last: none may end this process between a file and its removal.
        with SignalPipe(self._signals) as pipe:
            lock = EndpointLock(path)
            try:
                self._serve(path, workers_path, memory_path, pipe, parent_fd, finishes)
            finally:
                if not lock.is_displaced():
                    path.unlink(missing_ok=True)
                    workers_path.unlink(missing_ok=True)
                    memory_path.unlink(missing_ok=True)
                lock.release()
                self._notifier.close()
        ended = self._broken or self._stopped
        assert ended is not None
        return ended

    def _serve(
        self,
        path: Path,
        workers_path: Path,
        memory_path: Path,
        pipe: SignalPipe,
        parent_fd: int | None,
        finishes: bool,
    ) -> None:
        policy = self._plan.policy
        security, listen = self._plan.settings.security, self._plan.settings.pool.listen
        with zmq.Context(2 if listen else 1) as context, closing(self._loop()) as loop:
            gateway = self._plan.settings.gateway_message(self._plan.endpoint)
            self._entrance = Entrance(gateway, self._environ, loop, self._tell)
            lent = self._plan.settings.shared_memory
            self._shared_memory = SharedMemory(lent.max_bytes or 0, lent.client_max_bytes, self._memory_turn.soon)
            self._handouts = Handouts(self._hand, self._end_segment)
            self._back = Back(context, workers_path, self._instance, self._handouts, self._device_held)
            self._front = Front(
                context,
                self._opened(),
                self._instance,
                policy.max_jobs,
                self._shared_memory,
                self._front_turn,
                Standings(self._plan.settings.client),
            )
            self._tell.front, self._tell.back = self._front, self._back
            asks_nvml = policy.device_free_timeout_s > 0
            self._gpu_monitor = GpuMonitor(self._plan.devices, inherited(self._environ), loop, asks_nvml)
            self._supervisor = Supervisor(
                self._plan.devices,
                self._back.endpoint,
                self._plan.cpu_share,
                self._environ,
                self._back.expect,
                policy.device_free_timeout_s,
                loop,
                self._feed,
                self._gpu_monitor,
                self._plan.cores,
            )
            self._admin = Admin(
                self._machine,
                self._plan.devices,
                self._gpu_monitor.readings,
                self._front,
                self._recorder,
                self._feed,
                self._about,
                self._reconciler.ask,
                self._back.remarks.of,
            )
            if security is not None:
                folder = KeyFolder(Path(security.clients), os.geteuid())
                self._zap = Zap(context, security.key.pair, folder, self._front.refused)
            most = MOST_CONNECTIONS if security is None else security.max_connections
            turn = loop.alarm(lambda: connections.look())
            connections = Connections(
                most, policy.max_bytes + (1 << 20), security is not None, self._front.refused, turn
            )
            try:
                self._front.bind_local(path)
                self._front.lend(memory_path)
                if group := self._plan.settings.pool.group:
                    admit(group, path, memory_path)
                for endpoint in listen:
                    self._front.bind_remote(endpoint, connections, self._zap)
                try:
                    self._register(loop, pipe, parent_fd, finishes)
                    self._begin()
                    while self._stopped is None:
                        loop.turn()
                    self._front.part("it has ended")
                except (CoreFault, Exception) as fault:  # in the loop nobody is left to handle it
                    self._broke_down(fault)
            finally:
                self._front.close()
                if self._zap is not None:
                    self._zap.close()
                self._entrance.close()
                self._back.close()
                self._gpu_monitor.close()
                self._quarantine.close(DISK_S)
                self._footprints.close(DISK_S)
                self._recorder.shelf.close(DISK_S)

    @property
    def _plan(self) -> Plan:
        return self._reconciler.plan

    # --- the loop -----------------------------------------------------------------------------------------------

    def _loop(self) -> Loop:
        """All that is read in a turn is dispatched at once."""
        return Loop(Watch(self._plan.settings.advanced.spin_s), self._alarms, self._tell.dispatch)

    def _register(self, loop: Loop, pipe: SignalPipe, parent_fd: int | None, finishes: bool) -> None:
        """What there is from the beginning to the end. Workers come and go by `Supervisor`."""
        Gates([*(each.gate for each in self._front.endpoints), self._back.gate], loop)
        for index, endpoint in enumerate(self._front.endpoints):
            loop.register(endpoint.socket, partial(self._tell.hear_clients, index))
        loop.register(self._back.socket, self._tell.hear_workers)
        if self._zap is not None:
            loop.register(self._zap.socket, self._zap.turn)
        for fd in self._front.fds():
            loop.register(fd, self._front.on_readable)
        loop.register(pipe.fd, partial(self._heed, pipe))
        loop.register(self._written.fd, self._let_go)
        loop.register(self._reconciler.bell.fd, self._reconciler.on_rung)
        if parent_fd is not None:
            loop.register(parent_fd, partial(self._orphaned, loop, parent_fd, finishes))

    def _begin(self) -> None:
        self._machine.timers.wake = self._core_turn.by
        self._entrance.start()
        self._feed(Start())
        self._tick()
        self._tell_alive()
        self._tell_progress()

    def _look_at_jobs(self) -> None:
        """Where some have ended, a slot may have its turn."""
        if self._machine.ended != self._ended:
            self._ended = self._machine.ended
            self._plan_turn.soon()

    def _orphaned(self, loop: Loop, parent_fd: int, finishes: bool) -> None:
        loop.unregister(parent_fd)
        for _ in range(1 if finishes else 2):  # twice is at once: nobody is left who wants a drain
            self._feed(StopAsked("the program that started this pool has ended"))

    def _tend_front(self) -> None:
        if (question := self._front.next_question()) is not None:
            self._admin.answer(question)
        now = time.monotonic()
        for heard in self._front.tend(now):  # the jobs come before the events
            if isinstance(heard, tuple):
                self._tell.arrived(*heard, now)
            else:
                self._feed(heard)
        self._tell.dispatch()  # jobs that were compared with quarantined ones may have arrived

    def _tell_of_segments(self) -> None:
        self._handouts.closed(self._shared_memory.closed())
        if self._handouts.is_behind:
            self._memory_turn.by(time.monotonic() + TELL_S)

    def _tick(self) -> None:
        """Each event lets the core's timers fire as well, so mostly there is nothing left to do."""
        due = self._machine.next_deadline()
        if due is not None and due <= time.monotonic():
            self._feed(Tick())
            due = self._machine.next_deadline()
        if due is not None:
            self._core_turn.by(due)

    def _tend_plan(self) -> None:
        self._reconciler.roll_on()
        self._end_if_over()
        self._reconciler.tend()
        self._tell.ended = self._look_at_jobs if self._reconciler.awaits_jobs else None

    def _tell_progress(self) -> None:
        """Of the start, a second at a time, if a person looks at it."""
        slots = [slot for slot in self._machine.fleet.slots if slot.models]
        if self._reconciler.has_served or self._machine.fleet.stopping:
            logs.show("")
            return
        now = time.monotonic()
        ready = sum(slot.state is SlotState.READY for slot in slots)
        rest = [
            f"slot {slot.number} {self._plan.devices[slot.number].label}: {doing(slot, now) or slot.state.name}"
            for slot in slots
            if slot.state is not SlotState.READY
        ]
        if logs.show(f"{ready} of {len(slots)} slots READY · {'; '.join(rest)}"):
            self._progress_turn.by(now + PROGRESS_S)

    def _tell_alive(self) -> None:
        now = time.monotonic()
        self._notifier.alive(now)
        due = self._notifier.next_alive(now)
        if due is not None:
            self._notifier_turn.by(due)

    def _measure(self, beat: WorkerBeat) -> None:
        """How much memory the worker holds, if that is of interest."""
        if self._plan.policy.recycle_bytes is None:
            return
        pid = self._supervisor.pid(beat.slot, beat.incarnation)
        held = None if pid is None else resident_bytes(pid)
        if held is not None:
            self._feed(WorkerMeasured(beat.slot, beat.incarnation, held))  # it comes after the beat

    def _hand(self, slot: int, incarnation: int, segment: Segment) -> bool:
        return self._supervisor.grant(slot, incarnation, Grant(segment.number, segment.size_bytes), segment.fd)

    def _end_segment(self, slot: int, incarnation: int, segment: int) -> bool:
        return self._supervisor.grant(slot, incarnation, Grant(segment, 0), None)

    def _welcome(self, slot: int, incarnation: int, hold: bool = False) -> Welcome:
        """`hold`: it is to stand by, so it touches no device yet."""
        device = None if hold else self._supervisor.device_wait(slot, incarnation)
        return replace(self._reconciler.welcome(slot), judged=self._machine.judged(slot), hold=hold, device=device)

    def _feed(self, event: Event) -> None:
        if isinstance(event, StopAsked):
            self._stopping(event.reason)
            # The unit's time-out may be of another `drain_timeout`.
            self._notifier.extend(self._entrance.longest_stop_s + self._plan.policy.longest_stop_s)
            self._entrance.stop(event, at_once=self._machine.fleet.stopping)
            return
        if isinstance(event, WorkerExited):  # what it tells the core comes first
            if not self._is_lost(event.slot):
                event = replace(event, death=self._reconciler.died(event.slot, event.incarnation, event.death))
            elif not event.death.restartable:
                self._reconciler.lost()
        self._tell(event)

    def _prepare(self, event: Event, now: float) -> None:
        """What has to be known before the core hears of the event."""
        if isinstance(event, WorkerExited):
            # First: the core takes away what its worker held.
            self._back.forget(event.slot, event.incarnation)
            self._slot_log.exits(event, self._machine.fleet.slots[event.slot])
            self._recorder.died(event, self._supervisor.trace(event.slot, event.incarnation), now)
            self._handouts.exited((event.slot, event.incarnation))
        elif isinstance(event, WorkerBeat):
            self._recorder.beat(event, now)
            self._measure(event)

    def _end_if_over(self) -> None:
        if not self._machine.fleet.over:
            self._end = None
        elif not self._reconciler.tries_again:
            self._stopped = self._end

    def _device_held(self, slot: int, incarnation: int, held: DeviceHeld) -> None:
        self._supervisor.device_held(slot, incarnation, held)
        model, size_bytes = self._plan.weighs(slot), held.size_bytes
        if model is not None and size_bytes:
            device = self._plan.devices[slot]
            self._slot_log.weighed(slot, model.name, size_bytes)
            self._footprints.learn(model, self._plan.settings.pool.lanes, device.name, size_bytes)

    def _stopping(self, reason: str) -> None:
        jobs = len(self._machine.backlog.jobs)
        if self._machine.fleet.stopping or self._entrance.stops:
            said = f"stopping at once: {reason}; {_count(jobs)} given up"
        elif jobs:
            said = f"stopping: {reason}; {_count(jobs)} to finish; a second signal ends the pool at once"
        else:
            said = f"stopping: {reason}"
        log.info("%s", said, extra=about("stopping", reason=reason, unfinished=jobs))
        self._notifier.stopping(said)

    # --- orders -------------------------------------------------------------------------------------------------

    def _act(self, action: do.Action) -> None:
        match action:
            case do.FailJob(client, job, failed):
                self._front.failed(client, job, failed, self._kept_in.pop((client, job), None))
            case do.JudgeRows(slot, incarnation, judged):
                self._back.tell(slot, incarnation, judged)
            case do.EndSessions(slot, incarnation, owner):
                self._back.tell(slot, incarnation, EndSessions(owner))
            case do.UnpackChunk():
                self._front.unpacked(action)
            case do.KeepJob():
                self._keep(action)
            case do.Notice(text):
                log.warning("%s", text, extra=about("model_notice"))
            case do.SpawnWorker() | do.SpawnReplacement() | do.SpawnStandby():
                self._feed(self._supervisor.spawn(action))
            case do.WelcomeWorker():
                self._back.welcome(action.slot, action.incarnation, self._welcome(action.slot, action.incarnation))
            case do.HoldWorker(slot, incarnation):
                self._back.welcome(slot, incarnation, self._welcome(slot, incarnation, hold=True))
            case do.TakeSlot(slot, incarnation):
                self._back.take_slot(slot, incarnation, self._welcome(slot, incarnation))
            case do.StopWorker():
                if not self._back.tell(action.slot, action.incarnation, Stop()):
                    self._supervisor.hang_up(action.slot, action.incarnation)
            case do.KillWorker():
                self._recorder.killed(action, time.monotonic())
                self._supervisor.kill(action.slot, action.incarnation, stacks=action.stacks)
            case do.SlotChanged():
                self._slot_changed(action)
            case do.WorkerChanged():
                self._slot_log.beside(action)
                self._reconciler.changed(action)
            case do.PoolReady(serving, slots):
                self._reconciler.serves()
                self._tell_progress()
                self._notifier.ready(f"{serving} of {slots} slots serve{without(self._unloadable)}")
                self._on_ready(serving, slots, self._unloadable)
            case do.PoolStopped():
                self._end = action
                self._plan_turn.soon()

    def _unsent(self, batch: Batch) -> None:
        self._feed(BatchUnsent(batch.slot, batch.incarnation, batch.number))

    def _keep(self, kept: do.KeepJob) -> None:
        whole: Inputs = kept.payload  # type: ignore[assignment]  # as `Front` gave it to the core
        regions = whole.regions
        if regions is not None and regions.is_over:  # nobody waits for it, and its memory may hold another job
            return
        self._front.quarantined(whole, time.monotonic())
        job = KeptJob(kept.model, kept.signature, kept.outputs, kept.rows, kept.history, (), kept.job)
        if regions is not None:  # its client uses it for something else only when this is on the disk
            regions.hold()

        def over() -> None:
            self._kept.append(regions)
            self._written.ring()

        path = self._quarantine.keep(job, [whole.table, *map(memory_of, whole.buffers)], over)
        if path is not None:
            self._kept_in[kept.client, kept.number] = path

    def _let_go(self) -> None:
        """Of the memory that clients were lent and that has been written to the disk."""
        self._written.hush()
        while self._kept:
            regions = self._kept.popleft()
            if regions is not None:
                regions.let_go()

    def _slot_changed(self, change: do.SlotChanged) -> None:
        if change.state in DOWN:
            self._back.forget(change.slot, change.incarnation)
        self._recorder.changed(change, time.monotonic())
        if change.state is SlotState.FATAL:
            self._record_stuck(change)
        recorded = change.state in DOWN and self._recorder.has(change.slot, change.incarnation)
        self._notify(self._slot_log.changed(change, self._machine.fleet.slots[change.slot], recorded))
        self._reconciler.changed(change)

    def _is_lost(self, slot: int) -> bool:
        return self._supervisor.is_lost(slot)

    def _record_stuck(self, change: do.SlotChanged) -> None:
        """One that SIGKILL does not end is as good as dead, and what it is stuck in may be gone by the time it is."""
        trace = self._supervisor.trace(change.slot, change.incarnation)
        if trace is not None and trace.status is None:
            gone = WorkerExited(change.slot, change.incarnation, Death("did not die of SIGKILL", restartable=True))
            self._recorder.died(gone, trace, time.monotonic())

    def _notify(self, change: str) -> None:
        """The service manager is told how many slots serve; until the first do, that it has to wait, and what for."""
        planned = [slot for slot in self._machine.fleet.slots if slot.models]
        if self._machine.fleet.stopping:
            self._notifier.status(f"stopping; {change}")
        elif self._reconciler.has_served:
            serving = sum(slot.state is SlotState.READY for slot in planned)
            needed = restart_needed(self._machine)
            note = "" if needed is None else f"{needed}; "
            left_out = without(self._unloadable)
            self._notifier.status(f"{serving} of {len(planned)} slots serve{left_out}; {note}last: {change}")
        else:
            longest_s = self._plan.policy.longest_start_s(max((len(slot.models) for slot in planned), default=1))
            self._notifier.extend(longest_s)
            self._notifier.status(f"starting; {change}")

    @property
    def _unloadable(self) -> list[str]:
        return sorted(self._plan.policy.unloadable)

    def _about(self) -> dict[str, Any]:
        """What the status says of the pool as a whole."""
        return {
            "version": self._version,
            "instance": self._instance.hex(),
            "pid": os.getpid(),
            "endpoint": self._plan.endpoint,
            "uptime_s": time.monotonic() - self._started,
            "refused": dict(self._front.refused),
            "unread_bytes": self._front.unread_bytes,
            "call_bytes": self._front.call_bytes,
            "chunk_bytes": self._machine.backlog.record_bytes,
            "lent_bytes": self._shared_memory.lent_bytes,
            "segments": self._shared_memory.segments,
            "lendable_bytes": self._shared_memory.most_bytes,
            "clients": self._front.clients,
            "dropped": dict(self._back.dropped),
            "gateway": self._entrance.status(),
            **self._reconciler.status(),
        }

    # --- its own fault ------------------------------------------------------------------------------------------

    def _broke_down(self, fault: BaseException) -> None:
        """Writes down what happened, ends the workers, and has the clients look for another pool.

        Whatever of this fails, the rest is done; all of it takes a few seconds.
        """
        self._broken = BrokeDown(f"the pool broke down: {fault if isinstance(fault, CoreFault) else repr(fault)}")
        cause = fault.__cause__ or fault
        log.critical("%s", self._broken.reason, exc_info=cause, extra=about("broke_down", error=type(cause).__name__))

        def write_down() -> None:
            began_with, seed = self._began_with, self._instance
            report = fault_report(fault, self._tell.last, self._machine, began_with, seed, self._whose)
            self._recorder.shelf.put_fault(report)

        steps: tuple[Callable[[], None], ...] = (
            self._entrance.kill,
            self._supervisor.kill_all,
            write_down,
            lambda: self._notifier.stopping("the pool broke down; see its log"),
            lambda: self._front.part("it has broken down", unread=False),
            lambda: self._supervisor.await_exits(KILL_S),
        )
        for step in steps:
            try:
                step()
            except (CoreFault, Exception) as error:
                log.critical("… and then: %s: %s", type(error).__name__, error, extra=about("broke_down_further"))

    # --- the configuration, again ---------------------------------------------------------------------------------

    def _opened(self) -> wire.Opened:
        policy = self._plan.policy
        return wire.Opened(self._version, policy.max_bytes, policy.default_timeout_s)

    def _heed(self, pipe: SignalPipe) -> None:
        pipe.drain()
        while self._signals:
            self._signalled(self._signals.popleft())

    def _signalled(self, name: str) -> None:
        if name == "SIGHUP" and self._reload_on_hangup:
            self._reconciler.ask("reload", "", None)
        else:
            self._feed(StopAsked(f"{name} came"))

    def _adopt(self, plan: Plan) -> None:
        policy = plan.policy
        self._front.adopt(self._opened(), policy.max_jobs, Standings(plan.settings.client))
        self._shared_memory.adopt(
            plan.settings.shared_memory.max_bytes or 0, plan.settings.shared_memory.client_max_bytes
        )
        self._supervisor.adopt(policy.device_free_timeout_s)
        self._entrance.adopt(plan.settings.gateway_message(plan.endpoint))
        self._quarantine.adopt(plan.settings.quarantine.keep or 0, plan.settings.quarantine.max_bytes)
        self._recorder.shelf.adopt(plan.settings.crash_reports.keep or 0, plan.settings.crash_reports.max_bytes)


def _count(jobs: int) -> str:
    return "1 job is" if jobs == 1 else f"{jobs} jobs are"
