"""The jobs that ended of late, for whoever asks what became of one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from pool.core.jobs import Job, JobState

__all__ = ["History"]

# Kept apart, so that the story of a failure outlives the successes that follow it.
MOST_DONE = 1000
MOST_FAILED = 500


class History:
    def __init__(self) -> None:
        self._done: OrderedDict[int, Job] = OrderedDict()
        self._failed: OrderedDict[int, Job] = OrderedDict()

    def keep(self, job: Job) -> None:
        """A job that has ended; its payload is gone by now."""
        jobs, most = (self._done, MOST_DONE) if job.state is JobState.DONE else (self._failed, MOST_FAILED)
        jobs[job.id] = job
        if len(jobs) > most:
            jobs.popitem(last=False)

    def find(self, number: int) -> Job | None:
        return self._done.get(number) or self._failed.get(number)

    def newest(self, count: int) -> Iterator[Job]:
        """The ones that came last, the newest first."""
        return iter(sorted((*self._done.values(), *self._failed.values()), key=lambda job: -job.id)[:count])
