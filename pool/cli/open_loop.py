"""An open loop of jobs: each one has its instant, and is submitted then, whether or not others are answered.

It measures what independent callers see, who do not know of each other: when the pool is slow, no fewer jobs come.
A job's latency runs from the instant that it was meant for. So where this process itself falls behind, the jobs that
it holds up are late in the figures too, as they are for their callers (the opposite is called coordinated omission).
"""

import math
import random
import time
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pool.errors import PoolUnreachable

__all__ = ["Load", "Measured", "run_open_loop"]

LOOK_S = 0.1  # how often progress is shown, and the end is noticed
DRAIN_LOOK_S = 0.01
GRACE_S = 7.0  # the client ends a future by itself soon after the timeout; this is for a broken one

Submit = Callable[[], "Future[Any]"]


@dataclass(frozen=True, slots=True)
class Load:
    """Jobs that come `rate` times a second, for `warmup_s` uncounted and then for `duration_s`.

    `seed`: of a Poisson process, as independent callers make; None for arrivals at even distances. `timeout_s`: an
    answer counts as good within it.
    """

    rate: float
    duration_s: float
    warmup_s: float
    timeout_s: float
    seed: int | None = 0

    @property
    def total_s(self) -> float:
        return self.warmup_s + self.duration_s

    def arrivals(self) -> "array[float]":
        """Seconds since the start, in order, all before `total_s`."""
        return array("d", self._even() if self.seed is None else self._poisson(self.seed))

    def _even(self) -> Iterator[float]:
        count = math.ceil(self.total_s * self.rate - 1e-9)
        return (number / self.rate for number in range(count))

    def _poisson(self, seed: int) -> Iterator[float]:
        rng = random.Random(seed)
        instant = rng.expovariate(self.rate)
        while instant < self.total_s:
            yield instant
            instant += rng.expovariate(self.rate)


@dataclass(slots=True)
class Measured:
    """Of the jobs that were meant for the counted time: `due` of them, of which `sent` were.

    `latencies_s` are of those that were answered, in no order, `errors` counts the others by class. `lags_s`: by how
    much each was sent too late. `cpu_share`: how much of one processor this process used meanwhile, which is as much as
    its threads can. `early`: why it ended before its time; empty if it did not.
    """

    elapsed_s: float = 0.0
    cpu_share: float = 0.0
    due: int = 0
    sent: int = 0
    lags_s: list[float] = field(default_factory=list)
    latencies_s: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    last_error: dict[str, str] = field(default_factory=dict)
    early: str = ""


def run_open_loop(
    submit: Submit,
    load: Load,
    progress: Callable[[int, float], None] = lambda *_: None,
    now: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
    cpu: Callable[[], float] = time.process_time,
) -> Measured:
    """Sends the load, waits for the answers, and returns what was measured, also after Ctrl-C and at the pool's end.

    `submit` must not block. A sender that falls behind sends without a pause, and gives up what is left when the time
    is over: `sent` is less than `due` then. `progress` is called with the number of answers and the seconds since the
    start, about ten times a second.
    """
    arrivals = load.arrivals()  # made before the start: the sender has nothing else to do
    sender = _Sender(submit, load, progress, now, sleep)
    measured = Measured()
    cpu_began_s, began_s = cpu(), now()
    try:
        sender.send(arrivals)
        measured.cpu_share = (cpu() - cpu_began_s) / (now() - began_s)
        sender.drain()
        measured.early = "the pool went away" if sender.gone else ""
    except KeyboardInterrupt:
        measured.early = "interrupted"
    sender.count(arrivals, measured)
    return measured


class _Sender:
    """What was sent and answered. The answers come from other threads: `_answers` is only appended to."""

    def __init__(
        self,
        submit: Submit,
        load: Load,
        progress: Callable[[int, float], None],
        now: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._submit = submit
        self._load = load
        self._progress = progress
        self._now = now
        self._sleep = sleep
        self._start = now()
        self._shown_s = 0.0  # since the start, as all the others
        self._ended_s = math.nan
        self._lags_s = array("d")
        self._answers: list[tuple[float, float, BaseException | None]] = []
        self.gone = False

    def send(self, arrivals: "array[float]") -> None:
        try:
            for arrival_s in arrivals:
                sent_s = self._wait_until(arrival_s)
                if sent_s >= self._load.total_s or self.gone:
                    break
                self._lags_s.append(sent_s - arrival_s)
                self._submit().add_done_callback(partial(self._answered, arrival_s))
            self._wait_until(self._load.total_s)
        finally:
            self._ended_s = min(self._now() - self._start, self._load.total_s)

    def drain(self) -> None:
        """Waits for what is still out, no longer than its time lasts."""
        self._progress(len(self._answers), self._ended_s)
        deadline = self._now() + self._load.timeout_s + GRACE_S
        while len(self._answers) < len(self._lags_s) and self._now() < deadline and not self.gone:
            self._sleep(DRAIN_LOOK_S)

    def _wait_until(self, instant_s: float) -> float:
        """The time then: that instant or a later one, or an earlier one where the pool is gone."""
        while True:
            elapsed_s = self._now() - self._start
            if elapsed_s - self._shown_s >= LOOK_S:
                self._shown_s = elapsed_s
                self._progress(len(self._answers), elapsed_s)
            if elapsed_s >= instant_s or self.gone:
                return elapsed_s
            self._sleep(min(instant_s - elapsed_s, LOOK_S))

    def _answered(self, arrival_s: float, done: "Future[Any]") -> None:
        latency_s = self._now() - self._start - arrival_s
        if done.cancelled():
            return
        error = done.exception()
        self._answers.append((arrival_s, latency_s, error))
        if isinstance(error, PoolUnreachable):
            self.gone = True

    def count(self, arrivals: "array[float]", measured: Measured) -> None:
        first = bisect_left(arrivals, self._load.warmup_s)
        measured.elapsed_s = max(0.0, self._ended_s - self._load.warmup_s)
        measured.due = max(0, bisect_left(arrivals, self._ended_s) - first)
        measured.lags_s = list(self._lags_s[first:])
        measured.sent = len(measured.lags_s)
        answers = list(self._answers)
        for arrival_s, latency_s, error in answers:
            if arrival_s < self._load.warmup_s:
                continue
            if error is None:
                measured.latencies_s.append(latency_s)
            else:
                name = type(error).__name__
                measured.errors[name] += 1
                measured.last_error[name] = str(error)
        unanswered = len(self._lags_s) - len(answers)
        if unanswered and not measured.early:
            measured.errors["NoAnswer"] += unanswered
            measured.last_error["NoAnswer"] = f"their futures did not end within {self._load.timeout_s + GRACE_S:g} s"
