"""A reconciler with the core that it feeds, a fake NVML's GPUs, and workers that do at once what the test says."""

import random
import select
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

from pool.clock.alarms import Alarms
from pool.config import Settings, parse_settings
from pool.core import actions as do
from pool.core import events as told
from pool.core.fleet import SlotState
from pool.core.machine import Machine
from pool.plan import Plan, Reconciler, Source, make_plan
from pool.recorder.hot_calls import JobArrived, tell
from pool.systemd.notify import Notifier
from pool.wire.worker_messages import Welcome
from simulation.driver import AnswerJob, Did, followed
from simulation.plans import model_info
from support.fake_nvml import eight_gpus
from support.processes import eventually

__all__ = ["House", "settings"]

SOON_S = 0.02
QUIET = 4  # turns, each of which takes longer than the first pause of a slot


def settings(folder: Path, *models: dict[str, Any], devices: object = (0, 1), **pool: object) -> Settings:
    """Each model takes 4 GiB, unless it says otherwise, of the 15 that each of the T4s 0, 1 and 2 has free."""
    several = [{"path": "stub:echo", "device_memory": "4GiB", **model} for model in models]
    health = {"silent_after": "9999s"}  # they do not beat
    data = {"pool": {"devices": list(devices), **pool}, "model": several, "health": health}  # type: ignore[call-overload]
    return parse_settings(data, "f.toml", folder)


class House:
    """`file`: what a reload reads. `lost`: devices that are gone. `broken`: (slot, model) that does not come up there.

    `killed`: (slot, model), in whose load the worker is killed; `hanging`: in whose load it does nothing any more.
    `broken_numbers`, `broken_models`: versions and paths that come up nowhere. `crashing`: slots whose next workers die
    and say nothing, while another one serves there.
    `held`: slots whose workers say nothing until they are let go.
    `stateful`: models of which workers say that they keep state.
    What clients are told is in `replies`, and of their jobs in `failed`.
    """

    def __init__(self, file: Settings) -> None:
        self.file = file
        self.lost: set[str] = set()
        self.broken: set[tuple[int, str]] = set()
        self.killed: set[tuple[int, str]] = set()
        self.hanging: set[tuple[int, str]] = set()
        self.broken_numbers: set[int] = set()
        self.broken_models: set[str] = set()
        self.crashing: set[int] = set()
        self.held: set[int] = set()
        self.stateful: set[str] = set()
        self.replies: dict[int, Any] = {}
        self.failed: dict[int, str] = {}
        self.ready = 0
        self.announced = (0, 0)  # slots that serve, of so many
        self.end: do.PoolStopped | None = None
        self.ended = False
        self._now = 1000.0
        self._todo: deque[Any] = deque()
        self._gone: set[int] = set()  # as the supervisor has it: until a worker is spawned there
        self._told: dict[tuple[int, int], Welcome] = {}
        self._alarms = Alarms()
        self._turn = self._alarms.alarm(self._tend)
        plan = make_plan(file, {}, eight_gpus())
        self.machine = Machine(plan.policy, plan.slots(), random.Random(1))
        self.reconciler = Reconciler(
            plan,
            self.machine,
            Source("f.toml", lambda: self.file),
            Notifier("", None),
            feed=self.feed,
            adopt=lambda _: None,
            is_lost=self._gone.__contains__,
            turn=self._turn,
        )
        self.feed(told.Start())

    @property
    def plan(self) -> Plan:
        return self.reconciler.plan

    def state(self, slot: int) -> SlotState:
        return self.machine.fleet.slots[slot].state

    def broken_paths(self) -> list[str]:
        versions: Any = self.reconciler.status()["versions"]
        return list(versions["broken"])

    def failure(self) -> str:
        """Why the last roll ended early; "" if it did not."""
        roll: Any = self.reconciler.status()["rolling_update"]
        return str(roll["failure"])

    def served(self) -> list[set[str]]:
        """By slot, what the worker there has."""
        slots = self.machine.fleet.slots
        return [set(slot.models) if slot.state is SlotState.READY else set() for slot in slots]

    def ask(self, number: int, what: str = "reload", about: str = "") -> None:
        self.reconciler.ask(what, about, lambda told: self.replies.update({number: told}))

    def lose(self, label: str) -> None:
        """The device vanishes, and its workers die of it."""
        self.lost.add(label)
        slots = self.machine.fleet.slots
        coming = [
            step for step in self._todo if isinstance(step, told.WorkerReady) and slots[step.slot].device == label
        ]
        self._todo = deque(step for step in self._todo if step not in coming)
        alive = [
            (slot.number, slot.worker.incarnation)
            for slot in slots
            if slot.device == label and slot.state is SlotState.READY
        ]
        for key in (*((step.slot, step.incarnation) for step in coming), *alive):
            self.feed(told.WorkerExited(*key, told.Death("SIGBUS", restartable=True)))

    def come_back(self, label: str) -> None:
        self.lost.discard(label)
        for slot in self.machine.fleet.slots:
            if slot.device == label:
                self.feed(told.RestartAsked(slot.number))

    def restart(self, slot: int) -> None:
        self.feed(told.RestartAsked(slot))

    def feed(self, event: told.Event) -> None:
        self._now += 0.001
        if isinstance(event, told.WorkerExited) and event.slot in self._gone:
            self.reconciler.lost()
        elif isinstance(event, told.WorkerExited):
            event = replace(event, death=self.reconciler.died(event.slot, event.incarnation, event.death))
        self.machine.handle(event, self._now)
        for action in followed(self.machine, self._now):
            self._do(action)
        if self.reconciler.awaits_jobs:
            self._turn.soon()
        self.machine.validate()

    def submit(self, number: int, model: str) -> None:
        job = JobArrived(b"client", number, model, None, None, None, 1e6, 0, None, 1, b"", b"")
        tell(self.machine, job, self._now)
        for action in followed(self.machine, self._now):
            self._do(action)

    def turn(self) -> None:
        """Once round the loop; each worker takes its next step, unless its slot is held."""
        steps, self._todo = self._todo, deque()
        for step in steps:
            if step.slot in self.held:
                self._todo.append(step)
            else:
                self._take(step)
        self._now += 1.0
        self.feed(told.Tick())
        if select.select([self.reconciler.bell.fd], [], [], 0)[0]:
            self.reconciler.on_rung()
        self._alarms.call_due()

    def _tend(self) -> None:
        self.reconciler.roll_on()
        if not self.machine.fleet.over:
            self.end = None
        self.ended = self.ended or (self.end is not None and not self.reconciler.tries_again)
        if not self.ended:
            self.reconciler.tend()

    def settle(self) -> None:
        """Until nothing has been under way for a few turns, but for what is held."""

        def is_quiet() -> bool:
            quiet = 0
            while quiet < QUIET and not self.ended:
                self.turn()
                if self._reads():
                    return False
                quiet = 0 if any(step.slot not in self.held for step in self._todo) else quiet + 1
            return True

        eventually(is_quiet)

    def _reads(self) -> bool:
        is_due = self._turn.is_asked or self._turn.instant <= time.monotonic() + SOON_S
        return is_due or self.reconciler._requests.is_busy or self.reconciler._watch.is_busy

    def _take(self, step: Any) -> None:
        key = (step.slot, step.incarnation)
        if isinstance(step, told.WorkerSpawned):
            device = self.machine.fleet.slots[step.slot].device
            if device in self.lost:
                self._gone.add(step.slot)
                self.feed(told.WorkerExited(*key, told.Death(f"{device} is gone: GPU is lost", restartable=False)))
                return
            self._gone.discard(step.slot)
            self.feed(step)
            self.feed(told.WorkerHello(*key))
        elif isinstance(step, told.WorkerReady):
            models = self._told[key].models
            bad = next((each.name for each in models if (step.slot, each.name) in self.broken), None)
            bad = bad or next((each.name for each in models if each.version in self.broken_numbers), None)
            bad = bad or next((each.name for each in models if each.path in self.broken_models), None)
            if step.slot in self.crashing and self.state(step.slot) is SlotState.READY:
                self.feed(told.WorkerExited(*key, told.Death("SIGSEGV", restartable=True)))
                return
            killer = next((each.name for each in models if (step.slot, each.name) in self.killed), None)
            if killer is not None and bad is None:
                self.feed(told.WorkerExited(*key, told.Death("SIGKILL", restartable=True, loading=killer)))
                return
            if bad is not None:
                text = f"exit status 74 MODEL_CANNOT_LOAD: model {bad}: it is broken"
                self.feed(told.WorkerExited(*key, told.Death(text, restartable=False, blamed=bad, unloadable=True)))
                return
            if self._hangs_at(*key) is not None:
                return
            infos = tuple(
                replace(model_info(each.name), version=each.version, stateful=each.name in self.stateful)
                for each in models
            )
            self.feed(replace(step, models=infos))
        else:
            self.feed(step)

    def _hangs_at(self, slot: int, incarnation: int) -> str | None:
        models = self._told[(slot, incarnation)].models if (slot, incarnation) in self._told else ()
        return next((each.name for each in models if (slot, each.name) in self.hanging), None)

    def _do(self, action: Did) -> None:
        match action:
            case do.SpawnWorker(slot, incarnation) | do.SpawnReplacement(slot, incarnation):
                self._todo.append(told.WorkerSpawned(slot, incarnation, 4711))
            case do.WelcomeWorker(slot, incarnation):
                self._told[(slot, incarnation)] = self.reconciler.welcome(slot)
                self._todo.append(told.WorkerReady(slot, incarnation, 1, ()))
            case do.HoldWorker(slot, incarnation):
                self._told[(slot, incarnation)] = self.reconciler.welcome(slot)
            case do.KillWorker(slot, incarnation) if (name := self._hangs_at(slot, incarnation)) is not None:
                death = told.Death("SIGKILL", restartable=True, loading=name, blamed=name)
                self._todo.append(told.WorkerExited(slot, incarnation, death))
            case do.StopWorker(slot, incarnation) | do.KillWorker(slot, incarnation):
                self._todo = deque(step for step in self._todo if (step.slot, step.incarnation) != (slot, incarnation))
                self._todo.append(told.WorkerExited(slot, incarnation, told.Death("exited", restartable=True)))
            case do.SlotChanged() | do.WorkerChanged():
                self.reconciler.changed(action)
            case AnswerJob(job=number, outcome=do.JobFailed(fault, text, others=others)):
                self.failed[number] = f"{fault.name}: {text}{others}"
            case do.PoolReady(serving, slots):
                self.reconciler.serves()
                self.ready += 1
                self.announced = (serving, slots)
            case do.PoolStopped():
                self.end = action
                self._turn.soon()
