"""Sends the jobs of a load, and tells of each that was sent or answered.

In a closed loop each answer is followed by the next job. It measures what N callers see that each wait for their
answer: when the pool is slow, fewer jobs come. In an open loop each job has its instant, whether or not others are
answered, as those of independent callers have. Its latency runs from that instant. So where this process itself falls
behind, the jobs that it holds up are late in the figures too (the opposite is called coordinated omission).
"""

import math
import queue
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

from pool.bench.point import INTERRUPTED, Answer, answer_of

__all__ = ["GRACE_S", "LOOK_S", "Look", "Sent", "Submit", "run_loop"]

LOOK_S = 0.1  # how often progress is shown, and the end is noticed
DRAIN_LOOK_S = 0.01
GRACE_S = 7.0  # the client ends a future by itself soon after the timeout; this is for a broken one

Submit = Callable[[], "Future[Any]"]
Sent = tuple[float, float]  # when a job of an open loop was due and sent: at infinity where the time was over before

# What a loop asks when it begins, and then ten times a second at least: how many jobs may be outstanding now, 0 at the
# end. It tells what was sent and answered meanwhile. All of it in the loop's own thread.
Look = Callable[[float, Sequence[Sent], Sequence[Answer]], float]


def run_loop(
    submit: Submit,
    in_flight: int,
    arrivals: Iterable[float],
    timeout_s: float | None,
    look: Look,
    look_s: float = 0.0,
    clock: Any = time,
) -> tuple[float, float, str]:
    """Runs until there was a look of 0, or Ctrl-C. Gives its end, its share of a processor, and why it ended early.

    It is closed where there are jobs `in_flight`; else there are `arrivals`, in seconds since its start. `submit` must
    not block. A closed loop cancels what is outstanding at the end; an open one waits for it, as long as its timeout
    lasts. An open loop that falls behind sends without a pause, and gives up what is left when the time is over. Between
    two looks are `look_s` at least.
    """
    loop, left = _Loop(submit, look, look_s, clock), deque(arrivals)
    cpu_began_s, early = clock.process_time(), ""
    loop.look()
    began = loop.now
    try:
        try:
            if in_flight:
                loop.keep_in_flight(in_flight)
            else:
                loop.keep_pace(left)
        finally:
            ended = clock.perf_counter()
            cpu_share = (clock.process_time() - cpu_began_s) / max(ended - began, 1e-9)
            while left and began + left[0] < ended:
                loop.sent.append((began + left.popleft(), math.inf))
        if not in_flight:
            loop.drain((timeout_s or 0.0) + GRACE_S)
    except KeyboardInterrupt:
        early = INTERRUPTED
    look(loop.now, loop.sent, loop.answers)
    if in_flight:
        for future in loop.outstanding:
            future.cancel()
    return ended, cpu_share, early


class _Loop:
    def __init__(self, submit: Submit, look: Look, look_s: float, clock: Any) -> None:
        self._submit = submit
        self._look = look
        self._look_s = look_s
        self._clock = clock
        self._done: queue.SimpleQueue[tuple[float, float, Future[Any]]] = queue.SimpleQueue()
        self.answers: list[Answer] = []
        self.sent: list[Sent] = []
        self.outstanding: set[Future[Any]] = set()
        self.now = 0.0
        self._looked, self._wanted = -math.inf, 0.0

    def keep_in_flight(self, count: int) -> None:
        while wanted := self.look():
            while len(self.outstanding) < min(count, wanted):
                self._send(self._clock.perf_counter())
            self._hear(LOOK_S)

    def keep_pace(self, arrivals: deque[float]) -> None:
        """Takes out of the arrivals those that it sends."""
        start = self.now
        while arrivals and self._goes_on_until(start + arrivals[0]):
            due = start + arrivals.popleft()
            self.sent.append((due, self.now))
            self._send(due)
        while self._goes_on_until(self.now + LOOK_S):
            pass

    def drain(self, longest_s: float) -> None:
        """Waits for what is still out, no longer than its time lasts."""
        deadline = self.now + longest_s
        self._hear()
        while self.outstanding and self.now < deadline:
            self._clock.sleep(DRAIN_LOOK_S)
            self._hear()
            self.look()

    def look(self) -> float:
        self.now = self._clock.perf_counter()
        if self.now >= self._looked + self._look_s:
            self._looked = self.now
            sent, answers, self.sent, self.answers = self.sent, self.answers, [], []
            self._wanted = self._look(self.now, sent, answers)
        return self._wanted

    def _goes_on_until(self, instant: float) -> bool:
        """Or until a later one; no, and at once, where it is over."""
        while True:
            self._hear()
            # Asked each time: a job that left after the end would be answered, and yet not count as sent.
            wanted = self.look()
            if not wanted or self.now >= instant:
                return wanted > 0
            self._clock.sleep(min(instant - self.now, LOOK_S))

    def _send(self, due: float) -> None:
        future = self._submit()
        self.outstanding.add(future)
        future.add_done_callback(partial(self._answered, due))

    def _answered(self, due: float, done: "Future[Any]") -> None:
        """In the client's I/O thread, which takes the time: the loop's own work is not in it."""
        self._done.put((due, self._clock.perf_counter(), done))

    def _hear(self, longest_s: float = 0.0) -> None:
        """Tells of all that was answered; where that is nothing, waits for it so long."""
        with suppress(queue.Empty):
            while True:
                due, ended, future = self._done.get(block=longest_s > 0, timeout=longest_s)
                longest_s = 0.0
                self.outstanding.discard(future)
                self.answers.append(answer_of(due, ended, future))
