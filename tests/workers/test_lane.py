"""A lane by itself: batches in, one answer for each job out, whatever the model does."""

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pool.wire.bodies import BATCH, JOINED, PART, SHARED, Body, Kind, bodies, failure_of
from pool.wire.signatures import DEFAULT_SIGNATURE, Signature, TensorInfo
from pool.wire.specs import parse_answer
from pool.wire.tensors import Layout
from support.counting import counted
from support.pools import row
from support.raw import job, memory, shared_job
from workers.calls import Calls
from workers.lane import Arenas, Lane
from workers.stub import load

ARENA = 5
Arrays = dict[str, Any]


class Model:
    """A signature x → y that a function computes."""

    left_out: dict[str, str] = {}  # noqa: RUF012

    def __init__(self, compute: Callable[[Any], Any]) -> None:
        self.fed: list[Any] = []
        self._compute = compute
        anything = {"x": TensorInfo("float32", None)}, {"y": TensorInfo("float32", None)}
        self.signatures = {DEFAULT_SIGNATURE: Signature(*anything, verdicts={"y": ""}, max_batch=64)}

    def prepare(self, signature: str, inputs: object, outputs: object) -> Callable[[Arrays], Arrays]:
        def run(arrays: Arrays) -> Arrays:
            self.fed.append(arrays["x"])
            return {"y": self._compute(arrays["x"])}

        return run


class Bench:
    def __init__(self, *models: Model) -> None:
        """Of versions 3, 4, …"""
        settings = [{"allowed_batch_sizes": (), "version": f"{number}+1a2b"} for number, _ in enumerate(models, 3)]
        self.arenas = Arenas()
        self.lane = Lane(Calls([*zip(models, settings, strict=True)]), self.arenas, 0, "cpu:0")

    def lend(self, size: int) -> int:
        descriptor = memory(size)
        self.arenas.add(ARENA, os.dup(descriptor))
        return descriptor

    def run(self, *jobs: bytes, number: int = 0) -> tuple[int, list[Any]]:
        found: list[Body] = [*bodies(b"".join(jobs))]
        flags, answers = self.lane.run(number, found, time.monotonic())
        assert [body.job for answer in answers for body in bodies(answer)] == [body.job for body in found]
        return flags, [self._value(answer) for answer in answers]

    def _value(self, answer: bytes) -> Any:
        (body,) = bodies(answer)
        if body.kind == Kind.FAILURE:
            return failure_of(answer[body.begins : body.ends])
        layout = Layout(parse_answer(body.spec)[3])
        if body.flags & SHARED:
            arena, offset, length, _, _ = PART.unpack(answer[body.begins : body.ends])
            return layout.views(self.arenas.memory(arena), offset, offset + length)["y"]
        return layout.views(answer, body.begins, body.ends)["y"]


def floats(*values: float) -> Any:
    return np.array([[value] for value in values], np.float32)


def test_jobs_without_rows_are_never_joined() -> None:
    model = Model(lambda x: x + 1)
    flags, answers = Bench(model).run(job(1, "m", x=np.float32(1)), job(2, "m", x=np.zeros((0, 1), np.float32)))
    assert flags == 0
    assert answers[0].tolist() == 2.0
    assert answers[1].shape == (0, 1)


def test_neighbours_in_shared_memory_are_one_view_without_a_copy() -> None:
    model = Model(lambda x: x.sum(axis=1, keepdims=True))
    bench = Bench(model)
    rows = np.arange(16 * 16384, dtype=np.float32).reshape(16, 16384)
    descriptor = bench.lend(rows.nbytes + 4096)
    os.pwrite(descriptor, rows.tobytes(), 0)
    size = rows[0].nbytes
    jobs = [shared_job(n, "m", (ARENA, n * size, size, rows.nbytes, 64), rows[n : n + 1]) for n in range(16)]
    flags, answers = bench.run(*jobs)
    assert flags == JOINED
    assert [answer.item() for answer in answers] == rows.sum(axis=1).tolist()
    assert np.shares_memory(model.fed[0], np.frombuffer(bench.arenas.memory(ARENA), np.uint8))
    bench.run(jobs[0], jobs[2])
    assert not np.shares_memory(model.fed[1], np.frombuffer(bench.arenas.memory(ARENA), np.uint8))
    os.close(descriptor)


def test_an_output_that_is_the_input_is_copied_into_the_room() -> None:
    bench = Bench(Model(lambda x: x))
    given = np.ones((1, 16384), np.float32)
    descriptor = bench.lend(1 << 20)
    os.pwrite(descriptor, given.tobytes(), 0)
    (answer,) = bench.run(shared_job(1, "m", (ARENA, 0, given.nbytes, given.nbytes, given.nbytes), given))[1]
    os.pwrite(descriptor, bytes(given.nbytes), 0)  # the client's next job
    assert answer.tolist() == given.tolist()
    os.close(descriptor)


def test_what_cannot_be_read_or_answered_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.lane.MEMORY_S", 0.01)
    lost = shared_job(3, "m", (77, 0, 64, 0, 0), floats(1))
    _, answers = Bench(Model(lambda x: x)).run(lost, job(4, "m", x=floats(1)), job(5, "m", x=np.float64(1)))
    assert [answers[0][0], answers[1].tolist(), answers[2][0]] == ["InvalidInput", [[1]], "InvalidInput"]
    _, answers = Bench(Model(lambda x: x.astype(object))).run(job(6, "m", x=floats(1)))
    assert answers[0][0] == "ModelFailed", "a model that gives what cannot travel"


def test_the_pool_decides_which_model_runs_and_a_version_that_is_asked_for_has_to_be_its() -> None:
    bench = Bench(Model(lambda x: x + 1), Model(lambda x: x + 2))
    for name in ("m", "m@stable", "another name"):
        assert bench.run(job(1, name, x=floats(0)))[1][0].tolist() == [[1]]
        assert bench.run(job(1, name, x=floats(0)), number=1)[1][0].tolist() == [[2]]
    _, (right, wrong) = bench.run(job(1, "m@4", x=floats(0)), job(2, "m@3", x=floats(0)), number=1)
    assert right.tolist() == [[2]]
    assert wrong == ("ModelNotFound", "version 3 of the model is not served here; version 4+1a2b is")
    (answer,) = bench.lane.run(1, [*bodies(job(1, "m", x=floats(0)))], time.monotonic())[1]
    (body,) = bodies(answer)
    assert parse_answer(body.spec)[2] == "4+1a2b"


def test_a_lone_job_takes_few_calls() -> None:
    lane = Bench(load({"name": "double", "path": "stub:double"})).lane
    frame = BATCH.pack(Kind.RUN, 0, 0, 1, 1) + job(1, "double", **row())

    def run() -> None:  # as `Lane.serve` does it between receiving and sending
        came = time.monotonic()
        _, _, model, count, number = BATCH.unpack_from(frame)
        flags, answers = lane.run(model, [*bodies(frame, BATCH.size)], came)
        answers.insert(0, BATCH.pack(Kind.DONE, flags, model, count, number))
        b"".join(answers)

    calls = counted(run)
    print(f"lane: {calls}")
    assert calls <= 60 + 3  # of which three are this test's own
