"""Waiting for what a slot was asked to become."""

import time
from collections.abc import Callable

from pool import Client
from pool.cli.progress import Say
from pool.errors import DeadlineExceeded, WorkerLost
from pool.wire.readiness import doing
from pool.wire.records import Slot

__all__ = ["await_slot", "await_worker"]

LOOK_S = 0.1


def await_slot(client: Client, number: int, timeout_s: float, is_there: Callable[[Slot], bool], say: Say) -> Slot:
    """The slot when it is what it is to be.

    Raises `DeadlineExceeded` where it is not in time, `WorkerLost` where it never will be.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        found = client.status().slots[number]
        say(doing(found))
        if is_there(found):
            return found
        if found.state == "FATAL" or (found.state == "BACKOFF" and found.other_release):
            raise WorkerLost(f"slot {number} is {found.state}: {found.reason}")
        if time.monotonic() > deadline:
            why = found.doing or found.reason
            state = f"{found.state} ({why})" if why else found.state
            raise DeadlineExceeded(f"slot {number} is {state} after {timeout_s:g} s; it continues in the background")
        time.sleep(LOOK_S)


def await_worker(client: Client, number: int, incarnation: int, timeout_s: float, say: Say) -> Slot:
    """The slot when this worker of it, or a later one, serves. Raises as `await_slot` does."""

    def is_up(found: Slot) -> bool:
        failure = found.replacement_failure
        if failure is not None and failure.incarnation >= incarnation and not failure.refused:
            raise WorkerLost(
                f"slot {number}: its replacement failed, so its former worker still serves: {failure.reason}"
            )
        return found.incarnation >= incarnation and found.state == "READY"

    return await_slot(client, number, timeout_s, is_up, say)
