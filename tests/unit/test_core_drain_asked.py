"""A slot is taken out of service because somebody asked for it, and comes back when somebody asks for that."""

import pytest

from pool.core import actions as do
from pool.core import events as told
from pool.core.fleet import SlotState
from pool.wire.faults import Fault
from simulation.driver import Driver, RunBatch, every, one
from support import told_pool


def test_what_runs_is_finished_and_the_slot_stays_empty() -> None:
    driver = Driver(["m"], ["m"]).serve()
    driver.submit(device="slot:0")
    driver.feed(told.DrainAsked(0))
    assert driver.state(0) is SlotState.DRAINING
    assert one(driver.done(driver.run_of(1)), do.StopWorker).slot == 0
    driver.die(0, "exit status 0")
    assert driver.state(0) is SlotState.STOPPED
    assert "`pool undrain` brings it back" in driver.reason(0)
    assert every(driver.pass_time(1000.0), do.SpawnWorker) == []
    driver.done(one(driver.submit(), RunBatch))
    driver.feed(told.RestartAsked(0))
    driver.up(0)
    driver.done(one(driver.submit(device="slot:0"), RunBatch))
    assert driver.result(3)


def test_jobs_that_no_other_slot_can_run_are_refused_and_the_pool_lives_on() -> None:
    driver = Driver(["m"]).serve()
    driver.submit()
    driver.submit()
    driver.feed(told.DrainAsked(0))
    driver.done(driver.run_of(1))
    driver.die(0, "exit status 0")
    assert driver.fault(2) is Fault.WORKER_LOST
    assert "slot 0 is STOPPED: drain requested" in driver.failed(2).text
    driver.submit()
    assert driver.fault(3) is Fault.WORKER_LOST, "at once"
    assert every(driver.log, do.PoolStopped) == []
    driver.feed(told.RestartAsked(0))
    driver.submit()
    driver.up(0)
    driver.done(driver.run_of(4))
    assert driver.result(4)


def test_the_pool_says_that_all_of_it_is_drained_and_not_that_it_starts() -> None:
    driver = Driver(["m"], ["m"])
    seen = []

    def look() -> None:
        seen.append(told_pool.status(driver).state)

    driver.start()
    look()
    driver.up(0)
    driver.up(1)
    driver.submit()
    driver.feed(told.DrainAsked(1))
    driver.die(1, "exit status 0")
    look()
    driver.feed(told.DrainAsked(0))
    look()
    driver.done(driver.run_of(1))
    driver.die(0, "exit status 0")
    look()
    driver.feed(told.RestartAsked(0))
    look()
    driver.up(0)
    look()
    driver.feed(told.StopAsked("enough"))
    look()
    assert seen == ["STARTING", "SERVING", "DRAINING", "DRAINED", "STARTING", "SERVING", "STOPPING"]


@pytest.mark.parametrize("state", ["STARTING", "LOADING", "BACKOFF", "STOPPING"])
def test_one_that_is_not_up_is_not_waited_for(state: str) -> None:
    driver = Driver(["m"], ["m"])
    driver.start()
    driver.up(1)
    if state == "LOADING":
        driver.hello(0)
    elif state == "BACKOFF":
        driver.die(0)
    elif state == "STOPPING":
        driver.hello(0)
        driver.feed(told.RestartAsked(0))
    assert driver.state(0).name == state
    driver.feed(told.DrainAsked(0))
    if state != "BACKOFF":
        driver.die(0, "exit status 0")
    assert driver.state(0) is SlotState.STOPPED
    assert len(every(driver.log, do.PoolReady)) == 1, "it is not waited for any more"


def test_a_worker_that_dies_while_it_drains_has_no_replacement() -> None:
    driver = Driver(["m"], ["m"]).serve()
    driver.submit(device="slot:0")
    driver.feed(told.DrainAsked(0))
    driver.die(0, "SIGSEGV")
    assert driver.state(0) is SlotState.STOPPED
    assert driver.fault(1) is Fault.WORKER_LOST


def test_the_pool_ends_as_ever_with_a_slot_drained() -> None:
    driver = Driver(["m"], ["m"]).serve()
    driver.feed(told.DrainAsked(0))
    driver.feed(told.StopAsked("SIGTERM came"))
    driver.die(0, "exit status 0")
    assert not one(driver.die(1, "exit status 0"), do.PoolStopped).failed


def test_who_cannot_be_drained() -> None:
    driver = Driver(["m"], [], ["m"]).serve()
    driver.give_up(2, "exit status 72 WRONG_DEVICES")
    cannot = driver.machine.fleet.replacements.cannot_drain
    assert cannot(0) is None
    assert cannot(1) == "no model is placed in slot 1"
    assert str(cannot(2)).startswith("slot 2 is already FATAL: ")
    assert cannot(3) == "there is no slot 3; the last is 2"
    for slot in (-1, 1, 2, 3):
        assert driver.feed(told.DrainAsked(slot)) == []
