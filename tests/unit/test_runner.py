"""Batch runs of a model in this process: who fails, who is done, and whose rows they get."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pool.wire.calls import ROWS, Table, TensorHeader
from pool.wire.codec import pack
from pool.wire.faults import Fault
from pool.wire.independence import Judgement, RowsJudged
from pool.wire.packing import unpack_answer
from pool.wire.signatures import PLACEMENT, REPORT, Refused, TensorSpec
from pool.wire.tensors import Array
from pool.wire.worker_messages import (
    Failed,
    ModelSettings,
    RowsChanged,
    Run,
    Spoiled,
)
from support.outcomes import PartDone, outcomes_of
from unit.batch_runs import Answer, Function, Model, X, answers, doubling, floats, frames_of, run, served, values
from workers.backend import ProcessUnusable
from workers.independence.known import Known
from workers.independence.samples import Sampler
from workers.memory import BatchMemory
from workers.runner import Runner
from workers.shared_memory import SharedMemory

ONE, TWO, THREE = {"x": floats([1, 2])}, {"x": floats([3, 4], [5, 6])}, {"x": floats([7, 8])}


def test_each_part_gets_its_own_rows_of_one_run() -> None:
    model = doubling()
    assert values(run(model, ONE, TWO, THREE)) == [[[2, 4]], [[6, 8], [10, 12]], [[14, 16]]]
    (fed,) = model.fed
    assert fed["x"].tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]


def test_padding_repeats_the_first_row_and_is_stripped() -> None:
    model = doubling()
    assert values(run(model, ONE, TWO, pad_to=5)) == [[[2, 4]], [[6, 8], [10, 12]]]
    assert model.fed[0]["x"].tolist() == [[1, 2], [3, 4], [5, 6], [1, 2], [1, 2]]
    assert values(run(model, TWO, pad_to=3)) == [[[6, 8], [10, 12]]]
    assert model.fed[1]["x"].tolist() == [[3, 4], [5, 6], [3, 4]]


def test_a_part_that_cannot_be_read_or_does_not_fit_fails_alone() -> None:
    def spoil(buffers: list[list[bytes]]) -> None:
        buffers[0][0] = buffers[0][0][:-1]
        buffers[2][0] = b""

    model = doubling()
    first, second, third, fourth = run(model, ONE, TWO, THREE, ONE, pad_to=8, spoil=spoil)
    assert first == Failed(Fault.INVALID_INPUT, "the job cannot be read: 7 bytes for float32 [1, 2]")
    assert third == Failed(Fault.INVALID_INPUT, "the job cannot be read: 0 bytes for float32 [1, 2]")
    assert values([second, fourth]) == [[[6, 8], [10, 12]], [[2, 4]]]
    assert len(model.fed[0]["x"]) == 8


def test_a_part_with_the_bytes_of_more_rows_than_it_has_fails_alone() -> None:
    def spoil(buffers: list[list[bytes]]) -> None:
        buffers[0][0] = buffers[1][0]

    model = doubling()
    first, second = run(model, ONE, TWO, spoil=spoil)
    assert first == Failed(Fault.INVALID_INPUT, "the job cannot be read: 16 bytes for float32 [1, 2]")
    assert values([second]) == [[[6, 8], [10, 12]]]


def test_values_are_refused_part_by_part() -> None:
    taken, refused = {"x": [[1, 2]]}, {"x": [[1, 2**24 + 1]]}
    model = doubling()
    found = run(model, taken, refused, taken)
    assert values([found[0], found[2]]) == [[[2, 4]], [[2, 4]]]
    assert found[1] == Failed(
        Fault.INVALID_INPUT,
        "model m, signature s, input 'x': expected float32 [?, 2], got int64 [1, 2], which cannot be cast without loss",
    )
    assert model.fed[0]["x"].dtype == np.float32


def test_a_shape_that_fits_nobody_fails_each_with_its_own_rows() -> None:
    model = doubling()
    found = run(model, {"x": np.zeros((1, 3), np.float32)}, {"x": np.zeros((4, 3), np.float32)})
    said = "model m, signature s, input 'x': expected float32 [?, 2], got float32"
    assert found == [Failed(Fault.INVALID_INPUT, f"{said} [{rows}, 3]") for rows in (1, 4)]
    assert not model.fed


def test_strings_and_bools_and_small_dtypes() -> None:
    inputs = {"s": TensorSpec("string", (-1,)), "b": TensorSpec("bool", (-1,)), "h": TensorSpec("bfloat16", (-1, 1))}
    model = Model(dict, inputs, inputs)
    one = {"s": [b"a\0"], "b": np.array([True]), "h": np.array([[1.5]], ml_dtypes.bfloat16)}
    two = {"s": [b"", b"xyz"], "b": np.array([False, True]), "h": np.array([[2.5], [-1]], ml_dtypes.bfloat16)}
    for found, part in zip(run(model, one, two, one, pad_to=8), (one, two, one), strict=True):
        assert isinstance(found, dict)
        assert {name: array.tolist() for name, array in found.items()} == {
            name: np.asarray(value).tolist() if name != "s" else value for name, value in part.items()
        }


def test_a_bool_of_another_byte_fails_alone() -> None:
    inputs = {"b": TensorSpec("bool", (-1,))}

    def spoil(buffers: list[list[bytes]]) -> None:
        buffers[1][0] = b"\2"

    good, bad = run(Model(dict, inputs, inputs), {"b": np.array([True])}, {"b": np.array([True])}, spoil=spoil)
    assert isinstance(good, dict)
    assert isinstance(bad, Failed)
    assert "neither 0 nor 1" in bad.text


def raising(error: Exception) -> Function:
    def function(_: Mapping[str, Array]) -> Any:
        raise error

    return function


def test_a_run_that_fails_spoils_the_joined_and_fails_the_lone() -> None:
    model = Model(raising(Refused("no", Fault.MODEL_FAILED)))
    assert run(model, ONE, TWO) == [Spoiled(Fault.MODEL_FAILED, "no")] * 2
    assert run(model, ONE, pad_to=4) == [Failed(Fault.MODEL_FAILED, "no")]
    assert run(model, ONE, by_rows=False) == [Failed(Fault.MODEL_FAILED, "no")]

    def spoil(buffers: list[list[bytes]]) -> None:
        buffers[1][0] = b""

    left, unread = run(model, ONE, TWO, spoil=spoil)
    assert left == Failed(Fault.MODEL_FAILED, "no"), "the only one that ran"
    assert isinstance(unread, Failed)


def test_memory_and_our_own_faults_are_told_apart() -> None:
    assert run(Model(raising(MemoryError("none"))), ONE) == [Failed(Fault.OUT_OF_MEMORY, "in the worker: none")]
    (found,) = run(Model(raising(KeyError("k\ud800" * 3000))), ONE)
    assert isinstance(found, Failed)
    assert found.fault is Fault.MODEL_FAILED
    assert found.text.startswith("in the worker: KeyError: 'k")
    assert len(found.text.encode()) < 9000


def test_a_broken_process_answers_nobody() -> None:
    with pytest.raises(ProcessUnusable):
        run(Model(raising(ProcessUnusable("gone"))), ONE, TWO)


@pytest.mark.parametrize(("pad_to", "fed"), [(0, 3), (8, 8)])
def test_other_rows_than_were_fed_are_nobodys(pad_to: int, fed: int) -> None:
    model = Model(lambda feeds: {"y": feeds["x"][:1]})
    text = f"model m, signature s: output 'y' came back with 1 rows where {fed} were fed"
    assert run(model, ONE, TWO, pad_to=pad_to) == [RowsChanged(text)] * 2


def test_a_job_that_is_whole_may_get_any_rows() -> None:
    model = Model(lambda feeds: {"y": feeds["x"].sum(0)})
    assert values(run(model, TWO, by_rows=False)) == [[8, 10]]
    headers, buffers = frames_of(TWO, by_rows=False)
    whole = [pack(Table(tuple(headers))), *buffers]
    assert values(answers(model, Run(1, "m", "s", ("y", "y"), (), 0, False), whole)) == [[8, 10]]


def test_one_part_is_fed_from_where_it_arrived() -> None:
    model = Model(dict, X, X)
    headers, buffers = frames_of(TWO)
    Runner(served(model), SharedMemory()).run(
        Run(1, "m", None, None, (2,), 2, True), [pack(Table(tuple(headers))), *buffers], BatchMemory()
    )
    assert np.shares_memory(model.fed[0]["x"], np.frombuffer(buffers[0], np.uint8))


def test_answers_that_are_views_of_the_batch_survive_the_next_batch() -> None:
    runner = Runner(served(Model(dict, X, X)), SharedMemory())
    headers, _ = frames_of(ONE)
    table = pack(Table(tuple(headers)))
    wide = {"x": np.ones((2000, 2), np.float32)}
    other = {"x": np.full((2000, 2), 7, np.float32)}
    message = Run(1, "m", None, None, (2000, 2000), 4000, True)
    first = runner.run(message, [table, *frames_of(wide)[1], *frames_of(other)[1]], BatchMemory())
    runner.run(message, [table, *frames_of(other)[1], *frames_of(wide)[1]], BatchMemory())
    sizes = [outcome.frames for outcome in outcomes_of(first) if isinstance(outcome, PartDone)]
    frames = iter(first.payload)
    found = [unpack_answer([next(frames) for _ in range(size)])["x"] for size in sizes]
    assert [np.unique(array).tolist() for array in found] == [[1], [7]]


def test_a_signature_without_inputs_is_run_without() -> None:
    model = Model(lambda _: {"y": np.array(3)}, {}, {"y": TensorSpec("int64", ())})
    assert values(answers(model, Run(1, "m", None, None, (), 0, False), [pack(Table(()))])) == [3]


def test_what_becomes_known_of_rows_counts_from_the_next_batch_on(tmp_path: Path) -> None:
    known = Known([ModelSettings("m", "stub:m", True, batch_sizes=(8,), cache=str(tmp_path / "cache"))])
    known.load("m", "files")
    runner, sampler = Runner(served(doubling()), SharedMemory()), Sampler(known)
    headers, buffers = frames_of(TWO)

    def sampled(by_rows: bool) -> bool:
        message = Run(1, "m", None, None, (2,), 2, by_rows)
        return runner.run(message, [pack(Table(tuple(headers))), *buffers], BatchMemory(), sampler).sample is not None

    assert (sampled(False), sampled(True)) == (True, False), "who ran alone shows it, for nothing is known"
    known.judge(RowsJudged("m", "files", "s", ("y",), Judgement.PROVEN))
    assert (sampled(False), sampled(True)) == (False, True), "who ran joined shows whether it holds"
    known.judge(RowsJudged("m", "files", "s", ("y",), Judgement.DEPENDENT))
    assert (sampled(False), sampled(True)) == (False, False)


def test_each_lane_has_a_share_of_its_own_for_comparing(tmp_path: Path) -> None:
    proven = RowsJudged("m", "files", "s", ("y",), Judgement.PROVEN)
    known = Known([ModelSettings("m", "stub:m", True, batch_sizes=(8,), cache=str(tmp_path / "cache"))], [proven])
    known.load("m", "files")
    runner, samplers = Runner(served(doubling()), SharedMemory()), (Sampler(known), Sampler(known))
    headers, buffers = frames_of(TWO)
    message = Run(1, "m", None, None, (2,), 2, True)
    kept = []
    for sampler in (*samplers, samplers[0]):
        finished = runner.run(message, [pack(Table(tuple(headers))), *buffers], BatchMemory(), sampler)
        kept.append(finished.sample is not None)
        sampler.spent("m", 60.0)
    assert kept == [True, True, False]


# --- what only a hostile client sends -----------------------------------------------------------------------------

FLOAT_ROWS = TensorHeader("x", "float32", (ROWS, 2), False)


@pytest.mark.parametrize(
    ("tensors", "rows", "buffers", "complaint"),
    [
        ((), (2,), [], "2 rows of 0 tensors"),
        ((FLOAT_ROWS,), (0,), [b""], "0 rows of 1 tensors"),
        ((FLOAT_ROWS,), (-1,), [b""], "-1 rows of 1 tensors"),
        ((FLOAT_ROWS,), (2**62,), [bytes(8)], "8 bytes for float32"),
        ((TensorHeader("x", "float32", (1, 2), False),), (1,), [bytes(8)], "does not leave its rows to the message"),
        ((TensorHeader("x", "float32", (), False),), (1,), [bytes(8)], "does not leave its rows to the message"),
        ((TensorHeader("x", "float32", (ROWS, ROWS), False),), (1,), [bytes(8)], "no shape"),
        ((FLOAT_ROWS,), (), [bytes(8)], "no shape"),
        ((FLOAT_ROWS,), (1,), [bytes(8)] * 2, "2 buffers for 1 tensors"),
        ((FLOAT_ROWS,), (1,), [], "0 buffers for 1 tensors"),
    ],
)
def test_a_lie_about_rows_is_a_bad_frame(
    tensors: tuple[TensorHeader, ...], rows: tuple[int, ...], buffers: list[bytes], complaint: str
) -> None:
    message = Run(1, "m", None, None, rows, sum(rows), bool(rows))
    (found,) = answers(doubling(), message, [pack(Table(tensors)), *buffers])
    assert isinstance(found, Failed)
    assert found.fault is Fault.INVALID_INPUT
    assert complaint in found.text


def test_a_table_that_is_none_fails_each() -> None:
    found = answers(doubling(), Run(1, "m", None, None, (1, 1), 2, True), [b"\xc1", bytes(8), bytes(8)])
    assert [type(outcome) for outcome in found] == [Failed] * 2


def test_buffers_that_cannot_be_told_apart_spoil_all() -> None:
    message = Run(1, "m", None, None, (1, 1), 2, True)
    found = answers(doubling(), message, [pack(Table((FLOAT_ROWS,))), *[bytes(8)] * 3])
    assert found == [Spoiled(Fault.INVALID_INPUT, "the batch cannot be read: 3 buffers for 2 parts")] * 2


def test_an_enormous_table_is_refused_and_not_kept() -> None:
    table = pack(Table(tuple(TensorHeader(f"{number}", "float32", (ROWS,), False) for number in range(60_000))))
    found = answers(doubling(), Run(1, "m", None, None, (1,), 1, True), [table])
    assert isinstance(found[0], Failed)
    assert "a header of" in found[0].text


def placement(model: Model, *headers: TensorHeader, outputs: tuple[str, ...] | None = None) -> Answer:
    """Of a job that asks what ran where."""
    message = Run(1, "m", PLACEMENT, outputs, (), 0, False)
    (answer,) = answers(model, message, [pack(Table(headers)), *(b"\0" * 4 for _ in headers)])
    return answer


def test_what_ran_where_is_an_answer_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(lambda _: {})
    monkeypatch.setattr(model, "placement", lambda: {"devices": ["/cpu:0"]}, raising=False)
    answer = placement(model)
    assert isinstance(answer, dict)
    assert json.loads(answer[REPORT].item()) == {"devices": ["/cpu:0"]}
    assert isinstance(placement(model, outputs=(REPORT,)), dict)
    for refused in (placement(model, TensorHeader("x", "float32", (), False)), placement(model, outputs=("y",))):
        assert isinstance(refused, Failed)
        assert refused.fault is Fault.INVALID_INPUT
        assert "Model.placement takes nothing, and gives 'report' alone" in refused.text


def test_a_model_that_cannot_say_what_ran_where_fails_the_job_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> dict[str, Any]:
        raise Refused("no memory for a trace", Fault.OUT_OF_MEMORY)

    model = Model(lambda _: {})
    monkeypatch.setattr(model, "placement", fail, raising=False)
    assert placement(model) == Failed(Fault.OUT_OF_MEMORY, "no memory for a trace")
