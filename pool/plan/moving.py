"""The models of devices that vanish while the pool runs: where they go, who waits for them, and when they go home.

the last worker of a lost device is given up ─► `lost`: guests on other devices, whose jobs wait ─► a roll there
a worker is READY on it again               ─► `returned`: the guests leave                     ─► a roll there
"""

import contextlib
import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from pool.core.slots import SlotState
from pool.core.supervision import Supervision
from pool.errors import InvalidConfig
from pool.logs import about
from pool.plan.guests import go_home, keep_guests, take_in
from pool.plan.plan import Guest, Plan

if TYPE_CHECKING:
    from pool.config import Settings

__all__ = ["Moving"]

log = logging.getLogger("pool")


class Moving:
    """Used from the pool's loop. It makes plans; the roll to them is its caller's."""

    def __init__(
        self,
        supervision: Supervision,
        settings: "Callable[[Plan], Settings | None]",
        is_lost: Callable[[int], bool],
    ) -> None:
        """`settings`: of a plan; without them nothing is moved. `is_lost`: whether the slot's device is gone."""
        self._supervision = supervision
        self._settings = settings
        self._is_lost = is_lost
        self._stays: tuple[str, ...] = ()

    def lost(self, plan: Plan) -> Plan:
        """With all that can be moved from devices that are gone; the same object where there is nothing to move."""
        settings = self._settings(plan)
        gone = {plan.devices[slot.number] for slot in self._supervision.slots if self._is_lost(slot.number)}
        if settings is None or not gone:
            return plan
        shut = {
            plan.devices[slot.number]
            for slot in self._supervision.slots
            if slot.planned and slot.state in (SlotState.FATAL, SlotState.STOPPED)
        }
        moved, stays = take_in(settings, plan, gone, shut)
        for guest in moved.guests[len(plan.guests) :]:
            text = "model %s: %s is gone, so it comes up on %s"
            extra = about("model_moved", model=guest.model, device=guest.home.label, to=guest.at.label)
            log.warning(text, guest.model, guest.home.label, guest.at.label, extra=extra)
        for line in stays:
            if line not in self._stays:
                log.error("%s", line, extra=about("model_not_moved", reason=line))
        self._stays = stays
        return moved

    def kept(self, plan: Plan, running: Plan) -> Plan:
        """Another plan with the guests that the running one has by now, and all that can be moved besides."""
        settings, plan = self._settings(plan), plan.at_home()
        if settings is not None:
            with contextlib.suppress(InvalidConfig):  # there is no place for them: they are told with those that stay
                plan = keep_guests(settings, plan, running.guests)
        return self.lost(plan)

    def returned(self, slot: int, plan: Plan) -> Plan:
        """A worker of the slot is READY: who was away from its device goes home. The same object where nobody was."""
        after = go_home(plan, plan.devices[slot], self._supervision.slots[slot].models) if plan.guests else plan
        for guest in plan.guests:
            if guest not in after.guests:
                text = "model %s: is on %s again, and leaves %s"
                extra = about("model_returned", model=guest.model, device=guest.home.label, to=guest.at.label)
                log.info(text, guest.model, guest.home.label, guest.at.label, extra=extra)
        if not any(self._is_lost(each.number) for each in self._supervision.slots):
            self._stays = ()
        return after

    def refused(self, names: Collection[str], plan: Plan) -> Plan:
        """A slot did not come up with these: they stay where they cannot be served."""
        gone = [guest for guest in plan.guests if guest.model in names]
        lines = tuple(f"model {guest.model} is not moved from {_way(guest)} did not come up with it" for guest in gone)
        for line in lines:
            log.error("%s", line, extra=about("model_not_moved", reason=line))
        self._stays = (*self._stays, *lines)
        return plan.at_home(gone) if gone else plan

    def status(self, plan: Plan) -> dict[str, object]:
        """For people: who is where, and what is not served for want of a place."""
        away = [{"model": guest.model, "from": guest.home.label, "to": guest.at.label} for guest in plan.guests]
        return {"away": away, "stays": list(self._stays)}


def _way(guest: Guest) -> str:
    return f"{guest.home.label}: a worker on {guest.at.label}"
