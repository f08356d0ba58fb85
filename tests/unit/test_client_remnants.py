"""What is left of a chunk when its pool goes away: against pools that the test plays, in an order that it sets."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_pool import TIMELINE, FakePool

from asked import Asked
from harness import eventually
from pool import Client, errors
from pool.client.dialogue import Dialogue
from pool.client.outstanding import Outstanding
from pool.client.payload import encode_call
from pool.client.remnant import payload_of_some
from pool.client.request import Request
from pool.wire import client_messages as wire
from pool.wire.calls import Table
from pool.wire.codec import unpack
from pool.wire.faults import Fault
from pool.wire.tensors import decode_tensor

Start = Callable[..., FakePool]
FIRST, SECOND = b"1" * 8, b"2" * 8
QUICK = replace(TIMELINE, run_s=1e-6)


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
def client(tmp_path: Path) -> Iterator[Client]:
    with Client(f"ipc://{tmp_path}/p.sock", reconnect_timeout=20) as client:
        client._connected().grain.learn(Request("m"), QUICK)
        yield client


def dialogue(client: Client) -> Dialogue:
    assert client._connection is not None
    return client._connection._dialogue


def outstanding(client: Client) -> Outstanding:
    return dialogue(client).jobs


def sent(pool: FakePool, client: Client, *values: float) -> tuple[list[Any], int]:
    """A chunk of a row each, and its number."""
    futures = client.submit_many("m", [{"x": np.array([value], np.float32)} for value in values])
    pool.open()
    submit = pool.expect(Asked)
    assert submit.members == (1,) * len(values)
    return futures, submit.job


def fail(pool: FakePool, number: int, fault: Fault = Fault.POOL_STOPPING) -> None:
    pool.send(wire.Failure(number, fault, "the pool is stopping", None))


def lose(pool: FakePool, client: Client) -> None:
    """Returns when the client has seen that the pool is gone."""
    pool.close()
    eventually(lambda: dialogue(client)._outage is not None, 5.0)


def part(pool: FakePool, client: Client) -> None:
    """The pool ends in order."""
    pool.send(wire.Farewell("it has ended", unread=True))
    pool.expect(wire.Close)
    lose(pool, client)


def again(start: Start) -> FakePool:
    pool = start(SECOND)
    pool.open()
    return pool


def given(pool: FakePool, submit: Asked) -> list[float]:
    return pool.inputs(submit)["x"].tolist()  # type: ignore[no-any-return]


def answer(pool: FakePool, submit: Asked) -> None:
    pool.answer(submit.job, {"y": 10 * pool.inputs(submit)["x"]})


def totals(futures: Sequence[Any]) -> list[list[float]]:
    return [future.result(5)["y"].tolist() for future in futures]


def nothing_is_left(client: Client) -> bool:
    jobs = outstanding(client)
    return not len(jobs) and jobs.sent_bytes == jobs.size_bytes == 0


# --- the pool stops -----------------------------------------------------------------------------------------------


def test_only_members_that_have_not_ended_are_sent_again(start: Start, client: Client) -> None:
    pool = start(FIRST)
    futures, chunk = sent(pool, client, 1, 2, 3, 4, 5)
    pool.answer(chunk + 1, {"y": np.array([10.0])})
    fail(pool, chunk + 4, Fault.MODEL_FAILED)
    for member in (2, 3, 5):
        fail(pool, chunk + member)
    part(pool, client)
    pool = again(start)
    submit = pool.expect(Asked)
    assert (submit.members, submit.rows, submit.attempts, submit.in_doubt) == ((1, 1, 1), 3, 0, False)
    assert given(pool, submit) == [2, 3, 5]
    answer(pool, submit)
    assert totals([*futures[:3], futures[4]]) == [[10], [20], [30], [50]]
    assert isinstance(futures[3].exception(5), errors.ModelFailed)
    pool.nothing_of(wire.Cancel)
    assert nothing_is_left(client)


@pytest.mark.parametrize("lost_at", [0, 1, 2])
def test_a_member_that_may_have_started_ends_whenever_its_pool_says_so(
    start: Start, client: Client, lost_at: int
) -> None:
    """Before, among or after those that the pool gives back."""
    pool = start(FIRST)
    futures, chunk = sent(pool, client, 1, 2, 3)
    order = [(chunk + 2, Fault.POOL_STOPPING), (chunk + 3, Fault.POOL_STOPPING)]
    order.insert(lost_at, (chunk + 1, Fault.STATEFUL_WORKER_LOST))
    for number, fault in order:
        fail(pool, number, fault)
    part(pool, client)
    assert isinstance(futures[0].exception(5), errors.WorkerLost)
    pool = again(start)
    submit = pool.expect(Asked)
    assert (given(pool, submit), submit.in_doubt) == ([2, 3], False)
    answer(pool, submit)
    assert totals(futures[1:]) == [[20], [30]]


def test_what_still_runs_in_a_stopping_pool_is_waited_for_and_what_came_back_is_not_lost(
    start: Start, client: Client
) -> None:
    pool = start(FIRST)
    futures, chunk = sent(pool, client, 1, 2, 3)
    fail(pool, chunk + 3)
    pool.answer(chunk + 1, {"y": np.array([10.0])})
    assert totals(futures[:1]) == [[10]]
    pool.answer(chunk + 2, {"y": np.array([20.0])})
    assert totals(futures[1:2]) == [[20]]
    part(pool, client)
    pool = again(start)
    submit = pool.expect(Asked)
    assert (submit.members, given(pool, submit), submit.in_doubt) == ((), [3], False)
    answer(pool, submit)
    assert totals(futures[2:]) == [[30]]
    assert nothing_is_left(client)


# --- the pool dies ------------------------------------------------------------------------------------------------


def test_of_a_pool_that_dies_all_that_had_no_answer_is_in_doubt(start: Start, client: Client) -> None:
    pool = start(FIRST)
    futures, chunk = sent(pool, client, 1, 2, 3)
    pool.answer(chunk + 2, {"y": np.array([20.0])})
    assert totals(futures[1:2]) == [[20]]
    lose(pool, client)
    pool = again(start)
    submit = pool.expect(Asked)
    assert (given(pool, submit), submit.attempts, submit.in_doubt) == ([1, 3], 1, True)
    fail(pool, submit.job, Fault.STATEFUL_WORKER_LOST)
    for future in (futures[0], futures[2]):
        assert isinstance(future.exception(5), errors.WorkerLost)
    assert totals(futures[1:2]) == [[20]]
    assert nothing_is_left(client)


def split(start: Start, client: Client) -> tuple[list[Any], FakePool, Asked, Asked]:
    """Of six, the pool answers the first, gives back the third and the fourth, and dies; the second is cancelled then.

    What the next one gets: those in doubt, and those that are not.
    """
    pool = start(FIRST)
    futures, chunk = sent(pool, client, 1, 2, 3, 4, 5, 6)
    for member in (3, 4):
        fail(pool, chunk + member)
    pool.answer(chunk + 1, {"y": np.array([10.0])})
    assert totals(futures[:1]) == [[10]]
    lose(pool, client)
    assert futures[1].cancel()
    pool = again(start)
    first = pool.expect(Asked)
    payload = pool.payload
    assert given(pool, first) == [5, 6]
    second = pool.expect(Asked)
    assert given(pool, second) == [3, 4]
    assert (first.attempts, first.in_doubt) == (1, True)
    assert (second.attempts, second.in_doubt) == (0, False)
    assert {*range(first.job, first.job + 3)}.isdisjoint(range(second.job, second.job + 3))
    pool.payload = payload
    return futures, pool, first, second


def test_members_that_were_given_back_before_it_died_are_not_in_doubt_with_the_others(
    start: Start, client: Client
) -> None:
    futures, pool, first, second = split(start, client)
    answer(pool, first)
    fail(pool, second.job + 2, Fault.MODEL_FAILED)
    pool.answer(second.job + 1, {"y": np.array([30.0])})
    assert totals([futures[0], futures[2], *futures[4:]]) == [[10], [30], [50], [60]]
    assert isinstance(futures[3].exception(5), errors.ModelFailed)
    assert nothing_is_left(client)


def test_whoever_is_cancelled_afterwards_is_found(start: Start, client: Client) -> None:
    futures, pool, first, second = split(start, client)
    for index, number in ((3, second.job + 2), (5, first.job + 2), (4, first.job + 1), (2, second.job + 1)):
        assert futures[index].cancel()
        assert pool.expect(wire.Cancel).job == number
    assert nothing_is_left(client)


def test_both_halves_go_on_through_further_pools(start: Start, client: Client) -> None:
    futures, pool, first, second = split(start, client)
    fail(pool, first.job + 1)  # a pool that says so of one, and dies
    fail(pool, second.job)
    eventually(lambda: second.job in dialogue(client)._dispatch._held)
    lose(pool, client)
    pool = start(FIRST)
    pool.open()
    sent_again = {}
    for _ in range(3):
        submit = pool.expect(Asked)
        sent_again[tuple(given(pool, submit))] = (submit.attempts, submit.in_doubt)
        answer(pool, submit)
    assert sent_again == {(6.0,): (2, True), (5.0,): (1, True), (3.0, 4.0): (0, False)}
    assert totals(futures[2:]) == [[30], [40], [50], [60]]
    assert nothing_is_left(client)


def test_a_pool_that_stops_gives_back_the_last_one_when_the_others_are_cancelled(start: Start, client: Client) -> None:
    """The one that is cancelled is told, for it may not have started there."""
    pool = start(FIRST)
    futures, chunk = sent(pool, client, 1, 2)
    fail(pool, chunk + 1)
    eventually(lambda: dialogue(client)._dispatch._holds)
    assert futures[1].cancel()
    assert pool.expect(wire.Cancel).job == chunk + 2
    part(pool, client)
    pool = again(start)
    submit = pool.expect(Asked)
    assert (given(pool, submit), submit.in_doubt) == ([1], False)
    answer(pool, submit)
    assert totals(futures[:1]) == [[10]]


# --- what stays as it was -----------------------------------------------------------------------------------------


def test_a_member_keeps_its_deadline(start: Start, client: Client) -> None:
    pool = start(FIRST)
    futures = client.submit_many("m", [{"x": np.zeros(1)}] * 3, timeout=30.0)
    pool.open()
    chunk = pool.expect(Asked)
    pool.answer(chunk.job + 1, {"y": np.zeros(1)})
    assert futures[0].result(5)
    lose(pool, client)
    pool = again(start)
    submit = pool.expect(Asked)
    assert submit.timeout_s < chunk.timeout_s < 30.0, "only the time that is left travels"


def test_a_member_that_is_late_meanwhile_is_not_sent_again(start: Start, client: Client) -> None:
    pool = start(FIRST)
    futures = client.submit_many("m", [{"x": np.zeros(1)}] * 3, timeout=1.0)
    pool.open()
    chunk = pool.expect(Asked).job
    pool.answer(chunk + 1, {"y": np.zeros(1)})
    fail(pool, chunk + 2)
    assert futures[0].result(5)
    lose(pool, client)
    for future in futures[1:]:
        assert isinstance(future.exception(5), errors.DeadlineExceeded)
    pool = again(start)
    pool.nothing_of(Asked)
    assert nothing_is_left(client)


def test_one_that_is_left_alone_has_its_whole_answer(start: Start, client: Client) -> None:
    """Whatever rows that has: it is a job like any other."""
    pool = start(FIRST)
    futures, chunk = sent(pool, client, 1, 2)
    pool.answer(chunk + 1, {"y": np.array([10.0])})
    assert totals(futures[:1]) == [[10]]
    lose(pool, client)
    pool = again(start)
    submit = pool.expect(Asked)
    assert submit.members == ()
    pool.answer(submit.job, {"y": np.array([1.0, 2.0, 3.0]), "sum": np.float64(6)})
    result = futures[1].result(5)
    assert (result["y"].tolist(), result["sum"]) == ([1, 2, 3], 6)


def test_jobs_that_left_together_by_themselves_are_cancelled_by_their_futures(start: Start, client: Client) -> None:
    """Those of `submit`, which the client's thread has joined: it is held up until all are there."""
    pool = start(FIRST)
    held, go_on = threading.Event(), threading.Event()
    first = client.submit("m", {"x": np.zeros(1, np.float32)})
    first.add_done_callback(lambda _: (held.set(), go_on.wait(5)))
    pool.open()
    pool.answer(pool.expect(Asked).job, {"y": np.zeros(1)})
    assert held.wait(5)
    futures = [client.submit("m", {"x": np.array([value], np.float32)}) for value in (1, 2, 3, 4)]
    assert futures[0].cancel()  # before it has left
    go_on.set()
    chunk = pool.expect(Asked)
    assert (chunk.members, given(pool, chunk)) == ((1, 1, 1), [2, 3, 4])
    fail(pool, chunk.job + 1)
    eventually(lambda: dialogue(client)._dispatch._holds)
    lose(pool, client)
    pool = again(start)
    in_doubt = pool.expect(Asked)
    assert given(pool, in_doubt) == [3, 4]
    clean = pool.expect(Asked)
    assert given(pool, clean) == [2]
    for future, number in ((futures[3], in_doubt.job + 2), (futures[1], clean.job)):
        assert future.cancel()
        assert pool.expect(wire.Cancel).job == number
    pool.answer(in_doubt.job + 1, {"y": np.array([30.0])})
    assert totals(futures[2:3]) == [[30]]
    assert nothing_is_left(client)


def test_one_that_is_cancelled_before_it_has_left_is_not_sent(start: Start, client: Client) -> None:
    pool = start(FIRST)
    held, go_on = threading.Event(), threading.Event()
    first = client.submit("m", 1.0)
    first.add_done_callback(lambda _: (held.set(), go_on.wait(5)))
    pool.open()
    pool.answer(pool.expect(Asked).job, {"y": np.zeros(1)})
    assert held.wait(5)
    alone, all_of_them = client.submit("m", 2.0), client.submit_many("m", [{"x": np.zeros(1)}] * 3)
    last = client.submit("m", 3.0)
    for future in (alone, *all_of_them):
        assert future.cancel()
    go_on.set()
    submit = pool.expect(Asked)
    assert pool.inputs(submit)[""].tolist() == 3.0
    pool.answer(submit.job, {"y": np.zeros(1)})
    assert last.result(5)
    pool.nothing_of(Asked)
    assert nothing_is_left(client)


def test_a_map_has_each_answer_in_its_place(start: Start, client: Client) -> None:
    pool = start(FIRST)
    found: list[float] = []
    results = client.map("m", np.arange(1, 9, dtype=np.float32)[:, None], in_flight=32)
    reader = threading.Thread(target=lambda: found.extend(each["y"][0] for each in results))
    reader.start()
    pool.open()
    chunk = pool.expect(Asked)
    assert chunk.members == (1,) * 8
    fail(pool, chunk.job + 8)
    pool.answer(chunk.job + 2, {"y": np.array([20.0])})
    eventually(lambda: [len(job.future.left) for job in outstanding(client)] == [7])  # type: ignore[union-attr]
    lose(pool, client)
    pool = again(start)
    in_doubt = pool.expect(Asked)
    assert pool.inputs(in_doubt)[""].tolist() == [1, 3, 4, 5, 6, 7]
    pool.answer(in_doubt.job, {"y": 10 * pool.inputs(in_doubt)[""]})
    clean = pool.expect(Asked)
    assert pool.inputs(clean)[""].tolist() == [8]
    pool.answer(clean.job, {"y": np.array([80.0])})
    reader.join(5)
    assert found == [10, 20, 30, 40, 50, 60, 70, 80]
    assert nothing_is_left(client)


def test_a_map_that_is_closed_takes_back_both_parts(start: Start, client: Client) -> None:
    pool = start(FIRST)
    opened = threading.Thread(target=pool.open)
    opened.start()
    results = client.map("m", np.arange(16, dtype=np.float32)[:, None], in_flight=32)
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.append(next(results)))
    reader.start()
    opened.join(5)
    first, second = pool.expect(Asked), pool.expect(Asked)
    pool.answer(first.job, {"y": np.zeros(8)})
    reader.join(5)
    assert found
    fail(pool, second.job + 8)
    eventually(lambda: dialogue(client)._dispatch._holds)
    lose(pool, client)
    pool = again(start)
    numbers = [pool.expect(Asked).job, pool.expect(Asked).job]
    results.close()  # type: ignore[attr-defined]  # a generator
    assert [pool.expect(wire.Cancel).job for _ in numbers] == numbers
    assert nothing_is_left(client)


# --- the rows -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("indices", [(0,), (1, 2), (0, 2, 3), (3,), (0, 1, 2, 3)])
def test_the_rows_of_some_are_cut_from_any_tensor(indices: tuple[int, ...]) -> None:
    heights = (1, 2, 3, 1)
    rows = sum(heights)
    columns = {
        "numbers": np.arange(rows * 6, dtype=np.float32).reshape(rows, 2, 3),
        "bytes": np.arange(rows, dtype=np.int8),
        "none": np.zeros((rows, 0), np.float64),
        "words": np.array([b"", b"a\0", b"bc", b"", b"def", b"\xff", b"g"], object),
        "pairs": np.array([[b"x" * n, b""] for n in range(rows)], object),
    }
    assert encode_call("m", columns)[0] == rows
    payload = payload_of_some(encode_call("m", columns)[1], heights, indices)
    table = payload[0]
    assert isinstance(table, bytes)
    starts = np.cumsum((0, *heights))
    wanted = [row for index in indices for row in range(starts[index], starts[index + 1])]
    for header, buffer in zip(unpack(Table, table).tensors, payload[1:], strict=True):
        assert isinstance(buffer, bytes)
        cut = decode_tensor(replace(header, shape=(len(wanted), *header.shape[1:])), buffer)
        assert cut.tolist() == columns[header.name][wanted].tolist()
