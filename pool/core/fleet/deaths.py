"""What the death of a serving worker means for its slot: another worker, at once or after a pause, or none."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from pool.core.events import Death
from pool.core.fleet.replacements import Kind
from pool.core.fleet.restart import GivenUp, Pause, RestartHistory
from pool.core.fleet.slot import Slot, SlotState
from pool.core.fleet.worker import WorkerState
from pool.core.policy import Policy
from pool.wire.phases import Phase

if TYPE_CHECKING:
    from pool.core.fleet.fleet import Fleet

__all__ = ["Deaths"]


class Deaths:
    def __init__(self, fleet: Fleet, slots: int, rng: random.Random, wanted: Callable[[Slot], bool]) -> None:
        """`wanted`: whether jobs wait, or run, that the slot could run."""
        self._fleet = fleet
        self._rng = rng
        self._wanted = wanted
        self._history = [RestartHistory(fleet.policy, rng) for _ in range(slots)]

    def adopt(self, policy: Policy) -> None:
        """The deaths of each slot are counted on."""
        for history in self._history:
            history.policy = policy

    def exited(self, slot: Slot, death: Death, held_jobs: bool, now: float) -> str:
        """The slot after its worker's exit was seen. Returns the death in words, for the histories of its jobs."""
        fleet = self._fleet
        worker, reason = slot.worker, slot.worker.end(death)
        slot.batches, slot.idle_lanes = {}, []
        slot.count_death(worker, death)
        # One that has said HELLO is of this release.
        slot.other_release = death.other_release and worker.state is WorkerState.STARTING
        fleet.forget(worker, now)
        request, served = fleet.replacements.gone(slot), worker.phase is Phase.SERVING
        if fleet.stopping and (slot.other_release or not self._wanted(slot)):
            # STARTING, LOADING, READY, DRAINING, STOPPING → STOPPED
            fleet.change(slot, SlotState.STOPPED, now, reason)
        elif request is not None and request.kind is Kind.DRAIN:
            # DRAINING, STOPPING → STOPPED
            fleet.change(slot, SlotState.STOPPED, now, request.reason)
            fleet.announce()
        elif fleet.replacements.is_followed(slot, now):
            # → BACKOFF, and on at once: see `succeed`
            self._died(slot, held_jobs, now)
            self._back_off(slot, 0.0, now, reason, death)
        elif request is not None:
            # DRAINING, STOPPING → BACKOFF, without a pause; else it died before it was told to go
            self._back_off(slot, 0.0, now, reason, death, asked=slot.state is SlotState.STOPPING)
        elif not death.restartable and not served:
            # Once it serves, its status may be anybody's: a job's native code exits as it likes.
            self.give_up(slot, now, reason, death)
        elif slot.other_release:
            # STARTING → BACKOFF: no crash, and no hurry, but the files may be put back
            self._back_off(slot, fleet.policy.patient_pause_s, now, reason)
            fleet.announce()
        else:
            match self._died(slot, held_jobs, now):
                case GivenUp(why):
                    self.give_up(slot, now, f"{why}; the last: {reason}", death)
                case Pause(seconds):
                    # → BACKOFF
                    self._back_off(slot, seconds, now, reason, death)
        return f"slot {slot.number} incarnation {worker.incarnation} died: {reason}"

    def _died(self, slot: Slot, held_jobs: bool, now: float) -> Pause | GivenUp:
        worker = slot.worker
        served_s = now - worker.phase_since if worker.phase is Phase.SERVING else None
        history = self._history[slot.number]
        return history.after_death(now, served_s=served_s, held_jobs=held_jobs, in_vain=slot.in_vain)

    def _back_off(
        self,
        slot: Slot,
        pause_s: float,
        now: float,
        reason: str,
        death: Death | None = None,
        *,
        asked: bool = False,
    ) -> None:
        self._fleet.change(slot, SlotState.BACKOFF, now, reason, death, asked)
        self._fleet.timers.set(("slot", slot.number), now + pause_s)

    def forgive(self, slot: Slot) -> None:
        """What was before counts no more."""
        self._history[slot.number] = RestartHistory(self._fleet.policy, self._rng)
        slot.in_vain, slot.failure = 0, None

    def gone_at_last(self, slot: Slot, death: Death, now: float) -> None:
        """The exit of a worker that did not die when it was killed: the slot was FATAL for that alone."""
        fleet = self._fleet
        slot.count_death(slot.worker, death)
        fleet.forget(slot.worker, now)
        if slot.state is not SlotState.FATAL or not slot.planned or fleet.stopping or fleet.over:
            return
        if isinstance(self._history[slot.number].after_death(now, served_s=None, held_jobs=True), Pause):
            # FATAL → STARTING; the pause is over long since
            fleet.spawn(slot, now)

    def give_up(self, slot: Slot, now: float, reason: str, death: Death | None = None) -> None:
        """→ FATAL"""
        fleet = self._fleet
        fleet.replacements.gone(slot)
        fleet.dismiss_standby(slot, now)
        fleet.change(slot, SlotState.FATAL, now, reason, death)
        fleet.announce()
