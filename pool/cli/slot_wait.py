"""Waiting for what a slot was asked to become."""

import time
from collections.abc import Callable

from pool import Client
from pool.errors import PoolError
from pool.wire.records import Slot

__all__ = ["await_slot"]

LOOK_S = 0.1


def await_slot(client: Client, number: int, timeout_s: float, is_there: Callable[[Slot], bool]) -> Slot:
    """The slot when it is what it is to be. Raises `PoolError` where it is not in time, or never will be."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = client.status().slots[number]
        if is_there(found):
            return found
        if found.state == "FATAL" or (found.state == "BACKOFF" and found.other_release):
            raise PoolError(f"slot {number} is {found.state}: {found.reason}")
        if time.monotonic() > deadline:
            why = found.doing or found.reason
            state = f"{found.state} ({why})" if why else found.state
            raise PoolError(f"slot {number} is {state} after {timeout_s:g} s; it continues in the background")
        time.sleep(LOOK_S)
