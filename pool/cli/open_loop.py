"""An open loop of jobs: each one has its instant, and is submitted then, whether or not others are answered.

It measures what independent callers see, who do not know of each other: when the pool is slow, no fewer jobs come.
A job's latency runs from the instant that it was meant for. So where this process itself falls behind, the jobs that
it holds up are late in the figures too, as they are for their callers (the opposite is called coordinated omission).
"""

import math
import random
import time
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pool.cli.measured import INTERRUPTED, answer_of
from pool.cli.meter import LOOK_S, Tally
from pool.cli.steadiness import Course

__all__ = ["GRACE_S", "Load", "run_open_loop"]

DRAIN_LOOK_S = 0.01
GRACE_S = 7.0  # the client ends a future by itself soon after the timeout; this is for a broken one

Submit = Callable[[], "Future[Any]"]


@dataclass(frozen=True, slots=True)
class Load:
    """Jobs that come `rate` times a second, for as long as the course lasts.

    `seed`: of a Poisson process, as independent callers make; None for arrivals at even distances, the first after
    `offset_s`. `timeout_s`: an answer counts as good within it.
    """

    rate: float
    course: Course
    timeout_s: float
    seed: int | None = 0
    offset_s: float = 0.0

    def shares(self, count: int) -> "list[Load]":
        """The same load by so many senders: Poisson processes add up to one, even arrivals take turns."""
        rate = self.rate / count
        if self.seed is None:
            return [replace(self, rate=rate, offset_s=number / self.rate) for number in range(count)]
        return [replace(self, rate=rate, seed=self.seed * count + number) for number in range(count)]

    def arrivals(self) -> "array[float]":
        """Seconds since the start, in order, all before the longest that the course can last."""
        return array("d", self._even() if self.seed is None else self._poisson(self.seed))

    def _even(self) -> Iterator[float]:
        count = math.ceil((self.course.longest_s - self.offset_s) * self.rate - 1e-9)
        return (self.offset_s + number / self.rate for number in range(count))

    def _poisson(self, seed: int) -> Iterator[float]:
        rng = random.Random(seed)
        instant = rng.expovariate(self.rate)
        while instant < self.course.longest_s:
            yield instant
            instant += rng.expovariate(self.rate)


def run_open_loop(
    submit: Submit,
    load: Load,
    tally: Tally,
    now: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
    cpu: Callable[[], float] = time.process_time,
) -> None:
    """Sends the load, waits for the answers, and tells the tally of both, also after Ctrl-C and at the pool's end.

    `submit` must not block. A sender that falls behind sends without a pause, and gives up what is left when the time
    is over.
    """
    arrivals = load.arrivals()  # made before the start: the sender has nothing else to do
    sender = _Sender(submit, tally, now, sleep)
    cpu_began_s, began_s = cpu(), now()
    cpu_share = 0.0
    try:
        sender.send(arrivals)
        cpu_share = (cpu() - cpu_began_s) / (now() - began_s)
        sender.drain(load.timeout_s + GRACE_S)
    except KeyboardInterrupt:
        tally.early = INTERRUPTED
    tally.end(sender.ended, cpu_share)


class _Sender:
    """What was sent and answered. The answers come from other threads: `_answered` only counts what it is told."""

    def __init__(self, submit: Submit, tally: Tally, now: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._submit = submit
        self._tally = tally
        self._now = now
        self._sleep = sleep
        self._start = now()
        self._going = True
        self._outstanding: set[Future[Any]] = set()
        self.ended = self._start

    def send(self, arrivals: "array[float]") -> None:
        self._tally.begin(self._start)
        sent = 0
        try:
            for arrival_s in arrivals:
                due = self._start + arrival_s
                at = self._wait_until(due)
                if not self._going:
                    break
                self._tally.sent(due, at)
                sent += 1
                future = self._submit()
                self._outstanding.add(future)
                future.add_done_callback(partial(self._answered, due))
            while self._going:
                self._wait_until(self._now() + LOOK_S)
        finally:
            self.ended = self._now()
            for arrival_s in arrivals[sent:]:
                if self._start + arrival_s >= self.ended:
                    break
                self._tally.sent(self._start + arrival_s, math.inf)

    def drain(self, longest_s: float) -> None:
        """Waits for what is still out, no longer than its time lasts."""
        deadline = self._now() + longest_s
        while self._outstanding and self._now() < deadline and not self._tally.early:
            self._sleep(DRAIN_LOOK_S)
            self._tally.look(self._now())

    def _wait_until(self, instant: float) -> float:
        """The time then: that instant or a later one, or an earlier one where it is over."""
        while True:
            now = self._now()
            # Asked each time: a job that left after the end would be answered, and yet not count as sent.
            self._going = self._tally.look(now)
            if now >= instant or not self._going:
                return now
            self._sleep(min(instant - now, LOOK_S))

    def _answered(self, due: float, done: "Future[Any]") -> None:
        ended = self._now()
        if not done.cancelled():
            self._tally.answered(answer_of(due, ended, done))
        self._outstanding.discard(done)
