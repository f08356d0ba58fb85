"""The workers: each slot's process, from its start to its end, and what it says on its link.

A slot's `pool.core.slots.Slot` says what is to be done and when; this file does it. A worker's jobs run again only
after its exit was seen, for until then it may write into their memory.
"""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from pool.config import Config
from pool.core.jobs import Worker as CoreWorker
from pool.core.scheduler import Scheduler
from pool.core.slots import Slot, SlotState
from pool.devices import Device, cpu_share, environment
from pool.serve.process import Process, exit_text
from pool.wire import RELEASE, WIRE
from pool.wire.exits import FINAL
from pool.wire.signatures import Signature
from pool.wire.specs import BadMessage

__all__ = ["Fleet", "ModelFacts", "Seat", "Worker"]

LOOK_S = 1.0  # between two looks at workers whose link says nothing
EXIT_LOOK_S = 0.002  # once the link has ended, the exit follows at once
SILENT_S = 20.0
STACKS_S = 0.3  # for the signal handler of a hung worker
STOP_S = 5.0
MOST_SIGNATURES = 4096

log = logging.getLogger("pool.serve")


@dataclass(eq=False)
class ModelFacts:
    """What workers have said of a model; the one that became READY last."""

    settings: Mapping[str, Any]
    signatures: dict[str, dict[str, Any]] = field(default_factory=dict)
    is_stateful: bool = False
    left_out: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)
    """By slot, why it could not be loaded there."""


@dataclass(eq=False)
class Worker:
    """One incarnation: a process, and what the scheduler knows of it."""

    process: Process
    seat: "Seat"
    core: CoreWorker | None = None
    """Once it is READY."""
    routes: set[bytes] = field(default_factory=set)
    arenas: set[int] = field(default_factory=set)
    """That it was sent."""
    loaded: dict[str, dict[str, Any]] = field(default_factory=dict)
    signatures: dict[str, dict[str, Any]] = field(default_factory=dict)
    phase: str = "import"
    heard_at: float = 0.0
    ending: str = ""
    """Its own last words."""
    killed_for: str = ""
    link_ended: bool = False


@dataclass(eq=False)
class Seat:
    """A slot, its device and its models."""

    slot: Slot
    device: Device
    models: list[str]
    worker: Worker | None = None
    jobs: int = 0
    """That its workers have answered."""


class Fleet:
    def __init__(
        self,
        config: Config,
        seats: Sequence[tuple[Device, list[str]]],
        scheduler: Scheduler,
        address: str,
        state: Path,
        watch: Callable[[int, Callable[[], None]], None],
        forget: Callable[[int], None],
    ) -> None:
        """`watch(descriptor, call)` has the loop call when there is something to read, until `forget`."""
        self._config, self._scheduler, self._address, self._state = config, scheduler, address, state
        self._watch, self._forget = watch, forget
        bounds = config.restart.intensity, config.restart.period
        self.seats = [Seat(Slot(number, *bounds), device, models) for number, (device, models) in enumerate(seats)]
        self.models = {each.name: ModelFacts(each.model_dump()) for each in config.model}
        self.by_token: dict[bytes, Worker] = {}
        self.by_core: dict[CoreWorker, Worker] = {}
        self.changed: Callable[[], None] = lambda: None
        """Called when a model is READY, or cannot be."""
        self.gone: Callable[[Worker], None] = lambda _: None
        """Called when a worker's exit was seen, before its jobs run again."""
        self.deaths: list[str] = []
        self._ending: list[Worker] = []
        """Their link has ended, their exit was not seen."""
        self._condemned: list[tuple[float, Worker]] = []
        """Hung workers that write their stacks, and when they are killed."""
        self._look_at = 0.0
        self.next_look = 0.0
        self._share = cpu_share([device for device, _ in seats])

    # --- time ---------------------------------------------------------------------------------------------------

    def start(self, now: float) -> None:
        for seat in self.seats:
            self._start(seat, now)
        self._plan(now)

    def _plan(self, now: float) -> None:
        """When to look next: asked each turn, so it is worked out only when something has changed."""
        due = min([seat.slot.due for seat in self.seats], default=inf)
        condemned = self._condemned[0][0] if self._condemned else inf
        self.next_look = min(due, now + EXIT_LOOK_S if self._ending else inf, condemned, self._look_at)

    def look(self, now: float) -> None:
        """Does what is due: starts, kills, exits that were not heard of."""
        self._execute(now)
        for ending in [*self._ending]:
            self._look_for_exit(ending, now)
        if now >= self._look_at:
            late_s = now - self._look_at if self._look_at else 0.0
            self._look_at = now + LOOK_S
            for seat in self.seats:
                if (worker := seat.worker) is not None:
                    self._look_for_exit(worker, now)
                    if late_s > LOOK_S:
                        worker.heard_at = now  # the pool itself stood still, and its beats wait unread
                    elif self._is_silent(worker, now):
                        self.kill(worker, f"it has said nothing for {SILENT_S:.0f} s", now)
        for seat in self.seats:
            if now >= seat.slot.due:
                self._overdue(seat, now)
        self._plan(now)

    def _is_silent(self, worker: Worker, now: float) -> bool:
        """Imports and loads hold Python's lock for long, and a batch has a budget of its own."""
        return worker.core is not None and not worker.core.running and now - worker.heard_at > SILENT_S

    def _overdue(self, seat: Seat, now: float) -> None:
        match seat.slot.overdue(now):
            case SlotState.STARTING:  # BACKOFF → STARTING
                self._start(seat, now)
            case SlotState.STOPPING if seat.worker is not None:
                self.kill(seat.worker, f"it was still in {seat.worker.phase} when its time was over", now)
            case SlotState.STUCK:
                log.error("slot %d is STUCK: its process was killed and does not end", seat.slot.number)

    # --- a worker's life ----------------------------------------------------------------------------------------

    def _start(self, seat: Seat, now: float) -> None:
        slot = seat.slot
        slot.start(now, self._config.health.import_timeout)
        dumped = self._config.tensorflow.model_dump()
        try:
            process = Process(environment(seat.device, os.environ, dumped, self._share))
        except OSError as error:
            log.error("slot %d: no process could be started: %s", slot.number, error)
            slot.exited(now, f"no process could be started: {error}", held_jobs=False)
            return
        worker = seat.worker = Worker(process, seat, heard_at=now)
        self.by_token[process.token] = worker
        device = seat.device
        try:
            process.link.send(
                {
                    "wire": WIRE,
                    "release": RELEASE,
                    "token": process.token,
                    "address": self._address,
                    "slot": slot.number,
                    "device": {
                        "kind": device.kind,
                        "uuids": device.uuids,
                        "label": device.label,
                        "count": len(device.uuids),
                    },
                    "lanes": self._config.pool.lanes,
                    "tensorflow": dumped,
                    "state": str(self._state),
                    "models": len(seat.models),
                }
            )
            for name in seat.models:
                process.link.send({"model": self.models[name].settings})
        except (OSError, BadMessage) as error:
            worker.killed_for = f"it could not be told what to do: {error}"
            process.kill()
        self._watch(process.link.fileno(), lambda: self.hear(worker))
        self._watch(process.output, lambda: self._read(worker))

    def hear(self, worker: Worker) -> None:
        """All that its link has now."""
        now = time.monotonic()
        try:
            while not worker.link_ended:
                said = worker.process.link.receive()
                if said is None:
                    self._link_ended(worker, now)
                    break
                worker.heard_at = now
                self._told(worker, said[0], now)
        except BlockingIOError:
            pass
        except Exception as error:  # whatever it says costs this worker its life, and nobody else anything
            self.kill(worker, f"it said what no worker says: {type(error).__name__}: {error}", now)
        self._plan(now)

    def _told(self, worker: Worker, message: Mapping[str, Any], now: float) -> None:
        seat = worker.seat
        slot = seat.slot
        match message:
            case {"beat": True}:
                pass
            case {"phase": str(phase), "model": str(model)}:
                budgets = self._config.health
                budget_s = budgets.load_timeout if phase == "load" else budgets.warmup_timeout
                worker.phase = f"{phase} of {model}"
                if slot.state in (SlotState.STARTING, SlotState.LOADING):
                    slot.step(SlotState.LOADING, now, budget_s)
            case {"failed": [str(model), str(text)]}:
                if model in self.models:
                    self.models[model].failed[slot.number] = text
                    log.error("slot %d: %s", slot.number, text)
            case {"signature": [str(model), str(name), dict(record)]} if len(worker.signatures) < MOST_SIGNATURES:
                Signature.from_record(record)
                worker.signatures.setdefault(model, {})[name] = record
            case {"model": str(model), "is_stateful": bool(), "left_out": dict(), "notes": list()}:
                if model not in seat.models:
                    raise BadMessage(f"no model {model!r} was asked for")
                worker.loaded[model] = dict(message)
            case {"ready": True} if worker.core is None and slot.state is SlotState.LOADING and worker.loaded:
                self._ready(worker, now)
            case {"ending": str(text)}:
                worker.ending = text
            case _:
                raise BadMessage(f"{message!r:.200}")

    def _ready(self, worker: Worker, now: float) -> None:
        seat = worker.seat
        for name, said in worker.loaded.items():
            facts = self.models[name]
            facts.signatures = worker.signatures.get(name, {})
            facts.left_out = {str(key): str(text) for key, text in said["left_out"].items()}
            facts.notes = [str(note) for note in said["notes"]]
            facts.failed.pop(seat.slot.number, None)
            stateful = facts.settings["stateful"]
            facts.is_stateful = said["is_stateful"] if stateful is None else stateful
            if facts.is_stateful:
                self._scheduler.set_stateful(name)
            for note in facts.notes:
                log.info("slot %d: model %s: %s", seat.slot.number, name, note)
        worker.core = self._scheduler.worker_comes(seat.slot.number, list(worker.loaded))
        self.by_core[worker.core] = worker
        seat.slot.step(SlotState.READY, now)
        worker.phase = "ready"
        log.info("slot %d is READY on %s: %s", seat.slot.number, seat.device.label, ", ".join(worker.loaded))
        self.changed()

    def lane_comes(self, worker: Worker, route: bytes) -> None:
        """The link is read first: READY was sent before the lane's JOIN, on another socket."""
        self.hear(worker)
        if worker.core is None or len(worker.routes) >= self._config.pool.lanes:
            raise BadMessage("a lane of a worker that is not READY, or one too many")
        worker.routes.add(route)
        self._scheduler.lane_comes(worker.core, route)

    def kill(self, worker: Worker, reason: str, now: float, is_hung: bool = False) -> None:
        """Stacks if it hangs, then SIGKILL. What follows, follows from its exit."""
        if worker.killed_for:
            return
        worker.killed_for = reason
        slot = worker.seat.slot
        log.error("slot %d: worker %d is killed: %s", slot.number, worker.process.pid, reason)
        if worker.core is not None:
            self._scheduler.close(worker.core)
        if slot.state is not SlotState.STUCK:
            slot.kill(now)
        if is_hung:
            worker.process.ask_stacks()
            self._condemned.append((now + STACKS_S, worker))
        else:
            worker.process.kill()
        self._plan(now)

    def _execute(self, now: float) -> None:
        """Kills hung workers that have had their time to write their stacks."""
        for due, worker in [*self._condemned]:
            if due <= now:
                self._condemned.remove((due, worker))
                for line in worker.process.stacks().splitlines():
                    log.error("slot %d: %s", worker.seat.slot.number, line)
                worker.process.kill()

    def _link_ended(self, worker: Worker, now: float) -> None:
        worker.link_ended = True
        self._forget(worker.process.link.fileno())
        self._ending.append(worker)
        self._look_for_exit(worker, now)

    def _look_for_exit(self, worker: Worker, now: float) -> None:
        status = worker.process.poll()
        if status is not None:
            self._exited(worker, status, now)
        elif worker.link_ended and not worker.killed_for and now - worker.heard_at > STOP_S:
            self.kill(worker, "its link ended, and it did not", now)

    def _exited(self, worker: Worker, status: int, now: float) -> None:
        seat = worker.seat
        if not worker.link_ended:
            self.hear(worker)  # its last words
            if seat.worker is not worker:
                return  # its link's end was among them, and with it this exit
            if not worker.link_ended:
                worker.link_ended = True
                self._forget(worker.process.link.fileno())
        if worker in self._ending:
            self._ending.remove(worker)
        self._read(worker)
        self._forget(worker.process.output)
        seat.worker = None
        del self.by_token[worker.process.token]
        reason = worker.killed_for or ": ".join(filter(None, (exit_text(status), worker.ending)))
        held = bool(worker.core and worker.core.running)
        self.gone(worker)
        if worker.core is not None:
            del self.by_core[worker.core]
            self._scheduler.worker_died(worker.core, reason, now)
        # After READY an exit status may be the model's own `exit()`, so it says nothing.
        is_restartable = worker.core is not None or status not in FINAL
        if not seat.slot.is_wanted:
            log.info("slot %d: worker %d has ended", seat.slot.number, worker.process.pid)
        else:
            log.error("slot %d: worker %d died: %s", seat.slot.number, worker.process.pid, reason)
            self.deaths = [*self.deaths[-99:], f"slot {seat.slot.number}: {reason}"]
        seat.slot.exited(now, reason, held, is_restartable)
        worker.process.close()
        if seat.slot.state is SlotState.FATAL:
            log.error("slot %d is FATAL: %s", seat.slot.number, reason)
            self.changed()

    def _read(self, worker: Worker) -> None:
        lines = worker.process.read()
        if lines is None:
            self._forget(worker.process.output)
            return
        for line in lines:
            if line.strip():
                log.info("slot %d: %s", worker.seat.slot.number, line[:1000])

    # --- the end ------------------------------------------------------------------------------------------------

    def stop(self, now: float) -> None:
        """All are told to end. REQUIRES that they run nothing that is still wanted."""
        for seat in self.seats:
            seat.slot.stop(now, STOP_S)
            if (worker := seat.worker) is not None and not worker.link_ended:
                try:
                    worker.process.link.send({"stop": True})
                except OSError:
                    worker.process.kill()
        self._plan(now)

    def kill_all(self) -> None:
        for seat in self.seats:
            if seat.worker is not None:
                seat.worker.process.kill()

    @property
    def is_empty(self) -> bool:
        return all(seat.worker is None for seat in self.seats)
