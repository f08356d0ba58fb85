"""The jobs of a connection that have no answer yet, and until when each is waited for."""

import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pool.client.futures import JobFuture
from pool.client.request import Request
from pool.core.timers import Timers
from pool.errors import Overloaded, PoolError

__all__ = ["Job", "Outstanding"]


@dataclass(eq=False, slots=True)
class Job:
    """`number` is this connection's. `submitted`: when `submit` was called; `encoded`: when the payload was ready.

    `payload` is kept until the job is sent, that of a `patient` one, which is sent again when the pool has no room,
    until it is answered. `on_its_way` is set when the job is sent for the first time.
    """

    future: JobFuture
    number: int
    request: Request
    rows: int | None
    payload: Sequence[bytes]
    size_bytes: int
    submitted: float
    encoded: float
    patient: bool = False
    on_its_way: threading.Event | None = None
    sent_at: float | None = None  # None: it is not in the pool
    place: int = 0  # among all that were sent
    refusals: int = 0
    last_refusal: Overloaded | None = None


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
        return job.number in self._jobs

    def add(self, job: Job) -> None:
        self._jobs[job.number] = job

    def get(self, number: int) -> Job | None:
        return self._jobs.get(number)

    def take(self, number: int) -> Job | None:
        """Removes a job: it is answered, cancelled or late. None if that has happened before."""
        job = self._jobs.get(number)
        if job is None:
            return None
        self._taken = weakref.ref(job.future)  # before it is out of the book: a fork may come between
        del self._jobs[number]
        self._timers.clear(number)
        if job.sent_at is not None:
            self.sent_bytes -= job.size_bytes
        return job

    def abandon_after_fork(self, error: PoolError) -> None:
        """In a forked child: ends each future, also the one that the I/O thread was about to finish."""
        for job in self:
            job.future.abandon_after_fork(error)
        if self._taken is not None and (taken := self._taken()) is not None:
            taken.abandon_after_fork(error)

    def mark_sent(self, job: Job, now: float) -> None:
        job.sent_at = now
        if not job.patient:
            job.payload = ()
        self.sent_bytes += job.size_bytes
        if job.on_its_way is not None:
            job.on_its_way.set()

    def mark_refused(self, job: Job, refusal: Overloaded) -> None:
        """A sent job was not taken in, and is no more in the pool."""
        job.sent_at = None
        job.refusals += 1
        job.last_refusal = refusal
        self.sent_bytes -= job.size_bytes

    def wait_until(self, job: Job, instant: float) -> None:
        """Another instant for the same job may follow; the last one counts."""
        self._timers.set(job.number, instant)

    def next_instant(self) -> float | None:
        return self._timers.next()

    def take_late(self, now: float) -> Iterator[Job]:
        """Removes the jobs whose instant has passed."""
        while isinstance(number := self._timers.pop_due(now), int):
            job = self.take(number)
            if job is not None:
                yield job
