"""Which workers may have private sessions of whom: they end with their client."""

from __future__ import annotations

from pool.core import actions as do
from pool.core.fleet import Slot
from pool.core.orders import Orders

__all__ = ["SessionOwners"]


class SessionOwners:
    """A client that opens private sessions has a number, which is never another's."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._last = 0
        self._owners: dict[bytes, int] = {}
        self._workers: dict[bytes, dict[tuple[int, int], None]] = {}

    def opens(self, route: bytes, slot: Slot) -> int:
        """The client's number, by which the slot's worker is to know the session that is opened there."""
        if route not in self._owners:
            self._last += 1
            self._owners[route] = self._last
        self._workers.setdefault(route, {})[slot.number, slot.worker.incarnation] = None
        return self._owners[route]

    def gone(self, route: bytes) -> None:
        """The client is gone: its workers are told."""
        owner = self._owners.pop(route, 0)
        for slot, incarnation in self._workers.pop(route, ()):
            self._orders.append(do.EndSessions(slot, incarnation, owner))

    def exited(self, slot: int, incarnation: int) -> None:
        """The worker's exit was seen, and what it had is gone with it."""
        for workers in self._workers.values():
            workers.pop((slot, incarnation), None)
