"""The backlog: first in, first out a model; what was lost goes first; the books agree."""

import pytest

from pool.core.backlog import Backlog
from pool.core.jobs import FINISHED, IllegalStep, Job, JobState


def job(number: int, model: str = "m", client: bytes = b"a", size_bytes: int = 1) -> Job:
    return Job(client, number, model, 5.0, size_bytes, None, float(number))


def filled(*jobs: Job) -> Backlog:
    backlog = Backlog(["m", "other"])
    for each in jobs:
        backlog.admit(each)
    backlog.validate()
    return backlog


def numbers(backlog: Backlog) -> list[int]:
    return [each.number for each in backlog.waiting()]


def test_jobs_wait_in_the_order_in_which_they_came() -> None:
    backlog = filled(job(1), job(2), job(3))
    head = backlog.head("m")
    assert head is not None
    backlog.lease(head)
    assert (head.number, head.state, head.attempts) == (1, JobState.LEASED, 1)
    assert numbers(backlog) == [2, 3]
    backlog.validate()


def test_each_model_has_a_queue_of_its_own() -> None:
    backlog = filled(job(1), job(2, "other"))
    assert (backlog.queued("m"), backlog.queued("other")) == (1, 1)
    assert [each.number for model in ("m", "other") if (each := backlog.head(model))] == [1, 2]


def test_no_head_without_a_job() -> None:
    assert filled().head("m") is None


def test_a_job_that_is_put_back_is_the_next() -> None:
    first = job(1)
    backlog = filled(first, job(2))
    backlog.lease(first)
    backlog.admit(job(3))
    backlog.put_back(first)
    assert numbers(backlog) == [1, 2, 3]
    assert first.state is JobState.QUEUED
    assert first.attempts == 1
    backlog.validate()


@pytest.mark.parametrize("state", sorted(FINISHED - {JobState.DONE}, key=str))
def test_a_finished_job_leaves_nothing_behind(state: JobState) -> None:
    only = job(1, size_bytes=7)
    backlog = filled(only)
    assert backlog.size_bytes == 7
    backlog.finish(only, state)
    assert (backlog.jobs, backlog.size_bytes, numbers(backlog)) == ({}, 0, [])
    assert backlog._clients == {}, "clients come and go all day"
    backlog.validate()


def test_a_queued_job_cannot_be_done() -> None:
    only = job(1)
    backlog = filled(only)
    with pytest.raises(IllegalStep):
        backlog.finish(only, JobState.DONE)
    assert backlog.head("m") is only
    backlog.validate()


def test_a_job_is_not_leased_twice() -> None:
    only = job(1)
    backlog = filled(only)
    backlog.lease(only)
    with pytest.raises(IllegalStep):
        backlog.lease(only)
    assert only.attempts == 1
    backlog.validate()


def test_the_jobs_of_one_client_are_found_leased_or_not() -> None:
    first = job(1)
    backlog = filled(first, job(2), job(3, client=b"b"))
    backlog.lease(first)
    assert {each.number for each in backlog.of_client(b"a")} == {1, 2}
    assert {each.number for each in backlog.of_client(b"b")} == {3}
    assert backlog.of_client(b"nobody") == []


def test_two_clients_may_use_the_same_number() -> None:
    backlog = filled(job(1, client=b"a"), job(1, client=b"b"))
    backlog.finish(backlog.jobs[(b"a", 1)], JobState.CANCELLED)
    assert list(backlog.jobs) == [(b"b", 1)]
    backlog.validate()


@pytest.mark.parametrize("damage", ["size", "queue", "client"])
def test_books_that_do_not_agree_are_noticed(damage: str) -> None:
    only = job(1)
    backlog = filled(only)
    if damage == "size":
        backlog.size_bytes += 1
    elif damage == "queue":
        only.state = JobState.LEASED
    else:
        backlog.of_client(b"a")[0].client = b"b"
    with pytest.raises((AssertionError, KeyError)):
        backlog.validate()
