"""The end of a job: its one answer, and whatever has to be taken out of the books with it."""

from __future__ import annotations

from collections import Counter

from pool.clock import Timers
from pool.core import actions as do
from pool.core.fleet import Slot
from pool.core.history import History
from pool.core.jobs import DONE, Batch, Job, JobState
from pool.core.orders import Orders
from pool.core.queue.backlog import Backlog
from pool.core.queue.models import Model
from pool.core.queue.tally import Counts
from pool.wire.faults import Fault
from pool.wire.unpacking import Unpacking

__all__ = ["Answers", "with_history"]


class Answers:
    """Every way in which a job ends goes through here. It appends to `orders`."""

    def __init__(self, backlog: Backlog, timers: Timers, history: History, orders: Orders) -> None:
        self.counts: Counter[str] = Counter()
        self.nameless: Counter[str] = Counter()
        """Those of them whose model is not known."""
        self.ended = 0  # jobs, whichever way
        self._backlog = backlog
        self._timers = timers
        self._history = history
        self._orders = orders

    def refuse(
        self, client: bytes, number: int, jobs: int, failed: do.JobFailed, model: Model | None, now: float
    ) -> None:
        """Of a job that was not taken in, or of a chunk of so many. `model`: None where it is not known."""
        self.counts[failed.fault.value] += jobs
        if model is not None:
            model.tally.fail(failed.fault.value, jobs, None, now)
        else:
            self.nameless[failed.fault.value] += jobs
        self._orders.answers.append(do.FailJob(client, number, failed))

    def done(
        self,
        job: Job,
        payloads: tuple[object, ...],
        batch: Batch,
        slot: Slot,
        counts: Counts,
        run_s: float,
        fetch_s: float,
        now: float,
    ) -> None:
        """LEASED → DONE; the batch gave its last rows. `counts`: of the version that ran it.

        REQUIRES that a snapshot of the model's tally was taken, if that was due.
        """
        job.ran = (batch.started, run_s, fetch_s, batch.rows, batch.slot, slot.device, batch.version)
        counts.result(job, batch.started, now)
        self._end(job, DONE, now, "done")
        self._orders.answers.append((job, payloads))

    def fail(self, job: Job, fault: Fault, text: str, now: float, state: JobState = JobState.FAILED) -> None:
        """QUEUED, LEASED → FAILED or EXPIRED"""
        self._end(job, state, now, fault.value)
        self._orders.answers.append(do.FailJob(job.client.route, job.number, do.JobFailed(fault, text)))

    def expire(self, job: Job, now: float) -> None:
        """QUEUED, LEASED → EXPIRED; a run under way goes on and its answer is dropped."""
        where = "in the queue" if job.state is JobState.QUEUED else "while it ran"
        # The client sends what is left of its timeout, so the number here is not the one that its caller gave.
        text = f"the timeout ended {where}, after {job.timeout_s:.3g} s"
        self.fail(job, Fault.DEADLINE_EXCEEDED, with_history(text, job), now, JobState.EXPIRED)

    def too_late(self, job: Job, end: float, now: float) -> None:
        """QUEUED → EXPIRED, before its deadline: no lane could finish it in time."""
        text = f"it would take at least {end - job.arrived:.3g} s, but its timeout is {job.timeout_s:.3g} s"
        self.fail(job, Fault.DEADLINE_EXCEEDED, with_history(text, job), now, JobState.EXPIRED)

    def cancel(self, job: Job, now: float) -> None:
        """QUEUED, LEASED → CANCELLED: nobody is told."""
        self._end(job, JobState.CANCELLED, now, "cancelled")

    def unpack(self, chunk: Job, cause: Unpacking, text: str, now: float) -> None:
        """QUEUED → CANCELLED: its members come again by themselves."""
        chunk.note(now, "unpacked: {}", text)
        self._end(chunk, JobState.CANCELLED, now, None)
        self.give_back(chunk.client.route, chunk.number, cause, chunk.runs > 0, text)

    def give_back(self, client: bytes, number: int, cause: Unpacking, ran: bool, text: str) -> None:
        """Of a chunk."""
        self._orders.append(do.UnpackChunk(client, number, cause, ran, text))

    def _end(self, job: Job, state: JobState, now: float, count: str | None) -> None:
        """`count`: as what its jobs count; None: as nothing yet."""
        job.become(state)
        self.ended += 1
        ended = job.weight
        if count is None:
            ended = 0
        else:
            self.counts[count] += ended
            if state is not DONE:
                tally, version = job.line.model.tally, job.line.version if job.batch is None else job.batch.version
                if state is JobState.CANCELLED:
                    tally.of(version).cancelled += ended
                else:
                    tally.fail(count, ended, version, now)
        self._timers.clear(job)
        self._backlog.forget(job, ended, now)
        if job.id in job.line.by_age:
            job.line.take(job)
        if job.id in job.key.gathered:
            job.key.leave(job)
            if not job.key.gathered:
                self._timers.clear(job.key)
        job.payload, job.pieces, job.batch = None, None, None
        job.ended = now
        (self._history.done if state is DONE else self._history.failed).keep(job)


def with_history(text: str, job: Job) -> str:
    return "; ".join((text, *job.told()))
