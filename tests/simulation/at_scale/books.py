"""What a world remembers of its jobs, to tell whether the pool kept its promises. Cheap: a million jobs pass.

    asked ─► leased ⇄ returned ─► answered once, or cancelled

It shares no code with the core, and knows nothing of it but what it did.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from pool.wire.faults import Fault
from simulation.words import Answered, JobDone, JobFailed, Piece

__all__ = ["Books", "BrokenPromise", "Job"]

Name = tuple[bytes, int]

# What may befall any job, whatever it asks for.
NOBODYS_FAULT = frozenset(
    {
        Fault.DEADLINE_EXCEEDED,
        Fault.OVERLOADED,
        Fault.WORKER_LOST,
        Fault.STATEFUL_WORKER_LOST,
        Fault.QUARANTINED,
        Fault.POOL_STOPPING,
    }
)


class BrokenPromise(AssertionError):
    """The pool did what it must never do."""


@dataclass(slots=True, eq=False)
class Job:
    """A job as the outside knows it; it is its own payload. `rows` 0: it has none.

    `guilty` is the row that its model cannot compute, -1 for none; `poison` kills the worker that runs it. `out` counts
    the rows that are leased now (1 for a job without rows), `deaths` the workers that died with some of it.
    """

    client: bytes
    number: int
    model: str
    rows: int
    sent: float
    deadline: float
    priority: int = 0
    guilty: int = -1
    poison: bool = False
    device: str | None = None
    out: int = 0
    runs: int = 0
    deaths: int = 0


class Books:
    """`late_s`: how late the pool's loop may be at most; an answer may come as late after its deadline.

    `unfit`: the models of which not even a row fits into memory.
    """

    def __init__(self, max_attempts: int, late_s: float, unfit: frozenset[str]) -> None:
        self.open: dict[Name, Job] = {}
        self.asked = 0
        self.done = 0
        self.cancelled = 0
        self.failed: Counter[Fault] = Counter()
        self.rows_of: Counter[bytes] = Counter()
        """Rows computed in jobs that were done, by client."""
        self.latencies: defaultdict[bytes, array[float]] = defaultdict(lambda: array("d"))
        """Of the jobs that were done, by client, in the order of their answers."""
        self.done_at = array("d")
        self.early = 0
        """Jobs that were told before their deadline that they will not make it."""
        self.reran = 0
        self.kept = 0
        """Inputs of quarantined jobs that the pool wanted written down."""
        self._max_attempts = max_attempts
        self._late_s = late_s
        self._unfit = unfit

    @property
    def answered(self) -> int:
        return self.done + self.failed.total()

    def ask(self, job: Job) -> None:
        self.open[(job.client, job.number)] = job
        self.asked += 1

    def cancel(self, job: Job) -> None:
        """Its client does not wait any more: an answer that comes all the same is a second one."""
        if self.open.pop((job.client, job.number), None) is not None:
            self.cancelled += 1

    def leased(self, parts: Iterable[Piece], now: float, again: bool) -> None:
        """A batch went out. `again`: the model loses rows, so pieces of an earlier try may still be out."""
        for part in parts:
            job = part.payload
            assert isinstance(job, Job)
            if now > job.deadline:
                raise BrokenPromise(f"started {now - job.deadline:.6f} s after its deadline: {job}")
            if (job.client, job.number) not in self.open:
                raise BrokenPromise(f"started, and nobody waits for it: {job}")
            if part.start == part.stop == 0:
                rows = 1
            elif 0 <= part.start < part.stop <= job.rows:
                rows = part.stop - part.start
            else:
                raise BrokenPromise(f"rows {part.start} to {part.stop} of {job}")
            job.out += rows
            if job.out > (job.rows or 1) and not again:
                raise BrokenPromise(f"rows {part.start} to {part.stop} are out twice: {job}")
            self.reran += job.runs > 0 and part.start == 0
            job.runs += 1

    def returned(self, parts: Iterable[Piece], died: bool) -> None:
        """A batch is over, or the exit of its worker was seen."""
        for part in parts:
            job = part.payload
            assert isinstance(job, Job)
            job.out -= part.stop - part.start or 1
            job.deaths += died

    def answer(self, answer: Answered, now: float) -> Job:
        job = self.open.pop((answer.client, answer.job), None)
        if job is None:
            raise BrokenPromise(f"answered twice, or after it was cancelled: {answer}")
        if now > job.deadline + self._late_s:
            raise BrokenPromise(f"answered {now - job.deadline:.6f} s after its deadline: {answer}")
        if isinstance(answer, JobDone):
            self._done(job, answer, now)
        else:
            self._failed(job, answer, now)
        return job

    def _done(self, job: Job, outcome: JobDone, now: float) -> None:
        if job.guilty >= 0 or job.poison:
            raise BrokenPromise(f"it cannot have a result: {job}")
        at = 0
        for payload in outcome.payloads:
            whose, start, stop = cast(tuple[Job, int, int], payload)  # as the world's workers answer
            if whose is not job or start != at:
                raise BrokenPromise(f"rows {start} to {stop} of {whose} in the answer, after row {at}, of {job}")
            at = stop
        if at != job.rows:
            raise BrokenPromise(f"{at} rows answered of {job}")
        self.done += 1
        self.rows_of[job.client] += job.rows or 1
        self.latencies[job.client].append(now - job.sent)
        self.done_at.append(now)

    def _failed(self, job: Job, outcome: JobFailed, now: float) -> None:
        fault = outcome.fault
        self.failed[fault] += 1
        if fault is Fault.MODEL_FAILED:
            fair = job.guilty >= 0
        elif fault is Fault.OUT_OF_MEMORY:
            fair = job.model in self._unfit
        elif fault in (Fault.QUARANTINED, Fault.WORKER_LOST):
            fair = job.deaths >= self._max_attempts
        elif fault is Fault.OVERLOADED:
            fair = outcome.retry_after_s is not None and job.runs == 0
        else:
            fair = fault in NOBODYS_FAULT
        if not fair:
            raise BrokenPromise(f"{fault.name} ({outcome.text}): {job}")
        self.early += fault is Fault.DEADLINE_EXCEEDED and now < job.deadline

    def close(self) -> None:
        """All is over: raises BrokenPromise if anybody still waits."""
        if self.open:
            raise BrokenPromise(
                f"{len(self.open)} jobs were never answered, the first: {next(iter(self.open.values()))}"
            )
        if self.asked != self.answered + self.cancelled:
            raise BrokenPromise(f"{self.asked} asked, {self.answered} answered, {self.cancelled} cancelled")
