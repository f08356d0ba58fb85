"""When a benchmark has warmed up, and what it counts; the clock is the test's."""

import math
from collections.abc import Sequence

import pytest

from pool.bench.load import Load
from pool.bench.meter import Meter, agree
from pool.bench.point import Answer


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
    assert agree(windows(throughputs, latencies_s), 0.1) is steady


def test_the_tolerance_is_of_their_mean() -> None:
    assert agree(windows([90, 100, 110], [1, 1, 1]), 0.1)
    assert not agree(windows([89, 100, 111], [1, 1, 1]), 0.1)


def windows(throughputs: Sequence[float], latencies_s: Sequence[float]) -> list[tuple[float, float, float]]:
    return list(zip(throughputs, latencies_s, throughputs, strict=True))


def test_an_open_loop_is_judged_by_the_share_that_is_answered() -> None:
    """Nobody could wait until chance sends as many jobs in three windows."""
    meter = Meter(Load(rate=100.0, duration_s=5.0, warmup_s=20.0, tolerance=0.1))
    jobs = [second + number / rate for second, rate in enumerate([70, 130, *[100] * 20]) for number in range(rate)]
    ended = next(due for due in jobs if not meter.look(due + 0.001, [(due, due)], [Answer(due, due + 0.001)]))
    assert ended == pytest.approx(8.0, abs=0.1), "it measures from the third window on"


def driven(meter: Meter, latency_s: Sequence[float], seconds: float, rate: int = 20) -> float:
    """A closed loop of one: `latency_s` of each second. Gives the instant at which the meter had enough."""
    meter.look(100.0)
    for number in range(round(seconds * rate)):
        now = 100.0 + (number + 1) / rate
        second = min(int((number + 0.5) / rate), len(latency_s) - 1)
        if not meter.look(now, (), [Answer(now - latency_s[second], now - 1e-6)]):
            meter.end(now, 0.5, "")
            return now
    meter.end(100.0 + seconds, 0.5, "interrupted")
    return 100.0 + seconds


CLOSED = Load(in_flight=1, duration_s=5.0, warmup_s=20.0, tolerance=0.1)


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
    now = 0.0
    while meter.look(now):
        now += 0.1
    meter.end(now, 0.0, "")
    assert now == pytest.approx(25.0, abs=0.2)
    assert meter.point.unsteady.endswith("(the last: none was full)")


def test_errors_alone_do_not_keep_it_waiting() -> None:
    meter = Meter(CLOSED)
    now = 0.0
    while meter.look(now, (), [Answer(now - 0.1, now, "ModelFailed", "boom")]):
        now += 0.1
    meter.end(now, 0.0, "")
    assert now == pytest.approx(8.0, abs=0.4)
    assert meter.point.errors["ModelFailed"] == pytest.approx(50, abs=2)


def test_an_interruption_in_the_warm_up_leaves_nothing() -> None:
    meter = Meter(CLOSED)
    driven(meter, [0.01], 1.5)
    assert (meter.point.jobs, meter.point.elapsed_s, meter.point.early) == (0, 0.0, "interrupted")


def test_what_is_told_late_counts_for_its_own_instant() -> None:
    """As of clients that are other processes: all comes 0.2 s after it happened, so looks are of 0.25 s ago."""
    meter = Meter(Load(rate=20.0, duration_s=2.0, warmup_s=20.0, tolerance=0.1))
    now, told = 0.0, 0
    sent: list[tuple[float, float]] = []
    answers: list[Answer] = []
    meter.look(0.0)
    while meter.look(now - 0.25, sent, answers):
        now += 0.05
        sent, answers = [], []
        while told / 20 <= now - 0.2:
            sent.append((told / 20, told / 20 + 0.001))
            answers.append(Answer(told / 20, told / 20 + 0.01, stages=(("run", 0.01),), batch_rows=2))
            told += 1
    rest = range(told, told + 20)
    meter.look(
        now,
        [(now - 0.31, math.inf), *((number / 20, number / 20) for number in rest)],
        [Answer(number / 20, number / 20 + 0.01) for number in rest],
    )
    meter.end(now, 0.7, "")
    measured = meter.point
    assert measured.elapsed_s == pytest.approx(2.0)
    assert measured.jobs == 40
    assert (measured.due, measured.sent) == (41, 40)
    assert measured.batch_rows == {2: len(measured.segments_s["run"])}
    assert measured.cpu_share == 0.7


def test_jobs_without_an_answer_are_counted() -> None:
    meter = Meter(Load(rate=10.0, duration_s=2.0))
    meter.look(0.0)
    meter.look(0.1, [(number / 10, number / 10) for number in range(10)], [Answer(0.0, 0.1)])
    meter.end(2.0, 0.0, "")
    assert meter.point.errors == {"NoAnswer": 9}


def test_progress_is_told_in_both_phases() -> None:
    shown: list[tuple[str, float]] = []
    meter = Meter(CLOSED, show=lambda what, part, _: shown.append((what, part)))
    driven(meter, [0.01], 60.0)
    assert {what for what, _ in shown} == {"warming up", "measuring"}
    assert all(0 <= part <= 1 for _, part in shown)
    assert len(shown) > 50
