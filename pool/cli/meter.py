"""The phases of a benchmark: it warms up, until it is steady, and then measures. Pure: the clock is an argument."""

import math
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Protocol

from pool.cli.measured import GONE, Answer, Measured
from pool.cli.steadiness import LEAST_ANSWERS, Course, Steadiness, Window

__all__ = ["LOOK_S", "Meter", "Show", "Tally"]

NO_ANSWER = "NoAnswer"
LOOK_S = 0.1  # how often progress is shown, and the end is noticed

# What is done, how much of it (0 to 1), and the answers a second.
Show = Callable[[str, float, float], None]


class Tally(Protocol):
    """What a loop tells what it does, and asks whether to go on."""

    early: str

    def begin(self, now: float) -> None: ...

    def sent(self, due: float, at: float) -> None:
        """A job of an open loop; `at` is infinite where the time was over before its turn came."""

    def answered(self, answer: Answer) -> None:
        """May be called by another thread."""

    def look(self, now: float) -> bool:
        """Whether to go on. To be called ten times a second at least; cheap enough to be called for each answer."""

    def wants(self, outstanding: int) -> bool:
        """Whether one more job is to be submitted beside those that are outstanding."""

    def end(self, now: float, cpu_share: float) -> None:
        """Nothing follows."""


class Meter:
    """Implements `Tally`. What it counted is in `measured`, complete after `end`.

    A closed loop's answers count by the instant at which they came, an open loop's (`by_arrival`) by the one at which
    their jobs were due. `lag_s`: by how much what it is told may be late.
    """

    def __init__(self, course: Course, *, by_arrival: bool, show: Show = lambda *_: None, lag_s: float = 0.0) -> None:
        self.measured = Measured()
        self.early = ""
        self._course = course
        self._by_arrival = by_arrival
        self._show = show
        self._lag_s = lag_s
        self._new: deque[Answer] = deque()  # appended to by other threads
        self._held: list[Answer] = []  # of the warm-up's current window
        self._sent: list[tuple[float, float]] = []  # likewise
        self._steadiness = None if course.warmup.tolerance is None else Steadiness(course.warmup.tolerance)
        self._began = self._window_began = self._shown = math.nan
        self._from = self._until = math.inf  # what is measured
        self._last = -math.inf
        self._ends = 0

    def begin(self, now: float) -> None:
        self._began = self._window_began = self._shown = now
        if not self._course.warmup.longest_s:
            self._measure(now)

    def sent(self, due: float, at: float) -> None:
        if self._from == math.inf:
            self._sent.append((due, at))
        elif self._from <= due < self._until:
            self.measured.due += 1
            if at < self._until:
                self.measured.sent += 1
                self.measured.lags_s.append(at - due)

    def answered(self, answer: Answer) -> None:
        self._new.append(answer)

    def look(self, now: float) -> bool:
        self._collect()
        if self._from == math.inf:
            self._warm(now)
        if now - self._shown >= LOOK_S:
            self._shown = now
            self._tell(now)
        return not self.early and not self._over(now)

    def wants(self, outstanding: int) -> bool:
        jobs = self._course.jobs
        return jobs is None or self._from == math.inf or self.measured.jobs + outstanding < jobs

    def end(self, now: float, cpu_share: float) -> None:
        self._collect()
        self._tell(now)
        self.measured.cpu_share = cpu_share
        self.measured.early = self.early
        if self._from < math.inf:
            ended = self._last if self._is_full() else min(now, self._until)
            self.measured.elapsed_s = max(0.0, ended - self._from)
        unanswered = self.measured.sent - self.measured.jobs
        if unanswered > 0 and not self.early:
            self.measured.errors[NO_ANSWER] += unanswered
            self.measured.last_error[NO_ANSWER] = "their futures did not end in time"

    def _over(self, now: float) -> bool:
        return self._from < math.inf and (now >= self._until or self._is_full())

    def _is_full(self) -> bool:
        return self._course.jobs is not None and self.measured.jobs >= self._course.jobs

    def _collect(self) -> None:
        while self._new:
            answer = self._new.popleft()
            self._ends += 1
            if answer.error == "PoolUnreachable" and not self.early:
                self.early = GONE
            if self._from == math.inf:
                self._held.append(answer)
            else:
                self._count(answer)

    def _count(self, answer: Answer) -> None:
        instant = answer.due if self._by_arrival else answer.ended
        if self._from <= instant < self._until and not self._is_full():
            self.measured.count(answer)
            self._last = max(self._last, answer.ended)

    def _warm(self, now: float) -> None:
        warmup = self._course.warmup
        end = self._began + warmup.longest_s
        if self._steadiness is not None and self._closes(now, self._window_began + warmup.window_s):
            closed = max(self._window_began + warmup.window_s, min(now - self._lag_s, end))
            steady = self._steadiness.add(self._window(closed))
            self._held = [answer for answer in self._held if answer.ended >= closed]
            self._sent = [job for job in self._sent if job[0] >= closed]
            self._window_began = closed
            if steady:
                self._measure(closed)
                return
        if now >= end:
            if self._steadiness is not None:
                self.measured.unsteady = self._steadiness.complaint(warmup.longest_s)
            self._measure(end)

    def _closes(self, now: float, end: float) -> bool:
        return now >= end + self._lag_s and len(self._held) >= LEAST_ANSWERS

    def _window(self, end: float) -> Window:
        """Of what ended before that instant; who is late is in the next one."""
        ended = [answer for answer in self._held if answer.ended < end]
        latencies = [answer.ended - answer.due for answer in ended if not answer.error]
        sent = sum(due < end for due, _ in self._sent)
        return Window(
            throughput=len(ended) / (end - self._window_began),
            latency_s=median(latencies) if latencies else math.nan,
            share=len(ended) / max(sent, 1) if self._by_arrival else None,
        )

    def _measure(self, instant: float) -> None:
        self._from = instant
        self._until = math.inf if self._course.jobs is not None else instant + self._course.duration_s
        held, sent = self._held, self._sent
        self._held, self._sent = [], []
        self._ends = 0
        for answer in held:
            self._count(answer)
        for due, at in sent:
            self.sent(due, at)

    def _tell(self, now: float) -> None:
        course = self._course
        if self._from == math.inf:
            elapsed_s = now - self._began
            self._show("warming up", elapsed_s / course.warmup.longest_s, self._ends / elapsed_s if elapsed_s else 0.0)
            return
        elapsed_s = max(now - self._from, 1e-9)
        part = elapsed_s / course.duration_s if course.jobs is None else self.measured.jobs / course.jobs
        self._show("measuring", min(part, 1.0), self._ends / elapsed_s)
