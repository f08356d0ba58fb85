"""A second process stands by for each slot, and has only to load when the worker there dies."""

from typing import Any

import pytest

from pool.core import actions as do
from pool.core import events as told
from pool.core.fleet import Role, SlotState
from pool.wire.worker_messages import Phase
from simulation.driver import Did, Driver, ended, every, one
from simulation.plans import model_info

READY = SlotState.READY
SIGSEGV = told.Death("SIGSEGV", restartable=True, last_output=("Fatal error",))
GONE = told.Death("exit status 0", restartable=True)


def says(driver: Driver, incarnation: int, phase: Phase, detail: str = "") -> list[Did]:
    return driver.feed(told.WorkerBeat(0, incarnation, phase, detail, ()))


def exits(driver: Driver, incarnation: int, death: told.Death = SIGSEGV) -> list[Did]:
    return driver.feed(told.WorkerExited(0, incarnation, death))


def standing_by(*placement: list[str], to: str = "READY", **policy: Any) -> Driver:
    """Slot 0 serves, and incarnation 2 has got so far."""
    driver = Driver(*(placement or (["m"],)), standby=True, **policy).serve()
    assert do.SpawnStandby(0, 2) in driver.log
    driver.feed(told.WorkerSpawned(0, 2, 1002))
    if to != "STARTING":
        assert driver.feed(told.WorkerHello(0, 2))[-1] == do.HoldWorker(0, 2)
    if to == "READY":
        says(driver, 2, Phase.STANDING_BY)
    return driver


def test_it_comes_when_the_slot_serves_and_not_before() -> None:
    driver = Driver(["m"], standby=True)
    driver.start()
    driver.hello(0)
    assert every(driver.log, do.SpawnStandby) == []
    assert one(driver.ready(0), do.SpawnStandby) == do.SpawnStandby(0, 2)
    assert every(driver.pass_time(5.0), do.SpawnStandby) == []


def test_without_the_setting_there_is_none() -> None:
    assert every(Driver(["m"]).serve().log, do.SpawnStandby) == []


@pytest.mark.parametrize("to", ["LOADING", "READY"])
def test_it_follows_the_worker_that_dies_and_has_only_to_load(to: str) -> None:
    """Or to finish its import, which is sooner done than another one's."""
    driver = standing_by(to=to)
    driver.submit()
    exits(driver, 1)
    actions = driver.pass_time(0.1)
    assert every(actions, do.SpawnWorker) == []
    assert one(actions, do.TakeSlot) == do.TakeSlot(0, 2)
    slot = driver.machine.fleet.slots[0]
    assert (slot.state, slot.worker.incarnation, slot.worker.pid) == (SlotState.LOADING, 2, 1002)
    says(driver, 2, Phase.AWAITING_DEVICE, "gpu:0")
    assert (slot.worker.phase, slot.worker.detail) == (Phase.AWAITING_DEVICE, "gpu:0")
    says(driver, 2, Phase.LOADING, "m")
    assert slot.worker.phase is Phase.LOADING
    actions = driver.ready(0)
    assert one(actions, do.SpawnStandby).incarnation == 3, "the next one, and not before"
    driver.done(driver.run_of(1))
    assert driver.result(1)


def test_one_that_has_said_nothing_yet_is_not_waited_for() -> None:
    driver = standing_by(to="STARTING")
    exits(driver, 1)
    assert one(driver.pass_time(0.1), do.SpawnWorker).incarnation == 3


def test_a_device_that_does_not_become_free_counts_as_a_death() -> None:
    driver = standing_by()
    exits(driver, 1)
    driver.pass_time(0.1)
    exits(driver, 2, told.Death("gpu:0 still has 5.9 GiB", restartable=True))
    assert driver.state(0) is SlotState.BACKOFF
    assert one(driver.pass_time(1.0), do.SpawnWorker).incarnation == 3


def test_a_worker_that_goes_first_is_followed_by_it_too() -> None:
    driver = standing_by(replacement="off")
    driver.feed(told.RestartAsked(0))
    assert one(exits(driver, 1, GONE), do.TakeSlot).incarnation == 2


def test_a_replacement_comes_beside_both_and_the_standby_stays() -> None:
    driver = standing_by()
    assert one(driver.feed(told.RestartAsked(0)), do.SpawnReplacement).incarnation == 3
    driver.feed(told.WorkerSpawned(0, 3, 1003))
    driver.feed(told.WorkerHello(0, 3))
    driver.feed(told.WorkerReady(0, 3, 1, (model_info("m"),)))
    exits(driver, 1, GONE)
    assert driver.incarnation(0) == 3
    exits(driver, 3)
    assert one(driver.pass_time(0.1), do.TakeSlot).incarnation == 2


def test_one_that_dies_by_itself_is_replaced_ever_more_rarely_and_the_slot_serves() -> None:
    driver = standing_by(restart_intensity=3, restart_period_s=60.0)
    pauses = []
    for incarnation in range(2, 12):
        died = driver.now
        (lost,) = ended(exits(driver, incarnation), Role.STANDBY)
        assert (lost.incarnation, lost.reason, lost.death) == (incarnation, "SIGSEGV", SIGSEGV)
        while not every(driver.log, do.SpawnStandby)[-1].incarnation > incarnation:
            driver.pass_time(0.1)
        pauses.append(driver.now - died)
    assert driver.state(0) is READY
    assert pauses[:3] == sorted(pauses[:3])
    assert all(pause >= 59.9 for pause in pauses[4:])


def test_one_that_does_not_get_through_its_import_is_killed_within_its_budget() -> None:
    driver = standing_by(to="LOADING", import_timeout_s=20.0)
    kill = one(driver.pass_time(20.0), do.KillWorker)
    assert (kill.incarnation, driver.state(0)) == (2, READY)
    assert len(ended(exits(driver, 2, told.Death("SIGKILL", True)), Role.STANDBY)) == 1


def test_one_that_says_ready_is_a_liar() -> None:
    driver = standing_by()
    actions = driver.feed(told.WorkerReady(0, 2, 1, (model_info("m"),)))
    assert one(actions, do.KillWorker) == do.KillWorker(0, 2, "said READY without a slot", stacks=False)
    assert (driver.state(0), driver.incarnation(0)) == (READY, 1)


def test_one_that_only_says_that_it_stands_by_is_no_worker() -> None:
    driver = Driver(["m"], load_timeout_s=40.0)
    driver.start()
    driver.hello(0)
    driver.beat(0, Phase.LOADING, "m")
    driver.pass_time(39.0)
    driver.beat(0, Phase.STANDING_BY)
    assert one(driver.pass_time(1.0), do.KillWorker), "that gives no time"


def test_a_stop_takes_it_along() -> None:
    driver = standing_by()
    stops = every(driver.feed(told.StopAsked("SIGTERM came")), do.StopWorker)
    assert {stop.incarnation for stop in stops} == {1, 2}
    exits(driver, 1, GONE)
    assert every(driver.log, do.PoolStopped) == []
    assert one(exits(driver, 2, GONE), do.PoolStopped)
    assert driver.machine.next_deadline() is None


def test_a_drain_takes_it_along() -> None:
    driver = standing_by(["m"], ["m"])
    assert one(driver.feed(told.DrainAsked(0)), do.StopWorker).incarnation == 2
    assert one(exits(driver, 2, GONE), do.StopWorker).incarnation == 1
    exits(driver, 1, GONE)
    assert driver.state(0) is SlotState.STOPPED
    driver.feed(told.RestartAsked(0))
    assert any(spawn.slot == 0 for spawn in every(driver.up(0), do.SpawnStandby))


def test_a_slot_that_is_given_up_has_none() -> None:
    driver = standing_by(["m"], ["m"], restart_intensity=0)
    assert one(exits(driver, 1), do.StopWorker).incarnation == 2
    assert driver.state(0) is SlotState.FATAL
    exits(driver, 2, GONE)
    assert all(spawn.slot == 1 for spawn in every(driver.pass_time(1000.0), do.SpawnStandby))


def test_the_setting_may_change_while_the_pool_runs() -> None:
    driver = Driver(["m"]).serve()
    driver.feed(told.PolicyChanged(Driver(["m"], standby=True).policy))
    assert every(driver.log, do.SpawnStandby) == [do.SpawnStandby(0, 2)]
    driver.feed(told.WorkerSpawned(0, 2, 1002))
    assert one(driver.feed(told.PolicyChanged(Driver(["m"]).policy)), do.StopWorker).incarnation == 2
    assert len(ended(exits(driver, 2, GONE), Role.LEAVING)) == 1
    assert every(driver.pass_time(1000.0), do.SpawnStandby) == []


def test_recycling_goes_on_beside_standbys() -> None:
    driver = standing_by(recycle_age_s=100.0)
    driver.pass_time(120.0)
    assert one(driver.log, do.SpawnReplacement).incarnation == 3
