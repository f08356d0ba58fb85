"""A pool that goes away and comes back, played by the test: what its clients send again, and what they do not."""

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
import zmq

from pool import Client, errors
from pool.client import connection, dispatch, pulse
from pool.client.dialogue import Dialogue
from pool.client.futures import JobFuture
from pool.client.window import MOST_UNREAD
from pool.wire import client_messages as wire
from pool.wire.faults import Fault
from pool.wire.frames import MAGIC, NO_INSTANCE, VERSION, encode
from simulation.driver import Driver
from support import told_pool
from support.asked import Asked
from support.fake_pool import FakePool
from support.processes import eventually

Start = Callable[..., FakePool]
FIRST, SECOND, THIRD = b"1" * 8, b"2" * 8, b"3" * 8


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts an instance of the pool, always at the same endpoint."""
    started: list[FakePool] = []

    def start(instance: bytes) -> FakePool:
        started.append(FakePool(tmp_path, instance))
        return started[-1]

    yield start
    for pool in started:
        pool.close()


@pytest.fixture
def endpoint(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/p.sock"


@pytest.fixture
def client(endpoint: str) -> Iterator[Client]:
    with Client(endpoint, reconnect_timeout=20) as client:
        yield client


def submits(pool: FakePool, count: int) -> list[Asked]:
    return [pool.expect(Asked) for _ in range(count)]


def answer_all(pool: FakePool, jobs: list[Asked]) -> None:
    for job in jobs:
        pool.answer(job.job, {"y": np.float64(job.job)})


def opened(pool: FakePool, client: Client, default_timeout_s: float = 60.0) -> None:
    """There is a connection: a job of a short time is sent at once, however late this thread comes to read it."""
    first = client.submit("m", 0.0, timeout=60.0)
    pool.open(default_timeout_s=default_timeout_s)
    answer_all(pool, submits(pool, 1))
    assert first.result(5)


def dialogue(client: Client) -> Dialogue:
    assert client._connection is not None
    return client._connection._dialogue


def lose(pool: FakePool, client: Client) -> None:
    """Returns when the client has seen that the pool is gone."""
    pool.close()
    eventually(lambda: dialogue(client)._outage is not None, 5.0)


def part(pool: FakePool, client: Client) -> None:
    """The pool ends in order."""
    pool.send(wire.Farewell("it has ended", unread=True))
    pool.expect(wire.Close)  # it waits for that
    eventually(lambda: dialogue(client)._outage is not None, 5.0)
    pool.close()


def test_what_has_no_answer_is_sent_again_in_its_order(start: Start, client: Client) -> None:
    pool = start(FIRST)
    futures = [client.submit("m", [float(n)], timeout=30.0) for n in range(5)]
    pool.open()
    before = submits(pool, 5)
    assert {(job.attempts, job.in_doubt) for job in before} == {(0, False)}
    answer_all(pool, before[1:2])
    assert futures[1].result(5)["y"] == before[1].job
    lose(pool, client)

    pool = start(SECOND)
    pool.open()
    for number, former in enumerate(before):
        if number != 1:
            again = pool.expect(Asked)
            assert (again.job, again.attempts, again.in_doubt) == (former.job, 1, True)
            assert pool.inputs(again)[""].tolist() == [number]
            assert again.timeout_s is not None
            assert former.timeout_s is not None
            assert again.timeout_s < former.timeout_s < 30.0, "only the time that is left travels"
            answer_all(pool, [again])
    assert [future.result(5)["y"] for future in futures] == [job.job for job in before]
    pool.nothing_of(Asked)


def test_an_answer_that_came_before_the_loss_is_one(start: Start, client: Client) -> None:
    """Though this thread was busy when both happened."""
    pool = start(FIRST)
    first, second = client.submit("m", 1.0), client.submit("m", 2.0)
    busy = threading.Event()
    first.add_done_callback(lambda _: busy.wait(5))
    pool.open()
    jobs = submits(pool, 2)
    answer_all(pool, jobs)
    pool.close(linger_ms=5000)  # the answers leave first
    busy.set()
    assert second.result(5)["y"] == jobs[1].job


def test_what_the_window_kept_back_was_never_sent(start: Start, client: Client) -> None:
    pool = start(FIRST)
    futures = [client.submit("m", float(n)) for n in range(MOST_UNREAD + 20)]
    pool.open()
    numbers = [job.job for job in submits(pool, MOST_UNREAD)]
    pool.nothing_of(Asked)
    lose(pool, client)
    futures.append(client.submit("m", 0.0))
    pool = start(SECOND)
    pool.open()
    again = []
    for _ in futures:
        again.append(pool.expect(Asked))
        answer_all(pool, again[-1:])
    assert [job.job for job in again[:MOST_UNREAD]] == numbers
    assert [job.job for job in again] == sorted(job.job for job in again)
    assert [job.attempts for job in again] == [1] * MOST_UNREAD + [0] * 21
    assert [job.in_doubt for job in again] == [True] * MOST_UNREAD + [False] * 21
    assert all(future.result(5) for future in futures)


def test_each_pool_that_ends_with_a_job_is_an_attempt(start: Start, client: Client) -> None:
    pool = start(FIRST)
    old = client.submit("m", 1.0)
    pool.open()
    submits(pool, 1)
    lose(pool, client)
    new = client.submit("m", 2.0)
    pool = start(SECOND)
    pool.open()
    assert [(job.attempts, job.in_doubt) for job in submits(pool, 2)] == [(1, True), (0, False)]
    lose(pool, client)
    pool = start(THIRD)
    pool.open()
    jobs = submits(pool, 2)
    assert [(job.attempts, job.in_doubt) for job in jobs] == [(2, True), (1, True)]
    answer_all(pool, jobs)
    assert old.result(5)
    assert new.result(5)


def test_a_pool_that_forgot_a_client_has_not_ended(start: Start, client: Client) -> None:
    """After a freeze: the same instance, so it is no attempt, but what ran there may have run."""
    pool = start(FIRST)
    future = client.submit("m", 1.0)
    pool.open()
    submits(pool, 1)
    former = pool.client
    pool.send(wire.Farewell("the pool heard nothing from this client", unread=False))
    pool.open()
    assert pool.client != former
    (again,) = submits(pool, 1)
    assert (again.attempts, again.in_doubt) == (0, True)
    answer_all(pool, [again])
    assert future.result(5)


def test_what_a_pool_never_read_is_no_attempt_and_not_in_doubt(start: Start, client: Client) -> None:
    pool = start(FIRST)
    future = client.submit("m", 1.0)
    pool.open()
    submits(pool, 1)
    part(pool, client)
    pool = start(SECOND)
    pool.open()
    (again,) = submits(pool, 1)
    assert (again.attempts, again.in_doubt) == (0, False)
    answer_all(pool, [again])
    assert future.result(5)


@pytest.mark.parametrize("block", [False, True])
def test_what_a_stopping_pool_returns_is_kept_for_the_next(start: Start, client: Client, block: bool) -> None:
    pool = start(FIRST)
    running, returned = client.submit("m", 1.0), client.submit("m", 2.0)
    pool.open()
    jobs = submits(pool, 2)
    if block:
        late = threading.Thread(target=client.run, args=("m", 3.0), kwargs={"block": True})
        late.start()
        jobs += submits(pool, 1)
    for job in jobs[1:]:
        pool.send(wire.Failure(job.job, Fault.POOL_STOPPING, "the pool is stopping", None))
    eventually(lambda: len(dialogue(client)._dispatch._held) == len(jobs) - 1)
    later = client.submit("m", 4.0)
    pool.nothing_of(Asked)
    answer_all(pool, jobs[:1])
    assert running.result(5), "it is still being drained"
    part(pool, client)
    pool = start(SECOND)
    pool.open()
    again = submits(pool, len(jobs))  # without the one that was done, and with the one that came later
    assert {(job.attempts, job.in_doubt) for job in again} == {(0, False)}
    answer_all(pool, again)
    assert returned.result(5)
    assert later.result(5)
    if block:
        late.join(10)
        assert not late.is_alive()


def test_a_job_that_waits_for_a_pool_that_only_stops_ends_at_its_deadline(
    start: Start, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "LATE_S", 1e6)
    pool = start(FIRST)
    opened(pool, client)
    future = client.submit("m", 1.0, timeout=1.0)
    (job,) = submits(pool, 1)
    pool.send(wire.Failure(job.job, Fault.POOL_STOPPING, "the pool is stopping", None))
    with pytest.raises(errors.DeadlineExceeded, match="is stopping, and no other pool has taken its place"):
        future.result(5)


def test_a_cancelled_job_ends_at_once_and_is_not_sent_again(start: Start, client: Client) -> None:
    pool = start(FIRST)
    kept, cancelled = client.submit("m", 1.0), client.submit("m", 2.0)
    pool.open()
    jobs = submits(pool, 2)
    lose(pool, client)
    assert cancelled.cancel()
    assert cancelled.done()
    pool = start(SECOND)
    pool.open()
    assert submits(pool, 1)[0].job == jobs[0].job
    pool.nothing_of(Asked)
    answer_all(pool, jobs)
    assert kept.result(5)


@pytest.mark.parametrize("timeout", [1.0, None])
def test_a_deadline_is_kept_while_the_pool_is_away(
    start: Start, client: Client, timeout: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one, what the lost pool has said is the default. Nobody waits longer for a pool that is known to be away,
    as for one that may still answer at the deadline: for ever, here.
    """
    monkeypatch.setattr(dispatch, "LATE_S", 1e6)
    pool = start(FIRST)
    opened(pool, client, default_timeout_s=1.0)
    futures = [client.submit("m", 1.0, timeout=timeout)]
    submits(pool, 1)
    lose(pool, client)
    futures.append(client.submit("m", 2.0, timeout=timeout))
    for future in futures:
        with pytest.raises(
            errors.DeadlineExceeded, match=r"went away before it answered, \d+\.\d s ago; the job was not sent"
        ):
            future.result(20)


def test_a_pool_that_does_not_return_is_unreachable(start: Start, endpoint: str) -> None:
    with Client(endpoint, reconnect_timeout=0.4) as client:
        pool = start(FIRST)
        futures = [client.submit("m", 1.0)]
        pool.open()
        submits(pool, 1)
        before = time.monotonic()
        assert client._connection is not None
        with client._connection.driver._lock:  # or the outage might be over before the second is there
            pool.close()
            futures.append(client.submit("m", 2.0))
        for future in futures:
            with pytest.raises(errors.PoolUnreachable, match=r"and did not come back within 0\.4 s") as caught:
                future.result(20)
            assert caught.value.retryable
        assert time.monotonic() - before >= 0.4
        again = client.submit("m", 3.0)  # a new connection
        pool = start(SECOND)
        pool.open()
        answer_all(pool, submits(pool, 1))
        assert again.result(5)


def test_an_outage_holds_nothing_of_the_job_that_met_it(start: Start, client: Client) -> None:
    """Nor does what is remembered of it, for as long as the next pool serves."""
    first = start(FIRST)

    def play() -> None:
        first.open()
        first.expect(Asked)
        first.close()  # the caller drives, and meets it
        second = start(SECOND)
        second.open()
        answer_all(second, submits(second, 1))

    pools = threading.Thread(target=play)
    pools.start()
    given = np.zeros(4)
    held = weakref.ref(given)
    client.run("m", given, timeout=20)
    pools.join(20)
    assert "went away" in dialogue(client)._last_outage.told(0.0), "it is remembered"
    del given
    gc.collect()
    assert held() is None


def test_without_a_reconnect_timeout_nothing_is_waited_for(start: Start, endpoint: str) -> None:
    with Client(endpoint, reconnect_timeout=0) as client:
        pool = start(FIRST)
        lost, returned = client.submit("m", 1.0), client.submit("m", 1.0)
        pool.open()
        jobs = submits(pool, 2)
        pool.send(wire.Failure(jobs[1].job, Fault.POOL_STOPPING, "the pool is stopping", None))
        with pytest.raises(errors.PoolUnreachable, match="is stopping"):
            returned.result(5)
        pool.close()
        with pytest.raises(errors.PoolUnreachable, match="went away before it answered"):
            lost.result(5)


def test_connections_that_break_before_the_pool_spoke_are_tried_again(start: Start, client: Client) -> None:
    pool = start(FIRST)
    future = client.submit("m", 1.0)
    pool.open()
    submits(pool, 1)
    lose(pool, client)
    for instance in (SECOND, THIRD):
        pool = start(instance)
        pool.expect(wire.Open)
        pool.close()
    pool = start(b"4" * 8)
    pool.open()
    (again,) = submits(pool, 1)
    assert again.attempts == 1, "the others never had it"
    answer_all(pool, [again])
    assert future.result(5)


def test_what_another_instance_says_is_dropped(start: Start, client: Client) -> None:
    pool = start(FIRST)
    future = client.submit("m", 1.0)
    pool.open()
    jobs = submits(pool, 1)
    pool.instance = SECOND
    answer_all(pool, jobs)
    pool.open()
    (again,) = submits(pool, 1)
    assert not future.done()
    assert (again.attempts, again.in_doubt) == (1, True)
    pool.answer(again.job, {"y": np.float64(7)})
    assert future.result(5)["y"] == 7


def test_another_version_that_takes_its_place_is_told(start: Start, client: Client) -> None:
    pool = start(FIRST)
    future = client.submit("m", 1.0)
    pool.open()
    submits(pool, 1)
    lose(pool, client)
    pool = start(SECOND)
    pool.expect(wire.Open)
    pool._socket.send_multipart([pool.client, MAGIC + bytes((VERSION + 1, 0)) + NO_INSTANCE, b"whatever"])
    with pytest.raises(errors.Incompatible, match=f"protocol version {VERSION + 1}"):
        future.result(5)


def test_a_hung_pool_that_reads_again_is_told_to_forget_what_others_do(
    start: Start, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse, "PING_S", 0.05)
    monkeypatch.setattr(pulse, "SILENCE_S", 0.3)
    monkeypatch.setattr("pool.client.dialogue.SILENCE_S", 0.3)
    pool = start(FIRST)
    future = client.submit("m", 1.0)
    pool.open()
    jobs = submits(pool, 1)
    former = pool.client
    came: dict[type[object], bytes] = {}  # over two connections, of which either may be read first
    while not came.keys() >= {wire.Close, wire.Open}:
        message = pool.next()
        assert message is not None, came
        came[type(message)] = pool.client
    assert came[wire.Close] == former != came[wire.Open]
    monkeypatch.setattr(pulse, "SILENCE_S", 60.0)  # this thread may be slow with the answer
    pool.client = came[wire.Open]
    pool.send(wire.Opened("test", 1 << 20, 60.0))
    (again,) = submits(pool, 1)
    assert (again.job, again.attempts, again.in_doubt) == (jobs[0].job, 0, True)
    answer_all(pool, [again])
    assert future.result(5)


def test_who_waits_for_room_waits_through_an_outage(start: Start, client: Client) -> None:
    pool = start(FIRST)
    large = client.submit("m", np.zeros(100))
    given: list[JobFuture] = []
    caller = threading.Thread(target=lambda: given.append(client.submit("m", np.zeros(50), block=True)))
    pool.open(credit_bytes=1000)
    submits(pool, 1)
    caller.start()
    pool.nothing_of(Asked)
    lose(pool, client)
    pool = start(SECOND)
    pool.open(credit_bytes=1000)
    jobs = submits(pool, 1)
    pool.nothing_of(Asked)
    assert caller.is_alive()
    answer_all(pool, jobs)
    answer_all(pool, submits(pool, 1))
    caller.join(5)
    assert large.result(5)
    assert given[0].result(5)


def test_a_refused_job_is_sent_again_by_the_next_pool_s_measure(start: Start, client: Client) -> None:
    """The books of those that wait for room begin anew."""
    pool = start(FIRST)
    caller = threading.Thread(target=client.run, args=("m", np.zeros(50)), kwargs={"block": True})
    caller.start()
    pool.open(credit_bytes=1000)
    pool.refuse(submits(pool, 1)[0].job, retry_after_s=60.0)
    eventually(lambda: [job.refusals for job in dialogue(client).jobs] == [1])
    lose(pool, client)
    pool = start(SECOND)
    pool.open(credit_bytes=1000)
    (again,) = submits(pool, 1)
    assert (again.attempts, again.in_doubt) == (0, False)
    answer_all(pool, [again])
    caller.join(5)
    assert not caller.is_alive()
    large = client.submit("m", np.zeros(100))
    answer_all(pool, submits(pool, 1))
    assert large.result(5), "no credit is lost"


def test_what_has_been_taken_in_once_is_not_refused_for_want_of_room(start: Start, client: Client) -> None:
    pool = start(FIRST)
    future = client.submit("m", 1.0)
    pool.open()
    submits(pool, 1)
    lose(pool, client)
    pool = start(SECOND)
    pool.open()
    for _ in range(3):
        pool.refuse(submits(pool, 1)[0].job)
    answer_all(pool, submits(pool, 1))
    assert future.result(5)


def test_no_more_waits_for_a_pool_than_it_would_have_taken(start: Start, client: Client) -> None:
    pool = start(FIRST)
    first = client.submit("m", np.zeros(80))
    pool.open(credit_bytes=1000)
    submits(pool, 1)
    lose(pool, client)
    with pytest.raises(
        errors.Overloaded, match=r"wait for the pool\'s return; \d+ B more would exceed its limit \(1000 B\)"
    ):
        client.submit("m", np.zeros(80)).result(5)
    assert first.cancel()
    second = client.submit("m", np.zeros(80))
    pool = start(SECOND)
    pool.open(credit_bytes=1000)
    answer_all(pool, submits(pool, 1))
    assert second.result(5)


def test_an_idle_client_finds_the_next_pool_too(start: Start, client: Client) -> None:
    pool = start(FIRST)
    future = client.submit("m", 1.0)
    pool.open()
    answer_all(pool, submits(pool, 1))
    assert future.result(5)
    lose(pool, client)
    later = client.submit("m", 2.0)
    pool = start(SECOND)
    pool.open()
    (job,) = submits(pool, 1)
    assert (job.attempts, job.in_doubt) == (0, False)
    answer_all(pool, [job])
    assert later.result(5)


def io_thread(client: Client) -> threading.Thread:
    assert client._connection is not None
    return client._connection._thread


def test_close_ends_all_while_the_pool_is_away(start: Start, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread ends by itself, long before nobody would wait for it, or for the pool, any more."""
    monkeypatch.setattr(connection, "JOIN_S", 20.0)
    client = Client(endpoint, reconnect_timeout=3600)
    pool = start(FIRST)
    futures = [client.submit("m", 1.0)]
    pool.open()
    submits(pool, 1)
    lose(pool, client)
    futures.append(client.submit("m", 1.0))
    thread = io_thread(client)
    client.close()
    assert not thread.is_alive()
    for future in futures:
        with pytest.raises(errors.PoolUnreachable, match="closed"):
            future.result(0)


@pytest.mark.parametrize("waits", [True, False])
def test_a_dropped_client_ends_by_its_timeouts(start: Start, endpoint: str, waits: bool) -> None:
    client = Client(endpoint, reconnect_timeout=3600)
    pool = start(FIRST)
    opened(pool, client)
    future = client.submit("m", 1.0, timeout=1.0 if waits else 60.0)
    if waits:
        submits(pool, 1)
    else:
        answer_all(pool, submits(pool, 1))
        assert future.result(5)
    lose(pool, client)
    thread = io_thread(client)
    del client
    thread.join(20)
    assert not thread.is_alive()
    assert future.done()


def asking(question: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    answers: list[Any] = []

    def ask() -> None:
        try:
            answers.append(question())
        except errors.PoolError as error:
            answers.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread, answers


def test_questions_are_asked_again_and_orders_are_not_given_twice(start: Start, client: Client) -> None:
    pool = start(FIRST)
    status, told = asking(client.status)
    pool.open()
    pool.expect(wire.Ask)
    order, refused = asking(lambda: client.restart(1))
    assert pool.expect(wire.Ask).what == "restart"
    lose(pool, client)
    order.join(5)
    assert "did not say whether it would restart" in str(refused[0])
    assert isinstance(refused[0], errors.PoolUnreachable)
    models, named = asking(client.models)
    pool = start(SECOND)
    pool.open()
    said = told_pool.status(Driver(["m"]))
    for what, answer in (("status", said.to_dict()), ("models", [])):
        ask = pool.expect(wire.Ask)
        assert ask.what == what
        pool._socket.send_multipart(
            [pool.client, *encode(wire.Answer(ask.request, None), SECOND), msgpack.packb(answer)]
        )
    status.join(5)
    models.join(5)
    assert told == [said]
    assert named == [()]


def test_map_keeps_its_order_through_an_outage(start: Start, client: Client) -> None:
    results: list[float] = []

    def consume() -> None:
        results.extend(float(each["y"]) for each in client.map("m", (float(n) for n in range(40)), in_flight=8))

    thread = threading.Thread(target=consume)
    thread.start()
    for instance, answers in ((FIRST, 10), (SECOND, 10), (THIRD, 20)):
        pool = start(instance)
        pool.open()
        for _ in range(answers):
            job = pool.expect(Asked)
            pool.answer(job.job, {"y": pool.inputs(job)[""]})
        if instance is not THIRD:
            eventually(lambda: len(results) > 0)
            lose(pool, client)
    while thread.is_alive():
        job = pool.next(0.1)
        if isinstance(job, Asked):
            pool.answer(job.job, {"y": pool.inputs(job)[""]})
    assert results == [float(n) for n in range(40)]


@pytest.mark.parametrize("name", ["connect_timeout", "reconnect_timeout"])
@pytest.mark.parametrize("seconds", [-1.0, float("inf"), float("nan")])
def test_no_wait_is_endless(name: str, seconds: float) -> None:
    settings: dict[str, Any] = {name: seconds}
    with pytest.raises(ValueError, match=f"{name} is {seconds}"):
        Client("ipc:///p", **settings)


def test_a_context_of_its_own_is_left_by_nobody(start: Start, client: Client) -> None:
    """Each connection has its sockets, and gives them back."""
    pool = start(FIRST)
    future = client.submit("m", 1.0, timeout=60)
    for number in range(5):
        pool.open()
        submits(pool, 1)
        lose(pool, client)
        pool = start(bytes((number,)) * 8)
    pool.open()
    answer_all(pool, submits(pool, 1))
    assert future.result(5)
    channel = dialogue(client)._channel
    assert channel is not None
    sockets = channel._dealer.context._sockets
    # Those of an earlier test's client may be about to be closed.
    eventually(lambda: len([each for each in sockets if not each.closed]) == 2, saw=lambda: [*sockets])
    assert all(isinstance(each, zmq.Socket) for each in sockets)
