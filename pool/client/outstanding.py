"""The jobs of a connection that have no answer yet, and until when each is waited for."""

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pool.client.futures import JobFuture
from pool.core.timers import Timers
from pool.errors import PoolError
from pool.wire.client_messages import Submit

__all__ = ["Job", "Outstanding"]


@dataclass(eq=False, slots=True)
class Job:
    """`payload` is kept until the job is sent; `submitted` is a monotonic instant."""

    future: JobFuture
    message: Submit
    payload: Sequence[bytes]
    size_bytes: int
    submitted: float
    sent: bool = False


class Outstanding:
    """Used by the I/O thread alone."""

    def __init__(self) -> None:
        self.sent_bytes = 0  # what this client has in the pool
        self._jobs: dict[int, Job] = {}
        self._taken: weakref.ref[JobFuture] | None = None
        self._timers = Timers()  # one a job at most, by its number

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(list(self._jobs.values()))

    def __contains__(self, job: Job) -> bool:
        return job.message.job in self._jobs

    def add(self, job: Job) -> None:
        self._jobs[job.message.job] = job

    def take(self, number: int) -> Job | None:
        """Removes a job: it is answered, cancelled or late. None if that has happened before."""
        job = self._jobs.get(number)
        if job is None:
            return None
        self._taken = weakref.ref(job.future)  # before it is out of the book: a fork may come between
        del self._jobs[number]
        self._timers.clear(number)
        if job.sent:
            self.sent_bytes -= job.size_bytes
        return job

    def abandon_after_fork(self, error: PoolError) -> None:
        """In a forked child: ends each future, also the one that the I/O thread was about to finish."""
        for job in self:
            job.future.abandon_after_fork(error)
        if self._taken is not None and (taken := self._taken()) is not None:
            taken.abandon_after_fork(error)

    def mark_sent(self, job: Job) -> None:
        job.sent = True
        job.payload = ()
        self.sent_bytes += job.size_bytes

    def wait_until(self, job: Job, instant: float) -> None:
        """Another instant for the same job may follow; the last one counts."""
        self._timers.set(job.message.job, instant)

    def next_instant(self) -> float | None:
        return self._timers.next()

    def take_late(self, now: float) -> Iterator[Job]:
        """Removes the jobs whose instant has passed."""
        while isinstance(number := self._timers.pop_due(now), int):
            job = self.take(number)
            if job is not None:
                yield job
