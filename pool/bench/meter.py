"""The phases of a benchmark: it warms up, until it is steady, and then measures. Pure: the clock is an argument."""

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from pool.bench.load import Load
from pool.bench.loop import LOOK_S, Sent
from pool.bench.point import GONE, Answer, Point, percentiles
from pool.terminal import numeric, percent

__all__ = ["Meter", "Show", "Window", "agree"]

WINDOWS = 3  # as Triton's perf_analyzer
LEAST_ANSWERS = 5  # a window lasts until it has so many: fewer agree or differ by chance

# What is done, how much of it (0 to 1), and the answers a second.
Show = Callable[[str, float, float], None]

# Two levels that are compared: the throughput (an open loop leaves that to chance: there the share of what was sent)
# and the median latency in seconds, NaN where nothing was answered. Then the throughput: what ended, a second.
Window = tuple[float, float, float]


def agree(windows: Sequence[Window], tolerance: float) -> bool:
    """Whether the last three do: both levels are within the tolerance of the three's mean.

    Windows of errors alone have latencies that agree: they will not become answers by waiting.
    """
    last = np.array(windows[-WINDOWS:])[:, :2]
    means = last.mean(axis=0)
    return len(last) == WINDOWS and bool(np.isclose(last, means, rtol=tolerance, atol=0.0, equal_nan=True).all())


class Meter:
    """What a loop tells its looks, counted: it is in `point`, complete after `end`.

    A closed loop's answers count by the instant at which they came, an open loop's by the one at which their jobs were
    due. Before a look it must have been told of all until that instant; it may have been told of later ones, too.
    """

    def __init__(self, load: Load, show: Show = lambda *_: None) -> None:
        self.point = Point(load)
        self._load = load
        self._show = show
        self._held: list[Answer] = []  # of the warm-up's current window
        self._sent: list[Sent] = []  # likewise
        self._windows: list[Window] = []
        self._began = self._window_began = self._shown = math.nan
        self._from = self._until = math.inf  # what is measured
        self._last = -math.inf
        self._ends = 0

    @property
    def _warms(self) -> bool:
        return self._from == math.inf

    @property
    def _missing(self) -> float:
        """How many answers are still to be counted, as far as that is what ends it."""
        return math.inf if self._load.jobs is None or self._warms else self._load.jobs - self.point.jobs

    def look(self, now: float, sent: Iterable[Sent] = (), answers: Iterable[Answer] = ()) -> float:
        """`pool.bench.loop.Look`."""
        if math.isnan(self._began):
            self._began = self._window_began = self._shown = now
        for job in sent:
            self._count_sent(*job)
        for answer in answers:
            self._count(answer)
        if self._warms:
            self._warm(now)
        if now - self._shown >= LOOK_S:
            self._shown = now
            self._tell(now)
        return 0 if self.point.early or now >= self._until else self._missing

    def end(self, now: float, cpu_share: float, early: str) -> None:
        self._tell(now)
        self.point.cpu_share = cpu_share
        self.point.early = self.point.early or early
        if not self._warms:
            self.point.elapsed_s = max(0.0, (min(now, self._until) if self._missing else self._last) - self._from)
        unanswered = self.point.sent - self.point.jobs
        if unanswered > 0 and not self.point.early:
            self.point.errors["NoAnswer"] += unanswered
            self.point.last_error["NoAnswer"] = "their futures did not end in time"

    def _count_sent(self, due: float, at: float) -> None:
        if self._warms:
            self._sent.append((due, at))
        elif self._from <= due < self._until:
            self.point.due += 1
            if at < self._until:
                self.point.lags_s.append(at - due)

    def _count(self, answer: Answer) -> None:
        self._ends += 1
        if answer.error == "PoolUnreachable":
            self.point.early = self.point.early or GONE
        if self._warms:
            self._held.append(answer)
            return
        instant = answer.due if self._load.is_open else answer.ended
        if self._from <= instant < self._until and self._missing:
            self.point.count(answer)
            self._last = max(self._last, answer.ended)

    def _warm(self, now: float) -> None:
        load = self._load
        end = self._began + load.warmup_s
        window_end = self._window_began + load.window_s
        if load.tolerance is not None and now >= window_end and len(self._held) >= LEAST_ANSWERS:
            closed = max(window_end, min(now, end))
            self._windows.append(self._window(closed))
            self._held = [answer for answer in self._held if answer.ended >= closed]
            self._sent = [job for job in self._sent if job[0] >= closed]
            self._window_began = closed
            if agree(self._windows, load.tolerance):
                self._measure(closed)
                return
        if now >= end:
            if load.tolerance is not None:
                told = [f"{numeric(rate)}/s {numeric(p50_s * 1000)} ms" for _, p50_s, rate in self._windows[-WINDOWS:]]
                self.point.unsteady = (
                    f"never stable: in {load.warmup_s:g} s of warm-up, no {WINDOWS} windows in a row agreed within"
                    f" {percent(load.tolerance)} (the last: {', '.join(told) or 'none was full'})"
                )
            self._measure(end)

    def _window(self, end: float) -> Window:
        """Of what ended before that instant; who is late is in the next one."""
        ended = [answer for answer in self._held if answer.ended < end]
        latency_s = percentiles([answer.ended - answer.due for answer in ended if not answer.error], 50)[0]
        throughput = len(ended) / (end - self._window_began)
        sent = sum(due < end for due, _ in self._sent)
        return (len(ended) / max(sent, 1) if self._load.is_open else throughput), latency_s, throughput

    def _measure(self, instant: float) -> None:
        self._from = instant
        self._until = math.inf if self._load.jobs is not None else instant + self._load.duration_s
        for answer in self._held:
            self._count(answer)
        for job in self._sent:
            self._count_sent(*job)
        self._held, self._sent, self._ends = [], [], 0

    def _tell(self, now: float) -> None:
        load = self._load
        elapsed_s = max(now - (self._began if self._warms else self._from), 1e-9)
        if self._warms:
            what, part = "warming up", elapsed_s / load.warmup_s
        else:
            part = elapsed_s / load.duration_s if load.jobs is None else self.point.jobs / load.jobs
            what = "measuring"
        self._show(what, min(part, 1.0), self._ends / elapsed_s)
