"""A fault in the core on order, for tests of what the pool does when it has one.

POOL_PLANTED_FAULT=JobArrived:3 pool start    the core raises once it has handled the third JobArrived
"""

from collections.abc import Callable, Mapping

from pool.core.actions import Action
from pool.core.events import Event

__all__ = ["PLANTED", "PlantedFault", "planted"]

PLANTED = "POOL_PLANTED_FAULT"

Handle = Callable[[Event, float], list[Action]]


class PlantedFault(Exception):
    """It was wanted."""


def planted(handle: Handle, environ: Mapping[str, str]) -> Handle:
    """The same function where nothing is ordered, so nobody pays for it."""
    kind, _, count = environ.get(PLANTED, "").partition(":")
    if not kind:
        return handle
    left = int(count or 1)

    def failing(event: Event, now: float) -> list[Action]:
        nonlocal left
        actions = handle(event, now)
        if type(event).__name__ == kind:
            left -= 1
            if left == 0:
                raise PlantedFault(f"as {PLANTED} ordered, after the event was handled and before anything was done")
        return actions

    return failing
