"""Chunks that were given back unanswered, and the members of theirs that come again.

    a chunk ─┬─ done, or what ends all of it in the same way ─► one answer
             └─ a run failed, a worker died, … ─► no lane is given rows of it any more
                                                    └─ nothing of it is out ─► UNPACK, and a record until its deadline
    a job with the chunk as its origin ─► has the chunk's place, its worker deaths and the slots of these

A chunk is never suspect, guilty, confined or quarantined: all that is for its members to show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pool.core.jobs import FINISHED, Job, Part, Parting
from pool.wire.unpacking import Unpacking

if TYPE_CHECKING:
    from pool.clock import Timers
    from pool.core.queue.answers import Answers
    from pool.core.queue.backlog import Backlog
    from pool.core.queue.keys import Client
    from pool.core.trial import Loss

__all__ = ["Chunks", "Unpacked"]

RECORDS_BYTES = 128 << 10  # of one client; the members of more chunks are jobs like any others
GRAVITY = tuple(Unpacking)  # what comes later in it says more of what happened
CAME = "was one of {} jobs of job {}, which was unpacked"


@dataclass(slots=True, eq=False)
class Unpacked:
    """What is kept of a chunk. `weight`: how many of its jobs have not come again yet."""

    client: Client
    number: int
    place: int
    weight: int
    jobs: int
    deaths: int
    died_in: tuple[int, ...]
    loss: Loss | None


class Chunks:
    def __init__(self, backlog: Backlog, timers: Timers, answers: Answers) -> None:
        self._backlog = backlog
        self._timers = timers
        self._answers = answers

    # --- a chunk goes -------------------------------------------------------------------------------------------

    def part(self, chunk: Job, cause: Unpacking, text: str, now: float) -> None:
        """No lane is given rows of it any more, and it is unpacked as soon as nothing of it is out.

        Of one with a cancelled member all of whose rows are out, the answer counts if it comes.
        """
        if chunk.state in FINISHED:
            return
        if chunk.parting is None or GRAVITY.index(cause) > GRAVITY.index(chunk.parting.cause):
            chunk.parting = Parting(cause, text)
        waits = chunk.waiting
        again = any(part.job is chunk for group in chunk.line.retries for part in group)
        if cause is Unpacking.CANCELLED and chunk.out and not (waits or again):
            return
        if waits:
            chunk.line.take(chunk)
        chunk.start_over()
        chunk.cut = chunk.rows
        self.came_back(chunk, now)

    def came_back(self, chunk: Job, now: float) -> None:
        """Nothing of it may be out any more."""
        if chunk.out or chunk.parting is None or chunk.state in FINISHED:
            return
        record = Unpacked(
            chunk.client,
            chunk.number,
            chunk.place,
            chunk.weight,
            chunk.weight,
            min(1, chunk.deaths),  # two at once took two pieces of it, and a job is mostly in one
            chunk.died_in,
            chunk.loss,
        )
        if record.loss is not None:
            record.loss.unclear += chunk.weight
        self._answers.unpack(chunk, *chunk.parting, now)
        self._keep(record, chunk.deadline)

    def refuse(
        self, client: Client, number: int, weight: int, deadline: float, origin: Unpacked | None, text: str
    ) -> None:
        """One that comes, and may not travel as a chunk."""
        self._answers.give_back(client.route, number, Unpacking.NOT_TAKEN, False, text)
        self._backlog.ids += 1
        record = Unpacked(client, number, self._backlog.ids, weight, weight, 0, (), None)
        if origin is not None:
            record.place, record.deaths = origin.place, origin.deaths
            record.died_in, record.loss = origin.died_in, origin.loss
            self._used(origin, weight)
        self._keep(record, deadline)

    # --- its members come ---------------------------------------------------------------------------------------

    def use(self, record: Unpacked, job: Job, now: float) -> None:
        """The job was in it."""
        job.note(now, CAME, record.jobs, record.place)
        job.deaths += record.deaths
        self._used(record, job.weight)

    def suspects(self, record: Unpacked, job: Job) -> list[Part]:
        """All of a job whose chunk a worker died with, as it is to run again."""
        job.cut = job.rows
        most = job.key.most if job.rows and job.key.batchable else max(1, job.rows)
        parts = []
        for start in range(0, max(1, job.rows), most):
            part = Part(job, start, min(start + most, job.rows))
            part.deaths, part.died_in = record.deaths, record.died_in
            if not start:
                part.loss = record.loss
            parts.append(part)
        return parts

    def _used(self, record: Unpacked, weight: int) -> None:
        record.weight -= weight
        if record.weight <= 0:
            self.forget(record)

    # --- records ------------------------------------------------------------------------------------------------

    def _keep(self, record: Unpacked, deadline: float) -> None:
        client = record.client
        if record.number in client.unpacked:
            self.forget(client.unpacked[record.number])
        if client.record_bytes >= RECORDS_BYTES:
            kept = client.unpacked.values()
            self.forget(next((each for each in kept if not each.deaths), next(iter(kept))))
        self._backlog.keep(record)
        self._timers.set(record, deadline)

    def forget(self, record: Unpacked) -> None:
        """All of it have come, or their time is over."""
        self._timers.clear(record)
        self._backlog.drop(record)

    def client_gone(self, route: bytes) -> None:
        client = self._backlog.clients.get(route)
        for record in [] if client is None else list(client.unpacked.values()):
            self.forget(record)
