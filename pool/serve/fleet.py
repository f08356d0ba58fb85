"""The workers: each slot's process, from its start to its end, and what it says on its link.

A slot's `pool.core.slots.Slot` says what is to be done and when; this file does it. A worker's jobs run again only
after its exit was seen, for until then it may write into their memory.
"""

import logging
import os
import signal
import time
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from contextlib import suppress
from math import inf
from pathlib import Path
from selectors import EVENT_READ, EpollSelector
from typing import Any

from pool.config import Config
from pool.core.dispatcher import Policy
from pool.core.jobs import ModelPolicy
from pool.core.scheduler import Refused, Scheduler
from pool.core.slots import Slot, SlotState
from pool.devices import cpu_share, environment
from pool.devices.monitor import Monitor
from pool.plan.rollout import Phase, Seat
from pool.plan.wanted import Plan
from pool.serve.worker import PIPE_BYTES, READ_BYTES, Worker, exit_text
from pool.wire import FINAL, RELEASE, WIRE
from pool.wire.bodies import pack
from pool.wire.link import MOST_AT_ONCE, close_aside
from pool.wire.signatures import Signature, choice
from pool.wire.specs import BadMessage

LOOK_S = 1.0  # between two looks at workers whose link says nothing
EXIT_LOOK_S = 0.002  # once the link has ended, the exit follows at once
SILENT_S = 20.0
STACKS_S = 0.3  # for the signal handler of a hung worker
EXIT_S = 5.0  # from the end of the link to that of the process
DRAIN_LOOK_S = 0.01
OVERDUE = "when its time was over"
MOST_SIGNATURES = 4096
CHOICE_PAUSE = 20  # times as long as it takes to find the name that was meant, until the next search

log = logging.getLogger("pool.serve")


class Fleet:
    def __init__(
        self, plan: Plan, monitor: Monitor, scheduler: Scheduler, address: str, state: Path, sources: EpollSelector
    ) -> None:
        """`sources`: what the loop reads, each with what it calls."""
        self.monitor, self.scheduler, self.address = monitor, scheduler, address
        self._state, self._sources = state, sources
        self.peers: dict[bytes, Any] = {}  # workers and clients, by token, with which a route joins, and by route
        self._levels: dict[str, int] = {}  # by uuid, the bytes in use there before the first worker
        self._former: dict[int, set[int]] = {}  # by slot, pids of ended workers whose memory may not be free yet
        self.seats: list[Seat] = []
        self.turn: int | None = None  # the slot that is changed now: what it misses may come yet
        self.is_starting = True
        self.models: dict[str, dict[str, Any]] = {}  # planned or still served; with what the last READY worker said
        self.deaths: deque[tuple[float, int, str]] = deque(maxlen=10)  # the last ones: when, which slot, why
        self.death_causes: defaultdict[int, Counter[str]] = defaultdict(Counter)  # of all, by slot
        self.has_news = True  # a slot has come up or gone since somebody set this to False
        self.next_look = self._next_choice = 0.0
        self._share = cpu_share([plan.facts.devices[number] for number in plan.slots])
        self.adopt(plan)

    @property
    def config(self) -> Config:
        return self.plan.facts.config

    def adopt(self, plan: Plan) -> None:
        """From now on this is wanted. What it has no more is taken no more, and leaves with the last worker."""
        self.plan, scheduler, queue = plan, self.scheduler, plan.facts.config.queue
        hung_after = plan.facts.config.health.hung_after
        scheduler.policy = Policy(queue.max_jobs, queue.max_bytes, queue.max_attempts, hung_after)
        for name, model in plan.models.items():
            told, unknown = plan.settings(name), {"is_stateful": False, "signatures": {}, "left_out": {}, "notes": []}
            facts = self.models.setdefault(name, unknown)
            facts |= {"name": name, "path": told.get("path", model.path), "version": told.get("version", "")}
            facts["batching"] = model.batching
            if model.stateful is not None:
                facts["is_stateful"] = model.stateful
            policy = ModelPolicy(model.weight, model.max_batch, model.batch_wait or 0.0, facts["is_stateful"])
            scheduler.add_model(name, policy)
        self._forget_models()
        self.has_news = True

    def _forget_models(self) -> None:
        held = {name for seat in self.seats for name in seat.told["models"]}
        for name in self.models.keys() - self.plan.models.keys() - held:
            del self.models[name]
            self.scheduler.remove_model(name, f"the pool serves the model {name} no more")

    @property
    def state(self) -> str:
        """STARTING until all slots have come up or failed, then READY, or DEGRADED if something is missing."""
        if not self.scheduler.is_taking:
            return "DRAINING"
        if self.is_starting:
            return "STARTING"
        is_whole = all(seat.phase is not Phase.DOWN and not seat.failed for seat in self.seats)
        is_missing = self.plan.missing or any(map(self.why_unserved, self.plan.models))
        return "READY" if is_whole and not is_missing else "DEGRADED"

    def served_as(self, asked: str) -> str:
        """The name in `models` of what clients call `asked`. Raises `Refused`."""
        name = self.plan.aliases.get(asked)
        if name is not None:
            return name
        if why := self.plan.missing.get(asked):
            raise Refused("ModelFailed", why)
        began, known = time.monotonic(), "`pool models` shows those that there are"
        if began >= self._next_choice:
            known = choice(asked, [*self.plan.aliases, *self.plan.missing])
            self._next_choice = began + CHOICE_PAUSE * (time.monotonic() - began)
        raise Refused("ModelNotFound", f"the pool serves no model {asked!r:.80}; {known}")

    def serving(self, model: str) -> list[int]:
        """The slots that do."""
        return sorted({seat.number for seat in self.seats if seat.serves(model)})

    def why_unserved(self, model: str) -> str:
        """Why no slot will serve it; "" as long as one does or may."""
        why = self.plan.missing.get(model, "")
        for number, told in self.plan.slots.items():
            if model not in told["models"]:
                continue
            seats = [seat for seat in self.seats if seat.number == number and seat.told == told]
            if not seats or number == self.turn:
                return ""  # what is wanted comes yet
            for seat in seats:
                failed, slot = seat.failed.get(model), seat.slot
                if slot.state is SlotState.FATAL:
                    why = failed or f"slot {number} is FATAL: {slot.reason}"
                elif failed and (model in seat.left_out or (seat.worker is not None and seat.worker.core is not None)):
                    why = failed
                else:
                    return ""
        return "" if self.serving(model) else why

    def look(self, now: float) -> None:
        """Does what is due. Whatever changes sets `next_look` to now, so that this plans anew."""
        stood_still = now - self.next_look > LOOK_S
        due = now + LOOK_S
        for seat in self.seats:
            if (worker := seat.worker) is not None:
                if stood_still:
                    worker.heard_at = now  # its beats wait unread
                self._look_at(worker, now)
            self._overdue(seat, now)
            if seat.slot.state is SlotState.DRAINING:
                self._drain(seat, now)
                due = min(due, now + DRAIN_LOOK_S)
            due = min(due, seat.slot.due)
            if (worker := seat.worker) is not None:
                is_ending = worker.link_ended and seat.slot.state is not SlotState.STUCK
                due = min(due, worker.dies_at, now + EXIT_LOOK_S if is_ending else inf)
        if any(seat.slot.state is SlotState.STOPPED for seat in self.seats):
            self.seats = [seat for seat in self.seats if seat.slot.state is not SlotState.STOPPED]
            self._forget_models()
            self.has_news = True
        self.next_look = due

    def _drain(self, seat: Seat, now: float) -> None:
        """Its worker takes what waits for models that nobody will serve after it, at a stop all; then it runs out."""
        worker = seat.worker
        if worker is None or worker.core is None:
            return
        leaving = seat.told["models"].keys() - (self.plan.models.keys() if self.scheduler.is_taking else set())
        if not any(self.scheduler.load_of(name) for name in leaving):
            self.scheduler.close(worker.core)
        if worker.core.is_closed and not worker.core.running:
            self.stop(seat, now)

    def _look_at(self, worker: Worker, now: float) -> None:
        """For its exit, or for a reason to kill it."""
        if worker.dies_at <= now:
            worker.dies_at = inf
            for line in worker.stacks():
                log.error("slot %d: %s", worker.seat.slot.number, line)
            worker.kill()
        if (status := worker.poll()) is not None:
            self._exited(worker, status, now)
        elif worker.link_ended and now - worker.heard_at > EXIT_S:
            self.kill(worker, "its link ended, and it did not", now)
        elif worker.core is not None and not worker.core.running and now - worker.heard_at > SILENT_S:
            # Imports and loads hold Python's lock for long, and a batch has a budget of its own.
            self.kill(worker, f"it has said nothing for {SILENT_S:.0f} s", now)

    def _overdue(self, seat: Seat, now: float) -> None:
        match seat.slot.overdue(now):
            case SlotState.STARTING:  # BACKOFF → STARTING
                self.start(seat, now)
            case SlotState.STOPPING if seat.worker is not None:
                self.kill(seat.worker, f"it was still in {seat.worker.phase} {OVERDUE}", now)
            case SlotState.STUCK:
                log.error("slot %d is STUCK: its process was killed and does not end", seat.slot.number)

    def open(self, number: int, now: float) -> None:
        """A new seat for a slot, as the plan wants it."""
        bounds = self.config.restart.intensity, self.config.restart.period
        seat = Seat(Slot(number, *bounds), self.plan.facts.devices[number], self.plan.slots[number])
        self.seats.append(seat)
        self.start(seat, now)
        self.next_look = now

    def retire(self, seat: Seat, now: float) -> None:
        """It gets nothing new, finishes what it runs, and ends."""
        log.info("slot %d: %s", seat.number, "its worker leaves" if seat.worker is not None else "it is given up")
        if seat.slot.state is SlotState.READY:
            seat.slot.drain(now, self.config.pool.drain_timeout)
            self.next_look = now
        else:
            self.stop(seat, now)

    def start(self, seat: Seat, now: float) -> None:
        slot, device = seat.slot, seat.device
        slot.start(now, self.config.health.import_timeout)
        tensorflow, told = seat.told["tensorflow"], seat.told["models"]
        models = [told[name] for name in told if name not in seat.left_out]
        try:
            settings = os.fdopen(os.memfd_create("models"), "wb", buffering=0)  # a link does not hold 500 of them
            settings.write(pack(models))
            worker = seat.worker = Worker(seat, environment(device, os.environ, tensorflow, self._share), now)
        except OSError as error:
            log.error("slot %d: no process could be started: %s", slot.number, error)
            slot.exited(now, f"no process could be started: {error}", held_jobs=False)
            return
        self.peers[worker.token] = worker
        self._sources.register(worker.link.socket.fileno(), EVENT_READ, lambda: self.hear(worker))
        self._sources.register(worker.output, EVENT_READ, lambda: self._read(worker))
        shown = {"uuids": device.uuids, "label": device.label}
        welcome = {"wire": WIRE, "release": RELEASE, "token": worker.token, "address": self.address}
        welcome |= {"slot": slot.number, "device": shown, "lanes": self.config.pool.lanes, "tensorflow": tensorflow}
        welcome["former"] = self._found_before(seat)
        with settings:
            self.tell(worker, welcome | {"state": str(self._state)}, settings.fileno())

    def _found_before(self, seat: Seat) -> dict[str, Any]:
        """The workers whose memory must be free first: those that NVML has listed, else the level before them."""
        uuids, gpus, former = seat.device.uuids, self.monitor.gpus, self._former.get(seat.number, set())
        for uuid in uuids:
            if uuid in gpus and (used := gpus[uuid].used_bytes) is not None:
                self._levels.setdefault(uuid, used)
        pids = [pid for pid in former if pid in self.monitor.seen_pids]
        # Where several workers share a device, or two of one slot, the level is theirs, too.
        is_alone = seat.device.workers == 1 and sum(each.number == seat.number for each in self.seats) == 1
        has_level = former and is_alone and all(uuid in self._levels for uuid in uuids)
        return {"pids": pids, "level": {uuid: self._levels[uuid] for uuid in uuids} if has_level else None}

    def tell(self, worker: Worker, message: dict[str, Any], descriptor: int = -1) -> None:
        """A worker reads its link all the time, so one whose link is full hangs."""
        try:
            worker.link.send(message, descriptor)
        except (OSError, BadMessage) as error:
            if not worker.link_ended:
                self.kill(worker, f"its link takes no more: {error}", time.monotonic())

    def hear(self, worker: Worker) -> None:
        """What its link has now. Of more messages than these, the rest has its turn after all others."""
        now = time.monotonic()
        try:
            for _ in range(MOST_AT_ONCE):
                if worker.link_ended:
                    return
                said = worker.link.receive()
                if said is None:
                    worker.link_ended, self.next_look = True, now
                    self._forget(worker.link.socket.fileno())
                elif said[1] >= 0:
                    close_aside(said[1])
                    raise BadMessage("a descriptor")
                elif not worker.killed_for:
                    worker.heard_at = now
                    self._told(worker, said[0], now)
        except BlockingIOError:
            pass
        except Exception as error:  # whatever it says costs this worker its life, and nobody else anything
            self.kill(worker, f"it said what no worker says: {type(error).__name__}: {error}", now)

    def _told(self, worker: Worker, message: Mapping[str, Any], now: float) -> None:
        seat, slot, budgets = worker.seat, worker.seat.slot, self.config.health
        match message:
            case {"beat": True}:
                pass
            case {"phase": "memory", "waits": str(what)} if seat.device.uuids:
                if worker.phase == "import":  # else it has begun to wait before
                    self._goes_on(slot, budgets.memory_timeout, now)
                worker.phase = f"memory: waits for {what:.500}"
            case {"phase": "import"}:
                worker.phase = "import"
                self._former.pop(seat.number, None)
                self._goes_on(slot, budgets.import_timeout, now)
            case {"phase": "load" | "warm-up" as phase, "model": str(model)}:
                worker.phase, worker.loading = f"{phase} of {model}", model
                self._goes_on(slot, budgets.load_timeout if phase == "load" else budgets.warmup_timeout, now)
            case {"failed": [str(model), str(text)]} if model in seat.told["models"]:
                seat.failed[model] = text
                log.error("slot %d: %s", slot.number, text)
            case {"signature": [str(model), str(name), dict(record)]} if len(worker.signatures) < MOST_SIGNATURES:
                Signature.from_record(record)
                worker.signatures[model, name] = record
            case {"model": str(model), "is_stateful": bool(), "left_out": dict(), "notes": list()}:
                if model not in seat.told["models"]:
                    raise BadMessage(f"no model {model!r} was asked for")
                worker.loaded[model] = dict(message)
            case {"ready": True} if worker.core is None and slot.state is SlotState.LOADING and worker.loaded:
                self._ready(worker, now)
            case {"traced": int(number)}:
                if number in worker.traces:  # else nobody waits for it any more
                    worker.traces[number] = dict(message)
                    self.has_news = True
            case {"ending": str(text)}:
                worker.ending = text
            case _:
                raise BadMessage(f"{message!r:.200}")

    def _goes_on(self, slot: Slot, budget_s: float, now: float) -> None:
        """Its worker has so long for what it does next."""
        if slot.state in (SlotState.STARTING, SlotState.LOADING):
            slot.step(SlotState.LOADING, now, budget_s)
            self.next_look = now

    def _ready(self, worker: Worker, now: float) -> None:
        seat, number = worker.seat, worker.seat.slot.number
        seat.died_of = worker.loading = ""
        for name, said in worker.loaded.items():
            facts, stated = self.models[name], seat.told["models"][name]["stateful"]
            facts["signatures"] = {each: record for (of, each), record in worker.signatures.items() if of == name}
            facts["left_out"], facts["notes"] = said["left_out"], said["notes"]
            facts["is_stateful"] = said["is_stateful"] if stated is None else stated
            if facts["is_stateful"]:
                self.scheduler.set_stateful(name)
            seat.failed.pop(name, None)
            for note in said["notes"]:
                log.info("slot %d: model %s: %s", number, name, note)
        worker.core = self.scheduler.worker_comes(number, list(worker.loaded))
        seat.slot.step(SlotState.READY, now)
        worker.phase = "ready"
        log.info("slot %d is READY on %s: %s", number, seat.device.label, ", ".join(worker.loaded))
        self.has_news, self.next_look = True, now

    def lane_comes(self, worker: Worker, route: bytes) -> None:
        """The link is read first: READY was sent before the lane's JOIN, on another socket."""
        self.hear(worker)
        if worker.core is None or len(worker.routes) > self.config.pool.lanes:
            raise BadMessage("a lane of a worker that is not READY, or one too many")
        self.scheduler.lane_comes(worker.core, route)

    def kill(self, worker: Worker, reason: str, now: float, is_hung: bool = False) -> None:
        """Stacks if it hangs, then SIGKILL. What follows, follows from its exit."""
        if worker.killed_for:
            return
        worker.killed_for = reason
        log.error("slot %d: worker %d is killed: %s", worker.seat.slot.number, worker.pid, reason)
        if worker.core is not None:
            self.scheduler.close(worker.core)
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
        self._read(worker, PIPE_BYTES)
        self._forget(worker.link.socket.fileno())  # a child of it may hold the other end open
        self._forget(worker.output)
        seat.worker = None
        if seat.device.uuids:
            self._former.setdefault(seat.number, set()).add(worker.pid)
        for key in (worker.token, *worker.routes):
            self.peers.pop(key, None)
        reason = worker.killed_for or ": ".join(filter(None, (exit_text(status), worker.ending)))
        held = bool(core and core.running)
        if core is not None:
            self.scheduler.worker_died(core, reason, now)
        # After READY an exit status may be the model's own `exit()`, so it says nothing.
        is_restartable = core is not None or status not in FINAL
        if slot.is_wanted:
            log.error("slot %d: worker %d died: %s", slot.number, worker.pid, reason)
            self.deaths.append((now, slot.number, reason))
            self.death_causes[slot.number]["KILLED" if worker.killed_for else exit_text(status).partition(" ")[0]] += 1
        else:
            log.info("slot %d: worker %d has ended", slot.number, worker.pid)
        is_blamed = slot.is_wanted and core is None and self._blame(worker, reason)
        slot.exited(now, reason, held or is_blamed, is_restartable or is_blamed)
        worker.close()
        if slot.state is SlotState.FATAL:
            log.error("slot %d is FATAL: %s", slot.number, reason)
        self.has_news, self.next_look = True, now

    def _blame(self, worker: Worker, reason: str) -> bool:
        """Whether the worker died of a model that is left out from now on, so that the others are served.

        It did if it has used up its time to load it, or if the worker before it died at the same one.
        """
        seat, model = worker.seat, worker.loading
        has_others = len(seat.told["models"].keys() - seat.left_out - seat.failed.keys()) > 1
        is_guilty = bool(model) and (model == seat.died_of or worker.killed_for.endswith(OVERDUE))
        seat.died_of = model
        if not has_others or not is_guilty:
            return False
        seat.left_out.add(model)
        seat.failed[model] = f"model {model}: a worker that loaded it ended: {reason}"
        log.error("slot %d: %s; the slot serves its other models", seat.number, seat.failed[model])
        return True

    def _read(self, worker: Worker, most: int = READ_BYTES) -> None:
        lines = worker.read(most)
        if lines is None:
            self._forget(worker.output)
        for line in lines or ():
            if line.strip():
                log.info("slot %d: %s", worker.seat.slot.number, line[:1000])

    def _forget(self, descriptor: int) -> None:
        with suppress(KeyError):  # it was forgotten at its end
            self._sources.unregister(descriptor)

    def stop(self, seat: Seat, now: float) -> None:
        """Its worker is killed, which has nothing to finish. REQUIRES that it runs nothing that is still wanted."""
        seat.slot.stop(now)
        if (worker := seat.worker) is not None and not worker.killed_for:
            worker.killed_for = "it is wanted no more"
            worker.kill()
        self.next_look = now

    @property
    def is_over(self) -> bool:
        """No process is left, but for those that do not end even when they are killed."""
        return all(seat.worker is None or seat.slot.state is SlotState.STUCK for seat in self.seats)

    def kill_all(self) -> None:
        for seat in self.seats:
            if seat.worker is not None:
                seat.worker.kill()
