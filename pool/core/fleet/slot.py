"""A slot: what it is for its users, and the workers that it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from pool.core.events import Death
from pool.core.fleet.worker import SERVES, Role, Worker, WorkerState
from pool.core.jobs import Batch, IllegalStep
from pool.wire.exits import Exit

if TYPE_CHECKING:
    from pool.clock import Timers
    from pool.core.queue import Line

__all__ = ["ALIVE", "READY", "SLOT_STEPS", "Failure", "Slot", "SlotState"]


class SlotState(Enum):
    STOPPED = "has no process and needs none"
    STARTING = "the process was spawned but has not said HELLO, or a former process must end first"
    LOADING = "the worker waits for its device, imports, loads and warms up"
    READY = "the worker takes batches"
    DRAINING = "the worker takes no new work and finishes what it holds"
    STOPPING = "the worker was told to exit, or killed, and its exit has not been seen"
    BACKOFF = "the worker died; the next one is spawned after a pause"
    FATAL = "no worker is spawned any more; the reason says why"

    __hash__ = object.__hash__  # Enum's own is written in Python, and each answer needs one


READY = SlotState.READY  # for what every job asks: to look it up in its Enum takes ten times as long

_EMPTY = frozenset({SlotState.STOPPED, SlotState.BACKOFF, SlotState.FATAL})
SLOT_STEPS: Mapping[SlotState, frozenset[SlotState]] = {
    SlotState.STOPPED: frozenset({SlotState.STARTING}),
    SlotState.STARTING: frozenset({SlotState.LOADING, SlotState.STOPPING}) | _EMPTY,
    SlotState.LOADING: frozenset({SlotState.READY, SlotState.STOPPING}) | _EMPTY,
    SlotState.READY: frozenset({SlotState.DRAINING, SlotState.STOPPING}) | _EMPTY,
    SlotState.DRAINING: frozenset({SlotState.READY, SlotState.STOPPING, SlotState.BACKOFF, SlotState.STOPPED}),
    SlotState.STOPPING: _EMPTY,
    SlotState.BACKOFF: frozenset({SlotState.STARTING, SlotState.STOPPED}),
    SlotState.FATAL: frozenset({SlotState.STARTING}),
}

ALIVE = frozenset({SlotState.STARTING, SlotState.LOADING, SlotState.READY, SlotState.DRAINING, SlotState.STOPPING})
"""The states in which a process may exist."""
HELD = frozenset({SlotState.READY, SlotState.DRAINING, SlotState.STOPPING})
"""By a worker, with the models that it has."""


BOUNDED = (WorkerState.STARTING, WorkerState.LOADING, WorkerState.STOPPING, WorkerState.KILLED)
"""The states that end by a timer, if by nothing else; one that serves has one where silence has a bound."""
SLOT_WORKERS = {
    SlotState.STOPPED: {WorkerState.GONE},
    SlotState.STARTING: {WorkerState.STARTING},
    SlotState.LOADING: {WorkerState.LOADING},
    SlotState.READY: {WorkerState.READY},
    SlotState.DRAINING: {WorkerState.READY, WorkerState.YIELDING},
    SlotState.STOPPING: {WorkerState.STOPPING, WorkerState.KILLED},
    SlotState.BACKOFF: {WorkerState.GONE},
    SlotState.FATAL: {WorkerState.GONE, WorkerState.STUCK},
}
"""What the serving worker does, in each state of its slot."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The last replacement of a slot that did not take it over, and how many in a row that was."""

    incarnation: int
    reason: str
    at: float
    in_a_row: int
    refused: bool = False  # it touched no device: that has no room for two


@dataclass(slots=True, eq=False)
class Slot:
    """What has a worker on one device (or group of them) for as long as the pool runs.

    `worker` serves, or did last; `beside` are those with another role, as they came, and `named` is the last
    incarnation that was given out. `models` are those of its worker, or where there is none those that the next one is
    to have, which are `planned`. `versions`: which one of each model the last worker had that was READY, or the first
    one is to have; without those that have none. `device` is its device's name, `names` are those by which a job may be
    pinned to it. `idle_lanes` is the worker's credit. `kept_for` is the line that has a suspect to run here, alone:
    until what runs is done the slot takes nothing else. `in_vain` counts the workers in a row that died before they
    finished anything, while what they ran was well elsewhere. `turn` changes with each change of what the slot could
    take; `rested` is that at which it found no work. `other_release`: the last worker that was started for it was of
    another release than the pool. `failure` is of its last replacement, if that failed.
    """

    number: int
    models: tuple[str, ...]
    device: str = ""
    names: frozenset[str] = frozenset()
    state: SlotState = SlotState.STOPPED
    since: float = 0.0
    reason: str = ""
    worker: Worker = field(init=False)
    beside: list[Worker] = field(default_factory=list)
    named: int = 0
    idle_lanes: list[int] = field(default_factory=list)
    batches: dict[int, Batch] = field(default_factory=dict)
    last_used: int = 0
    started: int = 0  # batches
    finished: int = 0  # of them
    jobs_done: int = 0  # each once, where its last rows ran
    versions: dict[str, int] = field(default_factory=dict)
    planned: tuple[str, ...] = ()
    in_vain: int = 0
    kept_for: Line | None = None
    turn: int = 0
    restarts: int = 0  # workers that it got after its first one, for whatever reason
    deaths: Counter[str] = field(default_factory=Counter)  # by cause, of workers in any role
    rested: int = -1
    other_release: bool = False
    failure: Failure | None = None
    standbys_lost: int = 0  # in a row

    def __post_init__(self) -> None:
        self.worker = Worker(self, 0, Role.SERVING, WorkerState.GONE)  # there was none yet

    @property
    def takes_work(self) -> bool:
        """Whether it can start any batch now."""
        if not self.idle_lanes or self.state is not READY or self.kept_for is not None:
            return False
        for number in self.batches:
            return not self.batches[number].suspect  # that runs alone, so any tells; each job asks, so without a call
        return True

    @property
    def runs_suspect(self) -> bool:
        """Whether it runs a part that has lost a worker before, which nothing runs beside."""
        return any(batch.suspect for batch in self.batches.values())

    @property
    def rests(self) -> bool:
        """Whether it has found no work, and nothing has changed since."""
        return self.rested == self.turn

    @property
    def free_at(self) -> float:
        """When all that it runs is likely to have ended; 0.0 if it runs nothing."""
        return max([batch.expected_end for batch in self.batches.values()]) if self.batches else 0.0

    @property
    def lasts(self) -> bool:
        """Whether what waits for it may still be run by it."""
        return self.state not in (SlotState.FATAL, SlotState.STOPPED)

    @property
    def waits_for_release(self) -> bool:
        """Whether no worker of the pool's release can be had."""
        return self.state is SlotState.BACKOFF and self.other_release

    @property
    def is_changing(self) -> bool:
        """Whether another worker is beside the one that serves, but for a standby."""
        return any(worker.role is not Role.STANDBY for worker in self.beside)

    def in_role(self, role: Role) -> Worker | None:
        """A worker beside the one that serves. There is one replacement and one standby at most."""
        return next((worker for worker in self.beside if worker.role is role), None)

    def find(self, incarnation: int) -> Worker | None:
        """The worker, unless its exit was seen, or nothing of it is of concern any more."""
        worker = self.worker
        if worker.incarnation == incarnation:
            return None if worker.state is WorkerState.GONE else worker
        return next((worker for worker in self.beside if worker.incarnation == incarnation), None)

    def become(self, state: SlotState, now: float, reason: str = "") -> None:
        if state not in SLOT_STEPS[self.state]:
            raise IllegalStep(f"slot {self.number}: {self.state.name} → {state.name}")
        self.state, self.since, self.reason = state, now, reason

    def give(self, worker: Worker) -> None:
        """The slot is this worker's from now on; what was the former one's is forgotten."""
        if worker in self.beside:
            self.beside.remove(worker)
        self.restarts += self.worker.incarnation > 0
        worker.role = Role.SERVING
        self.worker = worker
        self.batches, self.idle_lanes = {}, []
        self.kept_for = None

    def count_death(self, worker: Worker, death: Death) -> None:
        """Unless it ended because it was told to. REQUIRES that the worker's state is still that before its exit."""
        told_to = worker.state is WorkerState.STOPPING and death.cause in (Exit.STOPPED.name, Exit.POOL_GONE.name)
        if not (told_to or death.no_room):
            kill = None if death.untouched else worker.killed_for
            self.deaths[death.cause if kill is None else kill.cause.name] += 1

    def validate(self, timers: Timers) -> None:
        """Raises AssertionError where an invariant of the slot and its workers does not hold."""
        worker = self.worker
        assert worker.state in SLOT_WORKERS[self.state], self
        assert (("slot", self.number) in timers) == (self.state is SlotState.BACKOFF), self
        lanes = sorted(self.idle_lanes + [batch.lane for batch in self.batches.values()])
        if self.state in (SlotState.READY, SlotState.DRAINING):
            assert lanes == list(range(worker.lanes)), self
        else:
            assert len(set(lanes)) == len(lanes), self
            assert self.state is SlotState.STOPPING or worker.killed_for or not lanes, self
        for batch in self.batches.values():
            assert (batch.slot, batch.incarnation) == (self.number, worker.incarnation), batch
        for each in [worker, *self.beside]:
            assert each.slot is self, each
            assert each.incarnation <= self.named, each
            assert (each.role is Role.SERVING) == (each is worker), each
            may_have_one = each.state in BOUNDED or (each is worker and each.state in SERVES)
            assert each.state not in BOUNDED or each.key in timers, each
            assert each.key not in timers or may_have_one, each
        roles = [each.role for each in self.beside]
        assert roles.count(Role.REPLACEMENT) <= 1, self
        assert roles.count(Role.STANDBY) <= 1, self
        replacement = self.in_role(Role.REPLACEMENT)
        if replacement is not None and replacement.comes:
            assert self.state in HELD, self
            assert self.state is not SlotState.READY or replacement.state is not WorkerState.READY, "it takes work"
