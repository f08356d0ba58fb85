"""Who follows whom in a slot's seat: a successor that is warm, or under way when the seat is empty; a standby.

READY ─ make_way ─► DRAINING ─ switch ─► READY, with the successor
  ▲                    │
  └──── resume ────────┘
BACKOFF, FATAL ─ succeed ─► as far as the successor is
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pool.core.asides import Aside
from pool.core.slots import Slot, SlotState

if TYPE_CHECKING:
    from pool.core.supervision import Supervision

__all__ = ["Seating"]

LOOK_AGAIN_S = 5.0


class Seating:
    def __init__(self, supervision: Supervision) -> None:
        self._supervision = supervision

    def look_for_standby(self, number: int, now: float) -> None:
        """A slot that serves has a standby, if there are to be any."""
        slot = self._supervision.slots[number]
        standby = self._supervision.asides.standby(slot)
        if not self._supervision.policy.standby or self._supervision.stopping or slot.state is not SlotState.READY:
            if not self._supervision.policy.standby and standby is not None:
                self._supervision.asides.dismiss(standby, now)
        elif self._supervision.asides.of(slot):
            self._supervision.timers.set(("standby", number), now + LOOK_AGAIN_S)  # not three at once
        elif standby is None:
            self._supervision.asides.stand_by(slot, now)

    def dismiss_standby(self, slot: Slot, now: float) -> None:
        self._supervision.timers.clear(("standby", slot.number))
        standby = self._supervision.asides.standby(slot) if self._supervision.asides else None
        if standby is not None:
            self._supervision.asides.dismiss(standby, now)

    def make_way(self, slot: Slot, reason: str, now: float) -> None:
        # READY → DRAINING
        self._supervision.change(slot, SlotState.DRAINING, now, reason)
        slot.makes_way = True

    def resume(self, slot: Slot, now: float) -> None:
        """Who was to make way serves on."""
        # DRAINING → READY
        self._supervision.change(slot, SlotState.READY, now)

    def switch(self, slot: Slot, successor: Aside, now: float) -> None:
        """The successor takes the seat of a worker that holds nothing, which leaves."""
        self._supervision.asides.take(successor)
        self._supervision.asides.leave(slot, now)
        self._supervision.asides.failures.pop(slot.number, None)
        slot.seat(successor.incarnation)
        slot.pid, slot.welcomed = successor.pid, successor.models
        # DRAINING → READY
        self._supervision.serve(slot, successor.lanes, successor.loaded, now)

    def succeed(self, slot: Slot, now: float) -> None:
        """The worker in the seat is gone, or given up: a successor that is under way goes on there."""
        successor = self._supervision.asides.successor(slot) if self._supervision.asides else None
        if successor is None or not successor.comes or slot.state not in (SlotState.BACKOFF, SlotState.FATAL):
            return
        self._supervision.asides.take(successor)
        slot.seat(successor.incarnation)
        slot.pid, slot.welcomed = successor.pid, successor.models
        # BACKOFF, FATAL → STARTING
        self._supervision.change(slot, SlotState.STARTING, now)
        slot.phase, slot.detail, slot.phase_since = successor.phase, successor.detail, successor.phase_since
        self._supervision.timers.set(("slot", slot.number), successor.due)
        if successor.state is not SlotState.STARTING:
            # STARTING → LOADING
            self._supervision.change(slot, SlotState.LOADING, now)
        if successor.state is SlotState.READY:
            # LOADING → READY
            self._supervision.timers.clear(("slot", slot.number))
            self._supervision.serve(slot, successor.lanes, successor.loaded, now)

    def is_followed(self, slot: Slot, now: float) -> bool:
        """Whether a successor is there to take the empty seat. One that was not spawned yet comes as any other."""
        successor = self._supervision.asides.successor(slot) if self._supervision.asides else None
        if successor is None or not successor.comes:
            return False
        if successor.pid is None:
            self._supervision.asides.dismiss(successor, now)
            return False
        return True
