"""The policy changes while the core runs: what comes is decided by the new one, what was decided stays."""

from dataclasses import replace
from typing import Any

from pool.core import events as told
from pool.core.fleet import SlotState
from pool.core.policy import ModelPolicy
from pool.wire.faults import Fault
from simulation.driver import Did, Driver, RunBatch, every, one


def change(driver: Driver, **policy: Any) -> list[Did]:
    return driver.feed(told.PolicyChanged(replace(driver.policy, **policy)))


def test_a_lower_bound_refuses_only_new_jobs() -> None:
    driver = Driver(["m"]).serve()
    for _ in range(5):
        driver.submit()
    assert change(driver, max_jobs=2) == []
    driver.submit()
    assert driver.fault(6) is Fault.OVERLOADED
    for job in range(1, 6):
        driver.done(driver.run_of(job))
        assert driver.result(job)
    driver.submit()
    driver.done(driver.run_of(7))
    assert driver.result(7)


def test_a_higher_bound_is_felt_by_the_next_job() -> None:
    driver = Driver(["m"], max_jobs=1).serve()
    driver.submit()
    driver.submit()
    assert driver.fault(2) is Fault.OVERLOADED
    change(driver, max_jobs=2)
    driver.submit()
    driver.done(driver.run_of(1))
    driver.done(driver.run_of(3))
    assert driver.result(3)


def test_a_batch_that_gathers_goes_when_it_would_have_gone() -> None:
    driver = Driver(["m"], models={"m": ModelPolicy(batch_wait_s=1.0)}).serve()
    driver.submit(rows=1)
    assert every(driver.log, RunBatch) == []
    change(driver, models={"m": ModelPolicy()})
    assert every(driver.log, RunBatch) == []
    driver.pass_time(1.0)
    assert len(one(driver.log, RunBatch).parts) == 1


def test_a_model_that_the_policy_does_not_name_has_the_defaults() -> None:
    driver = Driver(["m"], models={"m": ModelPolicy(max_batch=1)}).serve()
    change(driver, models={})
    assert driver.machine.models_snapshot(driver.now)[0]["max_batch"] == ModelPolicy().max_batch


def test_the_default_timeout_is_that_of_the_arrival() -> None:
    driver = Driver(["m"], default_timeout_s=50.0).serve()
    driver.submit()
    change(driver, default_timeout_s=5.0)
    driver.submit()
    driver.pass_time(6.0)
    assert driver.fault(2) is Fault.DEADLINE_EXCEEDED
    driver.done(driver.run_of(1))
    assert driver.result(1)


def test_a_death_counts_by_the_intensity_of_now() -> None:
    driver = Driver(["m"], ["m"], restart_intensity=5).serve()
    driver.die(0)
    assert driver.state(0) is SlotState.BACKOFF
    driver.pass_time(1.0)
    driver.up(0)
    change(driver, restart_intensity=1)
    driver.die(0)
    assert driver.state(0) is SlotState.FATAL, "the one before counts"


def test_a_phase_that_has_begun_keeps_its_budget() -> None:
    driver = Driver(["m"], ["m"], import_timeout_s=10.0)
    driver.start()
    change(driver, import_timeout_s=100.0)
    driver.pass_time(10.1)
    assert driver.state(0) is SlotState.STOPPING
    driver.die(0)
    driver.pass_time(1.0)
    driver.pass_time(50.0)
    assert driver.state(0) is SlotState.STARTING


def test_the_attempts_are_those_of_the_death() -> None:
    driver = Driver(["m"], max_attempts=1).serve()
    driver.submit()
    change(driver, max_attempts=3)
    for _ in range(2):
        driver.die(0)
        driver.pass_time(5.0)
        driver.up(0)
    driver.done(driver.run_of(1))
    assert driver.result(1)
