"""What `Client.explain` tells of a job, and where a job's time went."""

from dataclasses import dataclass

from pool.wire.codec import Record

__all__ = ["JobHistory", "JobSummary", "JobTimes"]


@dataclass(frozen=True, slots=True)
class JobTimes(Record):
    """Where a job's time went, as far as the pool knows."""

    job: int
    queue_s: float
    batch_wait_s: float
    feed_s: float
    run_s: float
    fetch_s: float
    rows: int
    batch_rows: int
    slot: int
    device: str
    attempts: int
    version: int | None = None


@dataclass(frozen=True, slots=True)
class JobSummary(Record):
    job: int
    client: int
    client_job: int
    model: str
    signature: str | None
    rows: int | None
    priority: int
    device: str | None
    timeout_s: float | None
    bytes: int
    state: str
    runs: int


@dataclass(frozen=True, slots=True)
class JobHistory(JobSummary):
    """What became of a job."""

    history: tuple[str, ...]
    timeline: JobTimes | None
