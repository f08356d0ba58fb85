"""The sockets' sides without a core: what they would tell it comes out as values, and values are handed to them.

So a test says what comes in and looks at what the core would hear of it, in the order in which it would.
"""

from collections.abc import Iterator
from typing import Any

import zmq

from pool.core.events import ClientGone, Event
from pool.core.jobs import Batch, Job, JobState, Part
from pool.core.policy import ModelPolicy
from pool.core.queue.keys import Client
from pool.core.queue.models import Model
from pool.recorder.hot_calls import BatchDone, JobArrived, Outcome, Succeeded
from pool.serve.back import Back
from pool.serve.front import Front
from pool.wire.timeline import Timeline
from simulation.driver import AnswerJob, JobDone, PartToRun, RunBatch

__all__ = ["HeardBack", "HeardFront", "address", "ended_job", "part_of"]

Heard = Event | JobArrived | BatchDone


def address(socket: "zmq.Socket[bytes]") -> str:
    """Where it is bound."""
    found = socket.last_endpoint
    assert isinstance(found, bytes)
    return found.decode().rstrip("\0")


def new_job(client: bytes, number: int, rows: int = 0, payload: object = None, model: str = "m") -> Job:
    line = Model(model, ModelPolicy()).line(None)
    key = line.key(None, None, b"form")
    return Job(Client(client), number, 41, line, key, rows, 0, 60.0, 1, payload, 0.0, 60.0)


def ended_job(client: bytes, number: int, timeline: Timeline) -> Job:
    """One that is done, with this timeline; its numbers are those of one that came at 0.0."""
    job = new_job(client, number, timeline.rows)
    job.id, job.deaths, job.gathered_s = timeline.job, timeline.attempts - 1, timeline.batch_wait_s
    started = timeline.queue_s + timeline.batch_wait_s
    ran = (timeline.batch_rows, timeline.slot, timeline.device, timeline.version)
    job.ran = (started, timeline.run_s, timeline.fetch_s, *ran)
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
        run.microbatch or run.pad_to,
        0.0,
        0.0,
        0.0,
        run.by_rows,
        len(parts),
        owner=run.owner,
    )


def _as_value(heard: Any) -> Heard:
    """A job, or a batch that is done, as `Machine.arrived` and `Machine.batch_done` would hear of it."""
    if not isinstance(heard, tuple):
        return heard
    if len(heard) == len(("asked", "payload", "more")):
        asked, payload, more = heard
        return JobArrived(*(*asked, payload, *more))
    done, payloads, failures, run_s, fetch_s = heard
    outcomes: list[Outcome] = [failures.get(place, Succeeded(payload)) for place, payload in enumerate(payloads)]
    return BatchDone(*(*done, tuple(outcomes), run_s, fetch_s))


class HeardFront(Front):
    def receive(self, socket: "zmq.Socket[bytes]", now: float) -> Iterator[Any]:
        """As `Way.hear_clients` does."""
        index = [each.socket for each in self.endpoints].index(socket)
        for route, frames in self.endpoints[index].inbox.turn():
            if (heard := self.heard((index, route), frames, now)) is not None:
                yield _as_value(heard)
                if isinstance(heard, ClientGone):
                    self.parted(heard.client)

    def tend(self, now: float) -> Iterator[Any]:
        return map(_as_value, super().tend(now))

    def answer(self, action: AnswerJob) -> None:
        outcome = action.outcome
        if isinstance(outcome, JobDone):
            self.done(ended_job(action.client, action.job, outcome.timeline), outcome.payloads)
        else:
            self.failed(action.client, action.job, outcome)


class HeardBack(Back):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*(*arguments, lambda *_: None))

    def receive(self) -> Iterator[Any]:
        """As `Way.hear_workers` does."""
        for route, frames in self.inbox.turn():
            if (heard := self.heard(route, frames)) is not None:
                yield _as_value(heard)

    def run(self, batch: Batch | RunBatch) -> bool:
        return super().run(batch_of(batch) if isinstance(batch, RunBatch) else batch)
