"""Workers that serve and have stopped to beat.

One that runs something is judged by its batch's budget alone: what it runs may hold the interpreter for long. An idle
one has nothing else to do than to beat, and whoever waits for its next answer must not find out that it is stuck.
"""

from __future__ import annotations

from collections.abc import Iterable

from pool.clock import Timers
from pool.core.fleet.slot import Slot, SlotState
from pool.core.fleet.worker import Worker
from pool.core.policy import Policy

__all__ = ["Silence"]

SECOND_LOOK_S = 2.0  # the pool itself may have been stopped, and beats that came meanwhile are still unread
SERVING = (SlotState.READY, SlotState.DRAINING)


class Silence:
    """It sets the timers ("silence", slot)."""

    def __init__(self, policy: Policy, timers: Timers) -> None:
        self._policy = policy
        self._timers = timers

    def adopt(self, policy: Policy, slots: Iterable[Slot]) -> None:
        """Those that serve are judged by another bound, or from now on."""
        self._policy = policy
        for slot in slots:
            if slot.state in SERVING:
                self._look_after(slot.worker)

    def begin(self, worker: Worker, now: float) -> None:
        """The worker serves from now on."""
        worker.heard_at, worker.doubted = now, False
        self._look_after(worker)

    def _look_after(self, worker: Worker) -> None:
        if self._policy.silent_after_s is not None:
            self._timers.set(("silence", worker.slot.number), worker.heard_at + self._policy.silent_after_s)

    def judge(self, slot: Slot, now: float) -> str | None:
        """When its timer has come: why the worker is to be killed, if it is; else there is a next time."""
        worker, bound_s = slot.worker, self._policy.silent_after_s
        if bound_s is None or slot.state not in SERVING:
            return None
        next_look = worker.heard_at + bound_s
        if now >= next_look:  # the very sum that the timer is set to: a difference may be less than the bound even then
            next_look = now + SECOND_LOOK_S
            if not slot.batches:
                if worker.doubted:
                    silent_s = now - worker.heard_at
                    return f"was idle and gave no sign of life for {silent_s:.0f} s ([health] silent_after)"
                worker.doubted = True
        self._timers.set(("silence", slot.number), next_look)
        return None
