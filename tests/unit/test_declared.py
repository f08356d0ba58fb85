"""Outputs that contradict what their model declares: remarked on once, and answered."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from pool.serve.remarks import MOST_CHARS, MOST_KEPT, Remarks
from pool.wire.calls import ROWS, Table, TensorHeader
from pool.wire.codec import pack
from pool.wire.packing import unpack_answer
from pool.wire.signatures import ModelInfo, Signature, TensorSpec
from pool.wire.tensors import Array
from pool.wire.worker_messages import Remark, Run
from support.outcomes import PartDone, outcomes_of
from unit.batch_runs import served
from workers.handled import HandledModel
from workers.handlers import Handler
from workers.independence.known import Known
from workers.memory import BatchMemory
from workers.runner import Runner
from workers.shared_memory import SharedMemory

X = TensorSpec("float32", (-1, 2))
WRONG = "signature s, output 'y'"


class Gives:
    """Whatever it is fed, this; declared as `spec`."""

    def __init__(self, spec: TensorSpec, gives: Any) -> None:
        self.info = ModelInfo("m", "stub:m", {"s": Signature({"x": X}, {"y": spec})}, False)
        self.gives = np.array(gives)

    def run(self, signature: str, feeds: Mapping[str, Array], outputs: Sequence[str]) -> dict[str, Array]:
        assert (signature, list(feeds), list(outputs)) == ("s", ["x"], ["y"])
        return {"y": self.gives}


def answers(model: Any, runs: int = 1, rows: int = 2) -> tuple[list[Array], list[Remark]]:
    """What each run was answered, and what was said."""
    said: list[Remark] = []
    runner = Runner(served(model), SharedMemory(), tell=said.append)
    table = pack(Table((TensorHeader("x", "float32", (ROWS, 2), False),)))
    found = []
    for number in range(runs):
        run = Run(number, "m", None, None, (rows,), rows, True)
        finished = runner.run(run, [table, np.ones((rows, 2), np.float32).tobytes()], BatchMemory())
        assert isinstance(outcomes_of(finished)[0], PartDone), outcomes_of(finished)
        found.append(unpack_answer([bytes(frame) for frame in finished.payload])["y"])
    return found, said


@pytest.mark.parametrize(
    ("spec", "gives", "told"),
    [
        (TensorSpec("float64", (-1, 3)), [[1.0, 2.0], [3.0, 4.0]], "float64 [?, 3] but came back as float64 [2, 2]"),
        (TensorSpec("float64", (-1,)), [[1.0], [3.0]], "float64 [?] but came back as float64 [2, 1]"),
        (TensorSpec("float64", (1, 2)), [[1.0, 2.0], [3.0, 4.0]], "float64 [1, 2] but came back as float64 [2, 2]"),
        (TensorSpec("float32", (-1,)), [1.0, 2.0], "float32 [?] but came back as float64 [2]"),
        (TensorSpec("string", None), [1, 2], "string of any shape but came back as int64 [2]"),
    ],
)
def test_it_is_remarked_on_once_and_answered_as_it_came(spec: TensorSpec, gives: Any, told: str) -> None:
    found, said = answers(Gives(spec, gives), runs=3)
    assert [answer.tolist() for answer in found] == [gives] * 3
    assert said == [Remark("m", WRONG, f"declared as {told}; callers get it as it came")]


@pytest.mark.parametrize("spec", [TensorSpec("float64", axes) for axes in ((-1, 2), (2, 2), (-1, -1), None)])
def test_what_fits_is_not(spec: TensorSpec) -> None:
    assert not answers(Gives(spec, [[1.0, 2.0], [3.0, 4.0]]), runs=2)[1]


def test_a_shape_that_fitted_once_is_not_taken_for_all() -> None:
    model = Gives(TensorSpec("float64", (-1, 2)), [[1.0, 2.0], [3.0, 4.0]])
    said: list[Remark] = []
    runner = Runner(served(model), SharedMemory(), tell=said.append)
    table = pack(Table((TensorHeader("x", "float32", (ROWS, 2), False),)))
    for gives in (model.gives, model.gives.T.reshape(2, 2, 1), model.gives):
        model.gives = gives
        runner.run(Run(1, "m", None, None, (2,), 2, True), [table, bytes(16)], BatchMemory())
    assert [remark.text for remark in said] == [
        "declared as float64 [?, 2] but came back as float64 [2, 2, 1]; callers get it as it came"
    ]


def test_of_a_handled_model_too() -> None:
    class Same:
        def preprocess(self, inputs: Any, signature: str) -> Any:  # noqa: ARG002
            return inputs

    graph = Gives(TensorSpec("float64", (-1, 3)), [[1.0, 2.0], [3.0, 4.0]])
    found, said = answers(HandledModel(graph, Handler("h:Same", Same(), graph.info), (), Known(())), runs=2)  # type: ignore[arg-type]
    assert [answer.tolist() for answer in found] == [graph.gives.tolist()] * 2
    assert [remark.about for remark in said] == [WRONG]


# --- in the pool


def test_what_several_workers_find_is_logged_once_and_kept_while_one_lives(caplog: pytest.LogCaptureFixture) -> None:
    remarks = Remarks()
    for seat in ((0, 1), (1, 1)):
        remarks.hear(seat, Remark("m", WRONG, "odd"))
    remarks.hear((0, 1), Remark("m", "another", "odder"))
    remarks.hear((0, 1), Remark("n", WRONG, "of another model"))
    assert [record.getMessage() for record in caplog.records] == [
        f"model m, {WRONG}: odd",
        "model m, another: odder",
        f"model n, {WRONG}: of another model",
    ]
    assert remarks.of("m") == ["another: odder", f"{WRONG}: odd"]
    remarks.forget((0, 1))
    assert remarks.of("m") == [f"{WRONG}: odd"]
    remarks.forget((1, 1))
    assert not remarks.of("m")
    assert not remarks.of("n")


def test_a_worker_that_never_stops_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    remarks = Remarks()
    for number in range(10 * MOST_KEPT):
        remarks.hear((0, 1), Remark("m" * 5000, str(number) * 5000, "x" * 5000))
    assert len(caplog.records) == MOST_KEPT
    assert len(remarks.of("m" * MOST_CHARS)) == MOST_KEPT
    assert max(map(len, remarks.of("m" * MOST_CHARS))) <= 2 * MOST_CHARS + 2
