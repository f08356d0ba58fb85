"""Where the jobs of a client run whose job has lately killed its workers, or hung: all in the slot where that was.

What follows from the same client may well kill workers too, with inputs that are other ones each time. Each such job
costs a slot two starts, and soon there would be no slot left for anybody; kept to one slot, they cost one.
"""

from __future__ import annotations

from collections import OrderedDict

from pool.core.slots import Slot

__all__ = ["CONFINED_S", "Cells"]

CONFINED_S = 60.0  # after the last such job of the client
MOST_CELLS = 1024


class Cells:
    """By client and model."""

    def __init__(self) -> None:
        self._cells: OrderedDict[tuple[bytes, str], tuple[Slot, float]] = OrderedDict()

    def confine(self, route: bytes, model: str, slot: Slot, now: float) -> None:
        """A job of this client has been quarantined, or hung; the slot was the last that it took along."""
        self._cells.pop((route, model), None)
        self._cells[(route, model)] = (slot, now)
        if len(self._cells) > MOST_CELLS:
            self._cells.popitem(last=False)

    def device(self, route: bytes, model: str, now: float) -> str | None:
        """The name of the slot to which this client's jobs are kept, if they are."""
        if not self._cells or (cell := self._cells.get((route, model))) is None:
            return None
        slot, since = cell
        name = f"slot:{slot.number}"
        if now >= since + CONFINED_S:
            del self._cells[(route, model)]
            return None
        return name if slot.lasts and name in slot.names else None
