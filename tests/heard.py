"""The sockets' sides without a core: what they would tell it comes out as values, and values are handed to them.

So a test says what comes in and looks at what the core would hear of it, in the order in which it would.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import zmq
from simulation.driver import AnswerJob, JobDone, PartToRun, RunBatch

from pool.core.events import Event
from pool.core.jobs import Batch, Job, JobState, Part
from pool.core.keys import Client
from pool.core.models import Model
from pool.core.policy import ModelPolicy
from pool.recorder.hot_calls import BatchDone, JobArrived, Outcome, Succeeded
from pool.serve.back import Back
from pool.serve.front import Front
from pool.wire.timeline import Timeline

__all__ = ["HeardBack", "HeardFront", "ended_job", "part_of"]

Heard = Event | JobArrived | BatchDone


def new_job(client: bytes, number: int, rows: int = 0, payload: object = None, model: str = "m") -> Job:
    line = Model(model, ModelPolicy()).line(None)
    key = line.key(None, None, b"form")
    return Job(Client(client), number, 41, line, key, rows, 0, 60.0, 1, payload, 0.0, 60.0)


def ended_job(client: bytes, number: int, timeline: Timeline) -> Job:
    """One that is done, with this timeline; its numbers are those of one that came at 0.0."""
    job = new_job(client, number, timeline.rows)
    job.id, job.deaths, job.gathered_s = timeline.job, timeline.attempts - 1, timeline.batch_wait_s
    started = timeline.queue_s + timeline.batch_wait_s
    job.ran = (started, timeline.run_s, timeline.fetch_s, timeline.batch_rows, timeline.slot, timeline.device)
    job.ended = started + timeline.feed_s + timeline.run_s + timeline.fetch_s
    job.state = JobState.DONE
    assert job.timeline() == timeline
    return job


def part_of(part: PartToRun, model: str = "m") -> Part:
    job = new_job(b"client", 1, part.stop - part.start, part.payload, model)
    return Part(job, part.start, part.stop)


def batch_of(run: RunBatch) -> Batch:
    parts = tuple([part_of(part, run.model) for part in run.parts])
    key = parts[0].job.line.key(run.signature, run.outputs, b"form")
    rows = sum(part.rows for part in parts)
    return Batch(
        run.batch,
        key,
        run.slot,
        run.incarnation,
        run.lane,
        0.0,
        parts,
        rows,
        run.pad_to,
        run.stride or run.pad_to,
        0.0,
        0.0,
        0.0,
        run.by_rows,
        len(parts),
        owner=run.owner,
    )


class HeardFront(Front):
    def __init__(self, *arguments: Any) -> None:
        self._jobs: deque[JobArrived] = deque()
        super().__init__(*arguments, lambda *asked: self._jobs.append(JobArrived(*asked)))

    def receive(self, socket: "zmq.Socket[bytes]", now: float) -> Iterator[Any]:
        return self._with_jobs(super().receive(socket, now))

    def tend(self, now: float) -> Iterator[Any]:
        return self._with_jobs(super().tend(now))

    def _with_jobs(self, events: Iterable[Event]) -> Iterator[Heard]:
        """What arrived before an event comes before it."""
        for event in events:
            while self._jobs:
                yield self._jobs.popleft()
            yield event
        while self._jobs:
            yield self._jobs.popleft()

    def answer(self, action: AnswerJob) -> None:
        outcome = action.outcome
        if isinstance(outcome, JobDone):
            self.done(ended_job(action.client, action.job, outcome.timeline), outcome.payloads)
        else:
            self.failed(action.client, action.job, outcome)


class HeardBack(Back):
    def __init__(self, *arguments: Any) -> None:
        self._batches: deque[BatchDone] = deque()

        def done(
            slot: int,
            incarnation: int,
            lane: int,
            batch: int,
            payloads: list[object],
            failures: dict[int, Outcome],
            run_s: float,
            fetch_s: float,
        ) -> None:
            outcomes = tuple([failures.get(place, Succeeded(payload)) for place, payload in enumerate(payloads)])
            self._batches.append(BatchDone(slot, incarnation, lane, batch, outcomes, run_s, fetch_s))

        super().__init__(*arguments, done, lambda *_: None)

    def receive(self) -> Iterator[Any]:
        for event in super().receive():
            while self._batches:
                yield self._batches.popleft()
            yield event
        while self._batches:
            yield self._batches.popleft()

    def run(self, batch: Batch | RunBatch) -> bool:
        return super().run(batch_of(batch) if isinstance(batch, RunBatch) else batch)
