"""A worker's replacement gets ready beside it and takes the seat, and whatever becomes of it harms nobody."""

from itertools import pairwise
from typing import Any

import pytest

from pool.core import actions as do
from pool.core import events as told
from pool.core.fleet import Role, SlotState
from pool.core.fleet.replacements import DRAIN
from pool.wire.faults import Fault
from pool.wire.worker_messages import Phase
from simulation.driver import BatchDone, Did, Driver, RunBatch, Succeeded, ended, every, one
from simulation.plans import model_info

READY, DRAINING = SlotState.READY, SlotState.DRAINING
GONE = told.Death("exit status 0", restartable=True)
SIGSEGV = told.Death("SIGSEGV", restartable=True, last_output=("Fatal error",))
NO_ROOM = told.Death("gpu:0 has 1.0 GiB free", restartable=True, no_room=True)
HOPELESS = told.Death("exit status 74 MODEL_CANNOT_LOAD", restartable=False)


def spawned(driver: Driver, incarnation: int = 2) -> None:
    driver.feed(told.WorkerSpawned(0, incarnation, 1000 + incarnation))


def come_up(driver: Driver, to: str, incarnation: int = 2) -> list[Did]:
    """The replacement gets as far as that. Returns what its last step caused."""
    spawned(driver, incarnation)
    actions: list[Did] = []
    if to in ("LOADING", "READY"):
        actions = driver.feed(told.WorkerHello(0, incarnation))
        driver.feed(told.WorkerBeat(0, incarnation, Phase.LOADING, "m", ()))
    if to == "READY":
        actions = driver.feed(told.WorkerReady(0, incarnation, 1, (model_info("m"),)))
    return actions


def exits(driver: Driver, incarnation: int, death: told.Death = GONE) -> list[Did]:
    return driver.feed(told.WorkerExited(0, incarnation, death))


def begun(*placement: list[str], **policy: Any) -> Driver:
    """Slot 0's restart was asked for."""
    driver = Driver(*(placement or (["m"],)), **policy).serve()
    spawned(driver, 1)
    spawn = one(driver.feed(told.RestartAsked(0)), do.SpawnReplacement)
    assert spawn == do.SpawnReplacement(0, 2, must_fit=True)
    assert driver.state(0) is READY
    return driver


def works(driver: Driver, job: int) -> bool:
    """Whether slot 0 answers a job."""
    driver.submit(job=job, device="slot:0")
    driver.done(driver.run_of(job))
    return bool(driver.result(job))


# --- as it should be ----------------------------------------------------------------------------------------------


def test_an_idle_worker_is_followed_at_once_when_the_replacement_is_warm() -> None:
    driver = begun()
    assert works(driver, 1)
    come_up(driver, "LOADING")
    assert (driver.state(0), driver.incarnation(0)) == (READY, 1)
    assert works(driver, 2), "the whole load long"
    actions = come_up(driver, "READY")
    assert [change.state for change in every(actions, do.SlotChanged)] == [DRAINING, READY]
    assert one(actions, do.StopWorker) == do.StopWorker(0, 1)
    slot = driver.machine.fleet.slots[0]
    assert (slot.state, slot.worker.incarnation, slot.worker.pid, slot.worker.phase) == (READY, 2, 1002, Phase.SERVING)
    assert works(driver, 3), "and nobody has waited"
    assert [left.reason for left in ended(exits(driver, 1), Role.LEAVING)] == ["exit status 0"]
    assert driver.pass_time(1000.0) == []


def test_what_runs_is_finished_first_and_what_comes_waits_for_the_replacement() -> None:
    driver = begun()
    driver.submit()
    come_up(driver, "READY")
    assert driver.state(0) is DRAINING
    assert driver.reason(0) == "incarnation 2 is ready to take over: restart requested"
    assert every(driver.submit(), RunBatch) == []
    actions = driver.done(driver.run_of(1))
    assert driver.result(1)
    run = one(actions, RunBatch)
    assert (run.incarnation, run.parts[0].payload) == (2, "payload 2")
    driver.done(run)
    assert driver.result(2)


def test_the_replacement_may_have_other_lanes() -> None:
    driver = Driver(["m"]).serve(lanes=3)
    driver.feed(told.RestartAsked(0))
    come_up(driver, "READY")
    for _ in range(3):
        driver.submit()
    assert len(driver.running()) == 1


def test_what_nobody_waits_for_holds_no_replacement_up() -> None:
    driver = begun()
    driver.submit(timeout_s=1.0)
    come_up(driver, "READY")
    kill = one(driver.pass_time(1.1), do.KillWorker)
    assert (kill.incarnation, driver.fault(1)) == (1, Fault.DEADLINE_EXCEEDED)
    exits(driver, 1, told.Death("SIGKILL", True))
    assert (driver.state(0), driver.incarnation(0)) == (READY, 2)
    assert works(driver, 2)


@pytest.mark.parametrize(("replacement", "must_fit"), [("always", False), ("auto", True)])
def test_only_where_it_is_always_wanted_it_need_not_fit(replacement: str, must_fit: bool) -> None:
    driver = Driver(["m"], replacement=replacement).serve()
    assert one(driver.feed(told.RestartAsked(0)), do.SpawnReplacement).must_fit is must_fit


# --- the replacement fails ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("death", [SIGSEGV, HOPELESS])
@pytest.mark.parametrize("when", ["STARTING", "LOADING", "READY"])
def test_one_that_dies_harms_nobody(when: str, death: told.Death) -> None:
    driver = begun()
    driver.submit()
    come_up(driver, when)
    (failed,) = ended(exits(driver, 2, death), Role.REPLACEMENT)
    assert (failed.incarnation, failed.reason, failed.death) == (2, death.text, death)
    assert (driver.state(0), driver.incarnation(0)) == (READY, 1)
    driver.done(driver.run_of(1))
    assert driver.result(1)
    assert works(driver, 2)
    assert every(driver.pass_time(1000.0), do.SpawnReplacement) == [], "it was asked for once"
    failure = driver.machine.fleet.slots[0].failure
    assert failure is not None
    assert failure.reason == death.text
    driver.feed(told.RestartAsked(0))
    come_up(driver, "READY", incarnation=3)
    assert driver.incarnation(0) == 3
    assert driver.machine.fleet.slots[0].failure is None


@pytest.mark.parametrize(
    ("when", "budget_s", "why"),
    [
        ("STARTING", 20.0, "did not say HELLO within 20 s ([health] import_timeout may be too short)"),
        ("LOADING", 40.0, "was still loading m within 40 s ([health] load_timeout may be too short)"),
    ],
)
def test_one_that_takes_too_long_is_killed(when: str, budget_s: float, why: str) -> None:
    driver = begun(import_timeout_s=20.0, load_timeout_s=40.0)
    come_up(driver, when)
    kill = one(driver.pass_time(budget_s), do.KillWorker)
    assert kill == do.KillWorker(0, 2, why, stacks=True)
    assert driver.state(0) is READY
    (failed,) = ended(exits(driver, 2, told.Death("SIGKILL", True)), Role.REPLACEMENT)
    assert failed.reason == f"killed by the pool because it {why}"


def test_each_phase_of_it_has_its_budget() -> None:
    driver = begun(import_timeout_s=20.0, load_timeout_s=40.0, warmup_timeout_s=60.0)
    come_up(driver, "LOADING")
    driver.pass_time(39.0)
    driver.feed(told.WorkerBeat(0, 2, Phase.WARMING_UP, "m", ()))
    assert every(driver.pass_time(59.0), do.KillWorker) == []
    driver.feed(told.WorkerReady(0, 2, 1, (model_info("m"),)))
    assert driver.incarnation(0) == 2


def test_one_that_sigkill_does_not_end_is_given_up() -> None:
    driver = begun(import_timeout_s=20.0, kill_timeout_s=10.0)
    spawned(driver)
    driver.pass_time(20.0)
    (failed,) = ended(driver.pass_time(10.0), Role.REPLACEMENT)
    assert failed.reason == "pid 1002 did not die within 10 s of SIGKILL (stuck in the kernel?)"
    assert works(driver, 1)
    assert exits(driver, 2, told.Death("SIGKILL", True)) == []


@pytest.mark.parametrize(("lanes", "models"), [(0, ["m"]), (1, [])])
def test_one_that_says_ready_and_is_not_is_killed(lanes: int, models: list[str]) -> None:
    driver = begun()
    come_up(driver, "LOADING")
    actions = driver.feed(told.WorkerReady(0, 2, lanes, tuple(map(model_info, models))))
    assert "said READY with" in one(actions, do.KillWorker).reason
    assert (driver.state(0), driver.incarnation(0)) == (READY, 1)


def test_one_that_cannot_be_understood_is_killed_even_when_it_is_warm() -> None:
    driver = begun()
    driver.submit()
    come_up(driver, "READY")
    assert one(driver.feed(told.WorkerBroken(0, 2, "nonsense")), do.KillWorker).incarnation == 2
    assert driver.state(0) is READY, "who sits there serves on, before its exit is seen"
    driver.submit()
    exits(driver, 2, told.Death("SIGKILL", True))
    driver.done(driver.run_of(1))
    driver.done(driver.run_of(2))
    assert driver.result(2)


# --- the worker in the seat dies ----------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["STARTING", "LOADING"])
def test_one_that_is_not_ready_yet_goes_on_in_the_seat(when: str) -> None:
    driver = begun(import_timeout_s=20.0, load_timeout_s=40.0)
    driver.submit()
    come_up(driver, when)
    driver.pass_time(19.0)
    actions = exits(driver, 1, SIGSEGV)
    assert every(actions, do.SpawnWorker) == []
    slot = driver.machine.fleet.slots[0]
    assert (slot.state.name, slot.worker.incarnation, slot.worker.pid) == (when, 2, 1002)
    assert slot.worker.detail == ("m" if when == "LOADING" else "")
    if when == "STARTING":
        assert one(driver.pass_time(1.0), do.KillWorker).incarnation == 2, "its time runs on"
        return
    driver.feed(told.WorkerReady(0, 2, 1, (model_info("m"),)))
    assert driver.run_of(1).incarnation == 2
    driver.done(driver.run_of(1))
    assert driver.result(1)


def test_one_that_is_warm_serves_at_once() -> None:
    driver = begun()
    driver.submit()
    come_up(driver, "READY")
    actions = exits(driver, 1, SIGSEGV)
    assert [change.state.name for change in every(actions, do.SlotChanged)] == [
        "BACKOFF",
        "STARTING",
        "LOADING",
        "READY",
    ]
    assert one(actions, RunBatch).incarnation == 2, "what was lost runs again"
    driver.done(driver.run_of(1))
    assert driver.result(1)


def test_one_that_is_not_spawned_yet_comes_as_any_other() -> None:
    driver = begun()
    actions = exits(driver, 1, SIGSEGV)
    assert one(actions, do.StopWorker).incarnation == 2
    assert one(actions, do.SpawnWorker).incarnation == 3, "at once: it was asked for"
    exits(driver, 2, told.Death("it was not spawned yet", True))
    driver.up(0)
    assert works(driver, 1)


def test_a_death_while_a_failed_one_goes_is_a_death_like_any_other() -> None:
    driver = begun()
    come_up(driver, "LOADING")
    driver.feed(told.WorkerBroken(0, 2, "nonsense"))
    exits(driver, 1, SIGSEGV)
    driver.feed(told.Tick())
    assert (driver.state(0), driver.incarnation(0)) == (SlotState.STARTING, 3)
    assert len(ended(exits(driver, 2, told.Death("SIGKILL", True)), Role.REPLACEMENT)) == 1
    driver.up(0)
    assert works(driver, 1)


def test_a_hung_batch_of_the_one_that_makes_way_holds_up_no_longer_than_any() -> None:
    driver = begun(hung_after_s=5.0)
    driver.submit(timeout_s=100.0)
    come_up(driver, "READY")
    assert one(driver.pass_time(5.0), do.KillWorker).incarnation == 1
    exits(driver, 1, told.Death("SIGKILL", True))
    assert driver.run_of(1).incarnation == 2


def test_one_in_the_seat_that_sigkill_does_not_end_is_followed_all_the_same() -> None:
    driver = begun(kill_timeout_s=10.0)
    driver.submit(timeout_s=100.0)
    come_up(driver, "READY")
    driver.feed(told.WorkerBroken(0, 1, "nonsense"))
    driver.pass_time(10.0)
    assert driver.fault(1) is Fault.WORKER_LOST, "it may still be running"
    assert (driver.state(0), driver.incarnation(0)) == (READY, 2)
    assert works(driver, 2)
    assert exits(driver, 1, told.Death("SIGKILL", True)) == []


# --- somebody asks for something else meanwhile -------------------------------------------------------------------


@pytest.mark.parametrize("when", ["STARTING", "LOADING", "READY"])
def test_a_second_restart_begins_with_another_replacement(when: str) -> None:
    """What the first one was told may not be what is wanted now."""
    driver = begun()
    driver.submit()
    come_up(driver, when)
    actions = driver.feed(told.RestartAsked(0))
    assert one(actions, do.StopWorker) == do.StopWorker(0, 2)
    assert driver.state(0) is READY
    assert every(actions, do.SpawnReplacement) == [], "two are enough"
    actions = exits(driver, 2)
    assert ended(actions, Role.REPLACEMENT) == [], "it did not fail"
    assert one(actions, do.SpawnReplacement).incarnation == 3
    driver.done(driver.run_of(1))
    come_up(driver, "READY", incarnation=3)
    assert driver.incarnation(0) == 3


@pytest.mark.parametrize("when", ["STARTING", "LOADING", "READY"])
def test_a_drain_leaves_nobody_behind(when: str) -> None:
    driver = begun(["m"], ["m"])
    driver.submit(device="slot:0")
    come_up(driver, when)
    assert one(driver.feed(told.DrainAsked(0)), do.StopWorker).incarnation == 2
    driver.done(driver.run_of(1))
    assert driver.state(0) is DRAINING, "until the other one is gone"
    assert one(exits(driver, 2), do.StopWorker).incarnation == 1
    exits(driver, 1)
    assert (driver.state(0), driver.reason(0)) == (SlotState.STOPPED, DRAIN)
    assert driver.pass_time(1000.0) == []


@pytest.mark.parametrize("when", ["STARTING", "LOADING", "READY"])
def test_a_stop_waits_for_both_and_loses_no_job(when: str) -> None:
    driver = begun()
    driver.submit()
    come_up(driver, when)
    actions = driver.feed(told.StopAsked("SIGTERM came"))
    assert one(actions, do.StopWorker).incarnation == 2
    assert driver.state(0) is READY, "it is where the job goes on"
    driver.done(driver.run_of(1))
    assert driver.result(1)
    exits(driver, 1)
    assert every(driver.log, do.PoolStopped) == [], "one is still there"
    assert not one(exits(driver, 2), do.PoolStopped).failed
    assert driver.machine.next_deadline() is None


def test_a_stop_at_once_kills_both() -> None:
    driver = begun()
    driver.submit()
    come_up(driver, "LOADING")
    driver.feed(told.StopAsked("SIGTERM came"))
    actions = driver.feed(told.StopAsked("SIGTERM came"))
    assert {kill.incarnation for kill in every(actions, do.KillWorker)} == {1, 2}


def test_a_stop_does_not_wait_for_ever_for_one_that_does_not_go() -> None:
    driver = begun(stop_timeout_s=5.0, kill_timeout_s=10.0)
    come_up(driver, "READY")
    driver.feed(told.StopAsked("SIGTERM came"))
    exits(driver, 2)
    assert [kill.incarnation for kill in every(driver.pass_time(5.0), do.KillWorker)] == [1]
    assert one(driver.pass_time(10.0), do.PoolStopped)


def test_a_worker_that_does_not_leave_is_killed_and_then_told_of() -> None:
    driver = begun(stop_timeout_s=5.0, kill_timeout_s=10.0)
    come_up(driver, "READY")
    kill = one(driver.pass_time(5.0), do.KillWorker)
    assert (kill.incarnation, kill.stacks) == (1, True)
    driver.feed(told.RestartAsked(0))
    assert every(driver.log, do.SpawnReplacement)[-1].incarnation == 2, "three are too many"
    actions = driver.pass_time(10.0)
    assert "pid 1001 did not die" in one(actions, do.Notice).text
    assert one(actions, do.SpawnReplacement).incarnation == 3


def test_nobody_may_speak_for_one_that_has_left() -> None:
    driver = begun()
    driver.submit()
    run = driver.run_of(1)
    come_up(driver, "READY")
    driver.done(run)
    driver.submit()
    for event in (
        told.WorkerHello(0, 1),
        told.WorkerBeat(0, 1, Phase.LOADING, "", ()),
        told.WorkerReady(0, 1, 4, (model_info("m"),)),
        BatchDone(0, 1, 0, driver.run_of(2).batch, (Succeeded("forged"),)),
        told.BatchUnsent(0, 1, driver.run_of(2).batch),
        told.WorkerMeasured(0, 1, 77),
        told.WorkerExited(0, 7, NO_ROOM),
        told.WorkerExited(9, 1, NO_ROOM),
    ):
        assert driver.feed(event) == []
    driver.done(driver.run_of(2))
    assert driver.result(2) == (("answer to", "payload 2"),)


# --- there is no room ---------------------------------------------------------------------------------------------


def refused(driver: Driver, incarnation: int = 2) -> list[Did]:
    return driver.feed(told.WorkerExited(0, incarnation, NO_ROOM))


def test_without_room_the_worker_goes_first() -> None:
    driver = begun()
    assert one(refused(driver), do.StopWorker).incarnation == 1
    assert ended(driver.log, Role.REPLACEMENT) == [], "nothing is wrong with it"
    assert driver.reason(0) == "restart requested; without a replacement: gpu:0 has 1.0 GiB free"
    assert one(exits(driver, 1), do.SpawnWorker).incarnation == 3
    driver.up(0)
    assert works(driver, 1)


def test_one_that_finds_no_room_in_the_slot_itself_is_followed_by_another() -> None:
    """The worker beside it died meanwhile."""
    driver = begun()
    spawned(driver)
    exits(driver, 1, SIGSEGV)
    assert driver.incarnation(0) == 2
    refused(driver)
    assert driver.state(0) is SlotState.BACKOFF
    assert one(driver.pass_time(1.0), do.SpawnWorker).incarnation == 3


def test_the_word_of_one_that_is_not_wanted_any_more_changes_nothing() -> None:
    driver = begun()
    spawned(driver)
    assert one(driver.feed(told.RestartAsked(0)), do.StopWorker).incarnation == 2
    actions = refused(driver)
    assert one(actions, do.SpawnReplacement).incarnation == 3
    assert every(actions, do.StopWorker) == []


def test_in_a_roll_it_goes_only_while_enough_others_are_ready() -> None:
    driver = Driver(["m"], ["m"], ["m"], min_ready=2, replacement="off", restart_intensity=0).serve()
    driver.die(1)
    assert driver.state(1) is SlotState.FATAL, "it is none that would be waited for"
    driver.feed(told.DrainAsked(2))
    driver.feed(told.RestartAsked(2))
    assert driver.state(2) is not READY
    assert every(driver.feed(told.RestartAsked(0, sparing=True)), do.StopWorker) == []
    assert (driver.state(0), works(driver, 1)) == (READY, True)
    driver.die(2)
    driver.pass_time(1.0)
    assert driver.state(0) is READY
    assert one(driver.up(2), do.StopWorker).slot == 0
    assert one(driver.feed(told.RestartAsked(2)), do.StopWorker).slot == 2, "who asks for one slot gets it"


def test_a_slot_without_others_of_its_models_goes_in_a_roll_too() -> None:
    driver = Driver(["m"], ["other"], replacement="off", min_ready=2).serve()
    assert one(driver.feed(told.RestartAsked(0, sparing=True)), do.StopWorker).slot == 0


# --- recycling ----------------------------------------------------------------------------------------------------


def due(*placement: list[str], **policy: Any) -> Driver:
    driver = Driver(*(placement or (["m"],)), recycle_jobs=1, **policy).serve()
    assert works(driver, 1)
    driver.submit(timeout_s=1e6)  # the model is asked for all the time
    return driver


def test_the_only_worker_of_a_model_is_recycled_under_load() -> None:
    driver = due(hung_after_s=1e6)
    assert one(driver.log, do.SpawnReplacement)
    come_up(driver, "READY")
    driver.done(driver.run_of(2))
    assert (driver.state(0), driver.incarnation(0)) == (READY, 2)


def test_a_replacement_that_fails_is_tried_again_ever_more_rarely() -> None:
    driver = due(hung_after_s=1e6)
    begins = []
    driver.pass_time(6.0)
    for incarnation in range(2, 7):
        begins.append(driver.now)
        exits(driver, incarnation, SIGSEGV)
        assert driver.state(0) is READY
        before = len(every(driver.log, do.SpawnReplacement))
        while len(every(driver.log, do.SpawnReplacement)) == before:
            driver.pass_time(5.0)
    pauses = [later - earlier for earlier, later in pairwise(begins)]
    assert pauses[0] >= 60.0
    assert all(later > 1.8 * earlier for earlier, later in pairwise(pauses))


def test_without_room_the_last_worker_of_a_model_stays_while_it_is_asked_for() -> None:
    driver = due(hung_after_s=1e6)
    driver.pass_time(6.0)
    refused(driver)
    assert every(driver.pass_time(30.0), do.StopWorker) == []
    driver.done(driver.run_of(2))
    assert one(driver.pass_time(6.0), do.StopWorker)
    driver.die(0, "exit status 0")
    assert driver.state(0) is SlotState.STARTING


def test_one_after_the_other() -> None:
    driver = Driver(["m"], ["m"], recycle_age_s=100.0).serve()
    driver.pass_time(120.0)
    (spawn,) = every(driver.log, do.SpawnReplacement)
    driver.pass_time(60.0)
    assert every(driver.log, do.SpawnReplacement) == [spawn]
