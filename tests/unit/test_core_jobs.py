"""A job's way through the core while its workers live: refused, queued, leased, answered."""

import math

import pytest

from pool.core import actions as do
from pool.core import events as told
from pool.wire.faults import Fault
from simulation.driver import AnswerJob, Did, Driver, JobDone, PartToRun, RunBatch, Succeeded, every, one, payloads


def runs(actions: list[Did]) -> list[object]:
    return [payloads(run)[0] for run in every(actions, RunBatch)]


# --- the happy path -----------------------------------------------------------------------------------------------


def test_from_start_to_answer() -> None:
    driver = Driver(["m"])
    assert driver.start()[-1] == do.SpawnWorker(0, 1)
    assert driver.feed(told.WorkerSpawned(0, 1, pid=77)) == []
    assert driver.hello(0)[-1] == do.WelcomeWorker(0, 1)
    assert driver.ready(0, lanes=2)[-1] == do.PoolReady(1, 1)

    part = PartToRun("payload 1", 0, 0)
    assert driver.submit("m") == [RunBatch(0, 1, 1, 1, "m", "serving_default", None, (part,), pad_to=0, by_rows=False)]
    answer = one(driver.done(driver.run_of(1)), AnswerJob)
    assert (answer.client, answer.job) == (b"client", 1)
    assert driver.result(1) == (("answer to", "payload 1"),)
    assert driver.machine.backlog.jobs == {}
    assert driver.machine.next_deadline() is None
    assert driver.machine.answered == {"done": 1}


def test_a_failed_part_is_answered_with_its_own_error_and_harms_nothing() -> None:
    driver = Driver(["m"]).serve()
    driver.submit()
    assert driver.done(driver.run_of(1), told.Failed(Fault.MODEL_FAILED, "Incompatible shapes")) == [
        AnswerJob(b"client", 1, do.JobFailed(Fault.MODEL_FAILED, "Incompatible shapes"))
    ]
    assert runs(driver.submit()) == ["payload 2"]


def test_jobs_that_came_before_the_workers_wait_for_them() -> None:
    driver = Driver(["m"])
    driver.start()
    assert driver.submit() == []
    driver.hello(0)
    assert runs(driver.ready(0)) == ["payload 1"]


# --- late binding -------------------------------------------------------------------------------------------------


def test_a_job_goes_to_the_first_lane_that_frees_whichever_it_is() -> None:
    driver = Driver(["m"], ["m"]).serve()
    for _ in range(4):
        driver.submit()
    slow, fast = driver.run_of(1), driver.run_of(2)
    assert slow.slot != fast.slot
    third = one(driver.done(fast), RunBatch)
    assert (third.slot, payloads(third)) == (fast.slot, ("payload 3",))
    fourth = one(driver.done(third), RunBatch)
    assert (fourth.slot, payloads(fourth)) == (fast.slot, ("payload 4",))


def test_no_lane_gets_a_second_batch_before_the_first_is_answered() -> None:
    driver = Driver(["m"]).serve(lanes=2)
    for _ in range(5):
        driver.submit()
    assert sorted(run.lane for run in every(driver.log, RunBatch)) == [0, 1]
    freed = driver.run_of(1).lane
    assert one(driver.done(driver.run_of(1)), RunBatch).lane == freed


def test_a_slot_that_runs_nothing_is_taken_before_one_that_has_lanes_to_spare() -> None:
    driver = Driver(["m"], ["m"])
    driver.start()
    driver.up(0, lanes=3)
    driver.up(1, lanes=1)
    taken = [one(driver.submit(), RunBatch).slot for _ in range(4)]
    assert taken == [0, 1, 0, 0]


def test_among_equals_the_slot_that_was_used_longest_ago_is_taken() -> None:
    driver = Driver(["m"], ["m"], ["m"]).serve()
    taken = []
    for number in range(1, 7):
        taken.append(one(driver.submit(), RunBatch).slot)
        driver.done(driver.run_of(number))
    assert taken == [0, 1, 2, 0, 1, 2]


def test_a_lane_takes_the_model_that_has_used_less() -> None:
    driver = Driver(["a", "b"]).serve()
    driver.submit("a")
    for model in ("a", "b", "a", "b"):
        driver.submit(model)
    driver.now += 1.0
    while len(driver.answers()) < 5:
        driver.done(every(driver.log, RunBatch)[-1])
        driver.now += 0.4
    models = [run.model for run in every(driver.log, RunBatch)]
    assert models == ["a", "b", "b", "a", "a"], "the first one took 1 s, each other one 0.4 s"


def test_a_job_never_goes_to_a_slot_without_its_model() -> None:
    driver = Driver(["a"], ["b"]).serve()
    assert one(driver.submit("b"), RunBatch).slot == 1
    assert driver.submit("b") == []  # slot 0 is idle and of no use
    assert one(driver.submit("a"), RunBatch).slot == 0


# --- deadlines ----------------------------------------------------------------------------------------------------


def test_a_queued_job_is_answered_at_its_deadline() -> None:
    driver = Driver(["m"]).serve()
    driver.submit()
    driver.submit(timeout_s=3.0)
    assert driver.machine.next_deadline() == driver.now + 3.0
    assert driver.pass_time(2.999) == []
    answer = one(driver.pass_time(0.001), AnswerJob)
    assert (answer.job, driver.fault(2)) == (2, Fault.DEADLINE_EXCEEDED)
    assert "ended in the queue, after 3 s" in driver.failed(2).text
    assert every(driver.done(driver.run_of(1)), RunBatch) == [], "an expired job must not reach the device"


def test_a_leased_job_is_answered_at_its_deadline_and_its_late_result_is_dropped() -> None:
    driver = Driver(["m"]).serve()
    driver.submit(timeout_s=3.0)
    answer = one(driver.pass_time(3.0), AnswerJob)
    assert isinstance(answer.outcome, do.JobFailed)
    assert answer.outcome.fault is Fault.DEADLINE_EXCEEDED
    assert "while it ran" in answer.outcome.text
    assert "leased to slot 0 incarnation 1" in answer.outcome.text
    assert driver.submit() == [], "the lane still runs the expired job"
    assert runs(driver.done(driver.run_of(1))) == ["payload 2"]
    assert list(driver.answers()) == [1]


def test_a_job_without_a_timeout_has_the_default() -> None:
    driver = Driver(["m"], default_timeout_s=7.0).serve()
    driver.submit(timeout_s=None)
    assert driver.pass_time(6.9) == []
    driver.pass_time(0.1)
    assert driver.fault(1) is Fault.DEADLINE_EXCEEDED


def test_after_a_pause_of_the_pool_all_that_expired_is_answered_at_once() -> None:
    driver = Driver(["m"])
    driver.start()
    for timeout_s in (1.0, 2.0, 50.0):
        driver.submit(timeout_s=timeout_s)
    driver.now += 40.0  # SIGSTOP, a suspended machine: no tick came
    assert [answer.job for answer in every(driver.feed(told.Tick()), AnswerJob)] == [1, 2]


def test_a_timeout_of_zero_is_over_at_once() -> None:
    driver = Driver(["m"]).serve()
    assert every(driver.submit(timeout_s=0.0), RunBatch) == []
    assert driver.fault(1) is Fault.DEADLINE_EXCEEDED


# --- nobody waits -------------------------------------------------------------------------------------------------


def test_a_cancelled_job_in_the_queue_never_runs() -> None:
    driver = Driver(["m"]).serve()
    driver.submit()
    driver.submit()
    assert driver.feed(told.JobCancelled(b"client", 2)) == []
    assert every(driver.done(driver.run_of(1)), RunBatch) == []
    assert list(driver.answers()) == [1]


def test_the_result_of_a_job_cancelled_while_it_ran_is_dropped_and_its_lane_freed() -> None:
    driver = Driver(["m"]).serve()
    driver.submit()
    driver.feed(told.JobCancelled(b"client", 1))
    assert driver.done(driver.run_of(1)) == []
    assert runs(driver.submit()) == ["payload 2"]


def test_a_number_may_be_used_again_after_its_cancel_and_the_old_run_answers_nothing() -> None:
    driver = Driver(["m"]).serve(lanes=2)
    driver.submit(job=5)
    first = driver.run_of(5)
    driver.feed(told.JobCancelled(b"client", 5))
    driver.submit(job=5)
    second = driver.run_of(5)
    assert driver.done(first, Succeeded("old")) == []
    driver.done(second, Succeeded("new"))
    assert driver.result(5) == ("new",)


def test_cancelling_what_is_not_there_does_nothing() -> None:
    driver = Driver(["m"]).serve()
    assert driver.feed(told.JobCancelled(b"client", 99)) == []
    driver.submit()
    driver.done(driver.run_of(1))
    assert driver.feed(told.JobCancelled(b"client", 1)) == []


def test_the_jobs_of_a_client_that_went_are_forgotten_and_those_of_others_stay() -> None:
    driver = Driver(["m"]).serve()
    driver.submit(client=b"gone")
    driver.submit(client=b"gone")
    driver.submit(client=b"here")
    assert driver.feed(told.ClientGone(b"gone")) == []
    assert [job.client.route for job in driver.machine.backlog.jobs.values()] == [b"here"]
    assert runs(driver.done(driver.run_of(1))) == ["payload 3"]
    assert driver.feed(told.ClientGone(b"gone")) == []
    assert driver.machine.answered["cancelled"] == 2


def test_no_payload_is_kept_of_a_job_that_ended_before_its_run() -> None:
    driver = Driver(["m"]).serve()
    driver.submit()
    (job,) = driver.machine.backlog.jobs.values()
    driver.feed(told.JobCancelled(b"client", 1))
    assert job.payload is None


# --- refusals -----------------------------------------------------------------------------------------------------


def test_one_job_more_than_max_jobs_is_refused_at_once_leased_ones_counted() -> None:
    driver = Driver(["m"], max_jobs=2).serve()
    driver.submit()
    driver.submit()
    driver.submit()
    assert driver.fault(3) is Fault.OVERLOADED
    assert "[queue] max_jobs" in driver.failed(3).text
    driver.done(driver.run_of(1))
    assert driver.submit() == []  # queued
    driver.submit()
    assert driver.fault(5) is Fault.OVERLOADED


def test_more_bytes_than_max_bytes_are_refused_until_there_is_room() -> None:
    driver = Driver(["m"], max_bytes=100).serve()
    driver.submit(size_bytes=60)
    driver.submit(size_bytes=40)
    driver.submit(size_bytes=1)
    assert driver.fault(3) is Fault.OVERLOADED
    assert "[queue] max_bytes (100 B)" in driver.failed(3).text
    driver.feed(told.JobCancelled(b"client", 2))
    assert every(driver.submit(size_bytes=40), AnswerJob) == []


def test_an_overload_leaves_the_jobs_that_are_in_alone() -> None:
    driver = Driver(["m"], max_jobs=1).serve()
    driver.submit()
    for _ in range(50):
        driver.submit()
    driver.done(driver.run_of(1))
    assert isinstance(driver.answers()[1], JobDone)
    assert driver.machine.answered == {"done": 1, "overloaded": 50}


def test_a_number_that_is_in_use_is_refused_and_the_first_job_goes_on() -> None:
    driver = Driver(["m"]).serve()
    driver.submit(job=1)
    refusal = one(driver.submit(job=1), AnswerJob)
    assert isinstance(refusal.outcome, do.JobFailed)
    assert (refusal.outcome.fault, refusal.outcome.text) == (Fault.INVALID_INPUT, "job 1 is already in the pool")
    answer = one(driver.done(driver.run_of(1)), AnswerJob)
    assert isinstance(answer.outcome, JobDone)


@pytest.mark.parametrize("timeout_s", [math.nan, math.inf, -math.inf, -0.001])
def test_a_timeout_that_is_none_is_refused(timeout_s: float) -> None:
    driver = Driver(["m"]).serve()
    assert every(driver.submit(timeout_s=timeout_s), RunBatch) == []
    assert driver.fault(1) is Fault.INVALID_INPUT
    assert "timeout" in driver.failed(1).text
    assert driver.machine.backlog.jobs == {}
    assert driver.machine.next_deadline() is None


def test_an_unknown_model_is_answered_with_the_nearest_name() -> None:
    driver = Driver(["guesslang"], ["digits"]).serve()
    driver.submit("guesslan")
    assert driver.fault(1) is Fault.MODEL_NOT_FOUND
    assert "did you mean 'guesslang'?" in driver.failed(1).others


def test_where_no_name_is_near_all_are_told() -> None:
    driver = Driver(["guesslang"], ["digits"]).serve()
    driver.submit("zzz")
    assert "there are: digits, guesslang" in driver.failed(1).others


def test_a_name_of_a_million_characters_is_neither_searched_for_nor_sent_back() -> None:
    """The search for near names costs what the name is long; a client must not hold the loop with it."""
    searched = []

    class Name(str):
        def __getitem__(self, part: object) -> str:
            searched.append(part)
            return super().__getitem__(part)  # type: ignore[index]

    driver = Driver(["guesslang"]).serve()
    driver.submit(Name("g" * 1_000_000))
    assert driver.fault(1) is Fault.MODEL_NOT_FOUND
    assert len(driver.failed(1).text) < 300
    assert searched, "the whole name was searched"


def test_a_job_that_can_never_have_room_is_the_callers_mistake() -> None:
    driver = Driver(["m"], max_bytes=100).serve()
    driver.submit(size_bytes=101)
    assert driver.fault(1) is Fault.INVALID_INPUT, "a retry would not help"
