"""What lies in a segment is fed from there or copied first, answers are written there, and no batch spoils another."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from pool.wire.calls import ROWS, Table, TensorHeader
from pool.wire.codec import BadFrame, pack
from pool.wire.faults import Fault
from pool.wire.lent import LENT_BYTES, NO_SPACE, AnswerSpace, Lent
from pool.wire.segment import Grant, attach, create, send_grant
from pool.wire.tensors import Array
from pool.wire.worker_messages import Failed, Run
from support.encoded import encode_tensor
from support.outcomes import PartDone, outcomes_of
from support.segment_worker import MIB, NUMBER, SEGMENT, WIDTH, Model, Worker
from unit.batch_runs import served
from workers import shared_memory as workers_memory
from workers.memory import KEPT_BYTES, REST_S, BatchMemory
from workers.runner import Runner


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.ours.close()
    worker.theirs.close()


def rows_of(count: int, value: float, dtype: str = "float32") -> Array:
    return np.full((count, WIDTH), value, dtype)


def same(array: Array) -> Array:
    return array


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "uint8", "int8", "complex64"])
def test_a_lone_part_of_numbers_that_are_only_computed_with_is_fed_where_it_lies(worker: Worker, dtype: str) -> None:
    model = Model(lambda x: x + x, dtype)
    finished = worker.run(model, [2], [worker.put(4096, rows_of(2, 3, dtype))], dtype=dtype)
    assert np.shares_memory(model.fed[0], worker.mapped)
    assert model.fed[0].ctypes.data % 64 == 0
    (answer,) = worker.answers(finished)
    np.testing.assert_array_equal(answer, rows_of(2, 6, dtype))
    assert worker.memory[4096 : 4096 + 8] == rows_of(1, 3, dtype).tobytes()[:8], "nothing was written there"


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint16", "bool"])
def test_what_may_be_an_index_or_must_be_checked_is_copied_first(worker: Worker, dtype: str) -> None:
    model = Model(same, dtype)
    lent = worker.put(4096, rows_of(2, 1, dtype))

    def change(x: Array) -> Array:
        worker.memory[4096 : 4096 + len(x.tobytes())] = b"\xff" * x.nbytes
        return x

    model._function = change
    (answer,) = worker.answers(worker.run(model, [2], [lent], dtype=dtype))
    assert not np.shares_memory(model.fed[0], worker.mapped)
    np.testing.assert_array_equal(answer, rows_of(2, 1, dtype))


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_a_model_that_does_not_bear_change_is_fed_a_copy(worker: Worker, dtype: str) -> None:
    def change(x: Array) -> Array:
        worker.put(4096, rows_of(2, 9, dtype))
        return x

    model = Model(change, dtype)
    model.bears = False
    (answer,) = worker.answers(worker.run(model, [2], [worker.put(4096, rows_of(2, 3, dtype))], dtype=dtype))
    assert not np.shares_memory(model.fed[0], worker.mapped)
    np.testing.assert_array_equal(answer, rows_of(2, 3, dtype))


def test_strings_are_copied_before_they_are_read(worker: Worker) -> None:
    array = np.array([b"a\0", b"x" * LENT_BYTES, b""], object)
    _, octets = encode_tensor("x", array)
    worker.memory[128 : 128 + len(octets)] = octets
    table = pack(Table((TensorHeader("x", "string", (ROWS,), False),)))
    message = Run(1, "m", None, None, (3,), 3, True, (Lent(0, NUMBER, 128, len(octets)),), ())
    finished = Runner(served(Model(same, "string")), worker.shared_memory).run(message, [table, b""], worker.lane)
    assert worker.answers(finished)[0].tolist() == array.tolist()


def test_parts_are_joined_from_where_they_lie(worker: Worker) -> None:
    model = Model(lambda x: x * 2)
    lent = [worker.put(MIB * number, rows_of(number, number)) for number in (1, 2, 3)]
    answers = worker.answers(worker.run(model, [1, 2, 3], lent))
    assert [np.unique(answer).tolist() for answer in answers] == [[2], [4], [6]]
    assert not np.shares_memory(model.fed[0], worker.mapped)


def beside(worker: Worker, rows: Sequence[int], begin: int = MIB, dtype: str = "float32") -> list[Lent]:
    """Parts one behind the other, to the byte; those of the first are 1, of the second 2 …"""
    lent = []
    for number, count in enumerate(rows, 1):
        lent.append(worker.put(begin, rows_of(count, number, dtype)))
        begin += lent[-1].size_bytes
    return lent


@pytest.mark.parametrize("dtype", ["float32", "uint8", "float64"])
@pytest.mark.parametrize("function", [same, lambda x: x * 2, lambda x: x.reshape(len(x), 2, -1)])
def test_parts_side_by_side_are_one_view_of_theirs_and_nothing_else(
    worker: Worker, function: Callable[[Array], Array], dtype: str
) -> None:
    worker.memory[:] = b"\x7f" * SEGMENT
    model = Model(function, dtype)
    lent = beside(worker, (1, 2, 1), dtype=dtype)
    before = bytes(worker.memory)
    finished = worker.run(model, [1, 2, 1], lent, dtype=dtype)
    assert model.fed[0].ctypes.data - worker.mapped.ctypes.data == MIB
    assert model.fed[0].nbytes == sum(each.size_bytes for each in lent)
    assert bytes(worker.memory) == before
    worker.memory[:] = bytes(SEGMENT)  # the client uses all of it for something else, before the answers are sent
    factor = 2 if model.fed[0].dtype and function(np.ones((1, 2), dtype)).max() == 2 else 1
    assert [np.unique(answer).tolist() for answer in worker.answers(finished)] == [[factor], [2 * factor], [3 * factor]]


@pytest.mark.parametrize(
    ("order", "pieces"), [((0, 1, 2, 3), 1), ((1, 2, 3), 1), ((1, 0, 2, 3), 3), ((2, 3, 0, 1), 2), ((0, 2, 3), 2)]
)
def test_what_does_not_adjoin_is_joined_and_each_gets_its_own(
    worker: Worker, order: Sequence[int], pieces: int
) -> None:
    model = Model(lambda x: x * 2)
    lent = beside(worker, (1, 1, 1, 1))
    answers = worker.answers(worker.run(model, [1] * len(order), [lent[number] for number in order]))
    assert np.shares_memory(model.fed[0], worker.mapped) == (pieces == 1)
    assert [np.unique(answer).tolist() for answer in answers] == [[2.0 * (number + 1)] for number in order]


def test_a_part_that_is_given_twice_is_two_parts(worker: Worker) -> None:
    model = Model(same)
    one, other = beside(worker, (1, 1))
    answers = worker.answers(worker.run(model, [1] * 3, [one, one, other]))
    assert [np.unique(answer).tolist() for answer in answers] == [[1], [1], [2]]


@pytest.mark.parametrize("begin", [MIB + 4, MIB + 1, MIB + 32])
@pytest.mark.parametrize("parts", [1, 3])
def test_from_where_tensorflow_does_not_take_it_the_lane_makes_the_one_copy(
    worker: Worker, begin: int, parts: int
) -> None:
    model = Model(same)
    finished = worker.run(model, [1] * parts, beside(worker, [1] * parts, begin))
    assert not np.shares_memory(model.fed[0], worker.mapped)
    assert model.fed[0].ctypes.data % 64 == 0
    assert model.fed[0].flags.aligned
    assert [np.unique(answer).tolist() for answer in worker.answers(finished)] == [[n + 1] for n in range(parts)]


def test_offsets_that_adjoin_in_two_segments_do_not(worker: Worker) -> None:
    fd = create(SEGMENT)
    send_grant(worker.ours, Grant(8, SEGMENT), fd)
    assert worker.shared_memory.receive(worker.theirs)
    one, other = beside(worker, (1, 1))
    memory = memoryview(attach(fd, SEGMENT))
    memory[other.offset : other.offset + other.size_bytes] = rows_of(1, 9).tobytes()
    os.close(fd)
    model = Model(same)
    answers = worker.answers(worker.run(model, [1, 1], [one, Lent(0, 8, other.offset, other.size_bytes)]))
    assert [np.unique(answer).tolist() for answer in answers] == [[1], [9]]


def test_a_part_that_was_sent_keeps_its_place_between_those_that_lie_side_by_side(worker: Worker) -> None:
    one, other = beside(worker, (1, 1))
    lent = (one, Lent(2, NUMBER, other.offset, other.size_bytes))
    table = pack(Table((TensorHeader("x", "float32", (ROWS, WIDTH), False),)))
    message = Run(1, "m", None, None, (1, 1, 1), 3, True, lent, ())
    model = Model(same)
    frames = [table, b"", rows_of(1, 7).tobytes(), b""]
    finished = Runner(served(model), worker.shared_memory).run(message, frames, worker.lane)
    assert [np.unique(answer).tolist() for answer in worker.answers(finished)] == [[1], [7], [2]]


@pytest.mark.parametrize("bears", [True, False])
def test_a_job_without_rows_is_fed_as_a_lone_part_is(worker: Worker, bears: bool) -> None:
    model = Model(same)
    model.bears = bears
    lent = worker.put(MIB, rows_of(2, 5))
    table = pack(Table((TensorHeader("x", "float32", (2, WIDTH), False),)))
    message = Run(1, "m", None, None, (), 0, False, (lent,), ())
    (answer,) = worker.answers(Runner(served(model), worker.shared_memory).run(message, [table, b""], worker.lane))
    assert np.shares_memory(model.fed[0], worker.mapped) == bears
    np.testing.assert_array_equal(answer, rows_of(2, 5))


def test_padding_is_not_taken_from_whoever_lies_behind(worker: Worker) -> None:
    model = Model(same)
    lent = beside(worker, (1, 1, 1, 1, 1))
    for parts, pad_to in ((3, 4), (1, 4), (4, 4)):
        answers = worker.answers(worker.run(model, [1] * parts, lent[:parts], pad_to=pad_to))
        fed = model.fed[-1]
        assert np.shares_memory(fed, worker.mapped) == (parts == pad_to)
        assert fed[:, 0].tolist() == [*range(1, parts + 1), *[1] * (pad_to - parts)]
        assert [np.unique(answer).tolist() for answer in answers] == [[n + 1] for n in range(parts)]


def test_a_neighbour_that_cannot_be_read_is_not_fed(worker: Worker) -> None:
    model = Model(same)
    lent = beside(worker, (1, 1, 1))
    short = Lent(0, NUMBER, lent[1].offset, lent[1].size_bytes - 4)
    finished = worker.run(model, [1, 1, 1], [lent[0], short, lent[2]], pad_to=1)
    assert [type(outcome) for outcome in outcomes_of(finished)] == [PartDone, Failed, PartDone]
    assert not np.shares_memory(model.fed[0], worker.mapped)
    assert model.fed[0][:, 0].tolist() == [1, 3]
    last = Lent(0, NUMBER, lent[2].offset, 8)
    for pad_to in (1, 3):
        worker.run(model, [1, 1, 1], [*lent[:2], last], pad_to=pad_to)
        assert np.shares_memory(model.fed[-1], worker.mapped) == (pad_to == 1), "those that are left lie side by side"
        assert model.fed[-1][:, 0].tolist() == [1, 2, 1][: max(2, pad_to)]


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_what_may_not_change_is_copied_once_and_together(worker: Worker, dtype: str) -> None:
    def change(x: Array) -> Array:
        worker.memory[MIB : 2 * MIB] = b"\xff" * MIB
        return x

    model = Model(change, dtype)
    model.bears = dtype == "int32"
    lent = beside(worker, (1, 1, 1), dtype=dtype)
    answers = worker.answers(worker.run(model, [1, 1, 1], lent, dtype=dtype))
    assert not np.shares_memory(model.fed[0], worker.mapped)
    assert worker.lane._used_bytes == 3 * lent[0].size_bytes, "a second copy of each would be twice that"
    assert [np.unique(answer).tolist() for answer in answers] == [[1], [2], [3]]


@pytest.mark.parametrize("function", [same, lambda x: x[:, ::2], lambda x: x.reshape(len(x), 2, -1)])
def test_views_of_a_batch_are_not_changed_by_the_next(worker: Worker, function: Callable[[Array], Array]) -> None:
    lent = [worker.put(MIB, rows_of(1, 1)), worker.put(2 * MIB, rows_of(1, 2))]
    others = [worker.put(3 * MIB, rows_of(1, 8)), worker.put(4 * MIB, rows_of(1, 9))]
    for _ in range(2):  # the second time, the lane has memory of its own
        first = worker.run(Model(function), [1, 1], lent)
        second = worker.run(Model(function), [1, 1], others)
        assert [np.unique(answer).tolist() for answer in worker.answers(first)] == [[1], [2]]
        assert [np.unique(answer).tolist() for answer in worker.answers(second)] == [[8], [9]]


def test_an_answer_that_is_its_input_outlives_it(worker: Worker) -> None:
    finished = worker.run(Model(same), [2], [worker.put(MIB, rows_of(2, 5))])
    worker.put(MIB, rows_of(2, 6))  # its client uses that for something else
    assert np.unique(worker.answers(finished)[0]).tolist() == [5]


def test_answers_are_written_into_their_spaces_and_nowhere_else(worker: Worker) -> None:
    worker.memory[:] = b"\xee" * SEGMENT
    lent = [worker.put(MIB, rows_of(1, 1)), worker.put(2 * MIB, rows_of(2, 2)), worker.put(3 * MIB, rows_of(1, 3))]
    spaces = [AnswerSpace(NUMBER, 4 * MIB, LENT_BYTES), NO_SPACE, AnswerSpace(NUMBER, 5 * MIB, LENT_BYTES - 64)]
    finished = worker.run(Model(lambda x: x * 2), [1, 2, 1], lent, spaces)
    answers = worker.answers(finished)
    assert [np.unique(answer).tolist() for answer in answers] == [[2], [4], [6]]
    where = [np.shares_memory(answer, np.frombuffer(worker.memory, np.uint8)) for answer in answers]
    assert where == [True, False, False], "where there was room for it"
    assert np.unique(worker.array(MIB, WIDTH)).tolist() == [1]
    assert bytes(worker.memory[4 * MIB + LENT_BYTES : 5 * MIB + LENT_BYTES]) == b"\xee" * MIB


@pytest.mark.parametrize("lent", [Lent(0, NUMBER, SEGMENT - 64, LENT_BYTES), Lent(0, NUMBER, -64, LENT_BYTES)])
def test_what_is_not_in_the_segment_fails_alone(worker: Worker, lent: Lent) -> None:
    good = worker.put(MIB, rows_of(1, 1))
    done, failed = outcomes_of(worker.run(Model(same), [1, 1], [good, lent]))
    assert isinstance(done, PartDone)
    assert isinstance(failed, Failed)
    assert failed.fault is Fault.INVALID_INPUT
    assert f"of a segment of {SEGMENT}" in failed.text


def test_a_segment_may_come_after_the_batch_that_names_it_and_ends(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fd = create(MIB)
    timer = threading.Timer(0.05, lambda: send_grant(worker.ours, Grant(8, MIB), fd))
    receiver = threading.Thread(target=worker.shared_memory.receive, args=(worker.theirs,))
    receiver.start()
    timer.start()
    assert len(worker.shared_memory.memory(8, 0, MIB)) == MIB
    receiver.join()
    timer.join()
    os.close(fd)
    send_grant(worker.ours, Grant(8, 0), None)
    assert worker.shared_memory.receive(worker.theirs)
    monkeypatch.setattr(workers_memory, "WAIT_S", 0.05)
    with pytest.raises(BadFrame, match="segment 8 was not handed to this worker"):
        worker.shared_memory.memory(8, 0, 1)
    worker.ours.close()
    assert not worker.shared_memory.receive(worker.theirs)


# --- the memory of a lane -----------------------------------------------------------------------------------------


def batch(memory: BatchMemory, *sizes: int) -> list[Any]:
    memory.begin()
    return [memory.take(size, np.dtype(np.uint8)) for size in sizes]


def test_batches_are_joined_in_the_same_place() -> None:
    memory = BatchMemory()
    batch(memory, 100, MIB)
    first = [array.ctypes.data for array in batch(memory, 100, MIB)]
    second = [array.ctypes.data for array in batch(memory, 100, MIB)]
    assert first == second
    assert all(address % 64 == 0 for address in first)
    one, other, rest = batch(memory, 1000, 1000, 2 * MIB)
    assert not np.shares_memory(one, other)
    assert not np.shares_memory(one, rest)
    assert len(rest) == 2 * MIB, "which did not fit"


def test_what_is_kept_is_bounded_and_given_back() -> None:
    memory = BatchMemory()
    batch(memory, KEPT_BYTES, MIB)
    batch(memory, 10)
    assert memory.size_bytes == KEPT_BYTES
    memory.trim(100.0)
    memory.trim(100.0 + REST_S / 2)
    assert memory.size_bytes == KEPT_BYTES, "it was used since"
    for _ in range(3):
        batch(memory, MIB)
    memory.trim(100.0 + REST_S)
    assert memory.size_bytes == MIB
    memory.trim(100.0 + 2 * REST_S)
    assert memory.size_bytes == 0
