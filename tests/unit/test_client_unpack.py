"""Members of a chunk that come again: against pools that the test plays, in an order that it sets."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool import Client, errors
from pool.client.bulk.split import payload_of_some
from pool.client.dialogue import Dialogue
from pool.client.outstanding import Outstanding
from pool.client.payload import encode_call
from pool.client.request import Request
from pool.wire import client_messages as wire
from pool.wire.calls import Table
from pool.wire.codec import unpack
from pool.wire.faults import Fault
from pool.wire.tensors import decode_tensor
from pool.wire.unpacking import Unpacking
from support.asked import Asked
from support.fake_pool import TIMELINE, FakePool
from support.processes import eventually

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
        client._connected().grain.learn(Request("m"), QUICK, True)
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
    assert submit.weight == len(values)
    return futures, submit.job


def give_back(pool: FakePool, number: int, cause: Unpacking, ran: bool = True) -> None:
    pool.send(wire.Unpack(number, cause, ran, "as the test wants it"))


def heard(pool: FakePool, count: int) -> list[tuple[Asked, list[float]]]:
    """The next jobs, and what each was given."""
    return [(submit, given(pool, submit)) for submit in (pool.expect(Asked) for _ in range(count))]


def lose(pool: FakePool, client: Client) -> None:
    """Returns when the client has seen that the pool is gone."""
    pool.close()
    eventually(lambda: dialogue(client)._outage is not None, 5.0)


def part(pool: FakePool, client: Client, go_on: Callable[[], object] = lambda: None) -> None:
    """The pool ends in order. `go_on`: what lets the client hear of it."""
    pool.send(wire.Farewell("it has ended", unread=True))
    go_on()
    pool.expect(wire.Close)
    lose(pool, client)


def return_all(pool: FakePool, client: Client, chunk: int) -> None:
    """The pool stops, and gives it back as it is."""
    pool.send(wire.Failure(chunk, Fault.POOL_STOPPING, "the pool is stopping", None))
    part(pool, client)


def again(start: Start, credit_bytes: int = 1 << 20) -> FakePool:
    pool = start(SECOND)
    pool.open(credit_bytes)
    return pool


def given(pool: FakePool, submit: Asked) -> list[float]:
    return pool.inputs(submit)["x"].tolist()


def answer(pool: FakePool, submit: Asked) -> None:
    pool.answer(submit.job, {"y": 10 * pool.inputs(submit)["x"]})


def totals(futures: Sequence[Any]) -> list[list[float]]:
    return [future.result(5)["y"].tolist() for future in futures]


def nothing_is_left(client: Client) -> None:
    """Soon: a job leaves the book after its future has ended."""
    jobs = outstanding(client)
    eventually(lambda: not len(jobs) and jobs.sent_bytes == jobs.size_bytes == 0)


# --- how its members go out again ----------------------------------------------------------------------------------


def test_members_of_one_that_failed_come_as_halves_down_to_single_jobs(start: Start, client: Client) -> None:
    pool = start(FIRST)
    futures, chunk = sent(pool, client, 1, 2, 3, 4, 5)
    give_back(pool, chunk, Unpacking.FAILED)
    (first, values), (second, others) = heard(pool, 2)
    assert (values, others) == ([1, 2, 3], [4, 5])
    assert [(each.weight, each.origin, each.in_doubt) for each in (first, second)] == [
        (3, chunk, True),
        (2, chunk, True),
    ]
    give_back(pool, second.job, Unpacking.FAILED)
    (four, [_]), (five, [_]) = heard(pool, 2)
    assert [(each.weight, each.origin) for each in (four, five)] == [(1, second.job)] * 2
    pool.answer(first.job, {"y": np.array([10.0, 20.0, 30.0])})
    pool.answer(five.job, {"y": np.array([50.0])})
    pool.send(wire.Failure(four.job, Fault.MODEL_FAILED, "a row is four", None))
    assert totals([*futures[:3], futures[4]]) == [[10], [20], [30], [50]]
    with pytest.raises(errors.ModelFailed, match="a row is four"):
        futures[3].result(5)
    nothing_is_left(client)


def test_members_of_one_that_was_lost_come_singly(start: Start, client: Client) -> None:
    pool = start(FIRST)
    futures, chunk = sent(pool, client, 1, 2, 3)
    give_back(pool, chunk, Unpacking.LOST)
    jobs = heard(pool, 3)
    assert [(job.weight, job.origin, values) for job, values in jobs] == [(1, chunk, [n]) for n in (1, 2, 3)]
    for job, _ in jobs:
        pool.answer(job.job, {"y": np.array([float(job.job)])})
    assert totals(futures) == [[float(job.job)] for job, _ in jobs]


def test_what_is_not_taken_comes_singly_and_no_other_chunk_until_the_pool_says_so(start: Start, client: Client) -> None:
    pool = start(FIRST)
    futures, chunk = sent(pool, client, 1, 2)
    give_back(pool, chunk, Unpacking.NOT_TAKEN, ran=False)
    jobs = heard(pool, 2)
    assert [(job.weight, job.in_doubt) for job, _ in jobs] == [(1, False)] * 2
    others = client.submit_many("m", [{"x": np.array([value], np.float32)} for value in (3, 4)])
    later = heard(pool, 2)
    assert [(job.weight, job.origin) for job, _ in later] == [(1, 0)] * 2
    for job, _ in (*jobs, *later):
        pool.answer(job.job, {"y": np.zeros(1)}, timeline=QUICK, chunks=job is later[-1][0])
    assert totals([*futures, *others])
    client.submit_many("m", [{"x": np.zeros(1, np.float32)} for _ in range(3)])
    assert pool.expect(Asked).weight == 3


@pytest.mark.parametrize("left", [2, 1])
def test_of_one_with_cancelled_members_the_others_come_as_one(start: Start, client: Client, left: int) -> None:
    pool = start(FIRST)
    futures, chunk = sent(pool, client, 1, 2, 3)
    for future in futures[: 3 - left]:
        assert future.cancel()
        assert pool.expect(wire.Cancel) == wire.Cancel(chunk, member=True)
    give_back(pool, chunk, Unpacking.CANCELLED, ran=False)
    ((job, values),) = heard(pool, 1)
    assert (job.weight, values) == (left, [1.0, 2.0, 3.0][3 - left :])
    pool.answer(job.job, {"y": np.arange(left)})
    assert totals(futures[3 - left :]) == [[n] for n in range(left)]
    nothing_is_left(client)


def test_what_was_cancelled_before_it_is_heard_of_does_not_come_again(start: Start, client: Client) -> None:
    pool = start(FIRST)
    futures, chunk = sent(pool, client, 1, 2)
    assert futures[0].cancel()
    assert futures[1].cancel()
    while pool.expect(wire.Cancel).member:
        pass
    give_back(pool, chunk, Unpacking.CANCELLED, ran=False)
    pool.nothing_of(Asked)
    nothing_is_left(client)


def test_they_keep_their_deadline_and_go_before_what_has_not_left(start: Start, client: Client) -> None:
    pool = start(FIRST)
    futures = client.submit_many("m", [{"x": np.array([value], np.float32)} for value in (1, 2)], timeout=3.0)
    pool.open()
    chunk = pool.expect(Asked)
    give_back(pool, chunk.job, Unpacking.LOST)
    jobs = heard(pool, 2)
    assert all(job.timeout_s < chunk.timeout_s for job, _ in jobs)
    for future in futures:
        with pytest.raises(errors.DeadlineExceeded):
            future.result(20)


@pytest.mark.parametrize("away", [False, True])
def test_members_of_several_go_out_in_the_order_in_which_they_came(start: Start, client: Client, away: bool) -> None:
    """The client's thread is held up, so it hears at once that both were given back.

    `away`: their pool is then gone, and they wait for the next one.
    """
    pool = start(FIRST)
    futures, first = sent(pool, client, 1, 2)
    futures += client.submit_many("m", [{"x": np.array([value], np.float32)} for value in (3, 4, 5, 6)])
    second = pool.expect(Asked).job
    held, go_on = threading.Event(), threading.Event()
    alone = client.submit("m", {"x": np.zeros(1, np.float32)})
    alone.add_done_callback(lambda _: (held.set(), go_on.wait(20)))
    answer(pool, pool.expect(Asked))
    assert held.wait(20)
    give_back(pool, first, Unpacking.NOT_TAKEN, ran=False)
    give_back(pool, second, Unpacking.FAILED, ran=False)
    if away:
        part(pool, client, go_on.set)
        pool = again(start)
    go_on.set()
    jobs = heard(pool, 4)
    assert [values for _, values in jobs] == [[1], [2], [3, 4], [5, 6]]
    for job, values in jobs:
        pool.answer(job.job, {"y": np.array(values)})
    assert totals(futures) == [[n] for n in range(1, 7)]


def test_one_that_finds_no_room_comes_again(start: Start, client: Client) -> None:
    """It was in the pool before, so whoever sent it need not have asked to wait."""
    pool = start(FIRST)
    futures, chunk = sent(pool, client, 1, 2)
    give_back(pool, chunk, Unpacking.LOST)
    jobs = heard(pool, 2)
    pool.refuse(jobs[0][0].job)
    ((again_, values),) = heard(pool, 1)
    assert (again_.job, again_.origin, values) == (jobs[0][0].job, chunk, [1])
    for job, _ in jobs:
        pool.answer(job.job, {"y": np.zeros(1)})
    assert totals(futures)


# --- a pool that lies -----------------------------------------------------------------------------------------------


def test_an_unpack_of_nothing_is_nothing(start: Start, client: Client) -> None:
    pool = start(FIRST)
    futures, chunk = sent(pool, client, 1, 2)
    give_back(pool, chunk + 7, Unpacking.LOST)
    give_back(pool, chunk, Unpacking.LOST)
    give_back(pool, chunk, Unpacking.FAILED)
    jobs = heard(pool, 2)
    pool.answer(chunk, {"y": np.array([66.0, 66.0])})
    for job, _ in jobs:
        pool.answer(job.job, {"y": np.zeros(1)})
    assert totals(futures) == [[0], [0]]
    pool.nothing_of(Asked)


def test_a_lone_job_is_not_unpacked(start: Start, client: Client) -> None:
    pool = start(FIRST)
    future = client.submit("m", {"x": np.zeros(1)})
    pool.open()
    give_back(pool, pool.expect(Asked).job, Unpacking.FAILED)
    with pytest.raises(errors.Incompatible, match="not a chunk: as the test wants it"):
        future.result(5)


def test_one_of_which_nobody_was_cancelled_does_not_come_as_it_was(start: Start, client: Client) -> None:
    """It would come and go for ever."""
    pool = start(FIRST)
    _, chunk = sent(pool, client, 1, 2, 3)
    give_back(pool, chunk, Unpacking.CANCELLED)
    assert [job.weight for job, _ in heard(pool, 3)] == [1, 1, 1]


# --- the pool goes away ---------------------------------------------------------------------------------------------


def test_what_a_stopping_pool_gives_back_stays_a_chunk(start: Start, client: Client) -> None:
    pool = start(FIRST)
    futures, chunk = sent(pool, client, 1, 2, 3)
    return_all(pool, client, chunk)
    pool = again(start)
    submit = pool.expect(Asked)
    assert (submit.weight, submit.attempts, submit.in_doubt, submit.origin) == (3, 0, False, 0)
    answer(pool, submit)
    assert totals(futures) == [[10], [20], [30]]
    nothing_is_left(client)


def test_what_the_next_pool_takes_no_chunk_of_comes_singly(start: Start, client: Client) -> None:
    """Its `[queue] max_bytes` may be lower."""
    pool = start(FIRST)
    futures, chunk = sent(pool, client, 1, 2, 3)
    most = outstanding(client).size_bytes - 1
    return_all(pool, client, chunk)
    pool = again(start, most)
    for value in (1, 2, 3):
        submit = pool.expect(Asked)
        assert (submit.weight, given(pool, submit)) == (1, [value])
        answer(pool, submit)
    assert totals(futures) == [[10], [20], [30]]
    nothing_is_left(client)


def test_a_job_of_it_that_is_too_large_by_itself_ends_so(start: Start, client: Client) -> None:
    pool = start(FIRST)
    futures, chunk = sent(pool, client, 1, 2, 3)
    return_all(pool, client, chunk)
    again(start, 1)
    for future in futures:
        with pytest.raises(errors.InvalidInput, match="send it in pieces"):
            future.result(5)
    nothing_is_left(client)


@pytest.mark.parametrize("unpacked", [False, True])
def test_what_may_have_started_in_a_pool_that_died_comes_singly(start: Start, client: Client, unpacked: bool) -> None:
    """One of them may have been its end."""
    pool = start(FIRST)
    futures, chunk = sent(pool, client, 1, 2, 3, 4)
    if unpacked:
        give_back(pool, chunk, Unpacking.FAILED)
        heard(pool, 2)
    assert futures[1].cancel()
    pool.expect(wire.Cancel)
    lose(pool, client)
    pool = again(start)
    jobs = heard(pool, 3)
    assert [values for _, values in jobs] == [[1], [3], [4]]
    assert {(job.weight, job.attempts, job.in_doubt, job.origin) for job, _ in jobs} == {(1, 1, True, 0)}
    for job, _ in jobs:
        pool.answer(job.job, {"y": np.zeros(1)})
    assert totals([futures[0], *futures[2:]])
    nothing_is_left(client)


def test_a_map_has_each_answer_in_its_place(start: Start, client: Client) -> None:
    pool = start(FIRST)
    found: list[float] = []
    opened = threading.Thread(target=pool.open)
    opened.start()
    results = client.map("m", np.arange(1, 9, dtype=np.float32)[:, None], in_flight=32)
    opened.join()
    reader = threading.Thread(target=lambda: found.extend(each["y"][0] for each in results))
    reader.start()
    chunk = pool.expect(Asked)
    assert chunk.weight == 8
    give_back(pool, chunk.job, Unpacking.FAILED)
    halves = []
    for _ in range(2):
        half = pool.expect(Asked)
        halves.append((half.job, pool.inputs(half)[""]))
    pool.answer(halves[1][0], {"y": 10 * halves[1][1]})
    pool.answer(halves[0][0], {"y": 10 * halves[0][1]})
    reader.join(5)
    assert found == [10, 20, 30, 40, 50, 60, 70, 80]
    nothing_is_left(client)


def test_a_map_that_is_closed_takes_back_all_that_it_has_become(start: Start, client: Client) -> None:
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
    give_back(pool, second.job, Unpacking.FAILED)
    numbers = [pool.expect(Asked).job, pool.expect(Asked).job]
    results.close()  # type: ignore[attr-defined]  # a generator
    assert [pool.expect(wire.Cancel).job for _ in numbers] == numbers
    nothing_is_left(client)


# --- the rows -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("indices", [(0,), (1, 2), (0, 2, 3), (3,), (0, 1, 2, 3)])
def test_the_rows_of_some_are_cut_from_any_tensor(indices: tuple[int, ...]) -> None:
    heights = (1, 2, 3, 1)
    rows = sum(heights)
    columns: dict[str, Any] = {
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
