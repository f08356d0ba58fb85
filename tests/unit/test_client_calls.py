"""A client says what its jobs share once, by a number from then on; and again where its pool does not know it."""

from typing import Any

import numpy as np
import pytest

from pool import Client, errors
from pool.client import calls
from pool.client.calls import Calls
from pool.client.futures import JobFuture
from pool.client.outstanding import Job, Outstanding
from pool.client.request import Request
from pool.wire import client_messages as wire
from pool.wire.calls import CALLS_BYTES
from support.asked import Asked
from support.fake_pool import FakePool


class Watching(FakePool):
    """Notes of each job the number of its call, and whether it came with names."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.heard: list[tuple[int, bool]] = []

    def heard_submit(self, submit: wire.Submit) -> None:
        self.heard.append((submit.call, submit.names is not None))


@pytest.fixture
def pool(tmp_path: Any) -> Any:
    pool = Watching(tmp_path)
    yield pool
    pool.close()


def answered(pool: FakePool) -> Asked:
    job = pool.expect(Asked)
    pool.answer(job.job, {"y": np.float32(1)})
    return job


def test_names_travel_with_the_first_job_of_a_call(pool: Watching) -> None:
    with Client(pool.endpoint) as client:
        kinds: list[dict[str, Any]] = [
            {"inputs": np.ones(2, np.float32)},
            {"inputs": np.ones(2, np.float32)},
            {"inputs": np.ones(5, np.float32), "timeout": 9.0, "priority": 3},
            {"inputs": np.ones((2, 1), np.float32)},
            {"inputs": np.ones(2, np.float64)},
            {"inputs": {"x": np.ones(2, np.float32)}},
            {"inputs": np.float32(1)},
            {"inputs": np.ones(2, np.float32), "signature": "s"},
            {"inputs": np.ones(2, np.float32), "outputs": ["y"]},
            {"inputs": np.ones(2, np.float32), "device": 1},
            {"inputs": np.ones(2, np.float32), "version": 1},
            {"inputs": np.ones(2, np.float32), "version": "1"},
            {"inputs": np.ones(2, np.float32)},
        ]
        futures = [client.submit("m", **kind) for kind in kinds]
        pool.open()
        for kind, future in zip(kinds, futures, strict=True):
            job = answered(pool)
            assert future.result(5)
            assert job.priority == kind.get("priority", 0)
            device, version = kind.get("device"), kind.get("version")
            assert (job.signature, job.version) == (kind.get("signature"), version)
            assert job.device == (None if device is None else str(device))
    first = (1, True)
    assert pool.heard[:3] == [first, (1, False), (1, False)]
    assert pool.heard[3:12] == [(number, True) for number in range(2, 11)]
    assert pool.heard[12:] == [(1, False)]


def test_what_the_pool_does_not_know_is_registered_again_and_is_no_attempt(pool: Watching) -> None:
    with Client(pool.endpoint, reconnect_timeout=0) as client:
        future = client.submit("m", np.ones(2, np.float32))
        pool.open()
        answered(pool)
        assert future.result(5)
        futures = [client.submit("m", np.full(2, n, np.float32), priority=n) for n in range(2)]
        for job in [pool.expect(Asked) for _ in futures]:
            pool.send(wire.Unregistered(job.job))
            pool.send(wire.Released(job.job))
        again = [pool.expect(Asked) for _ in futures]
        assert [(job.attempts, job.in_doubt) for job in again] == [(0, False)] * 2
        assert [job.rows for job in again] == [2, 2]
        assert [float(pool_input(pool, job)) for job in again[-1:]] == [1.0], "its payload was kept"
        for job in again:
            pool.answer(job.job, {"y": np.float32(1)})
        assert all(each.result(5) for each in futures)
    assert pool.heard == [(1, True), (1, False), (1, False), (2, True), (2, False)]


def pool_input(pool: FakePool, job: Asked) -> Any:
    return pool.inputs(job)[""][0]


def test_a_pool_that_never_knows_it_is_asked_until_the_deadline(pool: Watching) -> None:
    with Client(pool.endpoint) as client:
        future = client.submit("m", 1.0, timeout=0.3)
        pool.open()
        while (job := pool.next(2.0)) is not None:
            if isinstance(job, Asked):
                pool.send(wire.Unregistered(job.job))
        assert isinstance(future.exception(5), errors.DeadlineExceeded)
    numbers = [call for call, _ in pool.heard]
    assert len(numbers) > 1
    assert numbers == sorted(set(numbers)), "no number is used again"
    assert all(registers for _, registers in pool.heard)


def test_an_answer_to_what_has_ended_changes_nothing(pool: Watching) -> None:
    with Client(pool.endpoint) as client:
        future = client.submit("m", 1.0)
        pool.open()
        job = pool.expect(Asked)
        future.cancel()
        assert pool.expect(wire.Cancel).job == job.job
        pool.send(wire.Unregistered(job.job))
        other = client.submit("m", 2.0)
        answered(pool)
        assert other.result(5)
    assert pool.heard == [(1, True), (1, False)]


def test_the_idle_one_that_was_used_least_recently_is_forgotten_first(
    pool: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "MOST_CALLS", 3)
    with Client(pool.endpoint) as client:
        busy = client.submit("busy", 1.0)
        pool.open()
        held = pool.expect(Asked)
        for model in ("a", "b", "a"):
            future = client.submit(model, 1.0)
            answered(pool)
            assert future.result(5)
        future = client.submit("c", 1.0)
        assert pool.expect(wire.Forget).call == 3, "of b: a was used since, and the first is busy"
        answered(pool)
        assert future.result(5)
        future = client.submit("b", 1.0)
        assert pool.expect(wire.Forget).call == 2
        answered(pool)
        assert future.result(5)
        pool.answer(held.job, {"y": np.float32(1)})
        assert busy.result(5)
    assert pool.heard == [(1, True), (2, True), (3, True), (2, False), (4, True), (5, True)]


@pytest.mark.parametrize("block", [False, True])
def test_where_none_is_idle_a_job_waits_for_one_within_its_timeout(
    pool: Watching, monkeypatch: pytest.MonkeyPatch, block: bool
) -> None:
    monkeypatch.setattr(calls, "MOST_CALLS", 1)
    with Client(pool.endpoint) as client:
        first = client.submit("a", 1.0)
        pool.open()
        job = pool.expect(Asked)
        late = client.submit("b", 1.0, timeout=0.2)
        same = client.submit("a", 1.0)
        also = pool.expect(Asked)
        assert also.model == "a", "others of a call that is there do not wait"
        error = late.exception(5)
        assert isinstance(error, errors.Overloaded)
        if not block:
            assert "calls of this client" in str(error)
        waits = client._start("c", 1.0, **NOTHING, timeout=30.0, patient=block)
        pool.nothing_of(Asked)
        pool.answer(job.job, {"y": np.float32(1)})
        assert first.result(5)
        pool.nothing_of(Asked)
        pool.answer(also.job, {"y": np.float32(1)})
        assert pool.expect(wire.Forget).call == 1
        assert answered(pool).model == "c"
        assert waits.result(5)
        assert same.result(5)


NOTHING: dict[str, Any] = {"signature": None, "outputs": None, "priority": 0, "device": None}


def test_a_cancelled_job_that_waits_for_a_call_is_never_sent(pool: Watching, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MOST_CALLS", 1)
    with Client(pool.endpoint) as client:
        first = client.submit("a", 1.0)
        pool.open()
        job = pool.expect(Asked)
        waits, next_one = client.submit("b", 1.0), client.submit("c", 1.0)
        assert waits.cancel()
        pool.answer(job.job, {"y": np.float32(1)})
        assert first.result(5)
        assert answered(pool).model == "c"
        assert next_one.result(5)


def test_another_pool_is_told_all_anew(tmp_path: Any) -> None:
    first = Watching(tmp_path, b"1" * 8)
    with Client(first.endpoint) as client:
        future = client.submit("a", 1.0)
        first.open()
        answered(first)
        assert future.result(5)
        lost = client.submit("a", 2.0)
        first.expect(Asked)
        first.close()
        second = Watching(tmp_path, b"2" * 8)
        second.open()
        assert answered(second).attempts == 1
        assert lost.result(10)
        second.close()
    assert first.heard == [(1, True), (1, False)]
    assert second.heard == [(1, True)]


def job_of(model: str, table: bytes = b"table") -> Job:
    return Job(JobFuture(), Request(model), None, (table,), 10, 0.0, 0.0)


def test_calls_are_bounded_in_bytes_as_the_pool_counts_them() -> None:
    forgotten: list[int] = []
    book = Calls(forgotten.append)
    table = bytes(1 << 20)
    jobs = [job_of(f"m{number}", table) for number in range(20)]
    for job in jobs:
        call = book.of(job)
        assert call is not None
        call.is_told = True
    assert 1 < len(book) < 9
    assert book._size_bytes <= CALLS_BYTES
    assert forgotten == list(range(1, 21 - len(book)))
    for job in jobs[-len(book) :]:
        held = book.of(job)
        assert held is not None
        held.jobs = 1
    assert book.of(jobs[0]) is None
    assert len(forgotten) == 20 - len(book), "what has jobs in the pool stays"


def settled_with_one_call(pool: Watching, client: Client, patch: pytest.MonkeyPatch) -> tuple[Any, Asked]:
    """A client that may have one call, and has a job of it in the pool."""
    patch.setattr(calls, "MOST_CALLS", 1)
    future = client.submit("a", np.ones(2, np.float32))
    pool.open(credit_bytes=2000)
    return future, pool.expect(Asked)


@pytest.mark.parametrize("end", ["cancelled", "late"])
def test_what_ends_behind_a_job_that_waits_for_a_call_keeps_no_credit(
    pool: Watching, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    with Client(pool.endpoint) as client:
        future, first = settled_with_one_call(pool, client, monkeypatch)
        waits = client.submit("b", np.ones(10, np.float32))
        large = np.ones(300, np.float32)
        ended = client.submit("c", large, timeout=None if end == "cancelled" else 0.2)
        refused = client.submit("a", large)
        assert isinstance(refused.exception(5), errors.Overloaded), "they have used the credit up"
        if end == "cancelled":
            assert ended.cancel()
        else:
            assert isinstance(ended.exception(5), errors.Overloaded)
        fits = client.submit("a", large)
        second = pool.expect(Asked)
        assert (second.model, second.rows) == ("a", 300)
        for job in (first, second):
            pool.answer(job.job, {"y": np.float32(1)})
        assert future.result(5)
        assert fits.result(5)
        assert answered(pool).model == "b"
        assert waits.result(5)


def patient(client: Client, model: str, rows: int) -> Any:
    return client._start(model, np.ones(rows, np.float32), **NOTHING, timeout=30.0, patient=True)


def test_a_patient_job_that_waits_for_a_call_holds_up_none_of_a_call_that_is_there(
    pool: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(pool.endpoint) as client:
        _, first = settled_with_one_call(pool, client, monkeypatch)
        waits = client._start("a", np.float32(1), **NOTHING, timeout=30.0, patient=True)
        other = client._start("b", np.float32(1), **NOTHING, timeout=30.0, patient=True)
        same = patient(client, "a", 3)
        second = pool.expect(Asked)
        assert (second.model, second.rows) == ("a", 3), "of the same model, and of the call that is there"
        pool.nothing_of(Asked)
        for job in (first, second):
            pool.answer(job.job, {"y": np.float32(1)})
        assert same.result(5)
        assert [answered(pool).model for _ in range(2)] == ["a", "b"], "in their order"
        assert waits.result(5)
        assert other.result(5)


def test_patient_jobs_that_wait_for_calls_leave_in_their_order_and_what_ends_is_gone(
    pool: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(pool.endpoint) as client:
        _, first = settled_with_one_call(pool, client, monkeypatch)
        waiting = [patient(client, model, rows) for model in "bcb" for rows in (1, 2, 3)]
        assert waiting[1].cancel()
        assert waiting[3].cancel()
        pool.nothing_of(Asked)
        pool.answer(first.job, {"y": np.float32(1)})
        left = [answered(pool) for _ in range(7)]
        assert [(job.model, job.rows) for job in left] == [
            *(("b", rows) for rows in (1, 3, 1, 2, 3)),
            *(("c", rows) for rows in (2, 3)),
        ]
        assert all(future.result(5) for future in waiting if not future.cancelled())


def test_the_room_of_a_call_goes_to_what_waits_longest_and_is_kept_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MOST_CALLS", 1)
    outstanding, book = Outstanding(), Calls(lambda _: None)
    first, second, also, third = jobs = [job_of(model) for model in "abbc"]
    for job in jobs:
        outstanding.add(job)
    call = book.of(first)
    assert call is not None
    outstanding.mark_sent(first, call, b"i", 0.0)
    assert book.of(second) is None
    assert book.granted() == []
    outstanding.take(first.number)
    assert book.of(third) is None, "it came later"
    assert book.of(also) is None
    assert book.granted() == [second, also]
    assert book.granted() == [], "they have the room, though they are not sent yet"
    assert book.of(second) is book.of(also)
    outstanding.take(second.number)
    outstanding.take(also.number)
    assert book.granted() == [third]
    assert not book.waiting
