"""Models come and go in a slot with its workers; the core is told what the next one has."""

import pytest

from pool.core import actions as do
from pool.core import events as told
from pool.core.fleet import SlotState
from pool.wire.faults import Fault
from simulation.driver import BatchDone, Did, Driver, Succeeded, every, one


def plan(driver: Driver, slot: int, *models: str) -> list[Did]:
    """As a roll does it."""
    actions = driver.feed(told.SlotPlanned(slot, models))
    return actions + driver.feed(told.RestartAsked(slot))


def follow(driver: Driver, slot: int, *models: str) -> None:
    """A replacement comes up with these, and takes the seat."""
    seat = driver.machine.fleet.slots[slot].named
    driver.feed(told.WorkerSpawned(slot, seat, 4711))
    driver.feed(told.WorkerHello(slot, seat))
    driver.feed(told.WorkerReady(slot, seat, 1, driver.infos(models)))


def models(driver: Driver, slot: int) -> tuple[str, ...]:
    return driver.machine.fleet.slots[slot].models


def test_a_new_model_is_served_when_the_replacement_has_the_seat() -> None:
    driver = Driver(["m"], ["m"], replacement="always").serve()
    plan(driver, 0, "m", "new")
    driver.submit("new")
    assert models(driver, 0) == ("m",)
    follow(driver, 0, "m", "new")
    assert models(driver, 0) == ("m", "new")
    assert driver.run_of(1).slot == 0, "it waited for the worker"
    driver.done(driver.run_of(1))
    assert driver.result(1)


def test_slots_with_other_models_than_their_neighbours_serve_what_they_share() -> None:
    driver = Driver(["m"], ["m"], ["m"], replacement="always").serve()
    plan(driver, 1, "m", "new")
    follow(driver, 1, "m", "new")
    for _ in range(3):
        driver.submit()
    driver.submit("new")
    assert sorted(run.slot for run in driver.running()) == [0, 1, 2]
    driver.done(driver.run_of(next(number for number in (1, 2, 3) if driver.run_of(number).slot == 1)))
    assert driver.run_of(4).slot == 1


def test_a_worker_that_has_not_what_it_was_told_is_killed_and_one_that_was_told_before_is_not() -> None:
    driver = Driver(["m"], replacement="off")
    driver.start()
    driver.hello(0)
    driver.feed(told.SlotPlanned(0, ("m", "new")))
    driver.feed(told.WorkerReady(0, 1, 1, driver.infos(["m"])))
    assert driver.state(0) is SlotState.READY, "it was told of m alone"
    driver.die(0)
    driver.pass_time(60.0)
    driver.hello(0)
    driver.feed(told.WorkerReady(0, 2, 1, driver.infos(["m"])))
    assert driver.state(0) is SlotState.STOPPING
    assert "without its models new" in driver.reason(0)


def test_what_runs_of_a_model_that_goes_is_finished_and_what_waits_is_told() -> None:
    driver = Driver(["m", "old"], replacement="always").serve()
    for _ in range(3):
        driver.submit("old")
    plan(driver, 0, "m")
    driver.submit("old")
    assert driver.fault(4) is Fault.MODEL_NOT_FOUND
    assert driver.failed(4).text == "model 'old' is no longer served"
    follow(driver, 0, "m")
    assert driver.state(0) is SlotState.DRAINING
    driver.done(driver.run_of(1))
    assert driver.result(1)
    assert driver.fault(2) is driver.fault(3) is Fault.MODEL_NOT_FOUND
    assert list(driver.machine.backlog.models) == ["m"], "nothing of it is kept"
    driver.submit("old")
    assert driver.failed(5).text.startswith("no model 'old'")


def test_a_model_goes_with_the_suspects_of_it_that_no_slot_will_run() -> None:
    """They wait for a slot to be empty, and the last worker that has their model is succeeded by one that has not."""
    driver = Driver(["m", "old"], ["m", "old"], replacement="always").serve()
    driver.submit("m")  # keeps slot 0
    driver.submit("old")
    driver.die(1)
    assert driver.run_of(1).slot == 0
    assert len(driver.running()) == 1, "job 2 waits to run alone"
    driver.feed(told.SlotPlanned(1, ("m",)))
    driver.pass_time(1.0)
    driver.up(1)
    plan(driver, 0, "m")
    follow(driver, 0, "m")
    assert 2 not in driver.answers()
    driver.done(driver.run_of(1))
    assert driver.fault(2) is Fault.MODEL_NOT_FOUND
    assert list(driver.machine.backlog.models) == ["m"]
    driver.pass_time(1.0)
    driver.submit("m")
    assert driver.run_of(3), "and the others go on"


def test_a_model_goes_with_a_batch_of_it_that_was_to_be_split() -> None:
    """Its halves wait for a lane, and in the same moment the last worker goes that has their model."""
    driver = Driver(["m", "old"], replacement="always").serve()
    for _ in range(3):
        driver.submit("old", rows=1)
    driver.done(driver.run_of(1))
    joined = driver.run_of(2)
    assert len(joined.parts) == 2
    plan(driver, 0, "m")
    follow(driver, 0, "m")
    driver.spoil(joined, Fault.MODEL_FAILED)
    assert driver.fault(2) is driver.fault(3) is Fault.MODEL_NOT_FOUND
    assert list(driver.machine.backlog.models) == ["m"]
    driver.submit("m")
    assert driver.run_of(4), "and the others go on"


def test_a_slot_that_gets_its_first_models_takes_what_is_pinned_to_its_device() -> None:
    driver = Driver(["m"], [], replacement="off").serve()  # both sit on gpu:0
    driver.die(0)
    driver.submit("m", device="gpu:0")
    plan(driver, 1, "m")
    driver.up(1)
    assert driver.run_of(1).slot == 1


def test_a_model_that_goes_here_and_stays_there_loses_no_job() -> None:
    driver = Driver(["m", "old"], ["m", "old"], replacement="always").serve()
    for _ in range(4):
        driver.submit("old")
    plan(driver, 0, "m")
    follow(driver, 0, "m")
    for number in range(1, 5):
        driver.done(driver.run_of(number))
        assert driver.result(number)
    assert driver.run_of(4).slot == 1


def test_a_replacement_that_fails_leaves_all_as_it_was() -> None:
    driver = Driver(["m"], replacement="always").serve()
    plan(driver, 0, "m", "new")
    driver.submit("new")
    driver.feed(told.WorkerExited(0, 2, told.Death("exit status 74", restartable=False)))
    driver.feed(told.SlotPlanned(0, ("m",)))
    assert driver.fault(1) is Fault.MODEL_NOT_FOUND
    assert list(driver.machine.backlog.models) == ["m"]
    driver.submit()
    driver.done(driver.run_of(2))
    assert driver.result(2)


def test_a_slot_that_was_empty_gets_a_worker_and_loses_it() -> None:
    driver = Driver(["m"], []).serve()
    plan(driver, 1, "new")
    driver.submit("new")
    assert driver.state(1) is SlotState.STARTING
    driver.up(1)
    driver.done(driver.run_of(1))
    assert driver.result(1)
    driver.feed(told.SlotPlanned(1, ()))
    assert driver.state(1) is SlotState.STOPPING
    driver.die(1)
    assert driver.state(1) is SlotState.STOPPED
    assert driver.reason(1) == "no model is placed here any more"
    assert driver.feed(told.RestartAsked(1)) == []
    assert list(driver.machine.backlog.models) == ["m"]


@pytest.mark.parametrize("state", ["STARTING", "LOADING", "BACKOFF"])
def test_a_slot_that_is_emptied_on_its_way_up_stays_empty(state: str) -> None:
    driver = Driver(["m"], ["old"], replacement="off").serve()
    driver.die(1)
    driver.submit("old")
    if state != "BACKOFF":
        driver.pass_time(60.0)
    if state == "LOADING":
        driver.hello(1)
    assert driver.state(1).name == state
    driver.feed(told.SlotPlanned(1, ()))
    if driver.state(1) is SlotState.STOPPING:
        driver.die(1)
    driver.pass_time(100.0)
    assert driver.state(1) is SlotState.STOPPED
    assert driver.fault(1) in (Fault.MODEL_NOT_FOUND, Fault.DEADLINE_EXCEEDED)
    assert list(driver.machine.backlog.models) == ["m"]


def test_a_pool_goes_on_when_the_slot_that_is_left_serves() -> None:
    driver = Driver(["m"], ["old"], replacement="off").serve()
    driver.give_up(1, "exit status 4")
    assert driver.state(1) is SlotState.FATAL
    driver.feed(told.SlotPlanned(1, ()))
    driver.submit()
    driver.done(driver.run_of(1))
    assert driver.result(1)
    driver.submit("old")
    assert driver.fault(2) is Fault.MODEL_NOT_FOUND


def test_jobs_that_are_pinned_wait_for_the_model_to_come_to_their_slot() -> None:
    driver = Driver(["m"], ["m"], replacement="always").serve()
    plan(driver, 1, "m", "new")
    driver.submit("new", device="slot:1")
    driver.submit("new", device="slot:0")
    assert driver.failed(2).text.startswith("device 'slot:0' does not hold model new")
    follow(driver, 1, "m", "new")
    driver.done(driver.run_of(1))
    assert driver.result(1)


def test_jobs_of_a_model_that_is_awaited_wait_though_no_slot_has_it() -> None:
    driver = Driver(["m"], ["other"], replacement="always").serve()
    driver.die(0)
    driver.pass_time(1.0)
    driver.submit("m")
    driver.feed(told.ModelsAwaited(frozenset({"m"})))
    driver.die(0, "gpu:0 is gone", restartable=False)
    driver.submit("m")
    assert driver.state(0) is SlotState.FATAL
    assert driver.machine.backlog.queued_jobs == 2
    plan(driver, 1, "other", "m")
    driver.feed(told.ModelsAwaited(frozenset()))
    assert driver.machine.backlog.queued_jobs == 2, "the slot that is to have it is on its way"
    follow(driver, 1, "other", "m")
    assert driver.run_of(1).slot == 1


def test_jobs_of_a_model_that_is_awaited_no_more_are_told() -> None:
    driver = Driver(["m"], replacement="always").serve()
    driver.feed(told.ModelsAwaited(frozenset({"m"})))
    driver.die(0)
    driver.pass_time(1.0)
    driver.die(0, "gpu:0 is gone", restartable=False)
    driver.submit("m")
    assert driver.machine.backlog.queued_jobs == 1, "the pool has not ended, though its only slot is FATAL"
    actions = driver.feed(told.ModelsAwaited(frozenset()))
    assert driver.fault(1) is Fault.WORKER_LOST
    assert any(isinstance(action, do.PoolStopped) for action in actions)


def test_who_is_awaited_is_not_waited_for_by_a_pool_that_stops_nor_by_jobs_for_one_device() -> None:
    driver = Driver(["m"], ["other"], replacement="always").serve()
    driver.feed(told.ModelsAwaited(frozenset({"m"})))
    driver.die(0)
    driver.pass_time(1.0)
    driver.die(0, "gpu:0 is gone", restartable=False)
    driver.submit("m", device="slot:0")
    assert driver.fault(1) is Fault.WORKER_LOST
    driver.submit("m")
    driver.feed(told.StopAsked("it was asked for"))
    assert driver.fault(2) is Fault.POOL_STOPPING


def test_a_model_that_goes_while_a_worker_loads_it_is_known_until_that_has_gone() -> None:
    driver = Driver(["m", "old"], replacement="off")
    driver.start()
    driver.hello(0)
    driver.feed(told.SlotPlanned(0, ("m",)))
    driver.feed(told.WorkerReady(0, 1, 1, driver.infos(["m", "old"])))
    assert driver.state(0) is SlotState.READY
    driver.submit("old")
    assert driver.fault(1) is not None
    driver.submit("m")
    driver.done(driver.run_of(2))
    assert driver.result(2)
    driver.die(0)
    assert list(driver.machine.backlog.models) == ["m"]


def test_a_model_that_goes_while_a_replacement_has_it_is_known_until_that_has_gone() -> None:
    driver = Driver(["m"], replacement="always").serve()
    plan(driver, 0, "m", "new")
    seat = driver.machine.fleet.slots[0].named
    driver.feed(told.WorkerSpawned(0, seat, 4711))
    driver.feed(told.WorkerHello(0, seat))
    driver.feed(told.SlotPlanned(0, ("m",)))
    driver.feed(told.WorkerReady(0, seat, 1, driver.infos(["m", "new"])))
    assert models(driver, 0) == ("m", "new")
    driver.submit()
    driver.done(driver.run_of(1))
    assert driver.result(1)
    driver.die(0)
    assert list(driver.machine.backlog.models) == ["m"]


def test_a_model_that_changes_its_slot_is_known_while_no_worker_has_it() -> None:
    """Neither of the two fits beside the other, so for a moment it has left and has not come."""
    driver = Driver(["a"], ["b"], replacement="off").serve()
    driver.feed(told.ModelsAwaited(frozenset({"a", "b"})))
    plan(driver, 0, "b")
    driver.die(0, "exit status 0")
    driver.pass_time(0.1)
    driver.up(0)
    assert [models(driver, 0), models(driver, 1)] == [("b",), ("b",)]
    driver.submit("a")
    assert driver.answers() == {}
    plan(driver, 1, "a")
    driver.die(1, "exit status 0")
    driver.pass_time(0.1)
    driver.up(1)
    driver.done(driver.run_of(1))
    assert driver.result(1)


def test_a_job_that_waits_for_a_model_on_its_way_is_told_at_once_that_the_pool_stops() -> None:
    driver = Driver(["a"], ["b"], replacement="off").serve()
    driver.feed(told.ModelsAwaited(frozenset({"a", "b"})))
    plan(driver, 0, "b")
    driver.die(0, "exit status 0")
    driver.submit("a")
    driver.feed(told.StopAsked("SIGTERM came"))
    assert driver.fault(1) is Fault.POOL_STOPPING


def test_a_pool_whose_last_slot_is_given_up_ends_when_a_worker_that_is_to_go_has_gone() -> None:
    driver = Driver(["m"], ["m"], replacement="off").serve()
    plan(driver, 0)
    assert driver.state(0) is SlotState.STOPPING
    driver.give_up(1, "exit status 74")
    assert driver.state(1) is SlotState.FATAL
    assert every(driver.log, do.PoolStopped) == [], "slot 0 still has a process"
    assert one(driver.die(0, "exit status 0"), do.PoolStopped).failed


def test_the_last_answer_of_an_emptied_slot_may_come_with_its_workers_exit() -> None:
    """In one burst: when idle lanes are looked for, the slot has none, and stands with no other."""
    driver = Driver(["m"], ["b"]).serve()
    driver.submit("b")
    run = driver.run_of(1)
    driver.feed(told.SlotPlanned(1, ()))
    done = BatchDone(run.slot, run.incarnation, run.lane, run.batch, (Succeeded("x"),))
    driver.feed(done, told.WorkerExited(1, 1, told.Death("exit status 0", restartable=True)))
    assert driver.result(1)
    assert driver.state(1) is not SlotState.READY
