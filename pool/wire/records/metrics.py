"""What `Client.metrics` tells: what has been counted since the pool's start."""

from collections.abc import Mapping
from dataclasses import dataclass

from pool.wire.codec import Record
from pool.wire.records.status import Status

__all__ = ["Histogram", "Metrics", "ModelCounts", "VersionCounts"]


@dataclass(frozen=True, slots=True)
class Histogram(Record):
    """`counts`: of those of at most 2^n µs, or rows, and more than 2^(n-1), by n; empty ones at the end left out."""

    counts: tuple[int, ...]
    sum: float


@dataclass(frozen=True, slots=True)
class VersionCounts(Record):
    """Of the jobs that one version of a model ran: how many ended in which way, and how long those with a result took.

    `version` None: the model has no numbered versions, or the jobs never ran. `batch_rows`: batches, by their rows.
    """

    version: int | None
    jobs: Mapping[str, int]
    total: Histogram
    queue: Histogram
    batch_wait: Histogram
    run: Histogram
    batch_rows: Histogram


@dataclass(frozen=True, slots=True)
class ModelCounts(Record):
    """A model that is there, or was lately."""

    name: str
    model: str
    version: int | None
    versions: tuple[VersionCounts, ...]


@dataclass(frozen=True, slots=True)
class Metrics(Record):
    """What has been counted since the pool's start. `nameless`: jobs for models that the pool did not know."""

    status: Status
    models: tuple[ModelCounts, ...]
    nameless: Mapping[str, int]
