"""The jobs that ended of late, and what became of one, for `pool explain`: values of msgpack's and JSON's kinds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pool.core.jobs import Job
from pool.core.remembered import MOST_NAME_BYTES

if TYPE_CHECKING:
    from pool.core.queue import Backlog

__all__ = ["History", "job_history", "recent_jobs"]

# Kept apart, so that the history of a failure outlives the successes that follow it.
MOST_DONE = 1000
MOST_FAILED = 500
MOST_LISTED = 100


class Ended:
    """The last jobs that ended in one way: at most so many, and what their clients named within a bound."""

    def __init__(self, most: int) -> None:
        self.jobs: OrderedDict[int, Job] = OrderedDict()
        self.size_bytes = 0
        self._count = 0
        self._most = most

    def keep(self, job: Job) -> None:
        """A job that has ended; its payload is gone by now."""
        self.jobs[job.id] = job
        self._count += 1
        self.size_bytes += job.key.names_bytes  # jobs share a key, so that is counted several times, which is safe
        while self._count > self._most or self.size_bytes > MOST_NAME_BYTES:
            _, forgotten = self.jobs.popitem(last=False)
            self._count -= 1
            self.size_bytes -= forgotten.key.names_bytes


class History:
    def __init__(self) -> None:
        self.done = Ended(MOST_DONE)
        self.failed = Ended(MOST_FAILED)

    def find(self, number: int) -> Job | None:
        return self.done.jobs.get(number) or self.failed.jobs.get(number)

    def newest(self, count: int) -> Iterator[Job]:
        """The ones that came last, the newest first."""
        jobs = (*self.done.jobs.values(), *self.failed.jobs.values())
        return iter(sorted(jobs, key=lambda job: -job.id)[:count])


def recent_jobs(backlog: Backlog, history: History) -> list[dict[str, Any]]:
    """The jobs that came last, the newest first, those that are not answered yet among them."""
    waiting = [backlog.jobs[number] for number in list(backlog.jobs)[-MOST_LISTED:]]
    jobs = sorted((*waiting, *history.newest(MOST_LISTED)), key=lambda job: -job.id)
    return [_head(job) for job in jobs[:MOST_LISTED]]


def job_history(job: Job) -> dict[str, Any]:
    timeline = job.timeline()
    return {
        **_head(job),
        "history": job.told(),
        "timeline": None if timeline is None else asdict(timeline),
    }


def _head(job: Job) -> dict[str, Any]:
    return {
        "job": job.id,
        "client": job.client.number,
        "client_job": job.number,
        "model": job.key.model,
        "signature": job.key.signature,
        "rows": job.rows or None,
        "priority": job.priority,
        "device": job.line.device,
        "timeout_s": job.timeout_s,
        "bytes": job.size_bytes,
        "state": job.state.name,
        "runs": job.runs,
    }
