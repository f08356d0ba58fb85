"""The phases of a benchmark: it warms up, until it is steady, and then measures. Pure: the clock is an argument."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from pool.bench.load import Load
from pool.bench.loop import LOOK_S
from pool.bench.point import GONE, Answer, Point
from pool.terminal import numeric, percent

__all__ = ["Meter", "Show", "Steadiness", "Window"]

NO_ANSWER = "NoAnswer"
WINDOWS = 3  # as Triton's perf_analyzer
LEAST_ANSWERS = 5  # a window lasts until it has so many: fewer agree or differ by chance

# What is done, how much of it (0 to 1), and the answers a second.
Show = Callable[[str, float, float], None]


@dataclass(frozen=True, slots=True)
class Window:
    """`throughput`: what ended, answered or not, a second. `latency_s`: the median of the answers, NaN of none.

    `share`: of what was sent in it, in an open loop, whose throughput is left to chance; None in a closed one.
    """

    throughput: float
    latency_s: float
    share: float | None = None

    def __str__(self) -> str:
        latency = "no answer" if math.isnan(self.latency_s) else f"{numeric(self.latency_s * 1000)} ms"
        return f"{numeric(self.throughput)}/s {latency}"


@dataclass(slots=True)
class Steadiness:
    """Three windows in a row agree in throughput and in latency."""

    tolerance: float
    windows: list[Window] = field(default_factory=list)

    def add(self, window: Window) -> bool:
        """Whether this one and the two before it agree: each figure is within the tolerance of the three's mean."""
        self.windows.append(window)
        last = self.windows[-WINDOWS:]
        throughputs = [each.throughput if each.share is None else each.share for each in last]
        return len(last) == WINDOWS and self._agree(throughputs) and self._agree([each.latency_s for each in last])

    def _agree(self, figures: Sequence[float]) -> bool:
        if all(map(math.isnan, figures)):  # of errors alone: they will not become answers by waiting
            return True
        mean = fmean(figures)
        return all(abs(figure - mean) <= self.tolerance * mean for figure in figures)  # a NaN is not

    def complaint(self, longest_s: float) -> str:
        """What to say where it never became stable."""
        found = ", ".join(map(str, self.windows[-WINDOWS:])) or "none was full"
        return (
            f"never stable: in {longest_s:g} s of warm-up, no {WINDOWS} windows in a row agreed within"
            f" {percent(self.tolerance)} (the last: {found})"
        )


class Meter:
    """Implements `pool.bench.loop.Tally`. What it counted is in `point`, complete after `end`.

    A closed loop's answers count by the instant at which they came, an open loop's by the one at which their jobs were
    due. `lag_s`: by how much what it is told may be late.
    """

    def __init__(self, load: Load, show: Show = lambda *_: None, lag_s: float = 0.0) -> None:
        self.point = Point(load)
        self.early = ""
        self._load = load
        self._show = show
        self._lag_s = lag_s
        self._held: list[Answer] = []  # of the warm-up's current window
        self._sent: list[tuple[float, float]] = []  # likewise
        self._steadiness = None if load.warmup.tolerance is None else Steadiness(load.warmup.tolerance)
        self._began = self._window_began = self._shown = math.nan
        self._from = self._until = math.inf  # what is measured
        self._last = -math.inf
        self._ends = 0

    @property
    def _warms(self) -> bool:
        return self._from == math.inf

    def begin(self, now: float) -> None:
        self._began = self._window_began = self._shown = now
        if not self._load.warmup.longest_s:
            self._measure(now)

    def sent(self, due: float, at: float) -> None:
        if self._warms:
            self._sent.append((due, at))
        elif self._from <= due < self._until:
            self.point.due += 1
            if at < self._until:
                self.point.sent += 1
                self.point.lags_s.append(at - due)

    def answered(self, answer: Answer) -> None:
        self._ends += 1
        if answer.error == "PoolUnreachable" and not self.early:
            self.early = GONE
        if self._warms:
            self._held.append(answer)
        else:
            self._count(answer)

    def look(self, now: float) -> bool:
        if self._warms:
            self._warm(now)
        if now - self._shown >= LOOK_S:
            self._shown = now
            self._tell(now)
        return not self.early and (self._warms or (now < self._until and not self._is_full()))

    def wants(self, outstanding: int) -> bool:
        jobs = self._load.jobs
        return jobs is None or self._warms or self.point.jobs + outstanding < jobs

    def end(self, now: float, cpu_share: float) -> None:
        self._tell(now)
        self.point.cpu_share = cpu_share
        self.point.early = self.early
        if not self._warms:
            ended = self._last if self._is_full() else min(now, self._until)
            self.point.elapsed_s = max(0.0, ended - self._from)
        unanswered = self.point.sent - self.point.jobs
        if unanswered > 0 and not self.early:
            self.point.errors[NO_ANSWER] += unanswered
            self.point.last_error[NO_ANSWER] = "their futures did not end in time"

    def _is_full(self) -> bool:
        return self._load.jobs is not None and self.point.jobs >= self._load.jobs

    def _count(self, answer: Answer) -> None:
        instant = answer.due if self._load.is_open else answer.ended
        if self._from <= instant < self._until and not self._is_full():
            self.point.count(answer)
            self._last = max(self._last, answer.ended)

    def _warm(self, now: float) -> None:
        warmup = self._load.warmup
        end = self._began + warmup.longest_s
        window_end = self._window_began + warmup.window_s
        if self._steadiness and now >= window_end + self._lag_s and len(self._held) >= LEAST_ANSWERS:
            closed = max(window_end, min(now - self._lag_s, end))
            steady = self._steadiness.add(self._window(closed))
            self._held = [answer for answer in self._held if answer.ended >= closed]
            self._sent = [job for job in self._sent if job[0] >= closed]
            self._window_began = closed
            if steady:
                self._measure(closed)
                return
        if now >= end:
            if self._steadiness is not None:
                self.point.unsteady = self._steadiness.complaint(warmup.longest_s)
            self._measure(end)

    def _window(self, end: float) -> Window:
        """Of what ended before that instant; who is late is in the next one."""
        ended = [answer for answer in self._held if answer.ended < end]
        latencies = [answer.ended - answer.due for answer in ended if not answer.error]
        sent = sum(due < end for due, _ in self._sent)
        return Window(
            throughput=len(ended) / (end - self._window_began),
            latency_s=median(latencies) if latencies else math.nan,
            share=len(ended) / max(sent, 1) if self._load.is_open else None,
        )

    def _measure(self, instant: float) -> None:
        self._from = instant
        self._until = math.inf if self._load.jobs is not None else instant + self._load.duration_s
        held, sent = self._held, self._sent
        self._held, self._sent = [], []
        self._ends = 0
        for answer in held:
            self._count(answer)
        for due, at in sent:
            self.sent(due, at)

    def _tell(self, now: float) -> None:
        load = self._load
        elapsed_s = max(now - (self._began if self._warms else self._from), 1e-9)
        if self._warms:
            self._show("warming up", min(elapsed_s / load.warmup.longest_s, 1.0), self._ends / elapsed_s)
            return
        part = elapsed_s / load.duration_s if load.jobs is None else self.point.jobs / load.jobs
        self._show("measuring", min(part, 1.0), self._ends / elapsed_s)
