"""When a benchmark has warmed up, and what it counts; the clock is the test's."""

import math
from collections.abc import Sequence

import pytest

from pool.bench.load import Load, Warmup
from pool.bench.meter import Meter, Steadiness, Window
from pool.bench.point import Answer


def agree(throughputs: Sequence[float], latencies_s: Sequence[float], tolerance: float = 0.1) -> bool:
    steadiness = Steadiness(tolerance)
    found = [steadiness.add(Window(*each)) for each in zip(throughputs, latencies_s, strict=True)]
    return found[-1]


@pytest.mark.parametrize(
    ("throughputs", "latencies_s", "steady"),
    [
        ([100, 100], [0.01, 0.01], False),
        ([100, 105, 95], [0.01, 0.01, 0.01], True),
        ([100, 120, 100], [0.01, 0.01, 0.01], False),
        ([100, 100, 100], [0.01, 0.02, 0.01], False),
        ([1, 1000, 100, 100, 100], [1, 0.1, 0.01, 0.01, 0.01], True),
        ([100, 100, 100], [0.01, math.nan, 0.01], False),
        ([100, 100, 100], [math.nan] * 3, True),
    ],
)
def test_three_windows_in_a_row_agree(throughputs: list[float], latencies_s: list[float], steady: bool) -> None:
    assert agree(throughputs, latencies_s) is steady


def test_the_tolerance_is_of_their_mean() -> None:
    assert agree([90, 100, 110], [1, 1, 1], tolerance=0.1)
    assert not agree([89, 100, 111], [1, 1, 1], tolerance=0.1)


def test_an_open_loop_is_judged_by_the_share_that_is_answered() -> None:
    steadiness = Steadiness(0.1)
    poisson = [Window(rate, 0.01, share) for rate, share in ((70, 1.0), (130, 0.99), (100, 1.0))]
    assert [steadiness.add(window) for window in poisson] == [False, False, True]


def driven(meter: Meter, latency_s: Sequence[float], seconds: float, rate: int = 20) -> float:
    """A closed loop of one: `latency_s` of each second. Gives the instant at which the meter had enough."""
    meter.begin(100.0)
    for number in range(round(seconds * rate)):
        now = 100.0 + (number + 1) / rate
        second = min(int((number + 0.5) / rate), len(latency_s) - 1)
        meter.answered(Answer(now - latency_s[second], now - 1e-6))
        if not meter.look(now):
            meter.end(now, 0.5)
            return now
    meter.early = "interrupted"
    meter.end(100.0 + seconds, 0.5)
    return 100.0 + seconds


STEADY = Warmup(20.0, tolerance=0.1)
CLOSED = Load(in_flight=1, duration_s=5.0, warmup=STEADY)


def test_it_measures_from_the_third_window_that_agrees_on() -> None:
    meter = Meter(CLOSED)
    # 2 s are slow, then it is steady: the windows from 2 to 5 agree, and 5 to 10 are measured.
    assert driven(meter, [0.5, 0.3, 0.01], 60.0) == pytest.approx(110.0, abs=0.1)
    assert meter.point.latencies_s == pytest.approx([0.01] * 100, abs=1e-5)
    assert meter.point.elapsed_s == pytest.approx(5.0)
    assert not meter.point.unsteady


def test_what_never_becomes_stable_is_measured_and_said() -> None:
    meter = Meter(CLOSED)
    assert driven(meter, [0.1 * 1.5 ** (number % 3) for number in range(40)], 60.0) == pytest.approx(125.0, abs=0.1)
    assert meter.point.jobs == 100
    assert meter.point.unsteady.startswith(
        "never stable: in 20 s of warm-up, no 3 windows in a row agreed within 10.0 % (the last: 20.00/s"
    )


def test_a_slow_model_has_longer_windows() -> None:
    meter = Meter(CLOSED)
    # An answer a second: a window has five of them.
    assert driven(meter, [0.9], 60.0, rate=1) == pytest.approx(120.0)
    assert not meter.point.unsteady


def test_a_model_without_an_answer_is_given_up() -> None:
    meter = Meter(CLOSED)
    meter.begin(0.0)
    now = 0.0
    while meter.look(now):
        now += 0.1
    meter.end(now, 0.0)
    assert now == pytest.approx(25.0, abs=0.2)
    assert meter.point.unsteady.endswith("(the last: none was full)")


def test_errors_alone_do_not_keep_it_waiting() -> None:
    meter = Meter(CLOSED)
    meter.begin(0.0)
    now = 0.0
    while meter.look(now):
        now += 0.1
        meter.answered(Answer(now - 0.1, now, "ModelFailed", "boom"))
    meter.end(now, 0.0)
    assert now == pytest.approx(8.0, abs=0.4)
    assert meter.point.errors["ModelFailed"] == pytest.approx(50, abs=2)


def test_an_interruption_in_the_warm_up_leaves_nothing() -> None:
    meter = Meter(CLOSED)
    driven(meter, [0.01], 1.5)
    assert (meter.point.jobs, meter.point.elapsed_s, meter.point.early) == (0, 0.0, "interrupted")


def test_what_is_told_late_counts_for_its_own_instant() -> None:
    """As of clients that are other processes: all comes 0.2 s after it happened."""
    meter = Meter(Load(rate=20.0, duration_s=2.0, warmup=STEADY), lag_s=0.25)
    meter.begin(0.0)
    now, told = 0.0, 0
    while meter.look(now):
        now += 0.05
        while told / 20 <= now - 0.2:
            meter.sent(told / 20, told / 20 + 0.001)
            meter.answered(Answer(told / 20, told / 20 + 0.01, stages=(("run", 0.01),), batch_rows=2))
            told += 1
    meter.sent(now - 0.19, math.inf)
    for number in range(told, told + 20):
        meter.answered(Answer(number / 20, number / 20 + 0.01))
        meter.sent(number / 20, number / 20)
    meter.end(now, 0.7)
    measured = meter.point
    assert measured.elapsed_s == pytest.approx(2.0)
    assert measured.jobs == 40
    assert (measured.due, measured.sent) == (41, 40)
    assert measured.batch_rows == {2: len(measured.segments_s["run"])}
    assert measured.cpu_share == 0.7


def test_jobs_without_an_answer_are_counted() -> None:
    meter = Meter(Load(rate=10.0, duration_s=2.0))
    meter.begin(0.0)
    for number in range(10):
        meter.sent(number / 10, number / 10)
    meter.answered(Answer(0.0, 0.1))
    meter.end(2.0, 0.0)
    assert meter.point.errors == {"NoAnswer": 9}


def test_progress_is_told_in_both_phases() -> None:
    shown: list[tuple[str, float]] = []
    meter = Meter(CLOSED, show=lambda what, part, _: shown.append((what, part)))
    driven(meter, [0.01], 60.0)
    assert {what for what, _ in shown} == {"warming up", "measuring"}
    assert all(0 <= part <= 1 for _, part in shown)
    assert len(shown) > 50
