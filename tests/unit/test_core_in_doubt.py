"""Jobs that come again because a pool did not answer them."""

from typing import Any

import pytest

from pool.core import events as told
from pool.core.policy import ModelPolicy
from pool.wire.faults import Fault
from simulation.driver import Driver, JobDone, RunBatch, payloads

STOP = told.StopAsked("SIGTERM came")


def started(*models: str, **options: Any) -> Driver:
    """A pool whose workers still load."""
    driver = Driver(list(models) or ["m"], **options)
    driver.start()
    driver.hello(0)
    return driver


def test_it_is_run_and_says_how_often_it_was_tried() -> None:
    driver = Driver(["m"]).serve()
    driver.submit(attempts=1, in_doubt=True)
    driver.done(driver.run_of(1))
    outcome = driver.answers()[1]
    assert isinstance(outcome, JobDone)
    assert outcome.timeline.attempts == 2
    history = driver.machine.explain("1")
    assert history is not None
    assert (
        "came again: it was sent before and got no answer; the pool ended unexpectedly once while it held the job"
    ) in str(history["history"])


def test_who_has_seen_too_many_pools_end_is_not_taken_in_again() -> None:
    driver = Driver(["m"], max_attempts=3).serve()
    for attempts in (2, 3, 2**63):
        driver.submit(attempts=attempts, in_doubt=True)
    driver.done(driver.run_of(1))
    assert driver.result(1)
    for number in (2, 3):
        assert driver.fault(number) is Fault.WORKER_LOST
    assert "3 times while it held the job; 3 are allowed ([queue] max_attempts)" in driver.failed(2).text


def test_the_end_of_a_pool_counts_as_the_death_of_a_worker_does() -> None:
    """The one that dies with it alone is the last; one that may be a neighbour's fault is not."""
    driver = Driver(["m"], ["m"], models={"m": ModelPolicy(max_batch=8)}, max_attempts=2).serve()
    busy = driver.run_of(1) if driver.submit("m", rows=8) else None
    driver.submit("m", rows=8)
    driver.submit("m", rows=1, attempts=1, in_doubt=True)
    driver.submit("m", rows=1)
    assert busy is not None
    driver.done(busy)
    shared = driver.run_of(3)
    assert len(payloads(shared)) == 2
    driver.die(shared.slot)
    driver.done(driver.run_of(2))
    assert {3, 4}.isdisjoint(driver.answers()), "its neighbour may have been the guilty one"
    alone = driver.run_of(3)
    assert payloads(alone) == ("payload 3",)
    driver.die(alone.slot)
    assert driver.fault(3) is Fault.QUARANTINED


def test_a_stateful_models_job_that_may_have_started_is_refused_where_that_is_known() -> None:
    driver = Driver(["counter", "pure"], stateful=["counter"]).serve(lanes=2)
    driver.submit("counter", in_doubt=True)
    driver.submit("counter")
    driver.submit("pure", in_doubt=True)
    assert driver.fault(1) is Fault.STATEFUL_WORKER_LOST
    assert "it was sent before and got no answer; the model keeps state" in driver.failed(1).text
    for number in (2, 3):
        driver.done(driver.run_of(number))
        assert driver.result(number)


@pytest.mark.parametrize("batch_wait_s", [0.0, 60.0])
def test_where_no_worker_has_told_yet_it_waits_until_one_does(batch_wait_s: float) -> None:
    policies = {name: ModelPolicy(batch_wait_s=batch_wait_s) for name in ("counter", "pure")}
    driver = started("counter", "pure", stateful=["counter"], models=policies)
    for model in ("counter", "pure"):
        for in_doubt in (True, False):
            driver.submit(model, rows=1, in_doubt=in_doubt, attempts=int(in_doubt))
    assert driver.answers() == {}
    driver.ready(0, lanes=4)
    assert driver.fault(1) is Fault.STATEFUL_WORKER_LOST
    assert "came again" in driver.failed(1).text
    assert "keeps state" in driver.failed(1).text
    driver.pass_time(30.0)
    while driver.running():
        driver.done(driver.running()[0])
    for number in (2, 3, 4):
        assert driver.result(number)
    assert not any("payload 1" in payloads(run) for run in driver.log if isinstance(run, RunBatch))


def test_it_may_be_cancelled_or_late_before_that() -> None:
    driver = started("counter", stateful=["counter"])
    driver.submit("counter", in_doubt=True)
    driver.submit("counter", in_doubt=True, timeout_s=1.0)
    driver.feed(told.JobCancelled(b"client", 1))
    driver.pass_time(1.0)
    driver.ready(0)
    assert driver.fault(2) is Fault.DEADLINE_EXCEEDED
    assert 1 not in driver.answers()


def test_a_pinned_one_is_found_too() -> None:
    driver = started("counter", stateful=["counter"])
    driver.submit("counter", in_doubt=True, device="slot:0")
    driver.ready(0)
    assert driver.fault(1) is Fault.STATEFUL_WORKER_LOST


def test_a_model_that_is_gone_is_not_found_whoever_asks() -> None:
    driver = Driver(["m"]).serve()
    driver.submit("n", attempts=5, in_doubt=True)
    assert driver.fault(1) is Fault.MODEL_NOT_FOUND


def test_a_pool_that_stops_before_the_end_returns_only_what_may_run_again() -> None:
    """Its clients send to the next pool what this one returns as not done."""
    driver = Driver(["counter", "pure"], stateful=["counter"], drain_timeout_s=30.0).serve(lanes=2)
    for _ in range(2):
        driver.submit("counter", timeout_s=500.0)
        driver.submit("pure", timeout_s=500.0)
    begun = {payload for run in driver.running() for payload in payloads(run)}
    assert "payload 1" in begun
    driver.feed(STOP)
    driver.pass_time(30.0)
    for number, model in ((1, "counter"), (2, "pure"), (3, "counter"), (4, "pure")):
        lost = model == "counter" and f"payload {number}" in begun
        assert driver.fault(number) is (Fault.STATEFUL_WORKER_LOST if lost else Fault.POOL_STOPPING), number
    assert "the drain took longer than 30 s; the model keeps state" in driver.failed(1).text
