"""The end of the pool: what is held is finished, what hangs is killed, and it is over in bounded time, once."""

import pytest

from pool.core import actions as do
from pool.core import events as told
from pool.core.fleet import SlotState
from pool.wire.faults import Fault
from simulation.driver import AnswerJob, Did, Driver, JobDone, RunBatch, every, one, payloads

STOP = told.StopAsked("SIGTERM came")


def stops(actions: list[Did]) -> list[int]:
    return [stop.slot for stop in every(actions, do.StopWorker)]


def test_an_idle_pool_stops_as_soon_as_its_workers_have_gone() -> None:
    driver = Driver(["m"], ["m"]).serve()
    assert stops(driver.feed(STOP)) == [0, 1]
    assert every(driver.die(0, "exit status 0"), do.PoolStopped) == []
    assert driver.die(1, "exit status 0")[-1] == do.PoolStopped(failed=False, reason="SIGTERM came")
    assert driver.state(0) is SlotState.STOPPED
    assert driver.machine.next_deadline() is None


def test_queued_jobs_are_done_before_their_slot_stops() -> None:
    driver = Driver(["m"]).serve()
    for _ in range(3):
        driver.submit()
    assert driver.feed(STOP) == []
    for number in (1, 2):
        assert every(driver.done(driver.run_of(number)), do.StopWorker) == []
    actions = driver.done(driver.run_of(3))
    assert [type(action) for action in actions] == [do.SlotChanged, do.SlotChanged, do.StopWorker, AnswerJob]
    assert all(isinstance(outcome, JobDone) for outcome in driver.answers().values())
    assert not one(driver.die(0), do.PoolStopped).failed


def test_a_slot_stops_when_nothing_is_left_for_it_while_another_still_works() -> None:
    driver = Driver(["a"], ["b"]).serve()
    driver.submit("a")
    driver.submit("a")
    assert stops(driver.feed(STOP)) == [1]
    assert driver.state(0) is SlotState.READY
    driver.done(driver.run_of(1))
    assert stops(driver.done(driver.run_of(2))) == [0]


def test_new_jobs_are_refused_while_the_pool_stops() -> None:
    driver = Driver(["m"]).serve()
    driver.submit()
    driver.feed(STOP)
    driver.submit()
    assert driver.fault(2) is Fault.POOL_STOPPING
    driver.done(driver.run_of(1))
    assert isinstance(driver.answers()[1], JobDone)


def test_a_drain_that_takes_too_long_ends_with_answers_and_kills() -> None:
    driver = Driver(["m"], drain_timeout_s=30.0).serve()
    driver.submit(timeout_s=500.0)
    driver.submit(timeout_s=500.0)
    driver.feed(STOP)
    assert driver.pass_time(29.9) == []
    actions = driver.pass_time(0.1)
    assert driver.fault(1) is driver.fault(2) is Fault.POOL_STOPPING
    assert "the drain took longer than 30 s" in driver.failed(1).text
    assert "the drain took longer than 30 s" in one(actions, do.KillWorker).reason
    assert every(actions, do.PoolStopped) == [], "its exit is not seen yet"
    assert not one(driver.die(0), do.PoolStopped).failed


def test_to_ask_a_second_time_is_to_stop_at_once() -> None:
    driver = Driver(["m"], ["m"]).serve()
    for _ in range(3):
        driver.submit(timeout_s=500.0)
    driver.feed(STOP)
    actions = driver.feed(told.StopAsked("SIGINT came"))
    assert [driver.fault(number) for number in (1, 2, 3)] == [Fault.POOL_STOPPING] * 3
    assert "at once (SIGINT came)" in driver.failed(1).text
    assert {kill.slot for kill in every(actions, do.KillWorker)} == {0, 1}
    assert driver.feed(told.StopAsked("SIGINT came")) == []
    driver.die(0)
    driver.die(1)
    assert len(every(driver.log, do.PoolStopped)) == 1


def test_a_job_whose_worker_dies_during_the_drain_runs_again_elsewhere() -> None:
    driver = Driver(["m"], ["m"]).serve()
    for _ in range(3):
        driver.submit()
    driver.feed(STOP)
    driver.die(driver.run_of(1).slot)
    again = one(driver.done(driver.run_of(2)), RunBatch)
    assert payloads(again) == ("payload 1",)
    driver.done(again)
    driver.done(driver.run_of(3))
    assert all(isinstance(driver.answers()[number], JobDone) for number in (1, 2, 3))


def test_or_in_a_worker_that_is_started_for_it() -> None:
    """One job that kills its worker does not end the drain for all that wait behind it."""
    driver = Driver(["m"], max_attempts=2).serve()
    for _ in range(3):
        driver.submit()
    driver.feed(STOP)
    for _ in range(2):
        driver.die(0)
        assert driver.state(0) is SlotState.BACKOFF
        driver.pass_time(1.0)
        driver.up(0)
    assert driver.fault(1) is Fault.QUARANTINED
    for number in (2, 3):
        driver.done(driver.run_of(number))
        assert driver.result(number)
    assert driver.state(0) is SlotState.STOPPING
    assert not one(driver.die(0), do.PoolStopped).failed


def test_a_slot_that_is_to_come_back_when_its_last_job_ends_stops_at_once() -> None:
    driver = Driver(["m"], max_attempts=1).serve()
    driver.submit()
    driver.feed(STOP)
    actions = driver.die(0)
    assert driver.fault(1) is Fault.QUARANTINED
    assert driver.state(0) is SlotState.STOPPED
    assert not one(actions, do.PoolStopped).failed
    assert driver.machine.next_deadline() is None


def test_a_worker_that_dies_again_and_again_ends_the_drain_for_its_jobs() -> None:
    driver = Driver(["m"], restart_intensity=1).serve()
    driver.submit()
    driver.submit()
    driver.feed(STOP)
    driver.die(0)
    driver.give_up(0, "exit status 71 CANNOT_LOAD")
    assert driver.fault(1) is driver.fault(2) is Fault.POOL_STOPPING
    assert "slot 0 is FATAL: exit status 71 CANNOT_LOAD" in driver.failed(2).text
    assert len(every(driver.log, do.PoolStopped)) == 1


def test_what_waits_for_a_slot_that_is_being_restarted_is_done_too() -> None:
    driver = Driver(["m"], replacement="off").serve()
    driver.submit()
    driver.submit()
    driver.feed(told.RestartAsked(0))
    driver.feed(STOP)
    assert one(driver.done(driver.run_of(1)), do.StopWorker).slot == 0
    driver.die(0, "exit status 0")
    driver.up(0)
    driver.done(driver.run_of(2))
    assert driver.result(2)
    assert not one(driver.die(0, "exit status 0"), do.PoolStopped).failed


@pytest.mark.parametrize("state", [SlotState.STARTING, SlotState.LOADING, SlotState.BACKOFF])
@pytest.mark.parametrize("in_time", [True, False])
def test_a_worker_that_is_not_up_yet_is_waited_for_if_it_has_jobs(state: SlotState, in_time: bool) -> None:
    driver = Driver(["m"], ["other"], drain_timeout_s=30.0)
    driver.start()
    driver.up(1)
    if state is SlotState.LOADING:
        driver.hello(0)
    elif state is SlotState.BACKOFF:
        driver.die(0)
    driver.submit()
    assert driver.state(0) is state
    assert stops(driver.feed(STOP)) == [1], "it has none"
    driver.die(1)
    if in_time:
        driver.pass_time(1.0)
        driver.up(0)
        driver.done(driver.run_of(1))
        assert driver.result(1)
    else:
        driver.pass_time(30.0)
        assert driver.fault(1) is Fault.POOL_STOPPING
    driver.die(0)
    assert len(every(driver.log, do.PoolStopped)) == 1


@pytest.mark.parametrize("state", [SlotState.STARTING, SlotState.LOADING, SlotState.BACKOFF])
def test_a_worker_that_is_not_up_yet_is_not_waited_for_without_jobs(state: SlotState) -> None:
    driver = Driver(["m"])
    driver.start()
    if state is SlotState.LOADING:
        driver.hello(0)
    elif state is SlotState.BACKOFF:
        driver.die(0)
    actions = driver.feed(STOP)
    if state is SlotState.BACKOFF:
        assert isinstance(actions[-1], do.PoolStopped)
    else:
        assert stops(actions) == [0]
        assert driver.hello(0) + driver.ready(0) == [], "too late"
        assert isinstance(driver.die(0)[-1], do.PoolStopped)
    assert every(driver.pass_time(1000.0), do.SpawnWorker) == []


def test_a_worker_that_does_not_exit_when_told_to_is_killed() -> None:
    driver = Driver(["m"], stop_timeout_s=5.0).serve()
    driver.feed(STOP)
    assert driver.pass_time(4.9) == []
    assert one(driver.pass_time(0.1), do.KillWorker).reason == "did not exit within 5 s after the order"
    assert not one(driver.die(0), do.PoolStopped).failed


def test_a_worker_that_sigkill_does_not_end_does_not_hold_the_pool_for_ever() -> None:
    driver = Driver(["m"], stop_timeout_s=5.0, kill_timeout_s=10.0).serve()
    driver.feed(STOP)
    assert every(driver.pass_time(14.9), do.PoolStopped) == []
    actions = driver.pass_time(0.1)
    assert "did not die within 10 s of SIGKILL" in one(actions, do.SlotChanged).reason
    assert not one(actions, do.PoolStopped).failed
    assert driver.die(0) == []


def test_what_is_run_for_nobody_is_not_waited_for() -> None:
    driver = Driver(["m"]).serve()
    driver.submit()
    driver.feed(told.ClientGone(b"client"))
    assert "nobody waits for" in one(driver.feed(STOP), do.KillWorker).reason


def test_a_worker_that_hangs_during_the_drain_is_waited_for_no_longer_than_its_jobs() -> None:
    driver = Driver(["m"], drain_timeout_s=300.0).serve()
    driver.submit(timeout_s=3.0)
    driver.feed(STOP)
    actions = driver.pass_time(3.0)
    assert driver.fault(1) is Fault.DEADLINE_EXCEEDED
    assert len(every(actions, do.KillWorker)) == 1


def test_a_worker_that_was_being_killed_when_the_stop_came_is_followed_by_one_for_what_it_ran() -> None:
    driver = Driver(["m"], hung_after_s=5.0).serve()
    driver.submit(timeout_s=100.0)
    driver.pass_time(5.0)
    assert every(driver.feed(STOP), do.StopWorker) == []
    driver.die(0)
    driver.pass_time(1.0)
    driver.up(0)
    driver.done(driver.run_of(1))
    assert driver.result(1)
    assert not one(driver.die(0), do.PoolStopped).failed


def test_a_slot_that_was_fatal_before_does_not_make_the_end_a_failure() -> None:
    driver = Driver(["m"], ["m"]).serve()
    driver.die(0, restartable=False)
    driver.feed(STOP)
    assert not one(driver.die(1), do.PoolStopped).failed


def test_a_stop_before_readiness_never_says_ready() -> None:
    driver = Driver(["m"], ["m"], drain_timeout_s=300.0)
    driver.start()
    driver.up(0)
    driver.submit(timeout_s=1000.0)
    driver.submit(timeout_s=1000.0)
    driver.feed(STOP)
    driver.pass_time(100.0)
    assert (driver.state(0), driver.state(1)) == (SlotState.READY, SlotState.STARTING)
    assert every(driver.log, do.PoolReady) == []


@pytest.mark.parametrize("when", ["ready", "leased", "loading"])
def test_a_pool_whose_every_worker_is_stuck_ends_within_the_longest_stop(when: str) -> None:
    driver = Driver(["m"], ["m"])
    driver.start()
    if when != "loading":
        driver.up(0)
        driver.up(1)
    if when == "leased":
        for _ in range(4):
            driver.submit(timeout_s=1000.0)
    driver.feed(STOP)
    actions = driver.pass_time(driver.policy.longest_stop_s)
    assert isinstance(actions[-1], do.PoolStopped)
    assert len(driver.answers()) == (4 if when == "leased" else 0)
    assert driver.machine.next_deadline() is None


def test_a_job_whose_worker_dies_while_the_pool_drains_is_done_by_another() -> None:
    driver = Driver(["m"], ["m"]).serve()
    driver.submit()
    lost = driver.run_of(1)
    assert stops(driver.feed(STOP)) == [], "the idle slot stays: it is where the job goes if its worker dies"
    rerun = one(driver.die(lost.slot), RunBatch)
    assert rerun.slot != lost.slot
    driver.done(rerun)
    assert isinstance(driver.answers()[1], JobDone)


def test_a_cancelled_job_with_a_long_timeout_does_not_keep_a_hung_lane() -> None:
    driver = Driver(["m"]).serve()
    driver.submit(timeout_s=1e8)
    driver.feed(told.JobCancelled(b"client", 1))
    killed = one(driver.pass_time(driver.machine.policy.hung_floor_s), do.KillWorker)
    assert "hung_after" in killed.reason


def starts_and_ends(actions: list[Did]) -> tuple[list[int], list[int]]:
    """The slots in which workers are started, and those in which they are to end."""
    started = [*every(actions, do.SpawnWorker), *every(actions, do.TakeSlot)]
    ended = [*every(actions, do.StopWorker), *every(actions, do.KillWorker)]
    return [action.slot for action in started], [action.slot for action in ended]


def test_a_worker_that_is_due_when_the_stop_is_asked_is_not_started() -> None:
    driver = Driver(["m"], ["n"]).serve()
    driver.die(0)
    driver.now += 60.0  # the loop comes late: the pause is over
    assert starts_and_ends(driver.feed(STOP)) == ([], [1])
    assert driver.state(0) is SlotState.STOPPED


def test_a_worker_that_is_due_with_the_last_answer_of_a_drain_is_not_started() -> None:
    driver = Driver(["m"], ["m"]).serve()
    driver.submit()
    run = driver.run_of(1)
    other = 1 - run.slot
    driver.feed(STOP)
    driver.die(other)
    driver.now += 60.0
    assert starts_and_ends(driver.done(run)) == ([], [run.slot])
    assert driver.state(other) is SlotState.STOPPED


@pytest.mark.parametrize("longer_s", [-0.5, 100.0])
def test_a_worker_that_is_due_when_its_last_job_expires_is_not_started(longer_s: float) -> None:
    """Whichever of the two was due first, if the loop comes late to both."""
    driver = Driver(["m"], backoff_max_s=10.0, drain_timeout_s=1000.0).serve()
    driver.submit(timeout_s=10.0 + longer_s)
    driver.feed(STOP)
    driver.die(0)
    driver.now += 200.0
    assert starts_and_ends(driver.feed(told.Tick())) == ([], [])
    assert driver.fault(1) is Fault.DEADLINE_EXCEEDED
    assert driver.state(0) is SlotState.STOPPED


def test_a_worker_that_is_due_when_the_drain_has_lasted_too_long_is_not_started() -> None:
    driver = Driver(["m"], drain_timeout_s=30.0).serve()
    driver.submit(timeout_s=500.0)
    driver.feed(STOP)
    driver.die(0)
    driver.now += 60.0
    assert starts_and_ends(driver.feed(told.Tick())) == ([], [])
    assert driver.fault(1) is Fault.POOL_STOPPING
    assert driver.state(0) is SlotState.STOPPED


def test_a_worker_that_was_to_be_replaced_is_not_when_its_last_job_is_lost_with_it() -> None:
    driver = Driver(["m"], stateful=["m"], replacement="off").serve()
    driver.submit()
    driver.feed(told.RestartAsked(0))
    driver.feed(STOP)
    assert starts_and_ends(driver.die(0)) == ([], [])
    assert driver.fault(1) is Fault.STATEFUL_WORKER_LOST
    assert driver.state(0) is SlotState.STOPPED
