"""Workers beside a slot's seat: one that gets ready to follow who sits there, a standby, and those that leave.

    begin ─► STARTING ─► LOADING ─► READY: it is warm ─ take ─► in the seat; the former worker ─ leave ─┐
                 └───────────┴─────────┴─ dies, lies, takes too long ─► STOPPING ─► its exit: SuccessorFailed
                                          is not wanted any more ─────► STOPPING ◄──────────────────────┘
                                                                           └─► its exit: WorkerLeft

    stand_by ─► STARTING ─► LOADING: it imports ─► READY: it stands by ─ take ─► in the seat, to load and warm up
                    └───────────┴────────────────────┴─► its exit: StandbyLost, and after a pause another one

None of it changes the slot: whatever becomes of them, the worker in the seat serves on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pool.core import actions as do
from pool.core import events as told
from pool.core.orders import Orders
from pool.core.policy import Policy
from pool.core.slots import Slot, SlotState
from pool.core.timers import Timers
from pool.core.way_up import is_news, overrun, unready
from pool.wire.phases import Phase
from pool.wire.signatures import ModelInfo

__all__ = ["Aside", "Asides", "Failure"]


@dataclass(slots=True, eq=False)
class Aside:
    """A worker that does not sit in the seat. `follows`: it is, or was, to sit there next.

    `stands_by`: it is to sit there when the worker there dies. If it is neither, it is to go.
    """

    slot: Slot
    incarnation: int
    state: SlotState
    since: float
    follows: bool
    pid: int | None = None
    phase: Phase = Phase.IMPORTING
    detail: str = ""
    phase_since: float = 0.0
    due: float = 0.0  # when its state has lasted as long as it may
    lanes: int = 0
    loaded: Mapping[str, ModelInfo] = field(default_factory=dict)
    models: tuple[str, ...] = ()  # that it was told of
    killed_for: str | None = None
    stands_by: bool = False

    @property
    def has_imported(self) -> bool:
        """Whether it stands by, or is about to."""
        return self.stands_by and self.state in (SlotState.LOADING, SlotState.READY)

    @property
    def comes(self) -> bool:
        """Whether it may still sit in the seat one day."""
        return self.follows and self.state is not SlotState.STOPPING


@dataclass(frozen=True, slots=True)
class Failure:
    """The last successor of a slot that did not take the seat, and how many in a row that was."""

    incarnation: int
    reason: str
    at: float
    in_a_row: int
    refused: bool = False  # it touched no device: that has no room for two


class Asides:
    """It appends to `orders` and sets the timers ("aside", slot, incarnation), and ("standby", slot) for the next."""

    def __init__(self, policy: Policy, timers: Timers, orders: Orders) -> None:
        self.failures: dict[int, Failure] = {}
        self._policy = policy
        self._timers = timers
        self._orders = orders
        self._all: dict[tuple[int, int], Aside] = {}
        self._lost: dict[Slot, int] = {}  # standbys in a row

    def __bool__(self) -> bool:
        return bool(self._all)

    def __iter__(self) -> Iterator[Aside]:
        return iter(list(self._all.values()))

    def adopt(self, policy: Policy) -> None:
        """Timers that run stay as they are."""
        self._policy = policy

    def of(self, slot: Slot) -> list[Aside]:
        """All but the standby."""
        return [aside for aside in self._all.values() if aside.slot is slot and not aside.stands_by]

    def standby(self, slot: Slot) -> Aside | None:
        return next((aside for aside in self._all.values() if aside.slot is slot and aside.stands_by), None)

    def find(self, number: int, incarnation: int) -> Aside | None:
        return self._all.get((number, incarnation))

    def successor(self, slot: Slot) -> Aside | None:
        """The one that is to follow, or has failed to and is not gone yet. There is one a slot at most."""
        return next((aside for aside in self._all.values() if aside.slot is slot and aside.follows), None)

    # --- what others want ---------------------------------------------------------------------------------------

    def begin(self, slot: Slot, reason: str, now: float) -> int:
        """A successor is wanted. REQUIRES that only a standby is beside the seat. Returns its incarnation."""
        aside = self._new(slot, now, follows=True)
        self._say(aside, reason)
        must_fit = self._policy.successor != "always"
        self._orders.append(do.SpawnSuccessor(slot.number, aside.incarnation, must_fit))
        return aside.incarnation

    def stand_by(self, slot: Slot, now: float) -> None:
        """A standby is wanted. REQUIRES that there is none."""
        aside = self._new(slot, now, stands_by=True)
        self._say(aside)
        self._orders.append(do.SpawnStandby(slot.number, aside.incarnation))

    def _new(self, slot: Slot, now: float, *, follows: bool = False, stands_by: bool = False) -> Aside:
        slot.named += 1
        aside = Aside(slot, slot.named, SlotState.STARTING, now, follows, phase_since=now, stands_by=stands_by)
        self._all[(slot.number, aside.incarnation)] = aside
        self._bound(aside, now + self._policy.import_timeout_s)
        return aside

    def take(self, aside: Aside) -> None:
        """It sits in the seat from now on, or there will be none: nothing here is to do for it."""
        self._timers.clear(_key(aside))
        del self._all[(aside.slot.number, aside.incarnation)]

    def leave(self, slot: Slot, now: float) -> None:
        """Who sits in the seat, and holds nothing, is told to go; its exit is awaited here. REQUIRES a `seat` next."""
        aside = Aside(slot, slot.incarnation, slot.state, now, follows=False, pid=slot.pid)
        self._all[(slot.number, slot.incarnation)] = aside
        self.dismiss(aside, now)

    def dismiss(self, aside: Aside, now: float) -> None:
        """It is not wanted any more: it is told to stop."""
        aside.follows = aside.stands_by = False
        if aside.state is SlotState.STOPPING:
            return
        aside.state, aside.since = SlotState.STOPPING, now
        self._bound(aside, now + self._policy.stop_timeout_s)
        self._orders.append(do.StopWorker(aside.slot.number, aside.incarnation))

    def kill(self, aside: Aside, reason: str, now: float, stacks: bool = False) -> None:
        if aside.killed_for is not None:
            return
        aside.killed_for = reason
        if aside.state is not SlotState.STOPPING:
            aside.state, aside.since = SlotState.STOPPING, now
        self._bound(aside, now + self._policy.kill_timeout_s)
        self._orders.append(do.KillWorker(aside.slot.number, aside.incarnation, reason, stacks))

    def fail(self, aside: Aside, reason: str, now: float, *, refused: bool = False) -> None:
        """The successor is no more, and will be missed."""
        former = self.failures.get(aside.slot.number)
        in_a_row = 1 if former is None else former.in_a_row + 1
        self.failures[aside.slot.number] = Failure(aside.incarnation, reason, now, in_a_row, refused)
        self.take(aside)

    # --- what they do -------------------------------------------------------------------------------------------

    def handle(self, event: told.Event, now: float) -> bool:
        """Whether the event was of a worker beside the seat, and nobody else's."""
        match event:
            case (
                told.WorkerSpawned()
                | told.WorkerHello()
                | told.WorkerBeat()
                | told.WorkerReady()
                | told.WorkerBroken()
                | told.WorkerExited()
            ):
                aside = self._all.get((event.slot, event.incarnation))
                if aside is not None:
                    self._hear(aside, event, now)
                return aside is not None
        return False

    def _hear(self, aside: Aside, event: told.Event, now: float) -> None:
        policy = self._policy
        match event:
            case told.WorkerExited(death=death):
                self._exited(aside, death, now)
            case told.WorkerSpawned(pid=pid):
                aside.pid = pid
                if aside.state is SlotState.STARTING:
                    aside.phase_since, aside.detail = now, ""
                    self._bound(aside, now + policy.import_timeout_s)
            case told.WorkerBroken(what=what):
                self.kill(aside, f"sent what cannot be understood: {what}", now)
            case told.WorkerHello() if aside.state is SlotState.STARTING:
                # STARTING → LOADING
                aside.state, aside.since = SlotState.LOADING, now
                aside.models = aside.slot.planned
                self._say(aside)
                greet = do.HoldWorker if aside.stands_by else do.WelcomeWorker
                self._orders.append(greet(aside.slot.number, aside.incarnation))
            case told.WorkerBeat() if aside.state is SlotState.LOADING and is_news(aside, event):
                aside.phase, aside.detail, aside.phase_since = event.phase, event.detail, now
                self._bound(aside, now + (policy.phase_budget_s(event.phase) or 0.0))
            case told.WorkerBeat(phase=Phase.STANDING_BY) if aside.state is SlotState.LOADING and aside.stands_by:
                # LOADING → READY; it waits for as long as the worker in the seat lives
                self._timers.clear(_key(aside))
                aside.state, aside.since, aside.phase, aside.detail = SlotState.READY, now, event.phase, ""
                self._say(aside)
            case told.WorkerReady() if aside.stands_by:
                self.kill(aside, "said READY without a seat", now)
            case told.WorkerReady() if aside.state is SlotState.LOADING:
                if (wrong := unready(aside.models, event)) is not None:
                    self.kill(aside, wrong, now)
                    return
                # LOADING → READY; it waits for as long as the worker in the seat may run what it runs
                self._timers.clear(_key(aside))
                aside.state, aside.since, aside.phase = SlotState.READY, now, Phase.SERVING
                aside.lanes, aside.loaded = event.lanes, {model.name: model for model in event.models}
                self._say(aside)

    def _exited(self, aside: Aside, death: told.Death, now: float) -> None:
        killed = aside.killed_for is not None and not death.untouched
        reason = f"killed by the pool, because it {aside.killed_for}" if killed else death.text
        number, incarnation = aside.slot.number, aside.incarnation
        other_release = death.other_release and aside.state is SlotState.STARTING
        if other_release:
            aside.slot.other_release = True
        if aside.follows:
            self.fail(aside, reason, now, refused=death.no_room)
            if not death.no_room:
                self._orders.append(do.SuccessorFailed(number, incarnation, reason, death.last_output))
        elif aside.stands_by:
            self._lose(aside, reason, death.last_output, now, patient=other_release)
        else:
            self.take(aside)
            self._orders.append(do.WorkerLeft(number, incarnation, reason))

    def _lose(
        self, aside: Aside, reason: str, last_output: tuple[str, ...], now: float, *, patient: bool = False
    ) -> None:
        """A standby is no more. Another one comes after a pause, however often: the slot can do without."""
        policy, slot = self._policy, aside.slot
        lasted = aside.phase is Phase.STANDING_BY and now - aside.since >= policy.restart_period_s
        in_a_row = self._lost[slot] = 1 if lasted else self._lost.get(slot, 0) + 1
        pause_s = min(policy.backoff_max_s, policy.backoff_first_s * 2.0 ** min(in_a_row, 64))
        if patient or in_a_row > policy.restart_intensity:
            pause_s = policy.patient_pause_s
        self.take(aside)
        self._timers.set(("standby", slot.number), now + pause_s)
        self._orders.append(do.StandbyLost(slot.number, aside.incarnation, reason, last_output))

    # --- time ---------------------------------------------------------------------------------------------------

    def timer(self, number: int, incarnation: int, now: float) -> None:
        """Its state has lasted as long as it may."""
        aside = self._all[(number, incarnation)]
        if aside.state is not SlotState.STOPPING:
            self.kill(aside, overrun(aside, self._policy), now, stacks=True)
        elif aside.killed_for is None:
            why = f"did not exit within {self._policy.stop_timeout_s:g} s of being told to"
            self.kill(aside, why, now, stacks=True)
        else:
            self._stuck(aside, now)

    def _stuck(self, aside: Aside, now: float) -> None:
        """It cannot be seen to be gone, but it has no job, and the slot has its worker."""
        pause_s = self._policy.kill_timeout_s
        why = f"pid {aside.pid} did not die within {pause_s:g} s of SIGKILL (stuck in the kernel?)"
        number, incarnation = aside.slot.number, aside.incarnation
        if aside.follows:
            self.fail(aside, why, now)
            self._orders.append(do.SuccessorFailed(number, incarnation, why))
        elif aside.stands_by:
            self._lose(aside, why, (), now)
        else:
            self.take(aside)
            self._orders.append(do.Notice(f"slot {number} incarnation {incarnation}, which was to leave: {why}"))

    def _bound(self, aside: Aside, due: float) -> None:
        aside.due = due
        self._timers.set(_key(aside), due)

    def _say(self, aside: Aside, reason: str = "") -> None:
        changed = do.StandbyChanged if aside.stands_by else do.SuccessorChanged
        self._orders.append(changed(aside.slot.number, aside.incarnation, aside.state, reason))

    def validate(self) -> None:
        """Raises AssertionError where an invariant does not hold."""
        for (number, incarnation), aside in self._all.items():
            assert (aside.slot.number, aside.incarnation) == (number, incarnation), aside
            assert incarnation != aside.slot.incarnation, aside
            assert incarnation <= aside.slot.named, aside
            assert (_key(aside) in self._timers) == (aside.state is not SlotState.READY), aside
            if aside.follows:
                assert sum(other.follows for other in self.of(aside.slot)) == 1, aside
                assert not aside.comes or aside.slot.state in (
                    SlotState.READY,
                    SlotState.DRAINING,
                    SlotState.STOPPING,
                ), aside
                assert not aside.stands_by, aside
                if aside.state is SlotState.READY:
                    assert aside.slot.state is not SlotState.READY, "it is warm, and the other one takes work"


def _key(aside: Aside) -> tuple[str, int, int]:
    return ("aside", aside.slot.number, aside.incarnation)
