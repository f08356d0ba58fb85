"""The open loop against a clock and a pool that a test drives."""

import heapq
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from pool.bench.load import BenchJob, Load
from pool.bench.loop import Loop
from pool.bench.meter import Meter, Show
from pool.bench.point import Point
from pool.bench.report import LoadReport
from pool.client.futures import JobFuture
from pool.errors import DeadlineExceeded, ModelFailed, Overloaded, PoolError, PoolUnreachable
from unit.results import result_of

Outcome = PoolError | dict[str, Any]


class World:
    """Time passes in `sleep` alone, and in `submit` as long as it takes; answers come when their time has come."""

    def __init__(
        self,
        delay_s: Callable[[int], float | None] = lambda _: 0.001,
        outcome: Callable[[int], PoolError | None] = lambda _: None,
        submit_s: Callable[[int], float] = lambda _: 0.0,
        interrupt_at: float = math.inf,
    ) -> None:
        self._delay_s = delay_s
        self._outcome = outcome
        self._submit_s = submit_s
        self._interrupt_at = interrupt_at
        self._due: list[tuple[float, int, JobFuture]] = []
        self.time = 1000.0
        self.began = self.time
        self.sent = 0

    def perf_counter(self) -> float:
        return self.time

    def process_time(self) -> float:
        return self.sent * 0.004

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self._pass(max(seconds, 1e-9))  # a real one never stands still either
        if self.time - self.began >= self._interrupt_at:
            self._interrupt_at = math.inf
            raise KeyboardInterrupt

    def submit(self) -> "Future[Any]":
        number = self.sent
        self.sent += 1
        self._pass(self._submit_s(number))
        future = JobFuture()
        delay_s = self._delay_s(number)
        if delay_s is not None:
            heapq.heappush(self._due, (self.time + delay_s, number, future))
        return future

    def _pass(self, seconds: float) -> None:
        until = self.time + seconds
        while self._due and self._due[0][0] <= until:
            self.time, number, future = heapq.heappop(self._due)
            future.finish(self._outcome(number) or result_of({}))
        self.time = until

    def run(self, load: Load, show: Show = lambda *_: None) -> Point:
        meter = Meter(load, show)
        meter.end(*Loop(self.submit, meter.look, clock=self).run(0, load.arrivals(), load.timeout_s))
        return meter.point


def even(rate: float, duration_s: float = 10.0, warmup_s: float = 0.0, timeout_s: float = 1.0) -> Load:
    return Load(rate=rate, duration_s=duration_s, warmup_s=warmup_s, timeout_s=timeout_s, seed=None)


# --- arrivals


def test_even_arrivals() -> None:
    assert list(even(4.0, 1.0, 0.5).arrivals()) == [0.0, 0.25, 0.5, 0.75, 1.0, 1.25]
    assert len(even(10.0, 3.0).arrivals()) == 30
    assert len(even(0.3, 10.0).arrivals()) == 3


def test_poisson_arrivals() -> None:
    seed = random.randrange(1 << 30)
    arrivals = list(Load(rate=1000.0, duration_s=20.0, seed=seed).arrivals())
    gaps = [later - earlier for earlier, later in itertools.pairwise([0.0, *arrivals])]
    mean_s = sum(gaps) / len(gaps)
    deviation_s = math.sqrt(sum((gap - mean_s) ** 2 for gap in gaps) / len(gaps))
    assert 0 <= arrivals[0] <= arrivals[-1] < 20.0
    assert arrivals == sorted(arrivals)
    # Five standard errors; of an exponential distribution the deviation is the mean.
    assert len(arrivals) == pytest.approx(20_000, abs=5 * math.sqrt(20_000)), f"seed {seed}"
    assert deviation_s == pytest.approx(mean_s, rel=0.1), f"seed {seed}"


def test_poisson_arrivals_are_the_same_again() -> None:
    loads = [Load(rate=50.0, duration_s=5.0, seed=seed) for seed in (7, 7, 8)]
    first, again, other = (list(load.arrivals()) for load in loads)
    assert first == again != other


# --- the loop


def test_arrivals_do_not_wait_for_answers() -> None:
    world = World(delay_s=lambda _: 8.0)
    measured = world.run(even(100.0, timeout_s=9.0))
    assert measured.sent == measured.due == world.sent == 1000
    assert measured.latencies_s == pytest.approx([8.0] * 1000)
    assert measured.lags_s == pytest.approx([0.0] * 1000, abs=1e-9)
    assert measured.elapsed_s == pytest.approx(10.0)
    assert measured.cpu_share == pytest.approx(0.4, rel=0.02)  # 4 ms a job
    assert not measured.early
    assert not measured.errors


def test_a_stall_of_the_sender_is_in_the_latencies() -> None:
    """100 jobs a second and one submit that takes a second: a closed loop would show one late job of a thousand."""
    world = World(submit_s=lambda number: 1.0 if number == 300 else 0.0)
    measured = world.run(even(100.0))
    late = sorted(latency_s for latency_s in measured.latencies_s if latency_s > 0.002)
    assert measured.sent == 1000
    assert len(late) == 100
    assert late[0] == pytest.approx(0.011)
    assert late[-1] == pytest.approx(1.001)
    assert sum(late) / len(late) == pytest.approx(0.5, abs=0.02)
    assert not measured.behind  # it caught up


def test_a_sender_that_is_too_slow_is_told_so() -> None:
    load = even(1000.0, timeout_s=2.0)
    world = World(submit_s=lambda _: 0.002)
    point = world.run(load)
    assert point.due == 10_000
    assert point.sent == pytest.approx(5000, abs=2)
    assert point.answered == point.sent == world.sent  # nothing left after the end
    assert point.behind
    assert point.sent_rate == pytest.approx(500, abs=1)
    assert point.lag_p99_s == pytest.approx(4.95, abs=0.1)
    assert point.latency_s["p99"] > 4.9
    assert point.goodput == pytest.approx(200, abs=1)  # two seconds' worth of jobs were sent in time


def test_the_warm_up_is_not_counted() -> None:
    # The pool is slow until it is warm.
    world = World(delay_s=lambda number: 0.5 if number < 100 else 0.001, outcome=_fail_the_first(10))
    measured = world.run(even(100.0, duration_s=2.0, warmup_s=1.0))
    assert world.sent == 300
    assert measured.sent == measured.due == 200
    assert measured.elapsed_s == pytest.approx(2.0)
    assert measured.latencies_s == pytest.approx([0.001] * 200)
    assert not measured.errors


def _fail_the_first(count: int) -> Callable[[int], PoolError | None]:
    return lambda number: ModelFailed("cold") if number < count else None


def test_errors_are_counted_by_class() -> None:
    def outcome(number: int) -> PoolError | None:
        kinds: list[PoolError | None] = [
            None,
            Overloaded("full"),
            DeadlineExceeded("late"),
            ModelFailed(f"no {number}"),
        ]
        return kinds[number % 4]

    load = even(100.0, duration_s=1.0)
    point = World(outcome=outcome).run(load)
    assert point.errors == {"Overloaded": 25, "DeadlineExceeded": 25, "ModelFailed": 25}
    assert point.last_error["ModelFailed"] == "no 99"
    values = point.values(1)
    counts = [values[name] for name in ("answered", "overloaded", "deadline_exceeded", "other_errors")]
    assert counts == [25, 25, 25, 25]
    assert point.goodput == pytest.approx(25.0)


def test_a_late_answer_is_no_goodput() -> None:
    load = even(10.0, duration_s=1.0, timeout_s=0.5)
    point = World(delay_s=lambda number: 0.6 if number < 4 else 0.1).run(load)
    assert point.answered == 10
    assert point.goodput == pytest.approx(6.0)
    assert [point.latency_s[name] for name in ("p50", "p90", "max")] == pytest.approx([0.1, 0.6, 0.6])


def test_it_ends_although_a_future_does_not() -> None:
    world = World(delay_s=lambda number: None if number == 3 else 0.001)
    measured = world.run(even(10.0, duration_s=1.0))
    assert measured.errors == {"NoAnswer": 1}
    assert len(measured.latencies_s) == 9
    assert world.time - world.began < 12


def test_it_ends_when_the_pool_goes_away() -> None:
    world = World(outcome=lambda number: PoolUnreachable("gone") if number == 50 else None)
    measured = world.run(even(100.0))
    assert measured.early == "the pool went away"
    assert measured.errors == {"PoolUnreachable": 1}
    assert len(measured.latencies_s) == 50
    assert measured.elapsed_s == pytest.approx(0.5, abs=0.02)


def test_ctrl_c_keeps_what_was_measured() -> None:
    measured = World(interrupt_at=2.0).run(even(100.0))
    assert measured.early == "interrupted"
    assert measured.sent == pytest.approx(200, abs=1)
    assert measured.due == pytest.approx(200, abs=1)
    assert measured.elapsed_s == pytest.approx(2.0, abs=0.02)


def test_ctrl_c_in_the_warm_up() -> None:
    measured = World(interrupt_at=0.5).run(even(100.0, warmup_s=1.0))
    assert (measured.early, measured.due, measured.sent, measured.elapsed_s) == ("interrupted", 0, 0, 0.0)
    assert measured.latencies_s == []


def test_progress_is_shown_also_when_the_sender_is_behind() -> None:
    shown: list[float] = []
    world = World(submit_s=lambda _: 0.01)
    world.run(even(1000.0, 2.0), lambda _what, part, _rate: shown.append(part))
    assert 15 <= len(shown) <= 25
    assert shown == sorted(shown)


# --- several rates


def report(points: list[Point]) -> LoadReport:
    return LoadReport(BenchJob("m", "s", [{}]), 1, [point.load for point in points], several=True, points=points)


def test_capacity_and_saturation() -> None:
    # A pool of one worker that takes 10 ms a job, and refuses what would be late.
    def point(rate: float) -> Point:
        free_at = 0.0
        world: World

        def delay_s(_: int) -> float:
            nonlocal free_at
            free_at = max(free_at, world.time) + 0.01
            return free_at - world.time

        world = World(delay_s=delay_s)
        return world.run(even(rate, timeout_s=60.0))

    points = [point(rate) for rate in (25.0, 50.0, 90.0)]
    assert max(each.goodput for each in points) == pytest.approx(90.0)
    assert not report(points).saturated
    assert [each.latency_s["p99"] for each in points] == pytest.approx([0.01] * 3)
    over = World(delay_s=lambda n: n * 0.005 + 0.01).run(even(200.0))
    assert report([*points, over]).saturated


def test_of_nothing() -> None:
    load = even(10.0)
    point = Point(load, elapsed_s=10.0, due=100, lags_s=[0.0] * 100, errors=Counter(Overloaded=100))
    values = point.values(1)
    assert values["goodput"] == 0
    assert values["p50_s"] is None
    assert values["overloaded"] == 100
    assert Point(load).goodput == 0
