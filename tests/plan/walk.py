"""Random programs against the pool's changes: disks, people, GPUs and workers do what they like, a world watches.

The changes are the product's own. Only what they act on is not real: the fleet, the disk, NVML and the clock.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from types import SimpleNamespace
from typing import Any

from pool.config import Config
from pool.core.slots import SlotState
from pool.devices import Device
from pool.wire.files import Files

NAMES = ("a", "b", "c")
PLACE = "stub:/disk/"


class Seat:
    """As the fleet's, but what becomes of its worker is the walk's choice."""

    def __init__(self, number: int, told: Mapping[str, Any], device: Device, phases: Any) -> None:
        self.number, self.told, self.device, self.phase = number, told, device, phases.COMING
        self.failed: dict[str, str] = {}
        self.died_of, self.is_accepted = "", False
        self.worker = SimpleNamespace(pid=1)
        self.slot = SimpleNamespace(state=SlotState.LOADING, incarnation=1, reason="")

    @property
    def models(self) -> list[str]:
        return [*self.told["models"]]

    def files(self, name: str) -> tuple[str, str]:
        return self.told["models"][name]["path"], self.told["models"][name]["files"]


class World:
    """Disk, fleet, NVML and clock of one walk."""

    def __init__(self, code: SimpleNamespace, seed: int) -> None:
        self.code, self.draw, self.now, self.counts = code, Random(seed), 0.0, Counter[str]()
        self.disk: dict[str, dict[int, str]] = {}  # by path of a model, its versions' digests
        self.bad: set[str] = set()  # digests that do not load
        self.fresh: set[str] = set()  # digests that are not at rest
        self.rested: set[str] = set()  # digests that a look has found at rest
        self.unlucky: set[str] = set()  # digests that were with a worker which failed for another reason
        self.digests = 0
        self.lost_gpus: dict[str, float] = {}  # and since when; NVML's word comes later
        self.pending: list[Callable[[], None]] = []  # what a disk has not answered yet
        for name in NAMES:
            self.write(PLACE + name, 1, is_good=True)
        self.fresh.clear()
        is_gpu = self.draw.random() < 0.5
        count = self.draw.randint(1, 4)
        self.has_room = self.draw.random() < 0.7
        kinds = [("gpu", (f"GPU-{n}",), (n,)) if is_gpu else ("cpu", (), ()) for n in range(count)]
        devices = [Device(*kind, label=f"{kind[0]}:{n}") for n, kind in enumerate(kinds)]
        self.source = self.configured("a", "b")
        code.look, code.load, code.fits_beside = self.look, lambda _: self.source, lambda *_: self.has_room
        code.time = SimpleNamespace(monotonic=lambda: self.now, sleep=lambda _: None)
        self.monitor = SimpleNamespace(gpus={"GPU-0": None} if is_gpu else {}, lost=self.lost)
        self.footprints = SimpleNamespace(need=lambda *_: (0, ""))
        self.seats: list[Seat] = []
        self.turn: int | None = None
        self.is_starting = self.has_news = True
        looks = code.rested(self.source, {})
        self.plan = code.planned(code.completed(code.Facts(self.source, devices, looks), self.footprints), {}, ())
        self.changes = code.Changes(self, "config.toml", self, self.footprints)
        self.requests: list[Any] = []

    # --- the disk -----------------------------------------------------------------------------------------------

    def configured(self, *names: str) -> Config:
        models = [{"name": n, "path": PLACE + n, "replicas": 1 if n == "c" else "auto"} for n in names]
        return Config.model_validate({"model": models}, context={"base": "/", "names": []})

    def write(self, path: str, number: int, is_good: bool) -> None:
        self.digests += 1
        digest = f"{self.digests:08}"
        self.disk.setdefault(path, {})[number] = digest
        self.fresh.add(digest)
        if not is_good:
            self.bad.add(digest)

    def look(self, path: str, chosen: Any, extra: Any, before: Any) -> Any:
        found = self.disk.get(path, {})
        self.rested.update(set(found.values()) - self.fresh)
        return self.code.Look(
            tuple(
                self.code.Version(number, f"{path}/{number}", Files(digest, 0, 0), digest not in self.fresh)
                for number, digest in sorted(found.items())
            )
        )

    def read(self, act: Callable[[], Any], then: Callable[[Any], None]) -> None:
        self.pending.append(lambda: then(act()))

    def lost(self, now: float) -> set[str]:
        return {uuid for uuid, since in self.lost_gpus.items() if now - since >= 5.0}

    # --- the fleet ----------------------------------------------------------------------------------------------

    @property
    def config(self) -> Config:
        return self.plan.facts.config

    def adopt(self, plan: Any) -> None:
        self.plan, self.has_news = plan, True

    def open(self, number: int, now: float) -> None:
        seat = Seat(number, self.plan.slots[number], self.plan.facts.devices[number], self.code.Phase)
        here = [each for each in self.seats if each.number == number]
        assert len(here) <= 1, "a slot has at most two workers"
        assert not here or (here[0].phase is self.code.SERVING and self.has_room), "and two only if there is room"
        assert number not in self.plan.facts.drained | self.plan.facts.lost
        assert all(seat.files(name)[1] in self.rested for name in seat.models)
        if not self.is_starting:
            others = [each for each in self.seats if each.phase is self.code.COMING and each.number != number]
            assert all(each.slot.incarnation > 1 for each in others), "one slot at a time"
        self.counts["opened"] += 1
        self.seats.append(seat)
        self.has_news = True

    def retire(self, seat: Seat, now: float) -> None:
        for name in seat.models if seat.phase is self.code.SERVING and not seat.failed else ():
            others = [each for each in self.seats if each is not seat]
            is_wanted = any(name in told["models"] for told in self.plan.slots.values())
            is_calm = all(each.slot.state in (SlotState.READY, SlotState.LOADING) for each in self.seats)
            # Of two workers of one slot, each of which has what the other one lacks, one goes before a third one comes.
            pair = [each for each in others if each.number == seat.number and each.phase is self.code.SERVING]
            is_odd = any({*each.models} - {*each.failed} - {*seat.models} for each in pair)
            is_left = seat.number in self.plan.facts.drained and any(name in each.failed for each in others)
            may_be_gone = is_odd or is_left or seat.number in self.plan.facts.lost
            if is_wanted and is_calm and self.has_room and not may_be_gone:
                assert any(self.serves(each, name) for each in others), f"{name} is served without a gap"
        seat.phase = self.code.LEAVING
        self.has_news = True

    def serves(self, seat: Seat, name: str) -> bool:
        return seat.phase is self.code.SERVING and name in seat.models and name not in seat.failed

    # --- what happens -------------------------------------------------------------------------------------------

    def step(self) -> None:
        draw, code = self.draw, self.code
        self.now += draw.choice([0.0, 0.1, 3.0, 7.0])
        match draw.randrange(12):
            case 0 | 1 | 2 | 3 | 4 if self.seats:
                self.live(draw.choice(self.seats), is_kind=False)
            case 5 | 6 if self.pending:
                self.pending.pop(0)()
                self.has_news = True
            case 7:
                path = PLACE + draw.choice(NAMES)
                number = draw.choice([*self.disk[path], max(self.disk[path], default=0) + 1])
                if draw.random() < 0.2 and len(self.disk[path]) > 1:
                    del self.disk[path][number if number in self.disk[path] else min(self.disk[path])]
                else:
                    self.write(path, number, is_good=draw.random() < 0.6)
            case 8:
                self.fresh.clear()
            case 9:
                self.ask()
            case 10 if self.monitor.gpus and self.seats and len(self.lost_gpus) + 1 < len(self.plan.facts.devices):
                coming = [seat for seat in self.seats if seat.phase is code.COMING]
                seat = draw.choice(coming or self.seats)
                if coming or draw.random() < 0.05:
                    self.lost_gpus.update(dict.fromkeys(seat.device.uuids, self.now))
                if coming:
                    self.fall(seat, "no such device")
            case 11 if draw.random() < 0.2 and (serving := [s for s in self.seats if s.phase is code.SERVING]):
                seat = draw.choice(serving)
                self.unlucky.update(seat.files(name)[1] for name in seat.models)
                self.fall(seat, "it crashed")
        self.act()

    def act(self) -> None:
        for _ in range(50):
            if not self.has_news and self.now < self.changes.due:
                break
            self.has_news = False
            self.changes.act(self.now)
        else:
            raise AssertionError("it never comes to rest")
        self.check()

    def ask(self) -> None:
        draw, slot = self.draw, self.draw.randrange(len(self.plan.facts.devices))
        what = draw.choice(["reload", "load", "unload", "restart", "drain", "undrain"])
        arguments: dict[str, Any] = {"slot": slot} if what in ("restart", "drain", "undrain") else {}
        if what == "reload":
            self.source = self.configured(*draw.sample(NAMES, draw.randint(1, 3)))
        elif what in ("load", "unload"):
            arguments = {"name": draw.choice(NAMES)}
            arguments["settings"] = {"path": PLACE + arguments["name"], "max_batch": draw.choice([8, 32])}
        elif what == "drain" and len(self.plan.facts.devices) - len(self.plan.facts.drained) < 2:
            return
        self.requests.append(self.changes.ask(what, arguments))

    def live(self, seat: Seat, is_kind: bool) -> None:
        """A worker goes on. `is_kind`: it fails only for what its files are."""
        code, draw = self.code, self.draw
        if seat.phase is code.LEAVING:
            self.seats.remove(seat)
        elif seat.phase is code.DOWN and seat.slot.state is SlotState.BACKOFF:
            seat.phase, seat.slot.incarnation = code.COMING, seat.slot.incarnation + 1
        elif seat.phase is code.COMING:
            bad = {name: f"model {name}: bad" for name in seat.models if seat.files(name)[1] in self.bad}
            if len(bad) == len(seat.models):
                seat.failed = bad
                self.fall(seat, "none of its models can be loaded", SlotState.FATAL)
            elif bad and draw.random() < 0.3 and seat.slot.incarnation == 1:
                seat.died_of = next(iter(bad))
                self.unlucky.update(seat.files(name)[1] for name in seat.models)
                self.fall(seat, "SIGKILL")
            elif self.lost_gpus.keys() & set(seat.device.uuids):
                self.fall(seat, "no such device")
            elif not is_kind and draw.random() < 0.05:
                self.unlucky.update(seat.files(name)[1] for name in seat.models)
                self.fall(seat, "no memory now")
            else:
                seat.failed, seat.phase, seat.slot.state = bad, code.SERVING, SlotState.READY
        self.has_news = True

    def fall(self, seat: Seat, reason: str, state: SlotState = SlotState.BACKOFF) -> None:
        seat.phase, seat.slot.state, seat.slot.reason = self.code.DOWN, state, reason
        self.counts["falls"] += 1
        self.has_news = True

    # --- what must hold -----------------------------------------------------------------------------------------

    def check(self) -> None:
        versions: dict[tuple[str, str], str] = {}
        for seat in self.seats:
            for name, each in seat.told["models"].items() if seat.phase is self.code.SERVING else ():
                if name not in seat.failed:
                    files = versions.setdefault((name + each["path"], each["version"]), each["files"])
                    assert files == each["files"], "two slots never serve different files under one version"

    def finish(self) -> None:
        """Nothing more happens, and all that was begun comes to its end."""
        for round_ in range(300):
            if round_ == 200:
                opened = self.counts["opened"]
            self.now += 7.0
            self.fresh.clear()
            for seat in [*self.seats]:
                self.live(seat, is_kind=True)
            pending, self.pending = self.pending, []
            for answer in pending:
                answer()
            self.has_news = True
            self.act()
        assert self.counts["opened"] == opened, "what does not come up is not tried again and again"
        assert not self.changes.requests, "every request ends"
        for request in self.requests:
            assert request.progress.name == "OVER"
            self.counts["failed" if request.error else "done"] += 1
        assert self.turn is None, "every turn ends"
        assert not [seat for seat in self.seats if seat.phase in (self.code.COMING, self.code.LEAVING)]
        for number, told in self.plan.slots.items():
            here = [seat for seat in self.seats if seat.number == number]
            assert told in [seat.told for seat in here], "each slot has what is wanted"
            assert len(here) == 1 or any(seat.phase is self.code.DOWN for seat in here)
        assert {seat.number for seat in self.seats} == set(self.plan.slots), "and nothing is served that is not"
        self._newest()
        broken = {digest for _, digest in self.plan.facts.broken}
        assert broken <= self.bad | self.unlucky, "only files that were tried in vain are called broken"
        self.counts["broken"] += len(self.plan.facts.broken)
        self.counts["lost"] += len(self.plan.facts.lost)
        told = [each for told in self.plan.slots.values() for each in told["models"].values()]
        self.counts["in place"] += sum("+" in each["version"] for each in told)

    def _newest(self) -> None:
        facts = self.plan.facts
        for model in facts.config.model:
            found = self.disk[model.path]
            good = [n for n, digest in found.items() if (f"{model.path}/{n}", digest) not in facts.broken]
            told = self.plan.settings(model.name)
            if good and told:
                last = found.get(int(told["path"].rpartition("/")[2]))
                assert told["path"] == f"{model.path}/{max(good)}" or last != told["files"], "the newest one is served"


def walk(code: SimpleNamespace, seed: int, steps: int = 150) -> Counter[str]:
    """A whole program. Raises AssertionError at the first broken promise. Returns what happened how often."""
    world = World(code, seed)
    world.act()
    for _ in range(steps):
        world.step()
    world.finish()
    return world.counts
