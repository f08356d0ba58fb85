"""Who is first: the higher priority; but whoever has waited longest gets one batch of sixteen."""

import pytest

from pool.core import actions as do
from pool.core import events as told
from pool.core.dispatch import OLDEST_EVERY
from pool.core.policy import ModelPolicy
from pool.wire.faults import Fault
from simulation.driver import Driver, RunBatch, every, one, payloads


def order(driver: Driver) -> list[int]:
    """The numbers of the jobs in the order in which the one lane runs them."""
    numbers = []
    while driver.running():
        (run,) = driver.running()
        numbers += [int(str(payload).removeprefix("payload ")) for payload in payloads(run)]
        driver.done(run)
    return numbers


def test_higher_priorities_go_first_and_equals_in_the_order_in_which_they_came() -> None:
    driver = Driver(["m"]).serve()
    driver.submit()
    for priority in (0, -100, 100, 0, 7, 100):
        driver.submit(priority=priority)
    assert order(driver) == [1, 4, 7, 6, 2, 5, 3]


def test_priorities_count_between_models_whatever_they_have_used() -> None:
    driver = Driver(["a", "b"], models={"a": ModelPolicy(weight=100.0)}).serve()
    driver.submit("b")
    driver.submit("a", priority=0)
    driver.submit("b", priority=1)
    assert order(driver) == [1, 3, 2]


def test_priorities_count_between_clients_whatever_they_have_used() -> None:
    driver = Driver(["m"]).serve()
    driver.submit(client=b"greedy")
    driver.now += 10.0
    driver.submit(client=b"modest")
    driver.submit(client=b"greedy", priority=1)
    assert order(driver) == [1, 3, 2]


def test_priorities_count_when_a_worker_comes_that_is_the_home_of_what_waits() -> None:
    driver = Driver(["m", "counter"], ["counter"], stateful=["counter"])
    driver.start()
    driver.submit("counter")
    driver.submit("counter", priority=1)
    driver.submit("m", priority=5)
    driver.up(0)
    assert order(driver) == [3, 2, 1]
    assert driver.run_of(1).slot == 0, "the home is there"


@pytest.mark.parametrize("device", [None, "slot:0"])
def test_what_waits_behind_a_job_that_is_late_is_not_as_urgent_as_that(device: str | None) -> None:
    driver = Driver(["m", "other"]).serve()
    for _ in range(10):
        run = one(driver.submit("m", device=device), RunBatch)
        driver.pass_time(1.0)
        driver.done(run)
    driver.submit("other")
    driver.submit("m", priority=5, timeout_s=1.2, device=device)
    driver.submit("m", device=device)
    driver.submit("other", priority=1)
    driver.pass_time(0.5)
    assert order(driver) == [11, 14, 13]
    assert driver.fault(12) is Fault.DEADLINE_EXCEEDED, "it was first, and too late"


@pytest.mark.parametrize("device", [None, "slot:0"])
def test_what_has_to_run_again_does_not_go_before_what_is_more_urgent(device: str | None) -> None:
    driver = Driver(["m", "other"]).serve()
    for _ in range(3):
        driver.submit("m", rows=1, device=device)
    driver.done(driver.run_of(1))
    driver.submit("other", priority=5)
    assert driver.run_of(2) is driver.run_of(3)
    driver.spoil(driver.run_of(2), Fault.MODEL_FAILED)
    assert order(driver) == [4, 2, 3]


def test_what_has_to_run_again_and_is_not_wanted_any_more_lends_its_priority_to_nobody() -> None:
    driver = Driver(["m", "other"]).serve()
    for _ in range(3):
        driver.submit("m", rows=1, priority=5)
    driver.done(driver.run_of(1))
    driver.submit("m", priority=-5)
    driver.submit("other")
    driver.spoil(driver.run_of(2), Fault.MODEL_FAILED)
    assert driver.running() == [driver.run_of(2)], "one after the other"
    driver.feed(told.JobCancelled(b"client", 3))
    assert order(driver) == [2, 5, 4]


def test_what_runs_is_not_interrupted() -> None:
    driver = Driver(["m"]).serve()
    driver.submit(priority=-100)
    assert driver.submit(priority=100) == []


def test_lower_ones_fill_what_the_higher_ones_leave() -> None:
    driver = Driver(["m"], models={"m": ModelPolicy(max_batch=3)}).serve()
    driver.submit(form=b"another")
    for priority in (-5, -5, 5, 0):
        driver.submit(rows=1, priority=priority)
    run = one(driver.done(driver.run_of(1)), RunBatch)
    assert payloads(run)[:2] == ("payload 4", "payload 5")
    assert payloads(run)[2] == "payload 2"


@pytest.mark.parametrize("model", ["m", "other"])
def test_a_flood_of_high_priority_holds_the_others_up_for_so_many_batches_at_most(model: str) -> None:
    driver = Driver(["m", "other"], max_jobs=1000).serve()
    for _ in range(5):
        driver.submit(priority=5)
    driver.submit(model, priority=-5)
    batches = 0
    while not any("payload 6" in payloads(run) for run in driver.running()):
        driver.submit(priority=5)
        driver.done(driver.running()[0])
        batches += 1
        assert batches <= OLDEST_EVERY


def test_of_those_who_wait_the_one_that_came_first_gets_the_sixteenth_batch() -> None:
    driver = Driver(["m"], max_jobs=1000).serve()
    driver.submit(priority=5)
    for priority in (-5, 0, -5):
        driver.submit(priority=priority)
    led: list[object] = []
    for _ in range(3 * OLDEST_EVERY):
        driver.submit(priority=5)
        driver.done(driver.running()[0])
        led += payloads(driver.running()[0])
    low = ["payload 2", "payload 3", "payload 4"]
    assert [payload for payload in led if payload in low] == low


def test_of_those_who_came_together_the_first_gets_the_sixteenth_batch() -> None:
    driver = Driver(["m"], stateful=["m"], max_jobs=1000).serve()
    driver.submit(client=b"before")
    driver.submit(weight=3)
    assert len(every(driver.log, do.UnpackChunk)) == 1, "the model keeps state, so the three do not run together"
    low = [driver.submit(rows=1, origin=2) and f"payload {number}" for number in (3, 4, 5)]
    led: list[object] = []
    for _ in range(3 * OLDEST_EVERY + 1):
        driver.submit(priority=5)
        (run,) = driver.running()
        led += [part.payload for part in run.parts if part.payload in ("payload 3", "payload 4", "payload 5")]
        driver.done(run)
    assert led == ["payload 3", "payload 4", "payload 5"], low


@pytest.mark.parametrize("priority", [-101, 101, 10**9])
def test_a_priority_that_is_none_is_refused_and_the_range_is_told(priority: int) -> None:
    driver = Driver(["m"]).serve()
    assert every(driver.submit(priority=priority), RunBatch) == []
    assert driver.fault(1) is Fault.INVALID_INPUT
    assert "-100 to 100" in driver.failed(1).text
