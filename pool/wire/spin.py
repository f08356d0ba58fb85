"""A short look again and again before a sleep, for machines with cores to spare."""

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["spin"]

T = TypeVar("T")


def spin(look: Callable[[], T], seconds: float) -> T:
    """What `look` finds, as soon as it finds something, or when the time is over; it is asked at least once."""
    until = time.perf_counter() + seconds
    while not (found := look()) and time.perf_counter() < until:
        pass
    return found
