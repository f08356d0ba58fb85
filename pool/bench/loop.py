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
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pool.bench.load import Submit
from pool.bench.point import INTERRUPTED, Answer, answer_of

__all__ = ["GRACE_S", "LOOK_S", "Look", "Loop", "Sent"]

LOOK_S = 0.1  # how often progress is shown, and the end is noticed
DRAIN_LOOK_S = 0.01
GRACE_S = 7.0  # the client ends a future by itself soon after the timeout; this is for a broken one

Sent = tuple[float, float]  # when a job of an open loop was due and sent: at infinity where the time was over before

# What a loop asks when it begins, and then ten times a second at least: how many jobs may be outstanding now, 0 at the
# end. It tells what was sent and answered meanwhile. All of it in the loop's own thread.
Look = Callable[[float, Sequence[Sent], Sequence[Answer]], float]


@dataclass(slots=True)
class Loop:
    """`submit` must not block. Between two looks are `look_s` at least. `clock`: has what `time` has."""

    submit: Submit
    look: Look
    look_s: float = 0.0
    clock: Any = time
    outstanding: set["Future[Any]"] = field(default_factory=set)
    _done: "queue.SimpleQueue[tuple[float, float, Future[Any]]]" = field(default_factory=queue.SimpleQueue)
    _sent: list[Sent] = field(default_factory=list)
    _answers: list[Answer] = field(default_factory=list)
    _now: float = 0.0
    _looked: float = -math.inf
    _wanted: float = 0.0

    def run(self, in_flight: int, arrivals: Iterable[float], timeout_s: float | None) -> tuple[float, float, str]:
        """Until a look gives 0, or Ctrl-C. Gives its end, its share of a processor, and why it ended early.

        It is closed where there are jobs `in_flight`; else there are `arrivals`, in seconds since its start. A closed
        loop cancels what is outstanding at the end; an open one waits for it, as long as its timeout lasts. An open
        loop that falls behind sends without a pause, and gives up what is left when the time is over.
        """
        left, early = deque(arrivals), ""
        cpu_began_s = self.clock.process_time()
        self._ask()
        began = self._now
        try:
            try:
                if in_flight:
                    self._keep_in_flight(in_flight)
                else:
                    self._keep_pace(left)
            finally:
                ended = self.clock.perf_counter()
                cpu_share = (self.clock.process_time() - cpu_began_s) / max(ended - began, 1e-9)
                while left and began + left[0] < ended:
                    self._sent.append((began + left.popleft(), math.inf))
            if not in_flight:
                self._drain((timeout_s or 0.0) + GRACE_S)
        except KeyboardInterrupt:
            early = INTERRUPTED
        self.look(self._now, self._sent, self._answers)
        if in_flight:
            for future in self.outstanding:
                future.cancel()
        return ended, cpu_share, early

    def _keep_in_flight(self, count: int) -> None:
        while wanted := self._ask():
            while len(self.outstanding) < min(count, wanted):
                self._send(self.clock.perf_counter())
            self._hear(LOOK_S)

    def _keep_pace(self, arrivals: deque[float]) -> None:
        """Takes out of the arrivals those that it sends."""
        start = self._now
        while arrivals and self._goes_on_until(start + arrivals[0]):
            due = start + arrivals.popleft()
            self._sent.append((due, self._now))
            self._send(due)
        while self._goes_on_until(self._now + LOOK_S):
            pass

    def _drain(self, longest_s: float) -> None:
        """Waits for what is still out, no longer than its time lasts."""
        deadline = self._now + longest_s
        while self.outstanding and self._now < deadline:
            self.clock.sleep(DRAIN_LOOK_S)
            self._hear()
            self._ask()

    def _ask(self) -> float:
        self._now = self.clock.perf_counter()
        if self._now >= self._looked + self.look_s:
            self._looked = self._now
            sent, answers, self._sent, self._answers = self._sent, self._answers, [], []
            self._wanted = self.look(self._now, sent, answers)
        return self._wanted

    def _goes_on_until(self, instant: float) -> bool:
        """Or until a later one; no, and at once, where it is over."""
        while True:
            self._hear()
            # Asked each time: a job that left after the end would be answered, and yet not count as sent.
            wanted = self._ask()
            if not wanted or self._now >= instant:
                return wanted > 0
            self.clock.sleep(min(instant - self._now, LOOK_S))

    def _send(self, due: float) -> None:
        future = self.submit()
        self.outstanding.add(future)
        future.add_done_callback(partial(self._answered, due))

    def _answered(self, due: float, done: "Future[Any]") -> None:
        """In the client's I/O thread, which takes the time: the loop's own work is not in it."""
        self._done.put((due, self.clock.perf_counter(), done))

    def _hear(self, longest_s: float = 0.0) -> None:
        """Of all that was answered; where that is nothing, waits for it so long."""
        with suppress(queue.Empty):
            while True:
                due, ended, future = self._done.get(block=longest_s > 0, timeout=longest_s)
                longest_s = 0.0
                self.outstanding.discard(future)
                self._answers.append(answer_of(due, ended, future))
