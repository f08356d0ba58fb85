"""What `Client.explain` tells of workers that died, and of what is recent."""

from dataclasses import dataclass

from pool.wire.codec import Record
from pool.wire.records.jobs import JobSummary
from pool.wire.records.slots import Slot

__all__ = [
    "Batch",
    "Beat",
    "BusyLane",
    "CrashReport",
    "Death",
    "Feed",
    "Recent",
    "SlotHistory",
    "WasInState",
]


@dataclass(frozen=True, slots=True)
class Death(Record):
    slot: int
    incarnation: int
    device: str
    died_at: str
    exit: str
    killed_for: str | None


@dataclass(frozen=True, slots=True)
class Feed(Record):
    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Batch(Record):
    batch: int
    lane: int
    model: str
    signature: str | None
    age_s: float
    rows: int | None
    fed_rows: int | None
    suspect: bool
    jobs: tuple[int, ...]
    jobs_in_all: int
    feeds: tuple[Feed, ...] | None


@dataclass(frozen=True, slots=True)
class WasInState(Record):
    state: str
    age_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class BusyLane(Record):
    lane: int
    batch: int
    age_s: float


@dataclass(frozen=True, slots=True)
class Beat(Record):
    age_s: float
    phase: str
    detail: str
    running: tuple[BusyLane, ...]


@dataclass(frozen=True, slots=True)
class CrashReport(Record):
    """What is known of a worker that died."""

    format: int
    pool: str
    instance: str
    endpoint: str
    slot: int
    incarnation: int
    device: str
    pid: int | None
    died_at: str
    up_s: float | None
    exit: str
    killed_for: str | None
    state: str
    state_s: float
    phase: str
    detail: str
    phase_s: float
    models: tuple[str, ...]
    batches: tuple[Batch, ...]
    states: tuple[WasInState, ...]
    beats: tuple[Beat, ...]
    deaths_lately: int
    deaths: tuple[Death, ...]
    last_output: tuple[str, ...]
    stacks: str
    threads: tuple[str, ...]
    note: str


@dataclass(frozen=True, slots=True)
class Recent(Record):
    """Jobs and deaths of late, the newest first."""

    jobs: tuple[JobSummary, ...]
    deaths: tuple[Death, ...]


@dataclass(frozen=True, slots=True)
class SlotHistory(Record):
    """What became of a slot's workers: `slot` is what it is now."""

    slot: Slot
    crash_reports: tuple[CrashReport, ...]
    folder: str | None
