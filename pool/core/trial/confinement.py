"""Where the jobs of a client run whose job has lately killed its workers, or hung: where that was first.

What follows from the same client may well kill workers too, with inputs that are other ones each time. Each such job
costs a slot two starts, and soon there would be no slot left for anybody; kept to one slot, they cost one.
"""

from __future__ import annotations

from collections import OrderedDict

from pool.core.fleet import Slot

__all__ = ["CONFINED_S", "Confinement"]

CONFINED_S = 60.0  # after the last such job of the client
MOST_CONFINED = 1024


class Confinement:
    """By client and model."""

    def __init__(self) -> None:
        self.some: OrderedDict[tuple[bytes, str], tuple[Slot, float]] = OrderedDict()

    def confine(self, route: bytes, model: str, slot: Slot, now: float) -> None:
        """A job of this client has been quarantined, or hung; the slot was the last that it took along.

        Who is kept to a slot already stays there: those that were sent before would take him from slot to slot.
        """
        if self.device(route, model, now) is not None:
            slot, _ = self.some[(route, model)]
        self.some.pop((route, model), None)
        self.some[(route, model)] = (slot, now)
        if len(self.some) > MOST_CONFINED:
            self.some.popitem(last=False)

    def device(self, route: bytes, model: str, now: float) -> str | None:
        """The name of the slot to which this client's jobs are kept, if they are."""
        if not self.some or (kept := self.some.get((route, model))) is None:
            return None
        slot, since = kept
        name = f"slot:{slot.number}"
        if now >= since + CONFINED_S:
            del self.some[(route, model)]
            return None
        return name if slot.lasts and name in slot.names else None
