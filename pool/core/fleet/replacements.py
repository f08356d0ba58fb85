"""Workers that go though they did nothing wrong: a restart or a drain was asked for, or they have done their time.

Each finishes what it holds first. A replacement gets ready beside it, where the policy and the device allow that, and
the slot is given to it as soon as the serving worker holds nothing:

    READY ─ the replacement is warm ─► DRAINING ─ nothing is held ─► READY, with the replacement
      ▲                                   │
      └──── the replacement is lost ──────┘

Otherwise the worker goes first. After a drain the slot stays empty, until a restart is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from pool.core import actions as do
from pool.core.fleet.slot import Slot, SlotState
from pool.core.fleet.worker import Role, Worker, WorkerState
from pool.core.jobs import IllegalStep

if TYPE_CHECKING:
    from pool.core.fleet.fleet import Fleet

__all__ = ["STEPS", "Kind", "Replacements", "Step"]

RESTART = "restart requested"
DRAIN = "drain requested; `pool undrain` brings it back"
EMPTY = "no model is placed here any more"


class Kind(Enum):
    RESTART = "another worker is wanted"
    ROLLING = "so it is, but one that has to go first waits until enough others of its models are READY"
    RECYCLE = "the worker has done its time; nobody asked, so it may as well not be"
    DRAIN = "the slot is to stay empty"


class Step(Enum):
    AWAITED = "a replacement is to be started as soon as nobody else is beside the worker"
    BESIDE = "a replacement gets ready; it takes the slot over as soon as the worker holds nothing"
    FIRST = "the worker goes, and the next one comes after it"


STEPS: Mapping[Step, frozenset[Step]] = {
    Step.AWAITED: frozenset({Step.BESIDE, Step.FIRST}),
    Step.BESIDE: frozenset({Step.FIRST}),
    Step.FIRST: frozenset(),
}


@dataclass(slots=True)
class _Request:
    """`looked`: how often slots had changed when it was looked for whether enough others are READY."""

    kind: Kind
    step: Step
    reason: str
    looked: int = -1

    def take(self, step: Step) -> None:
        if step not in STEPS[self.step]:
            raise IllegalStep(f"{self.kind.name}: {self.step.name} → {step.name}")
        self.step = step


class Replacements:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.requests: dict[Slot, _Request] = {}

    def cannot_restart(self, number: int) -> str | None:
        """Why a slot cannot have a new worker; None if it can."""
        fleet = self._fleet
        if not 0 <= number < len(fleet.slots):
            return f"there is no slot {number}; the last is {len(fleet.slots) - 1}"
        slot = fleet.slots[number]
        if fleet.stopping:
            return "the pool is stopping"
        if not slot.planned:
            left_out = slot.state is SlotState.FATAL and fleet.policy.unloadable
            hint = "; `pool reload` tries again what could not be loaded there" if left_out else ""
            return f"no model is placed in slot {number}{hint}"
        if slot.state is SlotState.FATAL and slot.worker.pid is not None:
            return f"pid {slot.worker.pid} in slot {number} did not die when it was killed and still holds the device"
        return None

    def restart(self, number: int, now: float, sparing: bool = False) -> None:
        if self.cannot_restart(number) is not None:
            return
        fleet = self._fleet
        slot = fleet.slots[number]
        fleet.deaths.forgive(slot)
        if slot.state in (SlotState.FATAL, SlotState.BACKOFF, SlotState.STOPPED):
            # → STARTING
            fleet.over = False
            fleet.spawn(slot, now)
            return
        former = self.requests.get(slot)
        self._forgo(slot, now)  # what it began with may not be what is wanted now
        goes_already = slot.state is not SlotState.READY and (former is None or former.step is Step.FIRST)
        may_follow = not goes_already and self._fleet.policy.replacement != "off"
        kind, step = Kind.ROLLING if sparing else Kind.RESTART, Step.AWAITED if may_follow else Step.FIRST
        self.requests[slot] = _Request(kind, step, RESTART)
        if slot.state in (SlotState.STARTING, SlotState.LOADING):
            fleet.retire(slot, RESTART, now)

    def cannot_drain(self, number: int) -> str | None:
        """Why a slot cannot be taken out of service; None if it can."""
        if (why := self.cannot_restart(number)) is not None:
            return why
        slot = self._fleet.slots[number]
        return None if slot.lasts else f"slot {number} is already {slot.state.name}: {slot.reason}"

    def drain(self, number: int, now: float) -> None:
        if self.cannot_drain(number) is not None:
            return
        self._take_out(self._fleet.slots[number], DRAIN, now)

    def empty(self, slot: Slot, now: float) -> None:
        """The slot has no model any more, so it is to have no worker."""
        if slot.lasts:
            self._take_out(slot, EMPTY, now)

    def _take_out(self, slot: Slot, reason: str, now: float) -> None:
        self._forgo(slot, now)
        self._fleet.dismiss_standby(slot, now)
        if slot.state is not SlotState.BACKOFF:
            self.requests[slot] = _Request(Kind.DRAIN, Step.FIRST, reason)
        if slot.state in (SlotState.BACKOFF, SlotState.STARTING, SlotState.LOADING):
            self._fleet.retire(slot, reason, now)

    def recycle(self, slot: Slot, reason: str, *, beside: bool) -> None:
        """The worker has done its time. Without `beside` it goes now, whoever else is READY."""
        self.requests[slot] = _Request(Kind.RECYCLE, Step.AWAITED if beside else Step.FIRST, reason)

    def refused(self, slot: Slot, why: str) -> None:
        """There is no room for a replacement: the worker goes first, or, if that can wait, not now."""
        request = self.requests.get(slot)
        if request is None or request.step is Step.FIRST:
            return
        if request.kind is Kind.RECYCLE:
            del self.requests[slot]
        else:
            request.take(Step.FIRST)
            request.reason += f"; without a replacement: {why}"

    def forgo_all(self, now: float) -> None:
        """The pool stops: nobody follows any more, and who serves does so to the end."""
        for slot, request in list(self.requests.items()):
            if request.step is not Step.FIRST:
                self._forgo(slot, now)
                del self.requests[slot]
                if slot.state is SlotState.DRAINING:
                    self._resume(slot, now)

    def go_on(self, now: float) -> bool:
        """The next step of each worker that is to go; whether a slot is in another state now."""
        for slot, request in list(self.requests.items()):
            match request.step:
                case Step.AWAITED:
                    self._begin(slot, request, now)
                case Step.BESIDE:
                    self._follow(slot, request, now)
                case Step.FIRST if self._may_go(slot, request):
                    self._go(slot, request, now)
        return bool(self._fleet.changed)

    def gone(self, slot: Slot) -> _Request | None:
        """Why the worker was to go, if it was; its exit was seen, or the slot is given up."""
        return self.requests.pop(slot, None)

    def _forgo(self, slot: Slot, now: float) -> None:
        """A replacement that is on its way is not wanted any more."""
        self._fleet.dismiss(slot.in_role(Role.REPLACEMENT), now)

    def _follow(self, slot: Slot, request: _Request, now: float) -> None:
        fleet = self._fleet
        replacement = slot.in_role(Role.REPLACEMENT)
        yields = slot.state is SlotState.DRAINING
        if replacement is None or not replacement.comes:
            if yields:
                self._resume(slot, now)
            if replacement is None:
                del self.requests[slot]
        elif replacement.state is not WorkerState.READY:
            return
        elif slot.state is SlotState.READY:
            self._yield(slot, f"incarnation {replacement.incarnation} is ready to take over: {request.reason}", now)
        elif yields and fleet.is_empty(slot, request.reason, now):
            del self.requests[slot]
            self._switch(slot, replacement, now)

    def _go(self, slot: Slot, request: _Request, now: float) -> None:
        if slot.state in (SlotState.READY, SlotState.DRAINING) and slot.is_changing:
            # Nobody is to be left behind when it is gone.
            if slot.state is SlotState.READY:
                self._yield(slot, request.reason, now)
            return
        self._fleet.retire(slot, request.reason, now)

    # --- who follows whom ---------------------------------------------------------------------------------------

    def _begin(self, slot: Slot, request: _Request, now: float) -> None:
        if slot.state is SlotState.DRAINING:
            self._resume(slot, now)  # it was to make way for another replacement, which was forgone
            return
        if slot.state is not SlotState.READY or slot.is_changing:
            return
        request.take(Step.BESIDE)
        replacement = self._fleet.begin(slot, Role.REPLACEMENT, now, request.reason)
        must_fit = self._fleet.policy.replacement != "always"
        self._fleet.orders.append(do.SpawnReplacement(slot.number, replacement.incarnation, must_fit))

    def _yield(self, slot: Slot, reason: str, now: float) -> None:
        # READY → DRAINING
        slot.worker.become(WorkerState.YIELDING, now)
        self._fleet.change(slot, SlotState.DRAINING, now, reason)

    def _resume(self, slot: Slot, now: float) -> None:
        """The worker that was to make way serves on."""
        # DRAINING → READY
        slot.worker.become(WorkerState.READY, now)
        self._fleet.change(slot, SlotState.READY, now)

    def _switch(self, slot: Slot, replacement: Worker, now: float) -> None:
        """The replacement takes the slot over from a worker that holds nothing, which leaves."""
        former = slot.worker
        slot.give(replacement)
        slot.beside.append(former)
        self._fleet.dismiss(former, now)
        slot.failure = None
        # DRAINING → READY
        self._fleet.serve(slot, now)

    def succeed(self, slot: Slot, now: float) -> None:
        """The serving worker is gone, or given up: a replacement that is under way goes on in its place."""
        worker = slot.in_role(Role.REPLACEMENT)
        if worker is None or not worker.comes or slot.state not in (SlotState.BACKOFF, SlotState.FATAL):
            return
        self._fleet.give(slot, worker, now)

    def is_followed(self, slot: Slot, now: float) -> bool:
        """Whether a replacement is there to take over at once. One that was not spawned yet comes as any other."""
        replacement = slot.in_role(Role.REPLACEMENT)
        if replacement is None or not replacement.comes:
            return False
        if replacement.pid is None:
            self._fleet.dismiss(replacement, now)
            return False
        return True

    # --- who can be spared --------------------------------------------------------------------------------------

    def _may_go(self, slot: Slot, request: _Request) -> bool:
        if request.kind is not Kind.ROLLING or slot.state is not SlotState.READY:
            return True
        changes = self._fleet.changes
        if request.looked == changes:
            return False
        request.looked = changes
        return self._is_spared(slot)

    def _is_spared(self, slot: Slot) -> bool:
        """Whether enough others of each of its models are READY; others that are out of service are none."""
        fleet = self._fleet
        for name in slot.models:
            others = [other for other in fleet.slots if name in other.models and other.lasts and other is not slot]
            ready = sum(other.state is SlotState.READY for other in others)
            if ready < min(fleet.policy.min_ready, len(others)):
                return False
        return True
