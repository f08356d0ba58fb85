"""Workers of another release than the pool, as after an upgrade of the files under it: no crash, and no hurry."""

import random
from typing import Any

import pytest

from pool.core import actions as do
from pool.core import events as told
from pool.core.fleet import ALIVE, Role, SlotState
from pool.wire.faults import Fault
from simulation.driver import Did, Driver, ended, every, one

WHY = "exit status 77 OTHER_RELEASE: restart the pool"
OTHER = told.Death(WHY, restartable=True, last_output=("protocol version 8",), untouched=True, other_release=True)
PAUSE_S = 60.0


def refuse(driver: Driver, slot: int) -> list[Did]:
    """The worker that is being started there says that it is of another release."""
    return driver.feed(told.WorkerExited(slot, driver.incarnation(slot), OTHER))


def replaced(*placement: list[str], **policy: Any) -> Driver:
    """All slots served; the worker of slot 1 has died, and the next one is of another release."""
    driver = Driver(*(placement or (["m"], ["m"])), **policy).serve()
    driver.die(1)
    driver.pass_time(0.2)
    assert driver.state(1) is SlotState.STARTING
    refuse(driver, 1)
    return driver


def test_the_slot_waits_and_the_others_serve_on() -> None:
    driver = replaced()
    assert (driver.state(1), driver.reason(1)) == (SlotState.BACKOFF, WHY)
    assert driver.state(0) is SlotState.READY
    for number in range(1, 4):
        driver.submit()
        driver.done(driver.run_of(number))
        assert driver.run_of(number).slot == 0
        assert driver.result(number)


def test_it_is_tried_at_long_intervals_and_never_given_up() -> None:
    driver = replaced(restart_intensity=2)
    for _ in range(20):
        assert driver.pass_time(PAUSE_S - 0.1) == []
        assert one(driver.pass_time(0.2), do.SpawnWorker).slot == 1
        refuse(driver, 1)
        assert driver.state(1) is SlotState.BACKOFF


def test_it_counts_neither_as_a_crash_nor_against_the_next_pause() -> None:
    driver = replaced(restart_intensity=2, restart_period_s=1000.0)
    for _ in range(5):
        driver.feed(told.RestartAsked(1))
        refuse(driver, 1)
    driver.feed(told.RestartAsked(1))
    driver.up(1)
    driver.die(1)
    assert driver.state(1) is SlotState.BACKOFF
    assert one(driver.pass_time(0.1), do.SpawnWorker).slot == 1, "the first pause, as of a worker that died once"


def test_the_files_are_put_back_and_it_serves_again() -> None:
    driver = replaced()
    driver.pass_time(PAUSE_S)
    driver.up(1)
    assert driver.state(1) is SlotState.READY
    assert not any(slot.other_release for slot in driver.machine.fleet.slots)


def test_one_worker_of_the_pools_release_has_all_that_wait_tried_at_once() -> None:
    driver = replaced(["m"], ["m"], ["m"])
    driver.die(2)
    driver.pass_time(0.2)
    refuse(driver, 2)
    driver.feed(told.RestartAsked(1))
    assert one(driver.hello(1), do.SpawnWorker).slot == 2


@pytest.mark.parametrize("state", [SlotState.LOADING, SlotState.READY])
def test_after_hello_the_status_is_anybodys(state: SlotState) -> None:
    """A handler, or a job's native code, exits as it likes."""
    driver = Driver(["m"], ["m"], restart_intensity=0)
    driver.start()
    driver.up(0)
    driver.hello(1)
    if state is SlotState.READY:
        driver.ready(1)
    assert driver.state(1) is state
    refuse(driver, 1)
    assert driver.state(1) is SlotState.FATAL, "counted as a death"
    assert not driver.machine.fleet.slots[1].other_release


def test_the_pool_announces_itself_without_a_slot_that_waits() -> None:
    driver = Driver(["m"], ["m"])
    driver.start()
    driver.up(0)
    assert every(driver.log, do.PoolReady) == []
    refuse(driver, 1)
    assert one(driver.log, do.PoolReady) == do.PoolReady(1, 2)


def test_when_none_is_left_the_pool_ends_and_its_jobs_wait_for_the_next_one() -> None:
    driver = replaced()
    driver.submit()
    driver.submit()
    assert driver.run_of(1).slot == 0
    driver.die(0)
    driver.pass_time(0.2)
    assert driver.state(0) is SlotState.STARTING
    actions = refuse(driver, 0)
    assert [driver.fault(number) for number in (1, 2)] == [Fault.POOL_STOPPING] * 2, "clients keep such a job"
    assert one(actions, do.PoolStopped) == do.PoolStopped(True, f"no slot is left that could serve: {WHY}")


def test_a_fatal_slot_does_not_keep_it() -> None:
    driver = Driver(["m"], ["m"]).serve()
    driver.give_up(0, "the model cannot be loaded")
    assert driver.state(0) is SlotState.FATAL
    driver.die(1)
    driver.pass_time(0.2)
    assert one(refuse(driver, 1), do.PoolStopped).failed


@pytest.mark.parametrize("what", ["it was drained", "it waits after a crash", "it starts"])
def test_one_that_may_serve_keeps_the_pool(what: str) -> None:
    driver = Driver(["m"], ["m"]).serve()
    if what == "it was drained":
        driver.feed(told.DrainAsked(0))
    driver.die(0)
    if what == "it starts":
        driver.pass_time(0.2)
    driver.die(1)
    driver.pass_time(0.2)
    if what == "it waits after a crash":
        driver.die(0)
    assert (
        driver.state(0)
        is {
            "it was drained": SlotState.STOPPED,
            "it waits after a crash": SlotState.BACKOFF,
            "it starts": SlotState.STARTING,
        }[what]
    )
    assert every(refuse(driver, 1), do.PoolStopped) == []
    assert driver.state(1) is SlotState.BACKOFF


def test_jobs_of_a_model_that_only_waiting_slots_have_wait_until_their_deadline() -> None:
    driver = replaced(["a"], ["b"])
    driver.submit("b", timeout_s=5.0)
    driver.pass_time(4.9)
    assert driver.answers() == {}
    driver.pass_time(0.2)
    assert driver.fault(1) is Fault.DEADLINE_EXCEEDED


def test_a_stop_does_not_wait_for_it() -> None:
    """`systemctl restart` is what helps, and what waits is the next pool's."""
    driver = replaced(["a"], ["b"])
    driver.submit("b", timeout_s=500.0)
    driver.feed(told.StopAsked("SIGTERM came"))
    assert driver.fault(1) is Fault.POOL_STOPPING
    assert driver.state(1) is SlotState.STOPPED


def test_one_that_comes_while_the_pool_stops_is_the_last() -> None:
    driver = Driver(["a"], ["b"]).serve()
    driver.submit("b", timeout_s=500.0)
    driver.feed(told.StopAsked("SIGTERM came"))
    driver.die(1)
    driver.pass_time(0.2)
    assert driver.state(1) is SlotState.STARTING
    refuse(driver, 1)
    assert driver.state(1) is SlotState.STOPPED
    assert driver.fault(1) is Fault.POOL_STOPPING


def test_a_replacement_of_another_release_leaves_who_serves() -> None:
    driver = Driver(["m"], ["m"]).serve()
    driver.feed(told.RestartAsked(0))
    assert one(driver.log, do.SpawnReplacement).incarnation == 2
    driver.feed(told.WorkerSpawned(0, 2, 1002))
    (failed,) = ended(driver.feed(told.WorkerExited(0, 2, OTHER)), Role.REPLACEMENT)
    assert failed.reason == WHY
    slot = driver.machine.fleet.slots[0]
    assert (slot.state, slot.worker.incarnation, slot.other_release) == (SlotState.READY, 1, True)


def test_a_standby_of_another_release_is_tried_at_long_intervals() -> None:
    driver = Driver(["m"], standby=True).serve()
    for incarnation in range(2, 6):
        assert every(driver.log, do.SpawnStandby)[-1].incarnation == incarnation
        driver.feed(told.WorkerExited(0, incarnation, OTHER))
        assert driver.machine.fleet.slots[0].other_release
        assert every(driver.pass_time(PAUSE_S - 0.1), do.SpawnStandby) == []
        driver.pass_time(0.2)
    assert driver.state(0) is SlotState.READY


@pytest.mark.parametrize("seed", range(60))
def test_whatever_comes_between_every_job_ends_and_nobody_is_given_up_for_it(seed: int) -> None:
    """Workers come and go at random, most of them of another release; the driver checks the core's books each time."""
    rng = random.Random(seed)
    slow: dict[str, Any] = dict.fromkeys(("import_timeout_s", "stop_timeout_s", "kill_timeout_s"), 1e6)
    driver = Driver(["a"], ["a", "b"], ["b"], standby=rng.random() < 0.3, restart_intensity=1000, **slow)
    driver.start()
    submitted = refused = 0
    for _ in range(120):
        slot = rng.randrange(3)
        seated = driver.machine.fleet.slots[slot]
        match rng.randrange(9):
            case 0 | 1 if seated.state is SlotState.STARTING:
                refuse(driver, slot)
                refused += 1
            case 2 if seated.state is SlotState.STARTING:
                driver.up(slot)
            case 3 if seated.state in ALIVE:
                driver.die(slot)
            case 4:
                driver.pass_time(rng.choice((0.1, 1.0, 70.0)))
            case 5:
                driver.feed(told.RestartAsked(slot))
            case 6 if rng.random() < 0.1:
                driver.feed(told.DrainAsked(slot))
            case 7:
                driver.submit(rng.choice("ab"), timeout_s=rng.choice((0.5, 500.0)))
                submitted += 1
            case 8 if driver.running():
                driver.done(rng.choice(driver.running()))
            case _:
                for worker in [worker for each in driver.machine.fleet.slots for worker in each.beside]:
                    death = rng.choice((OTHER, told.Death("SIGSEGV", restartable=True)))
                    driver.feed(told.WorkerExited(worker.slot.number, worker.incarnation, death))
        slots = driver.machine.fleet.slots
        assert all(each.state is not SlotState.FATAL for each in slots)
        if every(driver.log, do.PoolStopped):
            break
        waiting = [each for each in slots if each.waits_for_release]
        beside = any(each.beside for each in slots)
        assert beside or len(waiting) < len(slots), "it would wait for nobody"
    if not every(driver.log, do.PoolStopped):
        driver.feed(told.StopAsked("the test is over"))
        driver.feed(told.StopAsked("at once"))
    assert len(driver.answers()) == submitted
    assert refused, "some were of another release"
