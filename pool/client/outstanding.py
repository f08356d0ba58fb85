"""The jobs of a connection that have no answer yet, and until when each is waited for."""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pool.client.futures import JobFuture
from pool.wire.messages import Submit

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
        self.size_bytes = 0
        self._jobs: dict[int, Job] = {}
        self._instants: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(list(self._jobs.values()))

    def __contains__(self, job: Job) -> bool:
        return job.message.job in self._jobs

    def add(self, job: Job) -> None:
        self._jobs[job.message.job] = job
        self.size_bytes += job.size_bytes

    def take(self, number: int) -> Job | None:
        """Removes a job: it is answered, cancelled or late. None if that has happened before."""
        job = self._jobs.pop(number, None)
        if job is not None:
            self.size_bytes -= job.size_bytes
        return job

    def wait_until(self, job: Job, instant: float) -> None:
        """Another instant for the same job may follow; the earliest one counts."""
        heapq.heappush(self._instants, (instant, job.message.job))

    def forget_instants(self) -> None:
        self._instants.clear()

    def next_instant(self) -> float | None:
        while self._instants and self._instants[0][1] not in self._jobs:
            heapq.heappop(self._instants)
        return self._instants[0][0] if self._instants else None

    def take_late(self, now: float) -> Iterator[Job]:
        """Removes the jobs whose instant has passed."""
        while (instant := self.next_instant()) is not None and instant <= now:
            job = self.take(heapq.heappop(self._instants)[1])
            if job is not None:
                yield job
