"""A `RemoteSession` on a worker's runner in this process: all of the way there and back, but for the pool between."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pool.client.futures import JobFuture
from pool.client.request import Request
from pool.client.result import JobResult
from pool.client.session import RemoteSession
from pool.errors import from_fault
from pool.wire.packing import unpack_answer
from pool.wire.timeline import Timeline
from pool.wire.worker_messages import Failed, Run
from support.outcomes import PartDone, outcomes_of
from workers.backend import Model
from workers.memory import BatchMemory
from workers.runner import Runner
from workers.sessions import Load, Sessions
from workers.shared_memory import SharedMemory

__all__ = ["InProcess"]


class InProcess:
    """In the place of a `Client` and of its connection. `signatures`: of the jobs that were submitted."""

    shared_memory = None

    def __init__(self, models: Mapping[str, Model], load: Load, *limits: Any) -> None:
        """`limits`: of private sessions, as `Sessions` takes them."""
        self.signatures: list[str | None] = []
        self.runner = Runner(models, SharedMemory(), Sessions(models, load, *limits))
        self._memory = BatchMemory()

    def session(self, model: str, private: bool = False) -> RemoteSession:
        return RemoteSession(self, model, private=private)  # type: ignore[arg-type]  # it is what a session needs of one

    def _home(self, model: str, *, private: bool) -> "Callable[[], InProcess]":  # noqa: ARG002  # it has one home
        return lambda: self

    def submit(
        self,
        request: Request,
        rows: int | None,
        payload: Sequence[bytes],
        began: float,
        patient: bool,
        wait: bool,
    ) -> JobFuture:
        assert rows is None
        assert patient
        assert wait
        self.signatures.append(request.signature)
        run = Run(1, request.model, request.signature, request.outputs, (), 0, False)
        finished = self.runner.run(run, payload, self._memory)
        future = JobFuture()
        (outcome,) = outcomes_of(finished)
        if isinstance(outcome, Failed):
            future.finish(from_fault(outcome.fault, outcome.text))
            return future
        assert isinstance(outcome, PartDone)
        answer = JobResult(unpack_answer([bytes(frame) for frame in finished.payload]))
        timeline = Timeline(1, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0, 0, "cpu:0", 1)
        answer.measured, answer.own_rows = (timeline, began, began, began, time.monotonic()), None
        future.finish(answer)
        return future
