"""The way of one model's jobs to one pool: who counts them, and where they go if the pool does not answer them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pool.client.bulk.members import Chunk, Futures
from pool.client.bulk.split import split
from pool.client.futures import JobFuture
from pool.client.outstanding import Job, Withdrawal
from pool.client.shared_memory import Piece
from pool.client.spread.choice import Load
from pool.errors import PoolError
from pool.wire.jobs import Result
from pool.wire.unpacking import Unpacking

if TYPE_CHECKING:
    from pool.client.driver import Driver
    from pool.client.spread.member import Member
    from pool.client.spread.spread import Spread

__all__ = ["Route", "again", "rebind"]


class Route:
    """Safe for many threads."""

    def __init__(self, spread: Spread, member: Member, load: Load) -> None:
        self.member = member
        self.load = load
        self._spread = spread

    def came(self, jobs: int) -> None:
        """So many jobs are about to be sent there."""
        with self._spread.lock:
            self.load.mine += jobs

    def left(self, jobs: int) -> None:
        """So many are there no more."""
        with self._spread.lock:
            self.load.mine = max(0, self.load.mine - jobs)

    def answered(self, job: Job, result: Result, now: float) -> None:
        """The pool has told, with a job's answer, how much waits there."""
        line = result.timeline
        share = line.rows / line.batch_rows if line.batch_rows else 1.0
        with self._spread.lock:
            self.load.learn(max(0, result.waiting), line.run_s * share / job.weight, now)

    def onward(self, job: Job, error: PoolError, *, lost: bool = False) -> bool:
        """Whether a job goes on to another pool that has ended here in this error. Then nothing here ends it any more.

        `lost`: the connection has ended, and the pool has said nothing of the job. A job whose caller waits for nothing
        else has the error as its end: he goes on with it himself.
        """
        return self._spread.onward(job, error, lost)

    def elsewhere(self, job: Job, why: PoolError) -> bool:
        """The same for a job that waits here for its pool to come: if another one takes it now."""
        return self._spread.elsewhere(job, why)

    def withdraw(self, withdrawal: Withdrawal) -> None:
        """Nobody waits for it any more, wherever it is by now."""
        self._spread.withdraw(withdrawal)


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
        route=None,
    )
    return split(next_one, Unpacking.LOST) if in_doubt and job.weight > 1 else [next_one]


def rebind(job: Job, driver: Driver) -> None:
    """Those who wait for it are told by another connection's thread."""
    ending = job.future
    if isinstance(ending, JobFuture):
        ending.serve(driver)
    elif isinstance(ending, Chunk) and isinstance(ending.members, Futures):
        for index in ending.indices:
            future = ending.members.futures[index]
            if isinstance(future, JobFuture):
                future.serve(driver)
