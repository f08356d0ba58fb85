"""A job's path in words, for `pool explain`. Every value is one of msgpack's and JSON's."""

from dataclasses import asdict
from typing import Any

from pool.core.history import History
from pool.core.jobs import Job
from pool.core.queue import Backlog

__all__ = ["job_history", "recent_jobs"]

MOST_LISTED = 100


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
