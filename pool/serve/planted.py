"""A fault in the core on order, for tests of what the pool does when it has one.

POOL_PLANTED_FAULT=JobArrived:3 pool start    the core raises once it was told of the third job
"""

from collections.abc import Mapping
from typing import Any

from pool.core import Machine
from pool.core.events import Event

__all__ = ["PLANTED", "PlantedFault", "planted"]

PLANTED = "POOL_PLANTED_FAULT"


class PlantedFault(Exception):
    """It was wanted."""


def planted(core: Machine, environ: Mapping[str, str]) -> "Machine | Planted":
    """The same core where nothing is ordered, so nobody pays for it."""
    kind, _, count = environ.get(PLANTED, "").partition(":")
    return Planted(core, kind, int(count or 1)) if kind else core


class Planted:
    """A core that fails."""

    def __init__(self, core: Machine, kind: str, left: int) -> None:
        self.orders = core.orders
        self.backlog = core.backlog
        self.dispatch = core.dispatch
        self._core = core
        self._kind = kind
        self._left = left

    def handle(self, event: Event, now: float) -> None:
        self._core.handle(event, now)
        self._count(type(event).__name__)

    def arrived(self, *arguments: Any) -> None:
        self._core.arrived(*arguments)
        self._count("JobArrived")

    def batch_done(self, *arguments: Any) -> None:
        self._core.batch_done(*arguments)
        self._count("BatchDone")

    def _count(self, kind: str) -> None:
        if kind == self._kind:
            self._left -= 1
            if self._left == 0:
                raise PlantedFault(f"as {PLANTED} ordered, after the core was told and before anything was done")
