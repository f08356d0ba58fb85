"""Jobs that wait to be sent at the same time and are alike leave as one chunk.

Nothing waits for company: what leaves together has queued up while whoever sends was at something else.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

from pool.client.bulk.grain import Grain
from pool.client.bulk.members import Chunk, Futures
from pool.client.bulk.split import columns
from pool.client.outstanding import Job
from pool.client.wait import Wait

__all__ = ["Company"]

SMALL_BYTES = 16 << 10  # of a job that is worth joining with others: copying so much costs less than a message
APART = 0.02  # of their timeout may lie between the first and the last, whose time ends with the first's


class Company:
    """Used by whoever has the driver's lock."""

    def __init__(self, grain: Grain) -> None:
        self._grain = grain

    def next(self, outbox: "deque[Any]") -> Job | None:
        """A chunk of the jobs at the head of the outbox, which stay there; None if the first is to leave alone.

        Other threads append meanwhile. There is a job.
        """
        first: Job = outbox[0]
        if len(outbox) < 2 or not _is_small(first):
            return None
        most = self._grain.rows(first.request)
        jobs, rows, size_bytes = [first], first.rows or 0, first.size_bytes
        while len(jobs) < len(outbox):
            job = outbox[len(jobs)]
            if not isinstance(job, Job) or not _alike(first, job) or rows + (job.rows or 0) > most:
                break
            if size_bytes + job.size_bytes > self._grain.most_bytes:
                break
            jobs.append(job)
            rows += job.rows or 0
            size_bytes += job.size_bytes
        return None if len(jobs) < 2 else _chunk(jobs, rows)

    def leave(self, chunk: Job, outbox: "deque[Any]") -> None:
        """The chunk is in the book: its jobs are in the outbox no more."""
        for _ in range(chunk.weight):
            outbox.popleft().payload = ()


def _is_small(job: Job) -> bool:
    return (
        job.rows is not None
        and job.size_bytes <= SMALL_BYTES
        and job.space is None
        and not isinstance(job.future, Chunk | Wait)
        and not (job.patient or job.attempts or job.in_doubt or job.tried)
    )


def _alike(first: Job, job: Job) -> bool:
    """Whether they can be joined, and end at the same time as good as."""
    timeout_s = first.request.timeout_s
    return (
        _is_small(job)
        and job.payload[0] == first.payload[0]
        and job.request == first.request
        and (timeout_s is None or job.submitted - first.submitted <= APART * timeout_s)
    )


def _chunk(jobs: Sequence[Job], rows: int) -> Job:
    from pool.wire.tensors import join_strings  # numpy is there, since they were encoded with it

    first = jobs[0]
    members = Futures([job.future for job in jobs], [job.rows or 0 for job in jobs])
    given: list[Any] = list(zip(*(job.payload for job in jobs), strict=True))
    payload: list[Any] = [table := given.pop(0)[0]]
    for (strings, elements), column in zip(columns(table), given, strict=True):
        payload.append(
            join_strings(column, [elements * rows for rows in members.rows]) if strings else b"".join(column)
        )
    size_bytes = sum(map(len, payload))
    chunk = Job(
        Chunk(members, range(len(jobs))),
        *(first.request, rows, payload, size_bytes, first.submitted, first.encoded),
        weight=len(jobs),
        at=first.at,
    )
    for index, job in enumerate(jobs):
        job.left_in, job.index = members, index
    return chunk
