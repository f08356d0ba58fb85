"""Which jobs are taken in."""

import difflib
import math

from pool.core.backlog import Backlog
from pool.core.events import Failed, JobArrived
from pool.core.policy import Policy
from pool.wire.faults import Fault

__all__ = ["refusal"]

SEARCHED_CHARS = 100  # the search for a near name takes as long as the client's text is


def refusal(job: JobArrived, policy: Policy, backlog: Backlog, stopping: bool) -> Failed | None:
    """Why a job is not taken in, in words for its caller; None if it is."""
    if job.model not in backlog.models:
        near = difflib.get_close_matches(job.model[:SEARCHED_CHARS], backlog.models, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(backlog.models))}"
        return Failed(Fault.MODEL_NOT_FOUND, f"no model {job.model!r:.100}; {hint}")
    if (job.client, job.job) in backlog.jobs:
        return Failed(Fault.INVALID_INPUT, f"job {job.job} is already in the pool")
    if job.timeout_s is not None and not 0 <= job.timeout_s < math.inf:
        return Failed(Fault.INVALID_INPUT, f"timeout is {job.timeout_s} s, give a positive number")
    if job.size_bytes > policy.max_bytes:
        return Failed(
            Fault.INVALID_INPUT,
            f"the job has {job.size_bytes} bytes, [queue] max_bytes = {policy.max_bytes} never has room for it",
        )
    if stopping:
        return Failed(Fault.POOL_STOPPING, "the pool is stopping and takes no new job")
    if len(backlog.jobs) >= policy.max_jobs:
        return Failed(Fault.OVERLOADED, f"{len(backlog.jobs)} jobs are in the pool, [queue] max_jobs allows no more")
    if backlog.size_bytes + job.size_bytes > policy.max_bytes:
        return Failed(
            Fault.OVERLOADED,
            f"{backlog.size_bytes} bytes are in the pool, [queue] max_bytes = {policy.max_bytes}"
            f" has no room for {job.size_bytes} more",
        )
    return None
