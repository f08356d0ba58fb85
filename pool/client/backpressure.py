"""When the jobs are sent whose callers wait for room: those of `submit(block=True)` and of `map`.

Each model has a line of them. A job that the pool refuses as OVERLOADED returns to the head of its line, and the line
learns from it how many of its jobs the pool takes: its window. From then on an answer lets the next one go, which
needs no clock and is never refused while the load stays as it is; the window grows by one job in as many answers as
it is wide. Where no answer comes, it is opened a little when the pool said that there may be room (`retry_after`),
by more each time that nothing is refused, and later each time that the same job is refused again.

What is kept here is bounded: no job leaves for the first time while one of its line is to be sent again, and what was
refused counts against the client's credit.
"""

import math
import random
from collections import OrderedDict
from collections.abc import Callable, Iterator

from pool.client.outstanding import Job

__all__ = ["Backpressure"]

FIRST_RETRY_S = 0.05  # where the pool does not say when
SHORTEST_RETRY_S = 0.005
LONGEST_RETRY_S = 5.0  # a pool that has room again is found within this
MOST_DOUBLINGS = 6


class _Line:
    """The patient jobs of one model."""

    def __init__(self) -> None:
        self._refused: OrderedDict[int, Job] = OrderedDict()
        self._new: OrderedDict[int, Job] = OrderedDict()
        self._aside: dict[int, Job] = {}
        self._in_pool = 0
        self._window = math.inf
        self._widen_at = math.inf
        self._delay_s = FIRST_RETRY_S
        self._step = 1
        self._in_vain = 0  # refusals of jobs that had been refused before, since the last answer

    def __bool__(self) -> bool:
        return bool(self._refused or self._new or self._aside or self._in_pool)

    def head(self) -> Job | None:
        for queue in (self._refused, self._new):
            if queue:
                return next(iter(queue.values()))
        return None

    def is_open(self, now: float) -> bool:
        if self._in_pool + 1 <= self._window:
            return True
        if now < self._widen_at:
            return False
        self._window = self._in_pool + self._step
        self._step *= 2
        self._widen_at = now + self._delay_s
        return True

    def opens_at(self) -> float | None:
        """None where it needs no clock: the line is empty, or open and waits for credit."""
        return self._widen_at if self.head() is not None and self._in_pool + 1 > self._window else None

    def add(self, job: Job) -> None:
        self._new[job.number] = job

    def sent(self, job: Job) -> None:
        self._refused.pop(job.number, None)
        self._new.pop(job.number, None)
        self._in_pool += 1

    def put_aside(self, job: Job) -> None:
        self._aside[job.number] = job
        (self._refused if job.refusals else self._new).pop(job.number)

    def take_back(self, job: Job) -> None:
        del self._aside[job.number]
        queue = self._refused if job.refusals else self._new
        queue[job.number] = job
        queue.move_to_end(job.number, last=False)

    def refused(self, job: Job, retry_after_s: float | None, now: float, jitter: float) -> None:
        self._refused[job.number] = job
        self._in_pool -= 1
        self._window = self._in_pool
        self._step = 1
        self._in_vain += job.refusals > 1
        asked_s = FIRST_RETRY_S if retry_after_s is None else max(SHORTEST_RETRY_S, retry_after_s)
        grown_s = asked_s * 2 ** min(self._in_vain, MOST_DOUBLINGS)
        self._delay_s = max(asked_s, min(grown_s, LONGEST_RETRY_S)) * jitter
        self._widen_at = now + self._delay_s

    def ended(self, job: Job) -> bool:
        """Wherever it was. Whether it was here, not in the pool."""
        number = job.number
        if any(jobs.pop(number, None) is not None for jobs in (self._refused, self._new, self._aside)):
            return True
        self._in_pool -= 1
        self._in_vain = 0
        self._window += 1 / max(1.0, self._window)
        return False


class Backpressure:
    """Used by the I/O thread alone. The clock is an argument; `chance` gives numbers in [0, 1)."""

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self.lines: dict[str, _Line] = {}
        self._chance = chance
        self.refused_bytes = 0  # of jobs that are to be sent again

    def add(self, job: Job) -> None:
        self.lines.setdefault(job.request.model, _Line()).add(job)
        job.in_line = True

    def to_send(self, now: float, free_bytes: int) -> Iterator[Job]:
        """The jobs that may leave now, each when it is asked for.

        `sent`, `put_aside` or `ended` is to be called before the next one.

        `free_bytes`: what is left of the client's credit. One that does not fit waits, and those behind it with it, so
        that many small ones do not hold up a large one for ever.
        """
        while (job := self._next(now)) is not None:
            kept_bytes = self.refused_bytes - (job.size_bytes if job.refusals else 0)
            if job.size_bytes > free_bytes - kept_bytes:
                return
            yield job
            if job.sent_at is not None:
                free_bytes -= job.size_bytes

    def _next(self, now: float) -> Job | None:
        heads = [head for line in self.lines.values() if (head := line.head()) is not None and line.is_open(now)]
        # What was refused first: a new job that waits for the credit that it holds would wait for ever.
        return min(heads, key=lambda job: (not job.refusals, job.number), default=None)

    def sent(self, job: Job) -> None:
        if job.refusals:
            self.refused_bytes -= job.size_bytes
        self.lines[job.request.model].sent(job)

    def put_aside(self, job: Job) -> None:
        """It waits for something else than room in the pool, and no other of its line for it."""
        self.lines[job.request.model].put_aside(job)

    def take_back(self, job: Job) -> None:
        """It does not any more: the next of its line is this one."""
        self.lines[job.request.model].take_back(job)

    def refused(self, job: Job, retry_after_s: float | None, now: float) -> None:
        """It is not in the pool; `job.refusals` counts this one."""
        self.refused_bytes += job.size_bytes
        self.lines[job.request.model].refused(job, retry_after_s, now, 1.0 + 0.5 * self._chance())

    def ended(self, job: Job) -> None:
        """A job that was added has its answer, is cancelled or late, or goes to another pool."""
        line = self.lines[job.request.model]
        if line.ended(job) and job.refusals:
            self.refused_bytes -= job.size_bytes
        job.in_line = False
        if not line:
            del self.lines[job.request.model]

    def next_instant(self) -> float | None:
        """When a line opens by the clock alone."""
        instants = [instant for line in self.lines.values() if (instant := line.opens_at()) is not None]
        return min(instants, default=None)
