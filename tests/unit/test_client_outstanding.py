"""The book of jobs that have no answer yet."""

from collections import deque

from pool import errors
from pool.client.calls import Call
from pool.client.futures import JobFuture
from pool.client.outstanding import Job, Outstanding
from pool.client.request import Request

CALL = Call(("m", None, None, None, None, False, b"table"), 1, b"names", 1024)


def job(number: int) -> Job:
    return Job(JobFuture(), Request("m"), None, (b"x" * 10,), 10, 0.0, 0.0, number=number)


def test_instants_do_not_pile_up_behind_one_slow_job() -> None:
    outstanding = Outstanding()
    slow = job(0)
    outstanding.add(slow)
    outstanding.wait_until(slow, 60.0)
    for number in range(1, 5000):
        quick = job(number)
        outstanding.add(quick)
        outstanding.wait_until(quick, 3600.0)
        outstanding.mark_sent(quick, CALL, b"i", 0.0)
        outstanding.take(quick.number)
    assert len(outstanding) == 1
    assert outstanding.sent_bytes == 0
    assert len(outstanding._timers.heap) < 200
    assert outstanding.next_instant() == 60.0


def test_late_jobs_are_taken_in_their_order() -> None:
    outstanding = Outstanding()
    jobs = [job(number) for number in range(3)]
    for each, instant in zip(jobs, (3.0, 1.0, 2.0), strict=True):
        outstanding.add(each)
        outstanding.wait_until(each, instant)
    outstanding.wait_until(jobs[2], 9.0)  # the last one counts
    assert list(outstanding.late(3.0)) == [jobs[1], jobs[0]]
    assert list(outstanding.late(3.0)) == []
    assert list(outstanding) == jobs, "their futures have not ended"


def test_a_fork_ends_all_that_is_in_it_in_the_child() -> None:
    outstanding = Outstanding()
    waiting, answered = job(1), job(2)
    outstanding.add(waiting)
    outstanding.add(answered)
    answered.future.finish({})
    lost = errors.PoolUnreachable("before the fork")
    outstanding.abandon_after_fork(lost)
    assert isinstance(waiting.future, JobFuture)
    assert isinstance(answered.future, JobFuture)
    assert waiting.future.exception(0) is lost
    assert answered.future.result(0) == {}


def test_what_was_interrupted_is_done_or_undone() -> None:
    outstanding = Outstanding()
    answered, leaving, queued = job(1), job(2), job(3)
    for each in (answered, leaving):
        outstanding.add(each)
        outstanding.wait_until(each, 1.0)
    outstanding.mark_sent(answered, CALL, b"i", 0.0)
    answered.future.finish({})  # and not taken out of the book
    outstanding.sending = leaving  # and not marked as sent
    queued.number = 0
    outbox = deque([leaving, queued])
    outstanding.mend(outbox)
    assert list(outstanding) == [leaving]
    assert leaving.sent_at is not None, "the pool may have it"
    assert outstanding.size_bytes == leaving.size_bytes
    assert outstanding.next_instant() is None
    assert list(outbox) == [queued]


def test_the_payload_of_a_job_is_kept_and_its_credit_is_not() -> None:
    outstanding = Outstanding()
    patient, other = job(1), job(2)
    patient.patient = True
    before = CALL.jobs
    for each in (patient, other):
        outstanding.add(each)
        outstanding.mark_sent(each, CALL, b"i", 1.0)
    assert outstanding.sent_bytes == 20
    assert patient.payload
    assert other.payload, "the pool may not know its call any more"
    assert CALL.jobs == before + 2
    outstanding.mark_refused(patient, errors.Overloaded("full", 0.5))
    assert outstanding.sent_bytes == 10
    assert patient.refusals == 1
    assert CALL.jobs == before + 1
    assert outstanding.take(1) is patient
    assert outstanding.sent_bytes == 10
    assert outstanding.take(2) is other
    assert CALL.jobs == before, "it may be forgotten"
