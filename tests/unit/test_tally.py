"""How many of a model's jobs ended of late, how, and after how long."""

import random

import pytest

from pool.core.queue.tally import BOUNDS_S, Tally
from pool.wire.faults import Fault
from simulation.driver import Driver
from unit import told_pool


def counted(tally: Tally, now: float, seconds: float) -> None:
    """As `Answers` does it."""
    if now >= tally.due:
        tally.snap(now)
    tally.done[next(place for place, bound in enumerate((*BOUNDS_S, seconds)) if seconds <= bound)] += 1


def test_a_model_that_nobody_asked_has_no_figures() -> None:
    minute = Tally().last_minute(1003.0)
    assert minute == {"seconds": 58.0, "done": 0, "failed": 0, "p50_s": None, "p99_s": None}


def test_a_steady_rate_is_told_as_it_is_at_any_instant() -> None:
    tally = Tally()
    for tick in range(3000):  # ten jobs a second, for five minutes
        counted(tally, 1000.0 + tick / 10, 0.001)
    for now in (1240.0, 1243.3, 1244.9, 1245.0, 1299.9):
        tally = Tally()
        for tick in range(round((now - 1000.0) * 10)):
            counted(tally, 1000.0 + tick / 10, 0.001)
        minute = tally.last_minute(now)
        assert 55 <= minute["seconds"] <= 60
        assert minute["done"] / minute["seconds"] == pytest.approx(10, rel=0.01)


def test_a_rate_counts_from_the_first_job_and_never_from_an_instant() -> None:
    tally = Tally()
    counted(tally, 1000.0, 0.001)
    assert tally.last_minute(1000.0)["seconds"] == 5.0, "one job in no time is no rate"
    counted(tally, 1004.0, 0.001)
    assert tally.last_minute(1004.0) | {"p50_s": 0, "p99_s": 0} == {
        "seconds": 9.0, "done": 2, "failed": 0, "p50_s": 0, "p99_s": 0,
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_it_counts_exactly_what_ended_within_its_window(seed: int) -> None:
    rng, tally, ends, now = random.Random(seed), Tally(), [], 5000.0
    for _ in range(300):
        now += rng.choice([0.01, 0.5, 4.9, 5.0, 30.0, 70.0]) * rng.random()
        if rng.random() < 0.2:
            tally.fail("overloaded", 3, now)
        else:
            counted(tally, now, 0.1)
            ends.append(now)
        asked = now + rng.choice([0.0, 3.0, 61.0])
        minute = tally.last_minute(asked)
        since = asked - minute["seconds"]
        assert minute["done"] == sum(end >= since for end in ends), f"seed {seed}"
        assert 5 <= minute["seconds"] <= 60


def test_quantiles_are_ends_of_buckets() -> None:
    tally = Tally()
    for place in range(100):
        counted(tally, 1000.0, 0.0012 if place < 50 else 0.04 if place < 99 else 10_000.0)
    minute = tally.last_minute(1001.0)
    assert (minute["p50_s"], minute["p99_s"]) == (pytest.approx(0.0015), pytest.approx(0.05))
    for _ in range(2):
        counted(tally, 1001.0, 10_000.0)
    assert tally.last_minute(1001.0)["p99_s"] is None, "longer than any bucket that ends"


def test_the_core_counts_each_end_of_a_job_for_its_model() -> None:
    driver = Driver(["m"], max_jobs=3)
    driver.start()
    driver.up(0)
    driver.submit("m")
    driver.now += 0.011
    driver.done(driver.running()[0])
    driver.submit("m")
    driver.spoil(driver.running()[0], Fault.MODEL_FAILED)
    for _ in range(4):
        driver.submit("m")  # one more than there is room for
    driver.submit("nobody_has_it")
    (m,) = told_pool.status(driver).models
    assert m.answered == {"done": 1, "model-failed": 1, "overloaded": 1}
    minute = m.last_minute
    assert (minute.done, minute.failed) == (1, 2)
    assert minute.p50_s == minute.p99_s == pytest.approx(0.015)
    driver.now += 70
    (m,) = told_pool.status(driver).models
    assert (m.last_minute.done, m.last_minute.failed) == (0, 0)
    assert m.answered["done"] == 1
