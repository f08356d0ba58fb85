"""A closed loop of jobs: as soon as one is answered, the next is submitted, so N are always outstanding.

It measures what N callers see that each wait for their answer. It is no open loop: when the pool is slow, fewer jobs
are submitted, and the latencies say nothing about what a burst of independent callers would see.
"""

import queue
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from pool.cli.measured import INTERRUPTED, answer_of
from pool.cli.meter import LOOK_S, Tally

__all__ = ["run_closed_loop"]

Submit = Callable[[], "Future[Any]"]
_Answer = tuple[float, float, "Future[Any]"]


def run_closed_loop(submit: Submit, in_flight: int, tally: Tally) -> None:
    """Runs until the tally has enough, Ctrl-C, or the pool's end. What is outstanding then is cancelled."""
    answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
    outstanding: set[Future[Any]] = set()

    def put() -> None:
        began = time.perf_counter()
        future = submit()
        outstanding.add(future)
        # The I/O thread takes the time, so that this loop's own work is not in it.
        future.add_done_callback(lambda done: answers.put((began, time.perf_counter(), done)))

    cpu_began_s, start = time.process_time(), time.perf_counter()
    tally.begin(start)
    try:
        while tally.look(time.perf_counter()):
            while len(outstanding) < in_flight and tally.wants(len(outstanding)):
                put()
            try:
                began, answered, future = answers.get(timeout=LOOK_S)
            except queue.Empty:
                continue
            outstanding.discard(future)
            tally.answered(answer_of(began, answered, future))
    except KeyboardInterrupt:
        tally.early = INTERRUPTED
    now = time.perf_counter()
    tally.end(now, (time.process_time() - cpu_began_s) / (now - start))
    for future in outstanding:
        future.cancel()
