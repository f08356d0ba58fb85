"""Workers that have done their time are replaced, one after the other, before what they leak becomes what they lack.

A worker is due by its age, its jobs or its memory, each at 90 to 100 % of the bound, drawn by lot: workers that were
started together do not all come due together. Its replacement gets ready first; one that fails is tried again later.
Where there is no room for one, it goes only while enough others of its models are READY, and where a model has no
others, only while nobody asks for that model.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pool.clock import Timers
from pool.core.fleet.fleet import Fleet
from pool.core.fleet.slot import Slot, SlotState
from pool.core.policy import Policy
from pool.wire.sizes import readable

if TYPE_CHECKING:
    from pool.core.queue import Model

__all__ = ["Recycling"]

LOOK_EVERY_S = 1.0
EARLIEST_SHARE = 0.9
RETRY_FIRST_S = 60.0  # after a replacement that failed, or that there was no room for
RETRY_MAX_S = 3600.0


class Recycling:
    """It sets the timer ("recycle",), if any worker is ever to be recycled."""

    def __init__(
        self,
        policy: Policy,
        fleet: Fleet,
        models: Mapping[str, Model],
        timers: Timers,
        rng: random.Random,
    ) -> None:
        self._fleet = fleet
        self._models = models
        self._timers = timers
        self._rng = rng
        self.adopt(policy)

    def adopt(self, policy: Policy) -> None:
        self._policy = policy
        if self._is_wanted():
            self._timers.set(("recycle",), 0.0)  # the first look is with the next event

    def _is_wanted(self) -> bool:
        policy = self._policy
        return any(bound is not None for bound in (policy.recycle_age_s, policy.recycle_jobs, policy.recycle_bytes))

    def worked(self, slot: Slot, before: int, now: float) -> None:
        """Its worker had done fewer jobs `before`. Once they are enough, the next look would come too late."""
        if before < self._share(slot) * (self._policy.recycle_jobs or 0) <= slot.worker.jobs_done:
            self._timers.set(("recycle",), now)

    def look(self, now: float) -> None:
        fleet = self._fleet
        if fleet.stopping or fleet.over or not self._is_wanted():
            return
        self._timers.set(("recycle",), now + LOOK_EVERY_S)
        away = any(slot.lasts and slot.state is not SlotState.READY for slot in fleet.slots if slot.models)
        if away or fleet.replacements.requests or any(slot.is_changing for slot in fleet.slots):
            return  # one after the other, and not while any is away for another reason
        due = [(slot.worker.phase_since, slot, why) for slot in fleet.slots if (why := self._due(slot, now))]
        for _, slot, why in sorted(due, key=lambda one: one[0]):
            if (beside := self._beside(slot, now)) is not None:
                fleet.replacements.recycle(slot, why, beside=beside)
                return

    def _beside(self, slot: Slot, now: float) -> bool | None:
        """Whether a replacement comes first, or the worker goes first; None: neither now."""
        if self._policy.replacement != "off":
            failure = slot.failure
            if failure is None or now >= failure.at + min(
                RETRY_MAX_S, RETRY_FIRST_S * 2.0 ** min(failure.in_a_row - 1, 16)
            ):
                return True
            if not failure.refused:
                return None  # one that could not load is none that the slot could rely on
        return False if self._may_go(slot) else None

    def _due(self, slot: Slot, now: float) -> str | None:
        """Why the worker is to be replaced, if it is."""
        if slot.state is not SlotState.READY:
            return None
        policy, share = self._policy, self._share(slot)
        age_s = now - slot.worker.phase_since
        if policy.recycle_age_s is not None and age_s >= share * policy.recycle_age_s:
            return f"it has served for {age_s:.0f} s ([recycle] age)"
        if policy.recycle_jobs is not None and slot.worker.jobs_done >= share * policy.recycle_jobs:
            return f"it has done {slot.worker.jobs_done} jobs ([recycle] jobs)"
        if policy.recycle_bytes is not None and slot.worker.resident_bytes >= share * policy.recycle_bytes:
            return f"it holds {readable(slot.worker.resident_bytes)} of memory ([recycle] host_memory)"
        return None

    def _share(self, slot: Slot) -> float:
        if slot.worker.share is None:
            slot.worker.share = self._rng.uniform(EARLIEST_SHARE, 1.0)
        return slot.worker.share

    def _may_go(self, slot: Slot) -> bool:
        return all(self._others_ready(slot, name) or not self._models[name].jobs for name in slot.models)

    def _others_ready(self, slot: Slot, model: str) -> bool:
        holders = [other for other in self._fleet.slots if model in other.models and other is not slot]
        ready = sum(other.state is SlotState.READY for other in holders)
        return 0 < ready >= min(self._policy.min_ready, len(holders))
