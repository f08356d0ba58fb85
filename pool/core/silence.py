"""Workers that serve and have stopped to beat.

One that runs something is judged by its batch's budget alone: what it runs may hold the interpreter for long. An idle
one has nothing else to do than to beat, and whoever waits for its next answer must not find out that it is stuck.
"""

from __future__ import annotations

from collections.abc import Iterable

from pool.core.policy import Policy
from pool.core.slots import Slot, SlotState
from pool.core.timers import Timers

__all__ = ["Silence"]

SECOND_LOOK_S = 2.0  # the pool itself may have been stopped, and beats that came meanwhile are still unread


class Silence:
    """It sets the timers ("silence", slot)."""

    def __init__(self, policy: Policy, timers: Timers) -> None:
        self._policy = policy
        self._timers = timers

    def adopt(self, policy: Policy, slots: Iterable[Slot]) -> None:
        """Those that serve are judged by another bound, or from now on."""
        self._policy = policy
        if policy.silent_after_s is not None:
            for slot in slots:
                if slot.state in (SlotState.READY, SlotState.DRAINING):
                    self._timers.set(("silence", slot.number), slot.heard_at + policy.silent_after_s)

    def begin(self, slot: Slot, now: float) -> None:
        """The worker is READY."""
        self.heard(slot, now)
        if self._policy.silent_after_s is not None:
            self._timers.set(("silence", slot.number), now + self._policy.silent_after_s)

    def heard(self, slot: Slot, now: float) -> None:
        slot.heard_at, slot.doubted = now, False

    def judge(self, slot: Slot, now: float) -> str | None:
        """When its timer has come: why the worker is to be killed, if it is; else there is a next time."""
        bound_s = self._policy.silent_after_s
        if bound_s is None or slot.state not in (SlotState.READY, SlotState.DRAINING):
            return None
        next_look = slot.heard_at + bound_s
        if now >= next_look:  # the very sum that the timer is set to: a difference may be less than the bound even then
            next_look = now + SECOND_LOOK_S
            if not slot.batches:
                if slot.doubted:
                    silent_s = now - slot.heard_at
                    return f"was idle and gave no sign of life for {silent_s:.0f} s ([health] silent_after)"
                slot.doubted = True
        self._timers.set(("silence", slot.number), next_look)
        return None
