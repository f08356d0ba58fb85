"""Python and C calls together, as `sys.setprofile` counts them."""

import gc
import sys
from collections.abc import Callable
from types import FrameType


class Counter:
    def __init__(self) -> None:
        self.calls = 0
        self.is_on = False

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if self.is_on and event in ("call", "c_call"):
            self.calls += 1


def counted(job: Callable[[], object], jobs: int = 100) -> float:
    """Calls of one job, in this thread."""
    counter = Counter()
    for _ in range(20):
        job()
    gc.collect()
    gc.disable()
    try:
        sys.setprofile(counter)
        counter.is_on = True
        for _ in range(jobs):
            job()
        counter.is_on = False
    finally:
        sys.setprofile(None)
        gc.enable()
    return counter.calls / jobs
