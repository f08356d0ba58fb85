"""Waiting for what a slot was asked to become."""

import time
from collections.abc import Callable
from typing import Any

from pool import Client
from pool.errors import PoolError

__all__ = ["await_slot"]

LOOK_S = 0.1

Found = dict[str, Any]  # one of the slots of `Client.status`


def await_slot(client: Client, number: int, timeout_s: float, is_there: Callable[[Found], bool]) -> Found:
    """The slot when it is what it is to be. Raises `PoolError` where it is not in time, or never will be."""
    deadline = time.monotonic() + timeout_s
    while True:
        found: Found = client.status()["slots"][number]
        if is_there(found):
            return found
        if found["state"] == "FATAL" or (found["state"] == "BACKOFF" and found.get("other_release")):
            raise PoolError(f"slot {number} is {found['state']}: {found['reason']}")
        if time.monotonic() > deadline:
            why = found["doing"] or found["reason"]
            state = f"{found['state']} ({why})" if why else found["state"]
            raise PoolError(f"slot {number} is {state} after {timeout_s:g} s; it continues in the background")
        time.sleep(LOOK_S)
