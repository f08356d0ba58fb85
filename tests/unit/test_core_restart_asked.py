"""A slot gets a new worker because somebody asked for it: nothing is lost, and what was FATAL is tried again.

Where its replacement gets ready first, that is `test_core_replacement`.
"""

import pytest

from pool.core import actions as do
from pool.core import events as told
from pool.core.fleet import SlotState, WorkerState
from pool.wire.faults import Fault
from simulation.driver import Driver, RunBatch, every, one


def come_back(driver: Driver, slot: int) -> None:
    """The worker obeys, and its replacement comes up."""
    driver.die(slot, "exit status 0")
    assert driver.state(slot) is SlotState.STARTING, "without a pause"
    driver.up(slot)


def test_an_idle_worker_is_replaced_at_once() -> None:
    driver = Driver(["m"], ["m"], replacement="off").serve()
    actions = driver.feed(told.RestartAsked(0))
    assert one(actions, do.StopWorker).slot == 0
    come_back(driver, 0)
    assert (driver.state(0), driver.incarnation(0)) == (SlotState.READY, 2)
    assert driver.incarnation(1) == 1
    assert every(driver.feed(told.Tick()), do.StopWorker) == [], "once"


def test_what_runs_is_finished_first_and_what_waits_runs_elsewhere_or_afterwards() -> None:
    driver = Driver(["m"], replacement="off").serve()
    for _ in range(3):
        driver.submit()
    first = driver.run_of(1)
    assert every(driver.feed(told.RestartAsked(0)), do.StopWorker) == []
    assert driver.state(0) is SlotState.DRAINING
    actions = driver.done(first)
    assert driver.result(1)
    assert every(actions, RunBatch) == [], "it takes nothing new"
    assert one(actions, do.StopWorker).slot == 0
    come_back(driver, 0)
    for job in (2, 3):
        driver.done(driver.run_of(job))
        assert driver.result(job)


def test_a_worker_that_dies_meanwhile_is_replaced_all_the_same() -> None:
    driver = Driver(["m"], replacement="off").serve()
    driver.submit()
    driver.feed(told.RestartAsked(0))
    come_back(driver, 0)
    driver.done(driver.run_of(1))
    assert driver.result(1)


def test_a_run_that_nobody_waits_for_does_not_hold_up_a_restart() -> None:
    driver = Driver(["m"], replacement="off").serve()
    driver.submit(timeout_s=1.0)
    assert every(driver.feed(told.RestartAsked(0)), do.KillWorker) == []
    driver.pass_time(1.1)
    assert driver.fault(1) is Fault.DEADLINE_EXCEEDED
    assert every(driver.log, do.KillWorker), "nobody waits for what it runs"


def test_a_fatal_slot_is_tried_again_with_a_clean_record() -> None:
    driver = Driver(["m"], ["other"], restart_intensity=1).serve()
    driver.give_up(0, "exit status 72 WRONG_DEVICES")
    assert driver.state(0) is SlotState.FATAL
    driver.feed(told.RestartAsked(0))
    assert driver.state(0) is SlotState.STARTING
    driver.up(0)
    driver.submit()
    driver.done(driver.run_of(1))
    assert driver.result(1)
    driver.die(0)
    assert driver.state(0) is SlotState.BACKOFF, "what was before counts no more"


@pytest.mark.parametrize("state", ["STARTING", "LOADING", "BACKOFF"])
def test_one_that_is_not_up_yet_begins_anew(state: str) -> None:
    driver = Driver(["m"])
    driver.start()
    if state == "LOADING":
        driver.hello(0)
    elif state == "BACKOFF":
        driver.die(0)
    driver.feed(told.RestartAsked(0))
    if state != "BACKOFF":
        driver.die(0, "exit status 0")
        driver.feed(told.Tick())
    assert driver.state(0) is SlotState.STARTING
    driver.up(0)
    assert driver.incarnation(0) == 2


def test_what_cannot_be_restarted_says_why() -> None:
    driver = Driver(["m"], []).serve()
    cannot = driver.machine.fleet.replacements.cannot_restart
    assert "no slot 2" in (cannot(2) or "")
    assert "no slot -1" in (cannot(-1) or "")
    assert "no model" in (cannot(1) or "")
    assert cannot(0) is None
    driver.feed(told.StopAsked("SIGTERM came"))
    assert cannot(0) == "the pool is stopping"
    assert every(driver.feed(told.RestartAsked(0)), do.SpawnWorker) == []


def test_a_worker_that_could_not_be_killed_is_followed_once_it_is_gone() -> None:
    driver = Driver(["m"], ["other"]).serve()
    driver.feed(told.WorkerSpawned(0, 1, 4711))
    driver.feed(told.WorkerBroken(0, 1, "nonsense"))
    driver.pass_time(60.0)
    assert driver.state(0) is SlotState.FATAL
    assert "pid 4711" in (driver.machine.fleet.replacements.cannot_restart(0) or "")
    assert every(driver.feed(told.RestartAsked(0)), do.SpawnWorker) == [], "its device is not free"
    actions = driver.feed(told.WorkerExited(0, 1, told.Death("SIGKILL", True)))
    assert one(actions, do.SpawnWorker).incarnation == 2
    driver.up(0)
    driver.submit()
    driver.done(driver.run_of(1))
    assert driver.result(1)


def test_a_worker_that_could_not_be_killed_has_no_say_any_more() -> None:
    driver = Driver(["m"], ["other"]).serve()
    driver.feed(told.WorkerSpawned(0, 1, 4711))
    driver.feed(told.WorkerBroken(0, 1, "nonsense"))
    driver.pass_time(60.0)
    worker = driver.machine.fleet.slots[0].worker
    assert (worker.state, worker.pid) == (WorkerState.STUCK, 4711)
    driver.feed(told.WorkerSpawned(0, 1, 4712))
    assert driver.feed(told.WorkerBroken(0, 1, "more nonsense")) == []
    assert (worker.state, worker.pid) == (WorkerState.STUCK, 4711)


def test_a_slot_whose_worker_is_seen_to_be_gone_has_no_process() -> None:
    driver = Driver(["m"], ["other"], restart_intensity=0).serve()
    driver.feed(told.WorkerSpawned(0, 1, 4711))
    driver.die(0)
    assert driver.state(0) is SlotState.FATAL
    assert driver.machine.fleet.slots[0].worker.pid is None
    assert driver.machine.fleet.replacements.cannot_restart(0) is None


def test_a_stop_of_the_pool_comes_before_a_restart() -> None:
    driver = Driver(["m"], replacement="off").serve()
    driver.feed(told.RestartAsked(0))
    driver.feed(told.StopAsked("SIGTERM came"))
    actions = driver.die(0, "exit status 0")
    assert driver.state(0) is SlotState.STOPPED
    assert not one(actions, do.PoolStopped).failed
