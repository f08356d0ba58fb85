"""Sends the jobs of a load and tells a tally of each that was sent or answered.

In a closed loop each answer is followed by the next job. It measures what N callers see that each wait for their
answer: when the pool is slow, fewer jobs come. In an open loop each job has its instant, whether or not others are
answered, as those of independent callers have. Its latency runs from that instant. So where this process itself falls
behind, the jobs that it holds up are late in the figures too (the opposite is called coordinated omission).
"""

import math
import queue
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from pool.bench.load import Load
from pool.bench.point import INTERRUPTED, Answer, answer_of

__all__ = ["GRACE_S", "LOOK_S", "Clock", "Submit", "Tally", "run_loop"]

LOOK_S = 0.1  # how often progress is shown, and the end is noticed
DRAIN_LOOK_S = 0.01
GRACE_S = 7.0  # the client ends a future by itself soon after the timeout; this is for a broken one

Submit = Callable[[], "Future[Any]"]


class Tally(Protocol):
    """What a loop tells what it does, and asks whether to go on. All of it in the loop's own thread."""

    early: str

    def begin(self, now: float) -> None: ...

    def sent(self, due: float, at: float) -> None:
        """A job of an open loop; `at` is infinite where the time was over before its turn came."""

    def answered(self, answer: Answer) -> None: ...

    def look(self, now: float) -> bool:
        """Whether to go on. To be called ten times a second at least; cheap enough to be called for each answer."""

    def wants(self, outstanding: int) -> bool:
        """Whether one more job is to be submitted beside those that are outstanding."""

    def end(self, now: float, cpu_share: float) -> None:
        """Nothing follows."""


@dataclass(frozen=True, slots=True)
class Clock:
    now: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep
    cpu: Callable[[], float] = time.process_time


def run_loop(submit: Submit, load: Load, tally: Tally, clock: Clock = Clock()) -> None:  # it is frozen
    """Runs until the tally has enough, Ctrl-C, or the pool's end; the tally is told of that end too.

    `submit` must not block. A closed loop cancels what is outstanding then; an open one waits for it. An open loop
    that falls behind sends without a pause, and gives up what is left when the time is over.
    """
    arrivals = load.arrivals() if load.is_open else ()  # made before the start: the loop has nothing else to do
    loop = _Loop(submit, tally, clock)
    cpu_began_s, began_s = clock.cpu(), clock.now()
    cpu_share = 0.0
    tally.begin(began_s)
    try:
        loop.ended = began_s
        if load.is_open:
            loop.keep_pace(began_s, arrivals)
        else:
            loop.keep_in_flight(load.in_flight)
        cpu_share = (clock.cpu() - cpu_began_s) / max(clock.now() - began_s, 1e-9)
        if load.is_open:
            loop.drain((load.timeout_s or 0.0) + GRACE_S)
    except KeyboardInterrupt:
        tally.early = INTERRUPTED
    tally.end(loop.ended, cpu_share)
    if not load.is_open:
        loop.cancel()


class _Loop:
    def __init__(self, submit: Submit, tally: Tally, clock: Clock) -> None:
        self._submit = submit
        self._tally = tally
        self._clock = clock
        self._outstanding: set[Future[Any]] = set()
        self._answers: queue.SimpleQueue[tuple[float, float, Future[Any]]] = queue.SimpleQueue()
        self.ended = 0.0

    def keep_in_flight(self, count: int) -> None:
        try:
            while self._tally.look(self._clock.now()):
                while len(self._outstanding) < count and self._tally.wants(len(self._outstanding)):
                    self._send(self._clock.now())
                self._hear(LOOK_S)
        finally:
            self.ended = self._clock.now()

    def keep_pace(self, start: float, arrivals: Sequence[float]) -> None:
        sent = 0
        try:
            for arrival_s in arrivals:
                at, going = self._wait_until(start + arrival_s)
                if not going:
                    break
                self._tally.sent(start + arrival_s, at)
                sent += 1
                self._send(start + arrival_s)
            while self._wait_until(self._clock.now() + LOOK_S)[1]:
                pass
        finally:
            self.ended = self._clock.now()
            for arrival_s in arrivals[sent:]:
                if start + arrival_s >= self.ended:
                    break
                self._tally.sent(start + arrival_s, math.inf)

    def drain(self, longest_s: float) -> None:
        """Waits for what is still out, no longer than its time lasts."""
        deadline = self._clock.now() + longest_s
        self._hear()
        while self._outstanding and self._clock.now() < deadline and not self._tally.early:
            self._clock.sleep(DRAIN_LOOK_S)
            self._hear()
            self._tally.look(self._clock.now())

    def cancel(self) -> None:
        for future in self._outstanding:
            future.cancel()

    def _wait_until(self, instant: float) -> tuple[float, bool]:
        """The time then, and whether to go on: at that instant or a later one, or earlier where it is over."""
        while True:
            self._hear()
            now = self._clock.now()
            # Asked each time: a job that left after the end would be answered, and yet not count as sent.
            going = self._tally.look(now)
            if now >= instant or not going:
                return now, going
            self._clock.sleep(min(instant - now, LOOK_S))

    def _send(self, due: float) -> None:
        future = self._submit()
        self._outstanding.add(future)
        future.add_done_callback(partial(self._answered, due))

    def _answered(self, due: float, done: "Future[Any]") -> None:
        """In the client's I/O thread, which takes the time: the loop's own work is not in it."""
        self._answers.put((due, self._clock.now(), done))

    def _hear(self, longest_s: float = 0.0) -> None:
        """Tells of all that was answered; where that is nothing, waits for it so long."""
        with suppress(queue.Empty):
            due, ended, future = self._answers.get(block=longest_s > 0, timeout=longest_s)
            while True:
                self._outstanding.discard(future)
                self._tally.answered(answer_of(due, ended, future))
                due, ended, future = self._answers.get_nowait()
