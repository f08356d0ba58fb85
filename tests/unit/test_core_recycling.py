"""Workers that have done their time are replaced one after the other, never the last of a model that is asked for."""

from typing import Any

import pytest

from pool.core import actions as do
from pool.core import events as told
from pool.core.fleet import SlotState
from simulation.driver import Driver, every

AGE_S = 3600.0
ALONE: dict[str, Any] = {"replacement": "off"}


def away(driver: Driver) -> list[int]:
    return [slot.number for slot in driver.machine.fleet.slots if slot.state is not SlotState.READY]


def come_back(driver: Driver) -> None:
    (slot,) = away(driver)
    driver.die(slot, "exit status 0")
    driver.up(slot)


def test_by_age_one_after_the_other_and_each_once() -> None:
    driver = Driver(["m"], ["m"], ["m"], recycle_age_s=AGE_S, **ALONE).serve()
    driver.pass_time(0.89 * AGE_S)
    assert away(driver) == []
    seen = []
    for _ in range(120):
        driver.pass_time(4.0)
        assert len(away(driver)) <= 1
        if away(driver):
            assert "it has served for" in driver.reason(away(driver)[0])
            seen += away(driver)
            come_back(driver)
    assert sorted(seen) == [0, 1, 2]
    assert away(driver) == []


def test_by_jobs() -> None:
    driver = Driver(["m"], ["m"], recycle_jobs=10, **ALONE).serve()
    for _ in range(8):
        driver.submit(device="slot:0")
        driver.done(driver.running()[0])
    driver.pass_time(6.0)
    assert away(driver) == []
    for _ in range(2):
        driver.submit(device="slot:0")
        driver.done(driver.running()[0])
    driver.pass_time(6.0)
    assert away(driver) == [0]
    come_back(driver)
    driver.pass_time(6.0)
    assert away(driver) == [], "the new one has done nothing yet"


def test_by_jobs_before_the_bound_however_fast_they_are() -> None:
    driver = Driver(["m"], recycle_jobs=1000).serve()
    done = 0
    while not driver.machine.fleet.slots[0].is_changing:
        assert done < 1000, "in no time, so the bound is passed unless somebody looks in time"
        driver.submit()
        driver.done(driver.running()[0])
        done += 1
    assert done >= 900
    assert f"it has done {done} jobs ([recycle] jobs)" in every(driver.log, do.WorkerChanged)[-1].reason


def test_by_memory() -> None:
    driver = Driver(["m"], ["m"], recycle_bytes=1 << 30, **ALONE).serve()
    driver.feed(told.WorkerMeasured(1, 1, 900 << 20))
    driver.feed(told.WorkerMeasured(0, 7, 2 << 30))  # no such worker
    driver.pass_time(6.0)
    assert away(driver) == []
    driver.feed(told.WorkerMeasured(1, 1, 1100 << 20))
    driver.pass_time(6.0)
    assert away(driver) == [1]
    assert "it holds 1.1 GiB of memory ([recycle] host_memory)" in driver.reason(1)


def test_the_only_slot_of_a_model_goes_only_while_nobody_asks_for_it() -> None:
    driver = Driver(["m"], recycle_age_s=AGE_S, hung_after_s=3.0 * AGE_S, **ALONE).serve()
    driver.submit(timeout_s=3.0 * AGE_S)
    driver.submit(timeout_s=3.0 * AGE_S)
    driver.pass_time(AGE_S)
    assert away(driver) == []
    driver.done(driver.run_of(1))
    driver.pass_time(6.0)
    assert away(driver) == [], "another waits"
    driver.done(driver.run_of(2))
    driver.pass_time(6.0)
    assert away(driver) == [0]


@pytest.mark.parametrize("min_ready", [1, 2])
def test_as_many_stay_ready_as_are_wanted(min_ready: int) -> None:
    driver = Driver(["m"], ["m"], ["m"], recycle_jobs=1, min_ready=min_ready, hung_after_s=1e6, **ALONE).serve()
    driver.feed(told.DrainAsked(2))
    driver.die(2, "exit status 0")
    for _ in range(3):
        driver.submit(timeout_s=1e5)  # the model is asked for
    for run in driver.running():
        driver.done(run)
    driver.pass_time(6.0)
    assert len(away(driver)) == (2 if min_ready == 1 else 1)


def test_none_goes_while_another_slot_is_away() -> None:
    driver = Driver(["m"], ["m"], ["m"], recycle_age_s=AGE_S, **ALONE).serve()
    driver.pass_time(0.5 * AGE_S)
    driver.die(0)
    driver.pass_time(1.0)
    driver.hello(0)
    driver.pass_time(500.0)  # it loads
    driver.beat(0, driver.machine.fleet.slots[0].worker.phase)
    assert every(driver.log, do.StopWorker) == []


def test_a_pool_that_recycles_nothing_has_no_timer_for_it() -> None:
    driver = Driver(["m"]).serve()
    assert driver.machine.next_deadline() is None
