"""Workers that go though they did nothing wrong: a restart or a drain was asked for, or they have done their time.

Each finishes what it holds first. After a drain the slot stays empty, until a restart is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pool.core.slots import Slot, SlotState

if TYPE_CHECKING:
    from pool.core.supervision import Supervision

__all__ = ["DRAIN", "Turnover"]

RESTART = "its restart was asked for"
DRAIN = "its drain was asked for; `pool restart` brings it back"


class Turnover:
    def __init__(self, supervision: Supervision) -> None:
        self._supervision = supervision
        self._going: dict[Slot, str] = {}  # and why

    def __bool__(self) -> bool:
        return bool(self._going)

    def cannot_restart(self, number: int) -> str | None:
        """Why a slot cannot have a new worker; None if it can."""
        supervision = self._supervision
        if not 0 <= number < len(supervision.slots):
            return f"there is no slot {number}; the last is {len(supervision.slots) - 1}"
        slot = supervision.slots[number]
        if supervision.stopping or supervision.over:
            return "the pool is stopping"
        if not slot.models:
            return f"no model is placed in slot {number}"
        if slot.state is SlotState.FATAL and slot.pid is not None:
            return f"pid {slot.pid} in slot {number} did not die when it was killed, and still has the device"
        return None

    def restart(self, number: int, now: float) -> None:
        if self.cannot_restart(number) is not None:
            return
        supervision = self._supervision
        slot = supervision.slots[number]
        supervision.forgive(slot)
        if slot.state in (SlotState.FATAL, SlotState.BACKOFF, SlotState.STOPPED):
            # → STARTING
            supervision.spawn(slot, now)
            return
        self._going[slot] = RESTART
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
        slot = self._supervision.slots[number]
        if slot.state is not SlotState.BACKOFF:
            self._going[slot] = DRAIN
        if slot.state in (SlotState.BACKOFF, SlotState.STARTING, SlotState.LOADING):
            self._supervision.retire(slot, DRAIN, now)

    def recycle(self, slot: Slot, reason: str) -> None:
        """The worker has done its time."""
        self._going[slot] = reason

    def go_on(self, now: float) -> None:
        """Stops each worker that is to go as soon as it holds nothing."""
        for slot, reason in list(self._going.items()):
            self._supervision.retire(slot, reason, now)

    def gone(self, slot: Slot) -> str | None:
        """Why the worker was to go, if it was; its exit was seen, or the slot is given up."""
        return self._going.pop(slot, None)
