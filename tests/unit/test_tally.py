"""How many of a model's jobs ended, how, after how long, and in which version; and how many of late."""

import random

import pytest

from pool.core.events import Death, DrainAsked, WorkerExited
from pool.core.fleet import KilledFor
from pool.core.jobs import Job
from pool.core.policy import ModelPolicy
from pool.core.queue import Client, Model
from pool.core.queue.tally import MOST_DEPARTED, MOST_VERSIONS, Departed, Tally
from pool.wire.faults import Fault
from simulation.driver import BatchDone, Driver, Succeeded, payloads
from support import told_pool


def counted(tally: Tally, now: float, seconds: float, version: int | None = None) -> None:
    """A job that came so many seconds before zero and ended then, as `Settlement` and `Answers` count it."""
    if now >= tally.due:
        tally.snap(now)
    line = Model("m", ModelPolicy()).line(None)
    key = line.key(None, None, b"form")
    job = Job(Client(b"client"), 7, 70, line, key, 1, 0, 5.0, 1, "payload", arrived=-seconds, deadline=5.0)
    tally.of(version).result(job, 0.0, 0.0)


@pytest.mark.parametrize("power", range(31))
def test_a_bucket_has_its_upper_end_and_not_its_lower_one(power: int) -> None:
    tally, end = Tally(), 2**power / 1e6
    for seconds in (end, end * 1.001, end * 0.999):
        counted(tally, 1000.0, seconds)
    buckets = tally.of(None).total
    within = 1 if power == 0 else 2  # what is above the end of the bucket before
    assert (buckets[power], buckets[power + 1]) == (within + (power == 0), 1)


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
            tally.fail("overloaded", 3, rng.choice([None, 4]), now)
        else:
            counted(tally, now, 0.1, rng.randrange(2 * MOST_VERSIONS))
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
    assert (minute["p50_s"], minute["p99_s"]) == (0.002048, 0.065536)


def test_many_versions_are_bounded_and_their_jobs_still_count() -> None:
    tally = Tally()
    for version in range(5 * MOST_VERSIONS):
        counted(tally, 1000.0, 0.1, version)
        tally.fail("model-failed", 2, version, 1000.0)
    assert [each["version"] for each in tally.snapshot()] == list(range(4 * MOST_VERSIONS, 5 * MOST_VERSIONS))
    assert tally.answered() == {"done": 5 * MOST_VERSIONS, "model-failed": 10 * MOST_VERSIONS}
    minute = tally.last_minute(1001.0)
    assert (minute["done"], minute["failed"]) == (5 * MOST_VERSIONS, 10 * MOST_VERSIONS)


def test_a_model_that_comes_back_counts_on_and_many_that_are_gone_are_bounded() -> None:
    departed, tally = Departed(), Tally()
    tally.device_s = 7.0
    counted(tally, 1000.0, 0.1)
    departed.keep("m", tally)
    assert [name for name, _ in departed] == ["m"]
    assert departed.back("m") is tally
    assert tally.answered() == {"done": 1}
    assert list(departed) == []
    for number in range(3 * MOST_DEPARTED):
        departed.keep(f"m{number}", Tally())
    names = [name for name, _ in departed]
    assert names == [f"m{number}" for number in range(2 * MOST_DEPARTED, 3 * MOST_DEPARTED)]
    assert departed.back("m0").answered() == {"done": 0}


def test_the_core_counts_each_end_of_a_job_for_its_model() -> None:
    driver = Driver(["m"], max_jobs=3, versions={"m": 4})
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
    driver.now += 2.0
    found = told_pool.status(driver)
    (m,) = found.models
    assert m.answered == {"done": 1, "model-failed": 1, "overloaded": 1}
    assert m.oldest_s == 2.0
    minute = m.last_minute
    assert (minute.done, minute.failed) == (1, 2)
    assert minute.p50_s == minute.p99_s == 0.016384
    told = told_pool.metrics(driver)
    assert told.nameless == {"model-not-found": 1}
    (counts,) = told.models
    assert (counts.name, counts.model, counts.version) == ("m", "m", None)
    by_version = {each.version: each for each in counts.versions}
    assert {version: each.jobs for version, each in by_version.items()} == {
        4: {"done": 1, "model-failed": 1},
        None: {"done": 0, "overloaded": 1},
    }
    assert by_version[4].total.counts.index(1) == 14, "11 ms are at most 2^14 µs"
    assert by_version[4].total.sum == pytest.approx(0.011)
    assert by_version[4].queue.counts == (1,)
    assert sum(by_version[4].batch_rows.counts) == 2, "both batches were answered"
    driver.now += 70
    (m,) = told_pool.status(driver).models
    assert (m.last_minute.done, m.last_minute.failed) == (0, 0)
    assert m.answered["done"] == 1


def test_a_worker_that_lies_about_its_run_ends_nothing() -> None:
    driver = Driver(["m"]).serve()
    driver.submit("m")
    run = driver.running()[0]
    outcomes = tuple(Succeeded(payload) for payload in payloads(run))
    driver.feed(BatchDone(run.slot, run.incarnation, run.lane, run.batch, outcomes, run_s=1e300))
    ((counts,),) = (each.versions for each in told_pool.metrics(driver).models)
    assert counts.jobs == {"done": 1}
    assert sum(counts.run.counts) == 1


def test_deaths_are_counted_by_cause_and_restarts_by_slot() -> None:
    driver = Driver(["m"], ["m"], ["m"], hung_after_s=1.0).serve()

    def exits(slot: int, death: Death) -> None:
        driver.feed(WorkerExited(slot, driver.incarnation(slot), death))

    exits(0, Death("SIGSEGV", restartable=True, untouched=True, cause="SIGSEGV"))
    driver.submit("m")
    slot = driver.running()[0].slot
    driver.pass_time(1.5)
    exits(slot, Death("SIGKILL", restartable=True, cause="SIGKILL"))
    asked = 3 - slot  # of 1 and 2 the other one
    driver.done(driver.running()[0])  # where the job ran again
    driver.feed(DrainAsked(asked))
    exits(asked, Death("exit status 0", restartable=True, untouched=True, cause="STOPPED"))
    deaths = {slot.slot: slot.deaths for slot in told_pool.status(driver).slots}
    assert deaths == {0: {"SIGSEGV": 1}, slot: {KilledFor.HUNG.name: 1}, asked: {}}
    driver.pass_time(60.0)
    restarts = {slot.slot: slot.restarts for slot in told_pool.status(driver).slots}
    assert restarts == {0: 1, slot: 1, asked: 0}
