"""What a batch calls in the worker around its model, Python and C, as `sys.setprofile` counts it."""

import gc
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from pool.wire.calls import Table
from pool.wire.codec import pack
from pool.wire.independence import Judgement, RowsJudged
from pool.wire.signatures import ModelInfo, Signature, TensorSpec
from pool.wire.tensors import Array
from pool.wire.worker_messages import ModelSettings, Run
from unit.batch_runs import frames_of
from workers.independence.known import Known
from workers.independence.samples import Sampler
from workers.memory import BatchMemory
from workers.runner import Runner
from workers.shared_memory import SharedMemory

LONE = 40
"""Of a job with one input and one output. The whole lane is allowed 100, with the wire and TensorFlow."""
PROVEN = RowsJudged("m", "files", "s", ("y",), Judgement.PROVEN)


class Model:
    """Calls nothing itself: what it gives, of so many rows, was made before."""

    def __init__(self) -> None:
        spec = TensorSpec("float32", (-1, 2))
        self.info = ModelInfo("m", "stub:m", {"s": Signature({"x": spec}, {"y": spec})}, False)
        self.gives = np.zeros((0, 2), np.float32)

    def run(self, signature: str, feeds: Mapping[str, Array], outputs: Sequence[str]) -> dict[str, Array]:
        assert (signature, outputs, feeds["x"].shape) == ("s", ("y",), self.gives.shape)
        return {"y": self.gives}


def calls_of(act: Callable[[], Any]) -> int:
    """Of an act that was done before, and is done the same way."""
    count = 0

    def note(_: object, event: str, __: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.collect()
    gc.disable()  # what other tests left behind would end, and be counted, in the midst of it
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count - 2  # the act itself, and what ends the counting


def of_a_batch(*rows: int, by_rows: bool) -> int:
    """Of the runner, once all is proven and a batch of that form has been run."""
    known = Known([ModelSettings("m", "stub:m", True, batch_sizes=(64,))], [PROVEN])
    known.load("m", "files")
    model, sampler, memory = Model(), Sampler(known), BatchMemory()
    sampler.spent("m", 60.0)  # the next sample is far off
    model.gives = np.ones((sum(rows), 2), np.float32)
    runner = Runner({"m": model}, SharedMemory())  # type: ignore[dict-item]
    encoded = [frames_of({"x": np.full((count, 2), count, np.float32)}) for count in rows]
    run = Run(1, "m", None, None, rows, sum(rows), by_rows)
    frames = [pack(Table(tuple(encoded[0][0]))), *(buffer for _, buffers in encoded for buffer in buffers)]

    def act() -> None:
        finished = runner.run(run, frames, memory, sampler)
        assert finished.frames == (1,) * len(rows)
        assert finished.sample is None

    act()
    act()
    return calls_of(act)


def test_a_lone_job_is_a_batch_of_one_and_costs_little() -> None:
    assert 0 < of_a_batch(1, by_rows=False) <= LONE


@pytest.mark.parametrize("rows", [1, 3])
def test_a_part_more_of_a_batch_costs_no_call(rows: int) -> None:
    two = of_a_batch(*[rows] * 2, by_rows=True)
    assert LONE / 2 < two == of_a_batch(*[rows] * 32, by_rows=True)
