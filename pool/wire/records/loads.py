"""What waits for a model, and what its jobs cost."""

from collections.abc import Mapping
from dataclasses import dataclass

from pool.wire.codec import Record

__all__ = [
    "Cost",
    "LastMinute",
    "ModelLoad",
    "SizeCost",
    "WorkingSize",
]


@dataclass(frozen=True, slots=True)
class WorkingSize(Record):
    signature: str | None
    rows: int


@dataclass(frozen=True, slots=True)
class SizeCost(Record):
    rows: int
    batches: int
    median_s: float
    slowest_s: float


@dataclass(frozen=True, slots=True)
class Cost(Record):
    signature: str | None
    sizes: tuple[SizeCost, ...]


@dataclass(frozen=True, slots=True)
class LastMinute(Record):
    """How a model's jobs ended in it."""

    seconds: float
    done: int
    failed: int
    p50_s: float | None
    p99_s: float | None


@dataclass(frozen=True, slots=True)
class ModelLoad(Record):
    """What waits for a model, and what it costs."""

    name: str
    model: str
    version: int | None
    labels: tuple[str, ...]
    default: bool
    queued_jobs: int
    queued_rows: int
    unanswered_jobs: int
    affinity: int | None
    bytes: int
    answered: Mapping[str, int]
    last_minute: LastMinute
    device_s: float
    max_batch: int
    working_sizes: tuple[WorkingSize, ...]
    dependent: Mapping[str, str]
    amiss: Mapping[str, str]
    costs: tuple[Cost, ...]
    oldest_s: float | None = None
    leaving: bool = False
