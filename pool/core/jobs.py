"""A job's life, and what of it is leased."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from pool.wire.timeline import Timeline
from pool.wire.unpacking import Unpacking

if TYPE_CHECKING:
    from pool.core.queue import Client, Key, Line
    from pool.core.trial import Loss

__all__ = [
    "DONE",
    "FINISHED",
    "JOB_STEPS",
    "LEASED",
    "Batch",
    "IllegalStep",
    "Job",
    "JobState",
    "Kept",
    "Note",
    "Part",
    "Parting",
]


class IllegalStep(Exception):
    """A state was asked to become one that its table does not allow; nothing was changed."""


class JobState(Enum):
    QUEUED = "waits for a lane"
    LEASED = "an incarnation runs it or a piece of it"
    DONE = "answered with its result"
    FAILED = "answered with an error"
    EXPIRED = "answered at its deadline"
    CANCELLED = "nobody wants its answer"

    __hash__ = object.__hash__  # Enum's own is written in Python, and each step of each job needs two


LEASED, DONE = JobState.LEASED, JobState.DONE  # for what every job does: its Enum takes ten times as long

JOB_STEPS: Mapping[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.LEASED, JobState.FAILED, JobState.EXPIRED, JobState.CANCELLED}),
    JobState.LEASED: frozenset({JobState.QUEUED, JobState.DONE, JobState.FAILED, JobState.EXPIRED, JobState.CANCELLED}),
    JobState.DONE: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.EXPIRED: frozenset(),
    JobState.CANCELLED: frozenset(),
}

FINISHED = frozenset(state for state, steps in JOB_STEPS.items() if not steps)


class Kept(Enum):
    """Why the pool, and not its client, keeps a job to one slot."""

    AFFINITY = "which holds what was written to the model's variables"
    CONFINED = "where a job of this client was quarantined or hung"


class Parting(NamedTuple):
    """Why a chunk is to be unpacked (see `unpacked`)."""

    cause: Unpacking
    text: str


MOST_NOTES = 40  # of one job's history: one of a hundred thousand pieces has as many lines
Note = tuple[float, str, tuple[object, ...]]


@dataclass(slots=True, eq=False)
class Job:
    """What a caller waits for. `number` is the client's own; `id` is the pool's.

    `rows` is 0 where it has none. Rows before `cut` have been leased or given up to a retry; of the rest, parts are cut
    when a batch has room for them. `out` parts are leased now, the last one in `batch`. `pieces` are the answers so
    far, by first row.
    `deaths` counts the workers that died while they held a part of it; what counts against it, its parts say (see
    `trial`). `runs` counts the batches that a part of it was in.
    `attempts` pools have ended while they held it; `in_doubt`: it may have started in one that gave no answer.
    `round` is raised when it starts over: answers to parts of an earlier one are of no use.
    `ran`: once it is done, of the batch that gave its last rows when it started, its run and its fetch in seconds, its
    rows, its slot and the device.
    `weight`: for how many jobs it counts; a chunk of them for more than one. `kept`: why its line is that of one slot
    that its client did not name; `named`: the device that its client did name. `place`: among its client's jobs the
    smaller is the sooner. It is the job's own `id`, or that of the chunk that it was in.
    """

    client: Client
    number: int
    id: int
    line: Line
    key: Key
    rows: int
    priority: int
    timeout_s: float
    size_bytes: int
    payload: object
    arrived: float
    deadline: float
    state: JobState = JobState.QUEUED
    cut: int = 0
    out: int = 0
    batch: Batch | None = None
    answered_rows: int = 0
    pieces: dict[int, object] | None = None
    attempts: int = 0
    in_doubt: bool = False
    deaths: int = 0
    runs: int = 0
    round: int = 0
    gathered_s: float = 0.0
    kept: Kept | None = None
    named: str | None = None
    work_s: float = 0.0
    weight: int = 1
    place: int = 0
    parting: Parting | None = None
    died_in: tuple[int, ...] = ()  # of a chunk, as of a part
    loss: Loss | None = None  # the same
    ended: float | None = None
    ran: tuple[float, float, float, int, int, str, int | None] | None = None
    history: list[Note] = field(default_factory=list)
    untold: int = 0  # lines that were left out of it

    @property
    def waiting(self) -> bool:
        """Whether it is in its line, for the next lane."""
        return self.id in self.line.by_age

    @property
    def left(self) -> int:
        """How many rows wait to be cut."""
        return self.rows - self.cut

    def start_over(self) -> None:
        """Its pieces cannot be joined: all of it is to be run anew."""
        self.round += 1
        self.cut = 0
        self.answered_rows = 0
        self.pieces = None

    def become(self, state: JobState) -> None:
        if state not in JOB_STEPS[self.state]:
            raise IllegalStep(f"job {self.id}: {self.state.name} → {state.name}")
        self.state = state

    def came_back(self) -> None:
        """LEASED → QUEUED, if nothing of it is out any more."""
        if not self.out and self.state is LEASED:
            self.become(JobState.QUEUED)

    def note(self, now: float, what: str, *values: object) -> None:
        """A line of its history; it is put into words when somebody asks."""
        history = self.history
        if len(history) >= MOST_NOTES:  # those in the middle are like their neighbours
            del history[MOST_NOTES // 2]
            self.untold += 1
        history.append((now, what, values))

    def timeline(self) -> Timeline | None:
        """Where its time went; None unless it is done."""
        if self.ran is None or self.ended is None:
            return None
        started, run_s, fetch_s, rows, slot, device, version = self.ran
        feed_s = self.ended - started - run_s - fetch_s
        return Timeline(
            job=self.id,
            queue_s=started - self.arrived - self.gathered_s,
            batch_wait_s=self.gathered_s,
            feed_s=feed_s if feed_s > 0.0 else 0.0,
            run_s=run_s,
            fetch_s=fetch_s,
            rows=self.rows,
            batch_rows=rows,
            slot=slot,
            device=device,
            attempts=self.attempts + self.deaths + 1,
            version=version,
        )

    def told(self) -> list[str]:
        """Its history in words, with seconds since it came."""
        lines = [f"{now - self.arrived:.3f} s {what.format(*values)}" for now, what, values in self.history]
        if self.untold:
            lines.insert(MOST_NOTES // 2, f"… {self.untold} more …")
        if self.ended is not None:
            lines.append(f"{self.ended - self.arrived:.3f} s {self.state.name}")
        return lines


class Part:
    """Rows `start` to `stop` of a job, both 0 where it has none: what is leased.

    `deaths`: workers that died with these rows and perhaps by them; `died_in`: the slots of all that died with them,
    `died_alone_in`: of those that ran no other job;
    `loss`: the last of these deaths, see `trial`. `charged_s`: device time that its client was charged when it was cut.
    """

    __slots__ = ("charged_s", "deaths", "died_alone_in", "died_in", "job", "loss", "round", "rows", "start", "stop")

    def __init__(self, job: Job, start: int, stop: int, charged_s: float = 0.0) -> None:
        self.job, self.start, self.stop, self.rows = job, start, stop, stop - start
        self.round, self.charged_s = job.round, charged_s
        self.deaths = 0
        self.died_in: tuple[int, ...] = ()
        self.died_alone_in: tuple[int, ...] = ()
        self.loss: Loss | None = None

    def piece(self, start: int, stop: int) -> Part:
        """Some of its rows, which went through the same."""
        piece = Part(self.job, start, stop)
        piece.round, piece.deaths = self.round, self.deaths
        piece.died_in, piece.died_alone_in = self.died_in, self.died_alone_in
        return piece

    @property
    def whole(self) -> bool:
        return self.rows == self.job.rows

    @property
    def jobs(self) -> int:
        """For how many jobs it counts; a piece of a chunk for several, as far as anybody knows."""
        job = self.job
        if job.weight == 1 or self.rows == job.rows:
            return job.weight
        return max(2, job.weight * self.stop // job.rows - job.weight * self.start // job.rows)

    @property
    def wanted(self) -> bool:
        """Whether somebody still waits for its answer."""
        return self.job.state not in FINISHED and self.round == self.job.round


@dataclass(slots=True, eq=False)
class Batch:
    """Parts of one key, run together in one lane. `cost_s` is what was charged for it when it began.

    `microbatch`: the rows that are fed at once, padding included; with more, it is so many runs, one after another.
    """

    number: int
    key: Key
    slot: int
    incarnation: int
    lane: int
    started: float
    parts: tuple[Part, ...]
    rows: int
    padded: int
    microbatch: int
    cost_s: float
    expected_end: float
    earliest_end: float
    joined: bool  # its rows are of several jobs, or of a piece of one, or some were added, or it is fed in microbatches
    jobs: int  # that run in it: those of a chunk are several
    owner: int = 0  # the number of the client whose private session it opens
    suspect: bool = False  # it has lost a worker before
    beside: bool = False  # another batch ran in its worker at the same time
    over: bool = False
    overran: bool = False  # its worker was killed because it ran for too long
    version: int | None = None  # of the model, that its worker has; None where it has no numbered versions

    @property
    def model(self) -> str:
        return self.key.model

    @property
    def microbatches(self) -> int:
        """How many runs it is."""
        return -(-self.padded // self.microbatch) if self.microbatch else 1

    @property
    def wanted(self) -> bool:
        """Whether anybody still waits for an answer of it."""
        return any(part.wanted for part in self.parts)

    def has_ended(self) -> bool:
        """Whether some of it are rows of a job that has ended."""
        return any(part.job.state in FINISHED for part in self.parts)
