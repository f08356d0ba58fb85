"""The workers: each slot's process, from its start to its end, and what it says on its link.

A slot's `pool.core.slots.Slot` says what is to be done and when; this file does it. A worker's jobs run again only
after its exit was seen, for until then it may write into their memory.
"""

import logging
import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from selectors import EVENT_READ, EpollSelector
from typing import Any

from pool.config import Config
from pool.core.jobs import Worker as CoreWorker
from pool.core.scheduler import Scheduler
from pool.core.slots import Slot, SlotState
from pool.devices import Device, cpu_share, environment, merged
from pool.devices.monitor import Monitor
from pool.serve.worker import Seat, Worker, exit_text
from pool.wire import RELEASE, WIRE
from pool.wire.exits import FINAL
from pool.wire.signatures import Signature
from pool.wire.specs import BadMessage

LOOK_S = 1.0  # between two looks at workers whose link says nothing
EXIT_LOOK_S = 0.002  # once the link has ended, the exit follows at once
SILENT_S = 20.0
STACKS_S = 0.3  # for the signal handler of a hung worker
STOP_S = 5.0
MOST_SIGNATURES = 4096
COMING = (SlotState.STARTING, SlotState.LOADING)

log = logging.getLogger("pool.serve")


class Fleet:
    def __init__(
        self,
        config: Config,
        seats: Sequence[tuple[Device, list[str]]],
        scheduler: Scheduler,
        address: str,
        state: Path,
        sources: EpollSelector,
        peers: dict[bytes, Any],
        monitor: Monitor,
    ) -> None:
        """`sources`: what the loop reads, each with what it calls. `peers`: by token and by route."""
        self._config, self._scheduler, self._address, self._state = config, scheduler, address, state
        self._sources, self._peers, self.monitor = sources, peers, monitor
        self._levels: dict[str, int] = {}  # by uuid, the bytes in use there before the first worker
        bounds = config.restart.intensity, config.restart.period
        self.seats = [Seat(Slot(number, *bounds), device, models) for number, (device, models) in enumerate(seats)]
        self.models: dict[str, dict[str, Any]] = {
            each.name: {"name": each.name, "path": each.path, "batching": each.batching, "is_stateful": False}
            | {"signatures": {}, "left_out": {}, "notes": []}
            for each in config.model
        }
        """What the worker that became READY last has said of each."""
        self.workers: dict[CoreWorker, Worker] = {}  # those that are READY
        self.deaths: list[str] = []
        self.has_news = True
        """A slot has come up or gone since somebody set this to False."""
        self.next_look = 0.0
        self._share = cpu_share([device for device, _ in seats])

    # --- what it knows ------------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """STARTING until all slots have come up or failed, then READY, or DEGRADED if something is missing."""
        if not self._scheduler.is_taking:
            return "DRAINING"
        if any(seat.slot.state in COMING and seat.slot.incarnation == 1 for seat in self.seats):
            return "STARTING"
        is_whole = all(seat.slot.state is SlotState.READY and not seat.failed for seat in self.seats)
        return "READY" if is_whole else "DEGRADED"

    def serving(self, model: str) -> list[int]:
        """The slots that do."""
        return [
            seat.slot.number
            for seat in self.seats
            if seat.slot.state is SlotState.READY and seat.worker is not None and model in seat.worker.loaded
        ]

    def why_unserved(self, model: str) -> str:
        """Why no slot will serve it; "" as long as one does or may."""
        why = "no slot has it among its models"
        for seat in [seat for seat in self.seats if model in seat.models]:
            failed, slot = seat.failed.get(model), seat.slot
            if slot.state is SlotState.FATAL:
                why = failed or f"slot {slot.number} is FATAL: {slot.reason}"
            elif failed and seat.worker is not None and seat.worker.core is not None:
                why = failed
            else:
                return ""
        return why

    # --- time ---------------------------------------------------------------------------------------------------

    def look(self, now: float) -> None:
        """Does what is due. Whatever changes sets `next_look` to now, so that this plans anew."""
        stood_still = now - self.next_look > LOOK_S
        due = now + LOOK_S
        for seat in self.seats:
            if (worker := seat.worker) is not None:
                if stood_still:
                    worker.heard_at = now  # its beats wait unread
                self._look_at(worker, now)
            if now >= seat.slot.due:
                self._overdue(seat, now)
            due = min(due, seat.slot.due)
            if (worker := seat.worker) is not None:
                is_ending = worker.link_ended and seat.slot.state is not SlotState.STUCK
                due = min(due, worker.dies_at, now + EXIT_LOOK_S if is_ending else inf)
        self.next_look = due

    def _look_at(self, worker: Worker, now: float) -> None:
        """For its exit, or for a reason to kill it."""
        if worker.dies_at <= now:
            worker.dies_at = inf
            for line in worker.stacks():
                log.error("slot %d: %s", worker.seat.slot.number, line)
            worker.kill()
        if (status := worker.poll()) is not None:
            self._exited(worker, status, now)
        elif worker.link_ended and now - worker.heard_at > STOP_S:
            self.kill(worker, "its link ended, and it did not", now)
        elif worker.core is not None and not worker.core.running and now - worker.heard_at > SILENT_S:
            # Imports and loads hold Python's lock for long, and a batch has a budget of its own.
            self.kill(worker, f"it has said nothing for {SILENT_S:.0f} s", now)

    def _overdue(self, seat: Seat, now: float) -> None:
        match seat.slot.overdue(now):
            case SlotState.STARTING:  # BACKOFF → STARTING
                self.start(seat, now)
            case SlotState.STOPPING if seat.worker is not None:
                self.kill(seat.worker, f"it was still in {seat.worker.phase} when its time was over", now)
            case SlotState.STUCK:
                log.error("slot %d is STUCK: its process was killed and does not end", seat.slot.number)

    # --- a worker's life ----------------------------------------------------------------------------------------

    def start(self, seat: Seat, now: float) -> None:
        slot, device = seat.slot, seat.device
        slot.start(now, self._config.health.import_timeout)
        models = [each for each in self._config.model if each.name in seat.models]
        demands = {each.name: each.tensorflow.model_dump(exclude_unset=True) for each in models}
        tensorflow = merged(self._config.tensorflow.model_dump(), device, demands)
        try:
            worker = seat.worker = Worker(seat, environment(device, os.environ, tensorflow, self._share), now)
        except OSError as error:
            log.error("slot %d: no process could be started: %s", slot.number, error)
            slot.exited(now, f"no process could be started: {error}", held_jobs=False)
            return
        self._peers[worker.token] = worker
        self._sources.register(worker.link.fileno(), EVENT_READ, lambda: self.hear(worker))
        self._sources.register(worker.output, EVENT_READ, lambda: self._read(worker))
        shown = {"kind": device.kind, "uuids": device.uuids, "label": device.label, "count": len(device.uuids)}
        welcome = {"wire": WIRE, "release": RELEASE, "token": worker.token, "address": self._address}
        welcome |= {"slot": slot.number, "device": shown, "lanes": self._config.pool.lanes, "tensorflow": tensorflow}
        welcome |= {"former": self._former(seat)}
        self.tell(worker, welcome | {"state": str(self._state), "models": len(seat.models)})
        for each in models:
            self.tell(worker, {"model": each.model_dump()})

    def _former(self, seat: Seat) -> dict[str, Any]:
        """The workers whose memory must be free first: those that NVML has listed, else the level before them."""
        uuids, gpus = seat.device.uuids, self.monitor.gpus
        for uuid in uuids:
            if uuid in gpus and (used := gpus[uuid].used_bytes) is not None:
                self._levels.setdefault(uuid, used)
        pids = [pid for pid in seat.former if pid in self.monitor.seen_pids]
        # Where several workers share a device, the level is theirs, too.
        has_level = seat.former and seat.device.workers == 1 and all(uuid in self._levels for uuid in uuids)
        return {"pids": pids, "level": {uuid: self._levels[uuid] for uuid in uuids} if has_level else None}

    def tell(self, worker: Worker, message: dict[str, Any], descriptor: int = -1) -> None:
        """A worker reads its link all the time, so one whose link is full hangs."""
        try:
            worker.link.send(message, descriptor)
        except (OSError, BadMessage) as error:
            if not worker.link_ended:
                self.kill(worker, f"its link takes no more: {error}", time.monotonic())

    def hear(self, worker: Worker) -> None:
        """All that its link has now."""
        now = time.monotonic()
        try:
            while not worker.link_ended:
                said = worker.link.receive()
                if said is None:
                    worker.link_ended, self.next_look = True, now
                    self._forget(worker.link.fileno())
                else:
                    worker.heard_at = now
                    self._told(worker, said[0], now)
        except BlockingIOError:
            pass
        except Exception as error:  # whatever it says costs this worker its life, and nobody else anything
            self.kill(worker, f"it said what no worker says: {type(error).__name__}: {error}", now)

    def _told(self, worker: Worker, message: Mapping[str, Any], now: float) -> None:
        seat, slot, budgets = worker.seat, worker.seat.slot, self._config.health
        match message:
            case {"beat": True}:
                pass
            case {"phase": "memory", "waits": str(what)} if seat.device.uuids:
                if slot.state in COMING and worker.phase == "import":
                    slot.step(SlotState.LOADING, now, budgets.memory_timeout)
                    self.next_look = now
                worker.phase = f"memory: waits for {what:.500}"
            case {"phase": "import"}:
                worker.phase = "import"
                seat.former.clear()
                if slot.state in COMING:
                    slot.step(SlotState.LOADING, now, budgets.import_timeout)
                    self.next_look = now
            case {"phase": "load" | "warm-up" as phase, "model": str(model)}:
                worker.phase = f"{phase} of {model}"
                if slot.state in COMING:
                    budget_s = budgets.load_timeout if phase == "load" else budgets.warmup_timeout
                    slot.step(SlotState.LOADING, now, budget_s)
                    self.next_look = now
            case {"failed": [str(model), str(text)]} if model in seat.models:
                seat.failed[model] = text
                log.error("slot %d: %s", slot.number, text)
            case {"signature": [str(model), str(name), dict(record)]} if len(worker.signatures) < MOST_SIGNATURES:
                Signature.from_record(record)
                worker.signatures[model, name] = record
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
        seat, number = worker.seat, worker.seat.slot.number
        stateful = {each.name: each.stateful for each in self._config.model}
        for name, said in worker.loaded.items():
            facts = self.models[name]
            facts["signatures"] = {each: record for (of, each), record in worker.signatures.items() if of == name}
            facts["left_out"], facts["notes"] = said["left_out"], said["notes"]
            facts["is_stateful"] = said["is_stateful"] if stateful[name] is None else stateful[name]
            if facts["is_stateful"]:
                self._scheduler.set_stateful(name)
            seat.failed.pop(name, None)
            for note in said["notes"]:
                log.info("slot %d: model %s: %s", number, name, note)
        worker.core = self._scheduler.worker_comes(number, list(worker.loaded))
        self.workers[worker.core] = worker
        seat.slot.step(SlotState.READY, now)
        worker.phase = "ready"
        log.info("slot %d is READY on %s: %s", number, seat.device.label, ", ".join(worker.loaded))
        self.has_news, self.next_look = True, now

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
        log.error("slot %d: worker %d is killed: %s", worker.seat.slot.number, worker.pid, reason)
        if worker.core is not None:
            self._scheduler.close(worker.core)
        worker.seat.slot.kill(now)
        if is_hung:
            with suppress(OSError):
                os.kill(worker.pid, signal.SIGUSR1)  # writes `stacks`
            worker.dies_at = now + STACKS_S
        else:
            worker.kill()
        self.next_look = now

    def _exited(self, worker: Worker, status: int, now: float) -> None:
        self.hear(worker)  # its last words
        seat, slot, core = worker.seat, worker.seat.slot, worker.core
        self._read(worker)
        self._forget(worker.link.fileno())  # a child of it may hold the other end open
        self._forget(worker.output)
        seat.worker = None
        if seat.device.uuids:
            seat.former.add(worker.pid)
        for key in (worker.token, *worker.routes):
            self._peers.pop(key, None)
        reason = worker.killed_for or ": ".join(filter(None, (exit_text(status), worker.ending)))
        held = bool(core and core.running)
        if core is not None:
            del self.workers[core]
            self._scheduler.worker_died(core, reason, now)
        # After READY an exit status may be the model's own `exit()`, so it says nothing.
        is_restartable = core is not None or status not in FINAL
        if slot.is_wanted:
            log.error("slot %d: worker %d died: %s", slot.number, worker.pid, reason)
            self.deaths = [*self.deaths[-9:], f"slot {slot.number}: {reason}"]
        else:
            log.info("slot %d: worker %d has ended", slot.number, worker.pid)
        slot.exited(now, reason, held, is_restartable)
        worker.close()
        if slot.state is SlotState.FATAL:
            log.error("slot %d is FATAL: %s", slot.number, reason)
        self.has_news, self.next_look = True, now

    def _read(self, worker: Worker) -> None:
        lines = worker.read()
        if lines is None:
            self._forget(worker.output)
        for line in lines or ():
            if line.strip():
                log.info("slot %d: %s", worker.seat.slot.number, line[:1000])

    def _forget(self, descriptor: int) -> None:
        with suppress(KeyError):  # it was forgotten at its end
            self._sources.unregister(descriptor)

    # --- the end ------------------------------------------------------------------------------------------------

    def stop(self, now: float) -> None:
        """All are told to end. REQUIRES that they run nothing that is still wanted."""
        for seat in self.seats:
            seat.slot.stop(now, STOP_S)
            if seat.worker is not None:
                self.tell(seat.worker, {"stop": True})
        self.next_look = now

    def kill_all(self) -> None:
        for seat in self.seats:
            if seat.worker is not None:
                seat.worker.kill()
