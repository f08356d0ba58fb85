"""A closed loop of jobs: as soon as one is answered, the next is submitted, so N are always outstanding.

It measures what N callers see that each wait for their answer. It is no open loop: when the pool is slow, fewer jobs
are submitted, and the latencies say nothing about what a burst of independent callers would see.
"""

import math
import queue
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from pool.errors import PoolError, PoolUnreachable

__all__ = ["Limit", "Measured", "run_closed_loop"]

LOOK_S = 0.1  # how often progress is shown and the end of the time is noticed
GRACE_S = 5.0  # a future ends in time by itself; this is for a broken one

Submit = Callable[[], "Future[Any]"]
_Answer = tuple[float, float, "Future[Any]"]


@dataclass(frozen=True, slots=True)
class Limit:
    """The loop ends after `duration_s`, or after `jobs` answers where that is given."""

    duration_s: float
    jobs: int | None = None


@dataclass(slots=True)
class Measured:
    """`latencies_s` are of the jobs that were answered within the time, failed ones are in `errors` by class.

    `early`: why it ended before its limit; empty if it did not. `last_error`: the text of the last of each class.
    """

    elapsed_s: float = 0.0
    latencies_s: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    last_error: dict[str, str] = field(default_factory=dict)
    early: str = ""

    @property
    def jobs(self) -> int:
        return len(self.latencies_s) + self.errors.total()


def run_closed_loop(
    submit: Submit, in_flight: int, limit: Limit, progress: Callable[[int, float], None] = lambda *_: None
) -> Measured:
    """Runs until the limit, Ctrl-C, or the pool's end, and returns what was measured until then.

    With a duration, jobs that are outstanding at its end are cancelled and not counted. `progress` is called with
    the number of answers and the seconds since the start, about ten times a second.
    """
    measured = Measured()
    answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
    outstanding: set[Future[Any]] = set()

    def put() -> None:
        began = time.perf_counter()
        future = submit()
        outstanding.add(future)
        # The I/O thread takes the time, so that this loop's own work is not in it.
        future.add_done_callback(lambda done: answers.put((began, time.perf_counter(), done)))

    start = time.perf_counter()
    end = math.inf if limit.jobs is not None else start + limit.duration_s
    left = limit.jobs
    shown = start
    try:
        for _ in range(in_flight if left is None else min(in_flight, left)):
            put()
        unsubmitted = math.inf if left is None else left - len(outstanding)
        while outstanding and not measured.early:
            now = time.perf_counter()
            if now >= end:
                break
            if now >= shown + LOOK_S:
                progress(measured.jobs, now - start)
                shown = now
            try:
                began, answered, future = answers.get(timeout=min(LOOK_S, end - now))
            except queue.Empty:
                continue
            outstanding.discard(future)
            if answered > end:
                break
            _count(measured, future, answered - began)
            if unsubmitted > 0 and not measured.early:
                put()
                unsubmitted -= 1
    except KeyboardInterrupt:
        measured.early = "interrupted"
    measured.elapsed_s = min(time.perf_counter(), end) - start
    progress(measured.jobs, measured.elapsed_s)
    for future in outstanding:
        future.cancel()
    return measured


def _count(measured: Measured, future: "Future[Any]", latency_s: float) -> None:
    error = future.exception(GRACE_S)
    if error is None:
        measured.latencies_s.append(latency_s)
        return
    if not isinstance(error, PoolError):
        raise error
    name = type(error).__name__
    measured.errors[name] += 1
    measured.last_error[name] = str(error)
    if isinstance(error, PoolUnreachable):
        measured.early = "the pool went away"
