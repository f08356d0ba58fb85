"""A job's life."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

__all__ = ["FINISHED", "JOB_STEPS", "Batch", "IllegalStep", "Job", "JobKey", "JobState"]

JobKey = tuple[bytes, int]


class IllegalStep(Exception):
    """A state was asked to become one that its table does not allow; nothing was changed."""


class JobState(Enum):
    QUEUED = "waits for a lane"
    LEASED = "entrusted to one incarnation"
    DONE = "answered with its result"
    FAILED = "answered with an error"
    EXPIRED = "answered at its deadline"
    CANCELLED = "nobody wants its answer"


JOB_STEPS: Mapping[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.LEASED, JobState.FAILED, JobState.EXPIRED, JobState.CANCELLED}),
    JobState.LEASED: frozenset({JobState.QUEUED, JobState.DONE, JobState.FAILED, JobState.EXPIRED, JobState.CANCELLED}),
    JobState.DONE: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.EXPIRED: frozenset(),
    JobState.CANCELLED: frozenset(),
}

FINISHED = frozenset(state for state, steps in JOB_STEPS.items() if not steps)


@dataclass(slots=True, eq=False)
class Job:
    """`attempts` counts leases; `story` is its path in words, with seconds since it came."""

    client: bytes
    number: int
    model: str
    timeout_s: float
    size_bytes: int
    payload: object
    arrived: float
    state: JobState = JobState.QUEUED
    attempts: int = 0
    lease: "Batch | None" = None
    story: list[str] = field(default_factory=list)

    @property
    def key(self) -> JobKey:
        return (self.client, self.number)

    @property
    def deadline(self) -> float:
        return self.arrived + self.timeout_s

    def become(self, state: JobState) -> None:
        if state not in JOB_STEPS[self.state]:
            raise IllegalStep(f"job {self.number}: {self.state.name} → {state.name}")
        self.state = state

    def note(self, now: float, what: str) -> None:
        self.story.append(f"{now - self.arrived:.3f} s {what}")


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Parts run together in one lane; today a part is a whole job and a batch has one."""

    number: int
    model: str
    slot: int
    incarnation: int
    lane: int
    started: float
    jobs: tuple[Job, ...]

    @property
    def wanted(self) -> bool:
        """Whether anybody still waits for an answer of it."""
        return any(job.state is JobState.LEASED for job in self.jobs)
