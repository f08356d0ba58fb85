"""A job that goes from one pool to another: what of it stays, and what the next pool is told."""

from dataclasses import replace

from pool.client.bulk.members import Chunk, Futures
from pool.client.bulk.split import split
from pool.client.driver import Driver
from pool.client.futures import JobFuture
from pool.client.outstanding import Job
from pool.client.shared_memory import Piece
from pool.wire.unpacking import Unpacking

__all__ = ["again", "rebind"]


def again(job: Job) -> list[Job]:
    """The jobs that go to another pool in the place of one. The rules are those of a reconnect.

    `attempts` counts a pool that was lost with it, and `in_doubt` tells the next one that it may have started there. A
    chunk in doubt goes as single jobs: one of its members may have been the pool's end.
    """
    lost = job.sent_to is not None
    in_doubt = job.in_doubt or job.sent_at is not None
    next_one = replace(
        job,
        payload=[bytes(each.memory) if isinstance(each, Piece) else each for each in job.payload],
        space=None,  # of the memory that the former pool has lent
        patient=job.patient or job.sent_at is not None,
        attempts=job.attempts + lost,
        in_doubt=in_doubt,
        origin=0,
        first=0,
        number=0,
        on_its_way=None,
        sent_at=None,
        call=None,
        sent_to=None,
        place=0,
        in_line=False,
        refusals=0,
        last_refusal=None,
        at=None,
    )
    return split(next_one, Unpacking.LOST) if in_doubt and job.weight > 1 else [next_one]


def rebind(job: Job, driver: Driver) -> None:
    """Those who wait for it are told by another connection's thread."""
    ending = job.future
    if isinstance(ending, JobFuture):
        ending.driver = driver
    elif isinstance(ending, Chunk) and isinstance(ending.members, Futures):
        for index in ending.indices:
            future = ending.members.futures[index]
            if isinstance(future, JobFuture):
                future.driver = driver
