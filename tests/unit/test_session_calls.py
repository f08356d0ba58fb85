"""Jobs of sessions as a worker reads them, from clients that send what they like."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from pool.wire import session_runs as wire
from pool.wire.calls import ROWS, Table, TensorHeader
from pool.wire.codec import pack
from pool.wire.faults import Fault
from pool.wire.packing import unpack_answer
from pool.wire.tensors import to_array
from pool.wire.worker_messages import Failed, ModelSettings, Run
from support.encoded import encode_tensor
from support.outcomes import PartDone, outcomes_of
from workers.memory import BatchMemory
from workers.runner import Runner
from workers.sessions import Sessions
from workers.shared_memory import SharedMemory
from workers.stub.backend import StubBackend

N = "add/n:0"
TOTAL = "add/total:0"


@pytest.fixture
def runner() -> Runner:
    def load(name: str) -> Any:
        return StubBackend().load(ModelSettings(name, f"stub:{name}", True))

    models = {name: load(name) for name in ("counter", "tally", "echo", "rows")}
    return Runner(models, SharedMemory(), Sessions(models, load))


def asked(runner: Runner, model: str, signature: str, outputs: tuple[str, ...] | None, feeds: Mapping[str, Any]) -> Any:
    headers, buffers = [], []
    for name, value in feeds.items():
        header, buffer = encode_tensor(name, *to_array(value))
        headers.append(header)
        buffers.append(bytes(buffer))
    return sent(runner, model, signature, outputs, headers, buffers)


def sent(
    runner: Runner,
    model: str,
    signature: str,
    outputs: tuple[str, ...] | None,
    headers: list[TensorHeader],
    buffers: list[bytes],
    rows: tuple[int, ...] = (),
) -> Any:
    run = Run(1, model, signature, outputs, rows, 0, False)
    finished = runner.run(run, [pack(Table(tuple(headers))), *buffers], BatchMemory())
    (outcome,) = outcomes_of(finished)
    if isinstance(outcome, Failed):
        return outcome
    assert isinstance(outcome, PartDone)
    return unpack_answer([bytes(frame) for frame in finished.payload])


def failed(answer: object, text: str, fault: Fault = Fault.INVALID_INPUT) -> None:
    assert isinstance(answer, Failed), answer
    assert answer.fault is fault
    assert text in answer.text


@pytest.mark.parametrize(
    ("fed", "why"),
    [
        (np.float32(1.0), r"Cannot feed value of shape () for Tensor double/x:0, which has shape (None,)"),
        (np.zeros((2, 3), np.float32), r"Cannot feed value of shape (2, 3) for Tensor double/x:0"),
        (np.array([b"text"], object), "ValueError: could not convert"),
    ],
)
def test_a_session_of_a_stub_refuses_what_its_tensors_do_not_take(
    runner: Runner, caplog: pytest.LogCaptureFixture, fed: Any, why: str
) -> None:
    """As TensorFlow does: it is the caller's fault, and nothing that the worker's log tells of."""
    failed(asked(runner, "rows", wire.RUN, ("double/y:0",), {"double/x:0": fed}), why)
    assert not caplog.records
    answer = asked(runner, "rows", wire.RUN, ("double/y:0",), {"double/x:0": np.ones(2, np.float32)})
    assert isinstance(answer, dict)
    assert answer["double/y:0"].tolist() == [2, 2]


def test_a_run_that_may_not_write_does_not(runner: Runner) -> None:
    answer = asked(runner, "counter", wire.RUN, (TOTAL,), {N: 5})
    assert isinstance(answer, dict)
    assert list(answer) == [wire.WRITES]
    answer = asked(runner, "counter", wire.WRITING_RUN, (TOTAL, TOTAL, "add"), {N: 1})
    assert answer == {TOTAL: np.array(1)}, "an operation has no value, and each name comes once"


def test_a_private_session_from_open_to_close(runner: Runner) -> None:
    opened = asked(runner, "counter", wire.OPEN, (), {})
    assert isinstance(opened, dict)
    session = {wire.SESSION: opened[wire.SESSION].item()}
    assert asked(runner, "counter", wire.PRIVATE_RUN, (TOTAL,), {N: 5, **session}) == {TOTAL: 5}
    assert asked(runner, "counter", wire.WRITING_RUN, (TOTAL,), {N: 1}) == {TOTAL: 1}
    assert asked(runner, "counter", wire.TOUCH, (), session) == {}
    failed(asked(runner, "tally", wire.TOUCH, (), session), "is lost", Fault.STATEFUL_WORKER_LOST)
    assert asked(runner, "counter", wire.CLOSE, (), session) == {}
    failed(asked(runner, "counter", wire.PRIVATE_RUN, (TOTAL,), {N: 5, **session}), "lost", Fault.STATEFUL_WORKER_LOST)
    assert asked(runner, "counter", wire.CLOSE, (), session) == {}, "a second time does no harm"


@pytest.mark.parametrize("signature", [wire.TOUCH, wire.CLOSE, wire.PRIVATE_RUN])
@pytest.mark.parametrize("named", [{}, {wire.SESSION: 5}, {wire.SESSION: [b"a", b"b"]}])
def test_which_session_must_be_said(runner: Runner, signature: str, named: Mapping[str, Any]) -> None:
    failed(asked(runner, "counter", signature, (), named), "it does not name its private session")


@pytest.mark.parametrize("level", [-1, 4, 1.5, [1], "1"])
def test_a_trace_level_that_is_none(runner: Runner, level: object) -> None:
    failed(asked(runner, "tally", wire.RUN, ("add",), {N: 1, wire.TRACE_LEVEL: level}), "a number from 0 to 3")


def test_what_is_no_tensor(runner: Runner) -> None:
    header = TensorHeader(N, "int64", (), False)
    short = sent(runner, "tally", wire.RUN, ("add",), [header], [b"1234"])
    failed(short, "cannot be read")
    failed(sent(runner, "tally", wire.RUN, ("add",), [header], []), "cannot be read")
    failed(sent(runner, "tally", wire.RUN, ("add",), [header, header], [bytes(8), bytes(8)]), "is fed twice")
    foreign = TensorHeader(N, "resource", (), False)
    failed(sent(runner, "tally", wire.RUN, ("add",), [foreign], [bytes(8)]), "cannot be read")
    negative = TensorHeader(N, "int64", (ROWS,), False)
    failed(sent(runner, "tally", wire.RUN, ("add",), [negative], [bytes(8)], rows=(1,)), "cannot be read")
    truth = TensorHeader("bool/x:0", "bool", (), False)
    failed(sent(runner, "echo", wire.RUN, ("bool/x:0",), [truth], [b"\x07"]), "neither 0 nor 1")


def test_nothing_asked_for_is_nothing(runner: Runner) -> None:
    assert asked(runner, "tally", wire.RUN, None, {N: 1}) == {}
    assert asked(runner, "tally", wire.RUN, (), {}) == {}
