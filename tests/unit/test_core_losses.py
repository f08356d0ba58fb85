"""What becomes of the jobs when their worker dies, lies, or cannot be killed."""

import pytest

from pool.core import actions as do
from pool.core import events as told
from pool.core.fleet import SlotState
from pool.core.policy import ModelPolicy
from pool.wire.faults import Fault
from simulation.driver import AnswerJob, BatchDone, Did, Driver, JobDone, RunBatch, Succeeded, every, one, payloads


def run_first(actions: list[Did]) -> list[object]:
    return [payloads(run)[0] for run in every(actions, RunBatch)]


def test_a_lost_job_runs_again_elsewhere_before_those_that_came_later() -> None:
    driver = Driver(["m"], ["m"]).serve()
    for _ in range(4):
        driver.submit()
    lost = driver.run_of(1)
    assert every(driver.die(lost.slot), RunBatch) == [], "the other slot is busy"
    again = one(driver.done(driver.run_of(2)), RunBatch)
    assert payloads(again) == ("payload 1",)
    assert again.slot != lost.slot
    driver.done(again)
    assert isinstance(driver.answers()[1], JobDone)


def test_lost_jobs_keep_their_order_and_each_has_the_worker_for_itself() -> None:
    driver = Driver(["m"]).serve(lanes=3)
    for _ in range(5):
        driver.submit()
    driver.die(0)
    driver.pass_time(1.0)
    assert run_first(driver.up(0, lanes=5)) == ["payload 1"]
    assert run_first(driver.done(driver.run_of(1))) == ["payload 2"]
    assert run_first(driver.done(driver.run_of(2))) == ["payload 3"]
    assert run_first(driver.done(driver.run_of(3))) == ["payload 4", "payload 5"]


def test_a_job_is_not_given_to_another_before_the_exit_is_seen() -> None:
    driver = Driver(["m"], ["m"], hung_after_s=5.0).serve()
    driver.submit()
    held = driver.run_of(1)
    killed = one(driver.pass_time(5.0), do.KillWorker)
    assert (killed.slot, killed.incarnation) == (held.slot, 1)
    assert every(driver.pass_time(4.0), RunBatch) == [], "SIGKILL is on its way, the worker may still write"
    again = one(driver.die(held.slot), RunBatch)
    assert again.slot != held.slot
    assert payloads(again) == ("payload 1",)


def test_a_job_that_has_killed_as_many_workers_as_it_may_is_quarantined_with_its_story() -> None:
    driver = Driver(["m"], ["m"], max_attempts=2).serve()
    driver.submit()
    driver.now += 0.25
    driver.die(driver.run_of(1).slot, "SIGSEGV")
    driver.now += 0.25
    actions = driver.die(driver.run_of(1).slot, "SIGABRT")
    assert driver.fault(1) is Fault.QUARANTINED
    history = (
        "0.000 s leased to slot 0 incarnation 1 as batch 1; "
        "0.250 s lost: slot 0 incarnation 1 died: SIGSEGV; "
        "0.250 s leased to slot 1 incarnation 1 as batch 2; "
        "0.500 s lost: slot 1 incarnation 1 died: SIGABRT"
    )
    assert driver.failed(1).text == (
        f"2 of 2 attempts ended with their worker, the last with this job alone in it; {history}"
    )
    kept = one(actions, do.KeepJob)
    assert (kept.model, kept.rows, kept.payload) == ("m", None, "payload 1")
    assert kept.history.splitlines() == history.split("; ")


@pytest.mark.parametrize(("lanes", "fault"), [(1, Fault.QUARANTINED), (2, Fault.WORKER_LOST)])
def test_with_one_attempt_a_lost_job_is_answered_at_once(lanes: int, fault: Fault) -> None:
    driver = Driver(["m"], max_attempts=1).serve(lanes)
    for _ in range(lanes):
        driver.submit()
    driver.die(0)
    assert driver.fault(1) is fault, "which of two killed it, nobody knows"


def test_a_job_that_waits_has_no_attempt_to_lose() -> None:
    driver = Driver(["m"], max_attempts=1).serve()
    driver.submit()
    driver.submit()
    driver.die(0)
    assert list(driver.answers()) == [1]
    driver.pass_time(1.0)
    assert run_first(driver.up(0)) == ["payload 2"]


def test_a_job_of_a_stateful_model_that_may_have_started_is_never_run_again() -> None:
    driver = Driver(["counter"], ["counter"], stateful=["counter"], max_attempts=9).serve()
    driver.submit("counter")
    driver.submit("counter")
    driver.submit("counter")
    driver.die(driver.run_of(1).slot)
    assert driver.fault(1) is Fault.STATEFUL_WORKER_LOST
    assert "keeps state" in driver.failed(1).text
    assert "leased to slot 0" in driver.failed(1).text
    assert run_first(driver.done(driver.run_of(2))) == ["payload 3"], "it had not started, so it runs"
    assert len([run for run in every(driver.log, RunBatch) if payloads(run) == ("payload 1",)]) == 1


def test_of_two_models_in_one_worker_only_the_stateful_ones_job_is_lost() -> None:
    driver = Driver(["counter", "pure"], stateful=["counter"]).serve(lanes=2)
    driver.submit("counter")
    driver.submit("pure")
    driver.die(0)
    assert list(driver.answers()) == [1]
    assert [job.number for job in driver.machine.backlog.jobs.values()] == [2]


@pytest.mark.parametrize("ended", ["cancelled", "expired"])
def test_a_job_that_ended_before_its_worker_did_is_not_run_again(ended: str) -> None:
    driver = Driver(["m"], ["m"]).serve()
    driver.submit(timeout_s=3.0)
    if ended == "cancelled":
        driver.feed(told.JobCancelled(b"client", 1))
    else:
        driver.pass_time(3.0)
    actions = driver.die(0)
    assert every(actions, RunBatch) + every(actions, AnswerJob) == []


def test_what_a_dead_incarnation_says_is_dropped() -> None:
    driver = Driver(["m"]).serve()
    driver.submit()
    stale = driver.run_of(1)
    driver.die(0)
    assert driver.done(stale, Succeeded("from the grave")) == []
    driver.pass_time(1.0)
    again = one(driver.up(0), RunBatch)
    assert driver.done(stale, Succeeded("from the grave")) == []
    assert again.incarnation == 2
    driver.done(again)
    assert driver.result(1) == (("answer to", "payload 1"),)


def test_a_batch_is_answered_once() -> None:
    driver = Driver(["m"]).serve()
    driver.submit()
    run = driver.run_of(1)
    driver.done(run)
    assert driver.done(run) == []
    assert driver.machine.fleet.slots[0].idle_lanes == [0]


def test_an_exit_that_is_told_twice_counts_once() -> None:
    driver = Driver(["m"], restart_intensity=1).serve()
    event = told.WorkerExited(0, 1, told.Death("SIGSEGV", restartable=True))
    driver.feed(event)
    assert driver.feed(event) == []
    assert driver.state(0) is SlotState.BACKOFF


def test_a_worker_that_answers_for_another_of_its_lanes_is_killed_and_its_jobs_saved() -> None:
    driver = Driver(["m"], ["m"]).serve(lanes=2)
    for _ in range(4):
        driver.submit()
    run = driver.run_of(1)
    lie = BatchDone(run.slot, run.incarnation, 1 - run.lane, run.batch, (Succeeded("?"),))
    actions = driver.feed(lie)
    assert f"answered batch 1 of lane {run.lane} in lane {1 - run.lane}" in one(actions, do.KillWorker).reason
    assert every(actions, AnswerJob) == []


def test_a_worker_that_was_dead_before_the_pool_s_kill_has_its_own_death_told() -> None:
    """As when a batch cannot be sent because the worker has just died: the send is told before the exit."""
    driver = Driver(["m"], ["m"]).serve()
    driver.submit()
    run = driver.run_of(1)
    driver.feed(told.BatchUnsent(run.slot, run.incarnation, run.batch))
    driver.feed(told.WorkerExited(run.slot, 1, told.Death("SIGKILL (out of memory?)", True, (), untouched=True)))
    assert driver.reason(run.slot) == "SIGKILL (out of memory?)"


@pytest.mark.parametrize("parts", [0, 2])
def test_a_worker_that_answers_a_wrong_number_of_parts_is_killed_and_its_job_saved(parts: int) -> None:
    driver = Driver(["m"], ["m"]).serve()
    driver.submit()
    run = driver.run_of(1)
    outcomes = (Succeeded("?"),) * parts
    actions = driver.feed(BatchDone(run.slot, run.incarnation, run.lane, run.batch, outcomes))
    assert f"answered {parts} parts of 1 in batch 1" in one(actions, do.KillWorker).reason
    assert every(actions, AnswerJob) == []
    again = one(driver.die(run.slot), RunBatch)
    assert (again.slot, payloads(again)) == (1, ("payload 1",))


def test_a_result_that_comes_between_the_kill_and_the_exit_is_taken() -> None:
    """It is the answer of the incarnation that holds the lease, and saves a second run."""
    driver = Driver(["m"], hung_after_s=5.0).serve()
    driver.submit()
    driver.pass_time(5.0)
    assert one(driver.done(driver.run_of(1)), AnswerJob).job == 1


def test_other_slots_do_not_notice_a_death() -> None:
    driver = Driver(["m"], ["m"], ["other"]).serve()
    driver.submit()
    driver.submit()
    driver.submit("other")
    actions = driver.die(0)
    assert {change.slot for change in every(actions, do.SlotChanged)} == {0}
    for number in (2, 3):
        driver.done(driver.run_of(number))
    assert sorted(driver.answers()) == [2, 3]


# --- no worker is left --------------------------------------------------------------------------------------------


def test_jobs_of_a_model_whose_slots_are_all_fatal_are_answered_at_once_and_new_ones_too() -> None:
    driver = Driver(["m"], ["m"], ["other"]).serve()
    for _ in range(3):
        driver.submit()
    driver.give_up(0, "exit status 3 WRONG_DEVICES")
    assert driver.answers() == {}
    driver.give_up(1, "exit status 3 WRONG_DEVICES")
    assert sorted(driver.answers()) == [1, 2, 3]
    assert driver.fault(3) is Fault.WORKER_LOST
    assert "no worker is left for model 'm'" in driver.failed(3).text
    assert "slot 1 is FATAL: exit status 3 WRONG_DEVICES" in driver.failed(3).text
    driver.submit()
    assert driver.fault(4) is Fault.WORKER_LOST
    assert one(driver.submit("other"), RunBatch).slot == 2


def test_when_every_slot_is_fatal_the_pool_ends_as_failed_once() -> None:
    driver = Driver(["m"], ["other"]).serve()
    driver.give_up(0, "exit status 3")
    assert every(driver.log, do.PoolStopped) == []
    driver.submit("other")
    actions = driver.give_up(1, "exit status 4")
    stopped = one(actions, do.PoolStopped)
    assert stopped.failed
    assert "slot 0: exit status 3; slot 1: exit status 4" in stopped.reason
    assert isinstance(actions[-1], do.PoolStopped), "the answers come before it"
    driver.feed(told.Tick())
    driver.feed(told.StopAsked("SIGTERM came"))
    driver.pass_time(1000.0)
    assert len(every(driver.log, do.PoolStopped)) == 1


@pytest.mark.parametrize("stateful", [False, True])
def test_the_jobs_of_a_worker_that_sigkill_does_not_end_are_answered_and_not_run_elsewhere(stateful: bool) -> None:
    models = ["m"] if stateful else []
    driver = Driver(["m"], ["m"], stateful=models, hung_after_s=5.0, kill_timeout_s=10.0).serve()
    driver.submit(timeout_s=1000.0)
    driver.feed(told.WorkerSpawned(0, 1, pid=77))
    driver.pass_time(5.0)
    actions = driver.pass_time(10.0)
    assert driver.state(0) is SlotState.FATAL
    assert "pid 77 did not die within 10 s of SIGKILL" in driver.reason(0)
    assert every(actions, RunBatch) == [], "two workers would run one job at once"
    assert driver.fault(1) is (Fault.STATEFUL_WORKER_LOST if stateful else Fault.WORKER_LOST)
    assert "SIGKILL" in driver.failed(1).text
    assert driver.machine.next_deadline() is None
    driver.submit()
    assert driver.run_of(2).slot == 1
    assert one(driver.die(0), do.SpawnWorker).slot == 0, "its device is free at last"


def test_a_pool_of_workers_that_cannot_be_killed_ends() -> None:
    driver = Driver(["m"], hung_after_s=5.0, kill_timeout_s=10.0).serve()
    driver.submit(timeout_s=1000.0)
    driver.submit(timeout_s=1000.0)
    actions = driver.pass_time(15.0)
    assert sorted(driver.answers()) == [1, 2]
    assert one(actions, do.PoolStopped).failed


def test_a_batch_that_never_left_is_no_attempt_and_its_worker_is_replaced() -> None:
    driver = Driver(["m"], ["m"], max_attempts=1, stateful=["m"]).serve()
    driver.submit()
    unsent = driver.run_of(1)
    actions = driver.feed(told.BatchUnsent(unsent.slot, unsent.incarnation, unsent.batch))
    assert "cannot be reached" in one(actions, do.KillWorker).reason
    rerun = one(actions, RunBatch)
    assert rerun.slot != unsent.slot, "a stateful model's job too: it cannot have started"
    driver.die(unsent.slot)
    driver.done(rerun)
    assert isinstance(driver.answers()[1], JobDone)


def test_a_job_that_starts_over_is_not_forgotten_with_a_worker_that_does_not_die() -> None:
    """Only a piece of it that is of no use any more was out when the last slot of its model was given up."""
    driver = Driver(["m"], ["other"], models={"m": ModelPolicy(max_batch=16)}).serve(lanes=2)
    driver.submit(rows=20)
    first, _ = driver.running()
    driver.feed(told.WorkerBroken(0, 1, "nonsense"))
    driver.done(first, told.RowsChanged("3 rows of 16"))
    driver.pass_time(driver.policy.kill_timeout_s)
    assert driver.state(0) is SlotState.FATAL
    assert driver.fault(1) is Fault.WORKER_LOST
