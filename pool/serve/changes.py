"""What changes while the pool runs, and how it comes to the slots.

    requests of people ┐
    looks at disks     ├─► Facts ─ planned ─► Plan ─ Rollout ─► the fleet opens and retires seats ─► news ─► again
    lost GPUs          ┘

A request that does not come up is taken back. Files that do not come up are remembered as broken until they change.
"""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from pool.config import Config, with_model, without_model
from pool.core.scheduler import Refused
from pool.devices import fits_beside
from pool.errors import InvalidConfig
from pool.plan.facts import Facts, completed, looked, reloaded, restarted, rested
from pool.plan.footprints import Footprints
from pool.plan.rollout import Failed, Open, Phase, Retire, Rollout, Seat
from pool.plan.versions import Look
from pool.plan.wanted import Plan, of_model, planned
from pool.serve.fleet import Fleet

VERDICT_S = 6.0  # NVML's word that a GPU is lost comes later than the end of the worker that lost it
DISK_S = 60.0
MOST_REQUESTS = 100

T = TypeVar("T")

log = logging.getLogger("pool.serve")


class Progress(Enum):
    WAITING = "others come first"
    READING = "a disk is asked for what it needs"
    RUNNING = "slots are changed for it"
    OVER = "it is done, or has failed"


@dataclass(eq=False)
class Request:
    """Of a person, to change something. One at a time is read and run."""

    what: str  # for people, such as "reload"
    configured: Callable[[Config], Config] = lambda config: config  # reads disks in a thread. Raises `InvalidConfig`.
    changed: Callable[[Facts], Facts] = lambda facts: facts  # beside the configuration, of what is known by then
    progress: Progress = Progress.WAITING
    lines: list[str] = field(default_factory=list)  # what was done for it
    before: Facts | None = None  # what it returns to if it fails
    until: float = inf  # when the disk has had its time
    error: tuple[str, str] | None = None


class Disk:
    """Reads in threads, since a disk may never answer. `reader` can be read when something has been read."""

    def __init__(self) -> None:
        self._done: deque[Callable[[], None]] = deque()
        self.reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def read(self, act: Callable[[], T], then: Callable[[T | None], None]) -> None:
        """Calls `act` in a thread, which may return late or never, and `then` with what it returned in `hear`.

        None: it has failed, or there is no thread for it.
        """

        def run() -> None:
            found = None
            try:
                found = act()
            except Exception:
                log.exception("what a disk has could not be told")
            self._done.append(lambda: then(found))
            os.write(self._writer, b".")

        try:
            threading.Thread(target=run, name="disk", daemon=True).start()
        except RuntimeError as error:  # the limit of threads is reached
            log.error("a disk could not be asked: %s", error)
            self._done.append(lambda: then(None))
            os.write(self._writer, b".")

    def hear(self) -> None:
        os.read(self.reader, 4096)
        while self._done:
            self._done.popleft()()


class Changes:
    def __init__(self, fleet: Fleet, source: Path | None, disk: Disk, footprints: Footprints) -> None:
        """`source`: of the configuration; None: there is no file."""
        self._fleet, self._source, self._disk, self._footprints = fleet, source, disk, footprints
        self._facts = fleet.plan.facts
        self._settled: list[Mapping[str, Any]] = []  # what was served when all had come that was wanted, as told
        self._rollout = Rollout(lambda seat: fits_beside(fleet.monitor, seat.device, seat.worker.pid))
        self.requests: deque[Request] = deque()  # those that are not over. The first one runs.
        self._verdict: tuple[float, Seat] | None = None  # when to say why a turn has failed, and its seat
        self._warned: set[str] = set()
        self._next_look = 0.0
        self.due = inf  # when `act` is to be called, if nothing happens before
        self._warn()

    def ask(self, what: str, arguments: Mapping[str, Any]) -> Request:
        """Raises `Refused`."""
        slots, slot, name = range(len(self._facts.devices)), arguments.get("slot"), str(arguments.get("name", ""))
        if len(self.requests) >= MOST_REQUESTS:
            raise Refused("Overloaded", f"{MOST_REQUESTS} changes wait already")
        if slot is not None and slot not in slots:
            raise Refused("InvalidInput", f"there is no slot {slot!r:.80}; there are 0 to {len(slots) - 1}")
        request = Request(f"{what} {name}" if name else what if slot is None else f"{what} slot {slot}")
        match what:
            case "reload" if self._source is not None:
                request.configured = partial(reloaded, source=self._source)
                request.changed = partial(replace, broken={})
            case "reload":
                raise Refused("InvalidInput", "the pool was started without a configuration file")
            case "load":
                settings = dict(arguments.get("settings") or {}) | {"name": name}
                request.configured = partial(with_model, settings=settings)
            case "unload":
                request.configured = partial(without_model, name=name)
            case "restart":
                request.changed = partial(restarted, slots=slots if slot is None else [slot])
            case "drain" if slot is not None:
                request.changed = lambda facts: replace(facts, drained=facts.drained | {slot})
            case "undrain" if slot is not None:
                request.changed = lambda facts: replace(facts, drained=facts.drained - {slot})
            case _:
                raise Refused("InvalidInput", f"the pool knows no change {what!r:.80}")
        self.requests.append(request)
        self._fleet.has_news = True
        log.info("asked to %s", request.what)
        return request

    def _begin(self, request: Request, now: float) -> None:
        request.progress, request.until, facts = Progress.READING, now + DISK_S, self._facts

        def read() -> tuple[Config, Mapping[str, Look]] | InvalidConfig:
            try:
                config = request.configured(facts.config)
                return config, facts.looks if config is facts.config else rested(config, facts.looks)
            except InvalidConfig as error:
                return error

        self._disk.read(read, partial(self._began, request))

    def _began(self, request: Request, found: tuple[Config, Mapping[str, Look]] | InvalidConfig | None) -> None:
        if request.progress is not Progress.READING:
            return  # its time was over
        facts = request.before = self._facts
        request.progress, request.until = Progress.RUNNING, inf
        try:
            if not isinstance(found, tuple):
                raise found or InvalidConfig("the disk could not be asked; the pool's log says why")
            config, looks = found
            if config is not facts.config:
                facts = replace(facts, config=config, looks=looks, needs={})
            plan = self._planned(request.changed(facts))
            old, names = self._fleet.plan, sorted(plan.models.keys() | plan.missing.keys())
            gone = [name for name in names if old.settings(name) and not plan.settings(name)]
            if left := [plan.missing.get(name, f"the files of {name} are not whole yet") for name in gone]:
                raise InvalidConfig("; ".join(left))
            self._adopt(plan)
        except InvalidConfig as error:
            self._end(request, "InvalidConfig", str(error))

    def _end(self, request: Request, error: str = "", text: str = "") -> None:
        self.requests.remove(request)
        request.progress = Progress.OVER
        self._fleet.has_news = True
        if error:
            request.error = error, text
            log.error("%s failed: %s", request.what, text)
        else:
            log.info("%s is done", request.what)

    @property
    def _running(self) -> Request | None:
        return self.requests[0] if self.requests and self.requests[0].progress is Progress.RUNNING else None

    def act(self, now: float) -> None:
        """Does what is due. Called on all news, and in time for `due`."""
        self._look(now)
        if lost := self._newly_lost(now):
            log.error("NVML says that the GPUs of these slots are lost; their models are placed anew: %s", sorted(lost))
            self._return_to(replace(self._facts, lost=self._facts.lost | lost))
        if self._verdict is not None and now >= self._verdict[0]:
            _, seat = self._verdict
            self._verdict = None
            self._judge(seat)
        request = self.requests[0] if self.requests else None
        if request is not None and now >= request.until:
            self._end(request, "DeadlineExceeded", f"the disk has not answered for {DISK_S:g} s")
        if self._verdict is None:
            if request is not None and request.progress is Progress.WAITING and self._rollout.turn is None:
                self._begin(request, now)
            self._step(now)
        until = self.requests[0].until if self.requests else inf
        self.due = min(self._next_look, until, self._verdict[0] if self._verdict is not None else inf)

    def _step(self, now: float) -> None:
        fleet, rollout = self._fleet, self._rollout
        if fleet.is_starting and (fleet.seats or not fleet.plan.slots):
            fleet.is_starting = any(seat.phase is Phase.COMING and seat.slot.incarnation == 1 for seat in fleet.seats)
        # Where the newest version of a model does not load outside of a turn, as at the start, another one is served.
        right = [s for s in fleet.seats if s.number != rollout.turn and s.told == fleet.plan.slots.get(s.number)]
        failed = [seat.told["models"][name] for seat in right for name in seat.failed]
        if marked := [each for each in failed if self._is_replaceable(each)]:
            self._mark(marked, "it did not load")
        for step in rollout.steps(fleet.plan.slots, fleet.seats, fleet.is_starting):
            match step:
                case Open(number):
                    models = fleet.plan.slots[number]["models"]
                    told = [f"{name} {each['version']}".rstrip() for name, each in models.items()]
                    self._tell(f"slot {number} loads {', '.join(told)}")
                    fleet.open(number, now)
                case Retire(seat):
                    fleet.retire(seat, now)
                case Failed(seat):
                    is_gpu = bool(seat.device.uuids and self._fleet.monitor.gpus)
                    self._verdict = now + (VERDICT_S if is_gpu else 0.0), seat
        fleet.turn = rollout.turn if self._verdict is None else self._verdict[1].number
        if fleet.is_starting or self._verdict is not None or not rollout.is_done(fleet.plan.slots, fleet.seats):
            return
        self._settled = self._serving()
        if (request := self._running) is not None:
            self._end(request)

    def _planned(self, facts: Facts) -> Plan:
        """Raises `InvalidConfig` where models do not fit."""
        there: dict[int, list[str]] = {}
        for seat in self._fleet.seats:
            if seat.phase is not Phase.LEAVING:
                there.setdefault(seat.number, []).extend(seat.told["models"])
        served = self._served()
        return planned(completed(facts, self._footprints, served), there, served)

    def _return_to(self, facts: Facts) -> None:
        """Plans for facts that fitted before, or for fewer devices, where models are left out."""
        try:
            self._adopt(self._planned(facts))
        except InvalidConfig:
            log.exception("what was planned before does not fit any more, so what is served stays")

    def _adopt(self, plan: Plan) -> None:
        self._facts = plan.facts
        self._fleet.adopt(plan)
        self._warn()

    def _warn(self, *others: str) -> None:
        """Says what is wrong with models, of each thing once as long as it lasts."""
        looks = self._facts.looks.items()
        troubles = {f"model {name}: {trouble}" for name, look in looks for trouble in look.troubles}
        wrong = {*others, *self._fleet.plan.missing.values()} | troubles
        for line in sorted(wrong - self._warned):
            log.warning("%s", line)
        self._warned = wrong

    def _tell(self, line: str) -> None:
        log.info("%s", line)
        if (request := self._running) is not None:
            request.lines.append(line)

    def _judge(self, seat: Seat) -> None:
        """Takes back what is to blame for a turn that has failed."""
        if seat.number in self._facts.away:
            return  # the models are planned without it already
        model, why = next(iter(seat.failed.items()), (seat.died_of, seat.slot.reason))
        text = f"slot {seat.number}: {why}"
        request = self._running
        new = {name: each for name, each in seat.told["models"].items() if self._is_replaceable(each)}
        if marked := [new[model]] if model in new else [*new.values()]:  # if it is none of the new files, all go back
            self._tell(f"{text}; what was served before stays")
            self._mark(marked, text)
        elif request is not None and (before := request.before) is not None:
            self._end(request, "ModelFailed", f"{text}; what was served before stays")
            known = replace(before, first=self._facts.first, broken=self._facts.broken, lost=self._facts.lost)
            is_same = before.config is self._facts.config
            self._return_to(replace(known, looks=self._facts.looks if is_same else before.looks))
        else:
            log.error("%s", text)
            seat.is_accepted = True

    def _mark(self, told: Sequence[Mapping[str, Any]], why: str) -> None:
        """These files are broken."""
        broken = {(each["path"], each["files"]): why for each in told}
        self._return_to(replace(self._facts, broken={**self._facts.broken, **broken}))

    def _is_replaceable(self, told: Mapping[str, Any]) -> bool:
        """Whether other files of the model are served, or could be."""
        section, key = self._fleet.plan.models.get(told["name"]), (told["path"], told["files"])
        if section is None or not told["files"] or key in self._facts.broken:
            return False
        if good := {(each["path"], each["files"]) for each in of_model(section, self._served())}:
            return key not in good
        looks = self._facts.looks[section.name].versions
        others = {(each.path, each.files.digest) for each in looks if each.is_whole} - {key} - self._facts.broken.keys()
        return bool(others) and section.versions == "newest"

    def _serving(self) -> list[Mapping[str, Any]]:
        seats = [seat for seat in self._fleet.seats if seat.phase is Phase.SERVING]
        return [each for seat in seats for each in seat.told["models"].values() if each["name"] not in seat.failed]

    def _served(self) -> list[Mapping[str, Any]]:
        """What came up last counts most, and comes last."""
        return [*self._serving(), *self._settled]

    def _newly_lost(self, now: float) -> set[int]:
        lost = self._fleet.monitor.lost(now)
        return {n for n, device in enumerate(self._facts.devices) if lost.intersection(device.uuids)} - self._facts.lost

    def _look(self, now: float) -> None:
        """Looks at disks, if it is time and the last look has come to its end."""
        facts, every_s = self._facts, self._fleet.config.pool.watch
        if now < self._next_look:
            return
        self._next_look = inf

        def seen(looks: Mapping[str, Look] | None) -> None:
            self._next_look = time.monotonic() + every_s
            self._fleet.has_news = True
            # If the configuration is another one by now, it has looked at other models.
            if looks is not None and looks != self._facts.looks and self._facts.config is facts.config:
                try:
                    self._adopt(self._planned(replace(self._facts, looks=looks)))
                except InvalidConfig as error:
                    self._warn(f"a new version does not fit, so what is served stays: {error}")

        self._disk.read(lambda: looked(facts.config, facts.looks), seen)

    def watch(self, now: float) -> None:
        """What NVML's process says: lost GPUs, and how much memory a model takes, from workers that have it alone."""
        if self._newly_lost(now):
            self._fleet.has_news = True
        for seat in self._fleet.seats:
            worker, models, options = seat.worker, [*seat.told["models"].values()], seat.told["tensorflow"]
            has_bound = not options["allow_growth"] or options["per_process_gpu_memory_fraction"]
            if seat.phase is not Phase.SERVING or worker is None or len(models) != 1 or has_bound:
                continue
            levels = [self._fleet.monitor.gpus[uuid] for uuid in seat.device.uuids if uuid in self._fleet.monitor.gpus]
            nbytes = sum(level.pids.get(worker.pid) or 0 for level in levels)
            model, digest = self._fleet.plan.models.get(models[0]["name"]), models[0]["files"]
            if model is not None and self._footprints.is_more(model, digest, nbytes):
                self._disk.read(partial(self._footprints.learn, model, digest, nbytes), lambda _: None)
