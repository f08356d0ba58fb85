"""Overload is an answer: what has no room, or no time, is told so at once and not after its timeout."""

from typing import Any

import pytest

from pool.core import actions as do
from pool.core import events as told
from pool.core.policy import ModelPolicy
from pool.core.queue.costs import STALE_S
from pool.wire.faults import Fault
from simulation.driver import AnswerJob, Did, Driver, JobDone, RunBatch, every, one


def taken_in(driver: Driver, *, client: bytes = b"client", most: int = 1000, size_bytes: int = 1) -> int:
    """How many jobs are taken in before one is refused; the refusal is the last answer."""
    for number in range(most):
        if every(driver.submit(client=client, size_bytes=size_bytes), AnswerJob):
            return number
    return most


def refusal(actions: list[Did]) -> do.JobFailed:
    outcome = one(actions, AnswerJob).outcome
    assert isinstance(outcome, do.JobFailed)
    return outcome


def learned(seconds: float, **policy: Any) -> Driver:
    """One lane, and jobs without rows that have taken so long."""
    driver = Driver(["m"], **policy).serve()
    for _ in range(3):
        run = one(driver.submit(), RunBatch)
        driver.now += seconds
        driver.done(run)
    return driver


# --- no room ------------------------------------------------------------------------------------------------------


def test_a_model_with_a_bound_of_its_own_leaves_room_for_the_others() -> None:
    driver = Driver(["m", "other"], models={"m": ModelPolicy(max_jobs=3)}).serve()
    for _ in range(3):
        driver.submit()
    failed = refusal(driver.submit())
    assert failed.fault is Fault.OVERLOADED
    assert "model m" in failed.text
    assert "max_jobs" in failed.text
    assert every(driver.submit("other"), AnswerJob) == []
    driver.done(driver.run_of(1))
    assert every(driver.submit(), AnswerJob) == []


def test_a_model_s_bytes_are_bounded_too() -> None:
    driver = Driver(["m", "other"], models={"m": ModelPolicy(max_bytes=100)}).serve()
    driver.submit(size_bytes=60)
    failed = refusal(driver.submit(size_bytes=50))
    assert failed.fault is Fault.OVERLOADED
    assert failed.text == "model m has 60 B in the queue or running; 50 B more would exceed its max_bytes (100 B)"
    assert every(driver.submit("other", size_bytes=50), AnswerJob) == []


def test_a_client_has_the_bound_that_is_configured() -> None:
    driver = Driver(["m"], client_max_jobs=5, client_max_bytes=100).serve()
    assert taken_in(driver, client=b"a") == 5
    assert (
        "this client has 5 jobs in the queue or running; 1 more would exceed [queue] client_max_jobs (5)"
        in driver.failed(6).text
    )
    assert taken_in(driver, client=b"b", size_bytes=40) == 2
    assert "[queue] client_max_bytes (100 B)" in driver.failed(9).text


def test_one_client_alone_leaves_a_ninth_for_whoever_comes() -> None:
    driver = Driver(["m"], max_jobs=90).serve()
    assert taken_in(driver, client=b"greedy") == 80
    assert "1 more would exceed its share of [queue] max_jobs (80)" in driver.failed(81).text
    assert taken_in(driver, client=b"modest", most=8) == 8


def test_clients_that_want_all_there_is_end_with_as_much_each() -> None:
    driver = Driver(["m"], max_jobs=170).serve()
    for _ in range(200):
        for client in (b"a", b"b"):
            driver.submit(client=client)
    held = [len(driver.machine.backlog.client(client).jobs) for client in (b"a", b"b")]
    assert held == [80, 80]


def test_one_client_alone_leaves_a_ninth_of_the_bytes() -> None:
    driver = Driver(["m"], max_bytes=900).serve()
    assert taken_in(driver, size_bytes=10) == 80
    assert every(driver.submit(client=b"other", size_bytes=90), AnswerJob) == []


def test_a_client_may_send_one_job_that_needs_nearly_all_the_bytes() -> None:
    driver = Driver(["m"], max_bytes=100).serve()
    assert every(driver.submit(size_bytes=100), AnswerJob) == []


@pytest.mark.parametrize("bound", [{"client_max_bytes": 50}, {"models": {"m": ModelPolicy(max_bytes=50)}}])
def test_what_no_bound_will_ever_have_room_for_is_the_caller_s_mistake(bound: dict[str, Any]) -> None:
    failed = refusal(Driver(["m"], **bound).serve().submit(size_bytes=51))
    assert failed.fault is Fault.INVALID_INPUT
    assert "the job is too large: 51 B exceeds " in failed.text
    assert failed.retry_after_s is None


# --- when to come again -------------------------------------------------------------------------------------------


def test_who_is_refused_is_told_when_to_come_again() -> None:
    driver = Driver(["m"], max_jobs=1).serve()
    driver.submit()
    assert refusal(driver.submit()).retry_after_s == 1.0, "nothing has drained, so nothing is known"


def test_the_faster_it_drains_the_sooner_one_may_come_again() -> None:
    def retry_after_s(seconds_each: float) -> float:
        driver = Driver(["m"], max_jobs=40, client_max_jobs=40, default_timeout_s=1e6).serve()
        while len(driver.machine.backlog.jobs) < 40:
            driver.submit()
        for _ in range(400):
            driver.now += seconds_each
            driver.done(driver.running()[0])
            driver.submit()
        retry = refusal(driver.submit()).retry_after_s
        assert retry is not None
        return retry

    assert retry_after_s(0.05) == pytest.approx(0.1, rel=0.2), "a twentieth of 40 jobs, 20 a second"
    assert retry_after_s(0.001) < 0.05
    assert retry_after_s(4.0) == 5.0, "nobody is sent away for longer"


# --- no time ------------------------------------------------------------------------------------------------------


def test_a_job_that_cannot_be_done_in_time_is_told_so_at_once_and_when_it_would_be() -> None:
    driver = learned(2.0)
    failed = refusal(driver.submit(timeout_s=1.0))
    assert failed.fault is Fault.DEADLINE_EXCEEDED
    assert "take at least 2 s, but its timeout is 1 s" in failed.text


def test_the_client_s_own_jobs_that_wait_count_and_those_of_others_do_not() -> None:
    driver = learned(2.0)
    for _ in range(3):
        driver.submit()
    failed = refusal(driver.submit(timeout_s=6.5))
    assert failed.fault is Fault.DEADLINE_EXCEEDED
    assert "at least 8 s" in failed.text, "one runs, two wait, and then this one"
    assert every(driver.submit(timeout_s=6.5, client=b"other"), AnswerJob) == []
    assert every(driver.submit(timeout_s=6.5, priority=1), AnswerJob) == [], "it goes before them"


def test_nobody_is_refused_by_what_was_seen_twice() -> None:
    driver = Driver(["m"]).serve()
    for _ in range(2):
        driver.submit()
        driver.now += 2.0
        driver.done(driver.running()[0])
    assert len(every(driver.submit(timeout_s=1.0), RunBatch)) == 1


def test_nobody_is_refused_by_what_another_model_s_runs_usually_take() -> None:
    """What runs now has been shorter at times, so the lane may be free much sooner than is likely."""
    driver = Driver(["m", "other"]).serve()
    for seconds in (2.0, 0.02, 2.0, 0.02, 2.0):
        run = one(driver.submit("other"), RunBatch)
        driver.now += seconds
        driver.done(run)
    for _ in range(3):
        run = one(driver.submit(), RunBatch)
        driver.now += 0.01
        driver.done(run)
    driver.submit("other")
    assert every(driver.submit(timeout_s=1.0), AnswerJob) == []
    failed = refusal(driver.submit(timeout_s=0.02))
    assert "at least 0.0" in failed.text, "two of its own at 0.01 s each, after the 0.02 s that the other takes"


def test_what_runs_is_held_against_nobody_when_its_costs_are_old() -> None:
    driver = Driver(["m", "other"]).serve()
    for model, seconds in (("other", 2.0), ("m", 0.01)):
        for _ in range(3):
            run = one(driver.submit(model), RunBatch)
            driver.now += seconds
            driver.done(run)
    driver.now += max(STALE_S, 20 * 2.0) + 0.1
    driver.submit("other")
    assert every(driver.submit(timeout_s=1.0), AnswerJob) == []


def test_after_a_while_one_job_is_let_through_to_see_whether_it_still_takes_so_long() -> None:
    driver = learned(2.0)
    assert every(driver.submit(timeout_s=1.0), RunBatch) == []
    driver.now += max(STALE_S, 20 * 2.0) + 0.1
    run = one(driver.submit(timeout_s=1.0), RunBatch)
    driver.now += 0.1
    driver.done(run)
    assert isinstance(driver.answers()[5], JobDone)
    assert len(every(driver.submit(timeout_s=1.0), RunBatch)) == 1, "it takes 0.1 s now"


def test_a_job_that_has_become_hopeless_in_the_queue_is_not_sent_to_the_device() -> None:
    driver = learned(2.0)
    driver.submit(client=b"other")
    driver.submit(timeout_s=4.5)
    driver.now += 3.0  # slower than ever before
    assert every(driver.done(driver.run_of(4)), RunBatch) == []
    assert driver.fault(5) is Fault.DEADLINE_EXCEEDED
    assert "it would take at least" in driver.failed(5).text


def test_failures_teach_no_costs() -> None:
    """They may come quickly, or late; results take as long as results."""
    driver = learned(2.0)
    for _ in range(9):
        run = one(driver.submit(), RunBatch)
        driver.now += 0.01
        driver.done(run, told.Failed(Fault.MODEL_FAILED, "quickly"))
    assert refusal(driver.submit(timeout_s=1.0)).fault is Fault.DEADLINE_EXCEEDED
