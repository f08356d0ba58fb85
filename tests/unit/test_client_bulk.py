"""Jobs that are alike leave together, and each has its own answer: against a pool that the test plays itself."""

import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool import Client, errors
from pool.client.bulk.company import Company
from pool.client.bulk.grain import MOST_ROWS, Grain
from pool.client.bulk.members import Chunk, Futures
from pool.client.bulk.split import narrow
from pool.client.futures import JobFuture
from pool.client.outstanding import Job
from pool.client.payload import encode_call
from pool.client.request import Request
from pool.wire import client_messages as wire
from pool.wire.calls import Table
from pool.wire.codec import unpack
from pool.wire.faults import Fault
from pool.wire.tensors import decode_tensor, join_strings
from support.asked import Asked
from support.fake_pool import TIMELINE, FakePool, Serving
from unit.results import result_of

QUICK = replace(TIMELINE, run_s=1e-6)


@pytest.fixture
def client(fake: FakePool) -> Iterator[Client]:
    with Client(fake.endpoint) as client:
        yield client


def taught(fake: FakePool, client: Client) -> None:
    """The client has seen that a row takes next to nothing."""
    first = client.submit("m", {"x": np.zeros(1, np.float32)})
    fake.open()
    fake.answer(fake.expect(Asked).job, {"y": np.zeros(1)}, timeline=QUICK)
    first.result(5)


def rows(*values: float) -> list[dict[str, Any]]:
    return [{"x": np.array([value], np.float32)} for value in values]


def job(value: object, request: Request = Request("m"), submitted: float = 0.0) -> Job:  # noqa: B008  # frozen
    height, payload = encode_call("m", {"x": value})
    return Job(JobFuture(), request, height, payload, sum(map(len, payload)), submitted, submitted)


def known(row_s: float = 1e-6, request: Request = Request("m")) -> Grain:  # noqa: B008  # frozen
    grain = Grain()
    grain.learn(request, replace(TIMELINE, run_s=row_s, batch_rows=1), True)
    return grain


# --- which jobs -------------------------------------------------------------------------------------------------


def test_like_jobs_at_the_head_are_one_chunk() -> None:
    jobs = [job(np.array([float(n)] * n, np.float32)) for n in (1, 2, 3)]
    company, outbox = Company(known()), deque([*jobs, job(np.zeros(1))])
    chunk = company.next(deque(jobs))
    assert chunk is not None
    assert isinstance(chunk.future, Chunk)
    assert (chunk.future.rows, chunk.rows) == ([1, 2, 3], 6)
    (header,) = unpack(Table, chunk.payload[0]).tensors  # type: ignore[arg-type]  # the table is bytes
    joined = decode_tensor(replace(header, shape=(6,)), chunk.payload[1])  # type: ignore[arg-type]
    assert joined.tolist() == [1, 2, 2, 3, 3, 3]
    assert all(each.payload for each in jobs), "as long as it may turn out that they have not left"
    company.leave(chunk, outbox)
    assert len(outbox) == 1
    assert [(each.left_in, each.index, each.payload) for each in jobs] == [
        (chunk.future.members, n, ()) for n in range(3)
    ]


@pytest.mark.parametrize(
    "other",
    [
        job(np.array([1.0], np.float64)),
        job(np.array([[1.0]], np.float32)),
        job(np.float32(1.0)),
        job([1.0]),
        job(np.zeros(1, np.float32), Request("other")),
        job(np.zeros(1, np.float32), Request("m", priority=1)),
        job(np.zeros(5000, np.float32)),
    ],
    ids=["dtype", "shape", "no rows", "weak", "model", "priority", "large"],
)
def test_what_is_not_alike_leaves_alone(other: Job) -> None:
    grain = known()
    grain.learn(Request("other"), QUICK, True)
    first = job(np.zeros(1, np.float32))
    assert Company(grain).next(deque([first, other, first])) is None
    assert Company(grain).next(deque([other, first])) is None


def test_jobs_that_end_at_different_times_leave_apart() -> None:
    short = Request("m", timeout_s=1.0)
    early, soon, late = (job(np.zeros(1), short, submitted) for submitted in (0.0, 0.01, 0.1))
    chunk = Company(known()).next(deque([early, soon, late]))
    assert chunk is not None
    assert chunk.weight == 2
    assert chunk.submitted == 0.0  # whoever came first is not answered late


@pytest.mark.parametrize(("row_s", "most"), [(1.0, 1), (0.001, 5), (1e-9, MOST_ROWS), (0.0, MOST_ROWS)])
def test_a_chunk_takes_a_moment_to_run(row_s: float, most: int) -> None:
    assert known(row_s).rows(Request("m")) == most
    chunk = Company(known(row_s)).next(deque(job(np.zeros(1)) for _ in range(2 * MOST_ROWS)))
    assert (1 if chunk is None else chunk.weight) == most


def test_nothing_leaves_together_before_it_is_known_what_a_row_costs() -> None:
    assert Grain().rows(Request("m")) == 1
    assert Company(Grain()).next(deque([job(np.zeros(1)), job(np.zeros(1))])) is None


def test_strings_are_joined_as_one_tensor_has_them() -> None:
    given: list[list[bytes]] = [[b"a", b""], [b""], [b"bcd\0", b"\0"], []]
    buffers = [bytes(encode_call("m", {"x": np.array(each, object)})[1][1]) for each in given if each]  # type: ignore[arg-type]
    joined = join_strings(buffers, [2, 1, 2])
    (header,) = unpack(Table, encode_call("m", {"x": np.array([b"a"], object)})[1][0]).tensors  # type: ignore[arg-type]
    assert decode_tensor(replace(header, shape=(5,)), joined).tolist() == [b"a", b"", b"", b"bcd\0", b"\0"]


# --- whose answer -----------------------------------------------------------------------------------------------


def test_each_has_its_own_rows_and_only_once() -> None:
    futures = [JobFuture(), JobFuture()]
    chunk = Chunk(Futures(futures, [1, 2]), range(2))
    Chunk(chunk.members, [0]).finish(result_of({"y": np.array([9])}))
    assert chunk.left == [1]
    chunk.finish(result_of({"y": np.array([1, 2, 3])}))
    assert [future.result(0)["y"].tolist() for future in futures] == [[9], [2, 3]]
    chunk.finish(errors.PoolUnreachable("late"))
    assert chunk.is_cancelled


def test_many_leave_as_one_and_are_answered_as_one(fake: FakePool, client: Client) -> None:
    taught(fake, client)
    futures = client.submit_many("m", rows(1, 2, 3))
    submit = fake.expect(Asked)
    assert submit.weight == 3
    assert fake.inputs(submit)["x"].tolist() == [1, 2, 3]
    fake.answer(submit.job, {"y": np.array([10.0, 20.0, 30.0])})
    assert [future.result(5)["y"].tolist() for future in futures] == [[10.0], [20.0], [30.0]]


def test_one_that_is_cancelled_is_told_and_the_others_go_on(fake: FakePool, client: Client) -> None:
    taught(fake, client)
    futures = client.submit_many("m", rows(1, 2))
    number = fake.expect(Asked).job
    assert futures[0].cancel()
    assert fake.expect(wire.Cancel) == wire.Cancel(number, member=True)
    assert futures[1].cancel()
    assert fake.expect(wire.Cancel) == wire.Cancel(number), "nobody is left"


def test_one_that_was_cancelled_before_it_was_sent_is_not_run(fake: FakePool, client: Client) -> None:
    taught(fake, client)
    large = client.submit("m", {"x": np.zeros((1, 200_000), np.float32)})  # most of the credit
    number = fake.expect(Asked).job
    futures = client.submit_many("m", [{"x": np.zeros((1, 6500), np.float32)} for _ in range(10)], block=True)
    assert futures[3].cancel()
    fake.nothing_of(Asked)
    fake.answer(number, {"y": np.zeros(1)})
    large.result(5)
    chunk = fake.expect(Asked)
    assert chunk.weight == 9
    fake.answer(chunk.job, {"y": np.arange(9)})
    assert [future.result(5)["y"].tolist() for future in futures if future is not futures[3]] == [[n] for n in range(9)]
    fake.nothing_of(wire.Cancel)


def test_a_chunk_that_fails_as_one_fails_all(fake: FakePool, client: Client) -> None:
    taught(fake, client)
    futures = client.submit_many("m", rows(1, 2))
    fake.refuse(fake.expect(Asked).job)
    for future in futures:
        with pytest.raises(errors.Overloaded):
            future.result(5)


# --- map --------------------------------------------------------------------------------------------------------


def doubled(submit: Asked, inputs: dict[str, Any]) -> dict[str, Any] | wire.Failure:
    (given,) = inputs.values()
    if (given < 0).any():
        return wire.Failure(submit.job, Fault.MODEL_FAILED, "a row is negative", None)
    return {"y": 2 * given}


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    serving = Serving(tmp_path, doubled)
    yield serving
    serving.close()


def test_a_mistake_in_one_of_many_is_its_own(serving: Serving) -> None:
    with Client(serving.endpoint) as client:
        good, bad, other = client.submit_many("m", [{"x": np.zeros(1)}, {"x": object()}, {"x": np.ones(1)}])
        with pytest.raises(errors.InvalidInput, match="cannot be sent as a tensor"):
            bad.result(5)
        assert [future.result(5)["y"].tolist() for future in (good, other)] == [[0.0], [2.0]]


def test_each_of_a_chunk_is_told_of_its_own_rows(fake: FakePool, client: Client) -> None:
    taught(fake, client)
    futures = client.submit_many("m", [{"x": np.zeros(n, np.float32)} for n in (1, 2, 1)])
    chunk = fake.expect(Asked)
    fake.answer(chunk.job, {"y": np.zeros(4)}, timeline=replace(TIMELINE, rows=4, batch_rows=4))
    for future in futures:
        future.result(5)
    assert [future.timeline.rows for future in futures if future.timeline] == [1, 2, 1]


def test_map_gives_each_its_answer_in_order(serving: Serving) -> None:
    with Client(serving.endpoint) as client:
        found = [answer["y"].tolist() for answer in client.map("m", rows(*range(500)), in_flight=64)]
    assert found == [[2.0 * n] for n in range(500)]


def test_map_gathers_what_comes_while_a_chunk_is_out(fake: FakePool, client: Client) -> None:
    taught(fake, client)
    found: list[float] = []
    mapping = threading.Thread(
        target=lambda: found.extend(answer["y"][0] for answer in client.map("m", rows(*range(60)), in_flight=64))
    )
    mapping.start()
    submits = [(fake.expect(Asked), fake.payload) for _ in range(3)]
    assert [submit.weight for submit, _ in submits] == [1, 32, 27]
    for submit, payload in submits:
        fake.payload = payload
        fake.answer(submit.job, {"y": 2 * fake.inputs(submit)["x"]})
    while len(found) < 33 or mapping.is_alive():
        last = fake.next(0.1)
        if isinstance(last, Asked):
            fake.answer(last.job, {"y": 2 * fake.inputs(last)["x"]})
    assert found == [2.0 * n for n in range(60)]


def test_map_takes_inputs_of_any_form_one_after_the_other(serving: Serving) -> None:
    given = [np.zeros(n % 3 + 1, (np.float32, np.float64)[n % 2]) + n for n in range(60)]
    with Client(serving.endpoint) as client:
        for array, answer in zip(given, client.map("m", ({"x": each} for each in given)), strict=True):
            assert answer["y"].tolist() == (2 * array).tolist()


def test_map_copies_what_it_has_read(serving: Serving) -> None:
    array = np.zeros(1, np.float32)

    def reused() -> Iterator[dict[str, Any]]:
        for n in range(200):
            array[:] = n
            yield {"x": array}

    with Client(serving.endpoint) as client:
        assert [answer["y"][0] for answer in client.map("m", reused())] == [2.0 * n for n in range(200)]


def test_an_input_that_comes_slowly_waits_for_no_company(serving: Serving) -> None:
    """The reader of the results sees each before the next input is there."""
    seen: list[float] = []

    def slowly() -> Iterator[dict[str, Any]]:
        for n in range(5):
            assert len(seen) == n
            yield {"x": np.array([n], np.float32)}

    with Client(serving.endpoint) as client:
        for answer in client.map("m", slowly(), in_flight=1):
            seen.append(answer["y"][0])  # noqa: PERF401  # the generator looks at it meanwhile
    assert seen == [0, 2, 4, 6, 8]


@pytest.mark.parametrize("way", ["closed", "dropped"])
def test_map_sends_the_first_when_it_is_called_and_takes_them_back(fake: FakePool, client: Client, way: str) -> None:
    """Nobody has asked for a result."""
    taught(fake, client)
    results = client.map("m", iter(rows(1, 2, 3, 4)), in_flight=3)
    sent = [fake.expect(Asked).job for _ in range(3)]
    fake.nothing_of(Asked)
    if way == "closed":
        results.close()  # type: ignore[attr-defined]  # a generator
    del results
    assert sorted(fake.expect(wire.Cancel).job for _ in sent) == sorted(sent)
    fake.nothing_of(Asked)


@pytest.mark.parametrize("named", [True, False])
def test_map_of_inputs_of_many_heights_gives_each_its_own_rows(serving: Serving, named: bool) -> None:
    arrays = [np.arange(n, n + n % 3 + 1, dtype=np.float32) for n in range(90)]
    with Client(serving.endpoint) as client:
        given = ({"x": each} for each in arrays) if named else iter(arrays)
        found = [answer["y"].tolist() for answer in client.map("m", given, in_flight=16)]
    assert found == [(2 * each).tolist() for each in arrays]


def test_what_map_cannot_send_is_raised_in_its_turn(serving: Serving) -> None:
    one, asked = np.ones(1, np.float32), []

    def given() -> Iterator[Any]:
        for item in (one, 2 * one, object(), one, one):
            asked.append(item)
            yield item

    with Client(serving.endpoint) as client:
        results = client.map("m", given())
        found = [next(results)["y"].tolist() for _ in range(2)]
        with pytest.raises(errors.InvalidInput, match="cannot be sent as a tensor"):
            next(results)
    assert found == [[2.0], [4.0]]
    assert len(asked) == 3, "it goes on no further"


def test_map_of_what_has_rows_and_what_has_none(serving: Serving) -> None:
    given = [np.ones(1), 2 * np.ones(1), np.array(3.0), np.zeros(0), 4 * np.ones((1, 1)), np.asfortranarray([5.0])]
    with Client(serving.endpoint) as client:
        found = [answer["y"].tolist() for answer in client.map("m", given)]
        serving._serve = lambda _, inputs: {"y": inputs["x"]}
        pairs = [{"x": np.zeros(height), "z": np.zeros(3 - height)} for height in (1, 2, 0, 3)]
        heights = [len(answer["y"]) for answer in client.map("m", pairs)]
    assert found == [[2.0], [4.0], 6.0, [], [[8.0]], [10.0]]
    assert heights == [1, 2, 0, 3]


@pytest.mark.parametrize("way", ["map", "stretch", "submit_many", "submit", "strings"])
def test_a_chunk_is_no_larger_than_the_pool_takes(serving: Serving, way: str) -> None:
    """It lends 1 MiB here. Each of them has room, and so has to have an answer."""
    serving._serve = lambda _, inputs: {"y": np.zeros(len(next(iter(inputs.values()))))}
    given = np.zeros((400, 1, 10_000), np.uint8)
    with Client(serving.endpoint) as client:
        for _ in range(2):
            if way == "map":
                found = list(client.map("m", iter(given), in_flight=1000))
            elif way == "stretch":
                found = list(client.map("m", given, in_flight=1000))
            elif way == "strings":
                found = list(client.map("m", [["x" * 10_000]] * 400, in_flight=1000))
            elif way == "submit_many":
                found = [each.result(10) for each in client.submit_many("m", list(given), block=True)]
            else:
                found = [each.result(10) for each in [client.submit("m", item, block=True) for item in given]]
            assert len(found) == 400


def test_a_bare_array_and_a_named_one_are_no_company(serving: Serving) -> None:
    one = np.ones(1, np.float32)
    with Client(serving.endpoint) as client:
        found = list(client.map("m", [one, {"x": 2 * one}, 3 * one, 4 * one.astype(">f4"), one.astype(np.int8)]))
    assert [answer["y"].tolist() for answer in found] == [[2.0], [4.0], [6.0], [8.0], [2.0]]


# --- answers that are not as they should be -----------------------------------------------------------------------


@pytest.mark.parametrize("way", ["submit_many", "map", "stretch"])
def test_one_alone_has_its_whole_answer_whatever_rows_that_has(serving: Serving, way: str) -> None:
    """It is a job like any other: only the rows of several are cut."""
    serving._serve = lambda *_: {"sum": np.float64(3), "y": np.zeros(5)}
    one = np.ones((1, 2), np.float32)
    with Client(serving.endpoint) as client:
        if way == "submit_many":
            found = [future.result(5) for future in client.submit_many("m", [one])]
        else:
            found = list(client.map("m", iter([one]) if way == "map" else one[None]))
    assert [(answer["sum"].tolist(), len(answer["y"])) for answer in found] == [(3.0, 5)]


@pytest.mark.parametrize("answer", [np.float64(3), np.zeros(2), np.zeros(4)])
def test_an_answer_without_the_rows_of_all_is_nobodys(fake: FakePool, client: Client, answer: Any) -> None:
    """And the client goes on."""
    taught(fake, client)
    futures = client.submit_many("m", rows(1, 2, 3))
    fake.answer(fake.expect(Asked).job, {"y": np.zeros(3), "z": answer})
    for future in futures:
        with pytest.raises(errors.Incompatible, match="output 'z' does not have the 3 rows of the 3 jobs"):
            future.result(5)
    last = client.submit("m", 1.0)
    fake.answer(fake.expect(Asked).job, {"y": np.zeros(1)})
    assert last.result(5)


def test_more_jobs_than_a_message_can_tell_of_come_singly(
    fake: FakePool, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    taught(fake, client)
    monkeypatch.setattr("pool.client.dispatch.MOST_WEIGHT", 2)
    futures = client.submit_many("m", [{"x": np.array([value], np.float32)} for value in range(3)])
    for value in range(3):
        submit = fake.expect(Asked)
        assert (submit.weight, fake.inputs(submit)["x"].tolist()) == (1, [value])
        fake.answer(submit.job, {"y": fake.inputs(submit)["x"]})
    assert [future.result(5)["y"].tolist() for future in futures] == [[0], [1], [2]]


class Fails(JobFuture):
    """What nobody has thought of."""

    def finish(self, *_: object) -> None:
        raise RuntimeError("of the client itself")


def test_whatever_the_clients_thread_fails_over_ends_those_whose_answer_it_was_too(
    fake: FakePool, client: Client
) -> None:
    taught(fake, client)
    futures = [JobFuture(), Fails(), JobFuture()]
    height, payload = encode_call("m", {"x": np.zeros(3, np.float32)})
    client._connected().submit_chunk(Request("m"), height, payload, time.monotonic(), Futures(futures, (1, 1, 1)))
    fake.answer(fake.expect(Asked).job, {"y": np.zeros(3)})
    assert futures[0].result(5)
    with pytest.raises(errors.Incompatible, match="the answer cannot be used: RuntimeError: of the client itself"):
        futures[2].result(5)


def test_a_chunk_whose_members_are_all_cancelled_as_it_leaves_goes_as_it_is() -> None:
    """Their withdrawal is on its way; a moment before, one was still waited for."""
    company, outbox = Company(known()), deque(job(np.array([float(n)], np.float32)) for n in range(2))
    futures = [each.future for each in outbox]
    chunk = company.next(outbox)
    assert chunk is not None
    assert not chunk.future.is_cancelled
    for future in futures:
        assert isinstance(future, JobFuture)
        future.cancel()
    before = chunk.payload, chunk.weight, chunk.size_bytes
    narrow(chunk)
    assert (chunk.payload, chunk.weight, chunk.size_bytes) == before
