"""Workers that go though they did nothing wrong: a restart or a drain was asked for, or they have done their time.

Each finishes what it holds first. A successor gets ready beside it, where the policy and the device allow that, and
takes the seat as soon as the worker there holds nothing:

    READY ─ the successor is warm ─► DRAINING ─ nothing is held ─► READY, with the successor
      ▲                                 │
      └──── the successor is lost ──────┘

Otherwise the worker goes first. After a drain the slot stays empty, until a restart is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pool.core.slots import Slot, SlotState

if TYPE_CHECKING:
    from pool.core.supervision import Supervision

__all__ = ["DRAIN", "EMPTY", "Turnover"]

RESTART = "its restart was asked for"
DRAIN = "its drain was asked for; `pool restart` brings it back"
EMPTY = "no model is placed here any more"


@dataclass(slots=True)
class _Wish:
    """`beside`: a successor comes first, and `begun` is its incarnation. `sparing` as in `RestartAsked`.

    `recycles`: nobody asked for it, so it may as well not be. `looked`: how often slots had changed when it was looked
    for whether enough others are READY.
    """

    reason: str
    beside: bool = False
    sparing: bool = False
    recycles: bool = False
    begun: int | None = None
    looked: int = -1


class Turnover:
    def __init__(self, supervision: Supervision) -> None:
        self._supervision = supervision
        self.wishes: dict[Slot, _Wish] = {}

    def __bool__(self) -> bool:
        return bool(self.wishes)

    def cannot_restart(self, number: int) -> str | None:
        """Why a slot cannot have a new worker; None if it can."""
        supervision = self._supervision
        if not 0 <= number < len(supervision.slots):
            return f"there is no slot {number}; the last is {len(supervision.slots) - 1}"
        slot = supervision.slots[number]
        if supervision.stopping:
            return "the pool is stopping"
        if not slot.planned:
            return f"no model is placed in slot {number}"
        if slot.state is SlotState.FATAL and slot.pid is not None:
            return f"pid {slot.pid} in slot {number} did not die when it was killed, and still has the device"
        return None

    def restart(self, number: int, now: float, sparing: bool = False) -> None:
        if self.cannot_restart(number) is not None:
            return
        supervision = self._supervision
        slot = supervision.slots[number]
        supervision.forgive(slot)
        supervision.asides.failures.pop(number, None)
        if slot.state in (SlotState.FATAL, SlotState.BACKOFF, SlotState.STOPPED):
            # → STARTING
            supervision.over = False
            supervision.spawn(slot, now)
            return
        former = self.wishes.get(slot)
        self._forgo(slot, now)  # what it began with may not be what is wanted now
        goes_already = slot.state is not SlotState.READY and not (former is not None and former.beside)
        self.wishes[slot] = _Wish(RESTART, beside=not goes_already and self._may_follow, sparing=sparing)
        if slot.state in (SlotState.STARTING, SlotState.LOADING):
            supervision.retire(slot, RESTART, now)

    def cannot_drain(self, number: int) -> str | None:
        """Why a slot cannot be taken out of service; None if it can."""
        if (why := self.cannot_restart(number)) is not None:
            return why
        slot = self._supervision.slots[number]
        return None if slot.lasts else f"slot {number} is {slot.state.name} already: {slot.reason}"

    def drain(self, number: int, now: float) -> None:
        if self.cannot_drain(number) is not None:
            return
        self._take_out(self._supervision.slots[number], DRAIN, now)

    def empty(self, slot: Slot, now: float) -> None:
        """The slot has no model any more, so it is to have no worker."""
        if slot.lasts:
            self._take_out(slot, EMPTY, now)

    def _take_out(self, slot: Slot, reason: str, now: float) -> None:
        self._forgo(slot, now)
        self._supervision.seating.dismiss_standby(slot, now)
        if slot.state is not SlotState.BACKOFF:
            self.wishes[slot] = _Wish(reason)
        if slot.state in (SlotState.BACKOFF, SlotState.STARTING, SlotState.LOADING):
            self._supervision.retire(slot, reason, now)

    def recycle(self, slot: Slot, reason: str, *, beside: bool) -> None:
        """The worker has done its time. Without `beside` it goes now, whoever else is READY."""
        if slot not in self.wishes:
            self.wishes[slot] = _Wish(reason, beside=beside, recycles=True)

    def refused(self, slot: Slot, why: str) -> None:
        """There is no room for a successor: the worker goes first, or, if that can wait, not now."""
        wish = self.wishes.get(slot)
        if wish is None or not wish.beside:
            return
        if wish.recycles:
            del self.wishes[slot]
        else:
            wish.beside, wish.reason = False, f"{wish.reason}; without a successor: {why}"

    def forgo_all(self, now: float) -> None:
        """The pool stops: nobody follows any more, and who serves does so to the end."""
        for slot, wish in list(self.wishes.items()):
            if wish.beside:
                self._forgo(slot, now)
                del self.wishes[slot]
                if slot.state is SlotState.DRAINING:
                    self._supervision.seating.resume(slot, now)

    def go_on(self, now: float) -> bool:
        """The next step of each worker that is to go; whether a slot is in another state now."""
        for slot, wish in list(self.wishes.items()):
            if wish.beside:
                self._follow(slot, wish, now)
            elif self._may_go(slot, wish):
                self._go(slot, wish, now)
        return bool(self._supervision.changed)

    def gone(self, slot: Slot) -> str | None:
        """Why the worker was to go, if it was; its exit was seen, or the slot is given up."""
        wish = self.wishes.pop(slot, None)
        return None if wish is None else wish.reason

    @property
    def _may_follow(self) -> bool:
        return self._supervision.policy.successor != "never"

    def _forgo(self, slot: Slot, now: float) -> None:
        """A successor that is on its way is not wanted any more."""
        asides = self._supervision.asides
        successor = asides.successor(slot)
        if successor is not None:
            asides.dismiss(successor, now)

    def _follow(self, slot: Slot, wish: _Wish, now: float) -> None:
        supervision = self._supervision
        successor = supervision.asides.successor(slot)
        if wish.begun is None:
            if slot.state is SlotState.DRAINING:
                supervision.seating.resume(slot, now)  # for another successor, which was forgone
            elif slot.state is SlotState.READY and not supervision.asides.of(slot):
                wish.begun = supervision.asides.begin(slot, wish.reason, now)
        elif successor is None or not successor.comes:
            if slot.state is SlotState.DRAINING:
                supervision.seating.resume(slot, now)
            if successor is None:
                del self.wishes[slot]
        elif successor.state is not SlotState.READY:
            return
        elif slot.state is SlotState.READY:
            supervision.seating.make_way(
                slot, f"incarnation {successor.incarnation} is ready to follow: {wish.reason}", now
            )
        elif slot.state is SlotState.DRAINING and not any(batch.wanted for batch in slot.batches.values()):
            if slot.batches:
                supervision.kill(slot, f"ran only what nobody waits for when {wish.reason}", now)
            else:
                del self.wishes[slot]
                supervision.seating.switch(slot, successor, now)

    def _go(self, slot: Slot, wish: _Wish, now: float) -> None:
        supervision = self._supervision
        if slot.state in (SlotState.READY, SlotState.DRAINING) and supervision.asides.of(slot):
            # Nobody is to be left behind when it is gone.
            if slot.state is SlotState.READY:
                supervision.seating.make_way(slot, wish.reason, now)
            return
        supervision.retire(slot, wish.reason, now)

    def _may_go(self, slot: Slot, wish: _Wish) -> bool:
        if not wish.sparing or slot.state is not SlotState.READY:
            return True
        changes = self._supervision.changes
        if wish.looked == changes:
            return False
        wish.looked = changes
        return self._is_spared(slot)

    def _is_spared(self, slot: Slot) -> bool:
        """Whether enough others of each of its models are READY; others that are out of service are none."""
        supervision = self._supervision
        for name in slot.models:
            others = [
                other for other in supervision.slots if name in other.models and other.lasts and other is not slot
            ]
            ready = sum(other.state is SlotState.READY for other in others)
            if ready < min(supervision.policy.min_ready, len(others)):
                return False
        return True
