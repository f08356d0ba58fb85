"""A slot with its workers, as `Client.status` tells it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pool.wire.codec import Record

__all__ = ["Beside", "GpuUse", "ReplacementFailure", "Slot"]


@dataclass(frozen=True, slots=True)
class GpuUse(Record):
    used_bytes: int | None
    total_bytes: int | None
    utilization: float | None
    temperature_c: int | None


@dataclass(frozen=True, slots=True)
class Beside(Record):
    """A worker beside the one that serves."""

    pid: int | None
    incarnation: int
    state: str
    state_s: float
    doing: str
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class ReplacementFailure(Record):
    incarnation: int
    reason: str
    ago_s: float
    refused: bool


@dataclass(frozen=True, slots=True)
class Slot(Record):
    slot: int
    device: str
    device_name: str
    uuids: tuple[str, ...]
    gpus: tuple[GpuUse, ...]
    pid: int | None
    incarnation: int
    state: str
    state_s: float
    reason: str
    other_release: bool
    models: tuple[str, ...]
    versions: Mapping[str, int]
    doing: str
    lanes: int
    busy_lanes: int
    jobs_done: int
    memory_bytes: int | None
    replacement: Beside | None
    standby: Beside | None
    replacement_failure: ReplacementFailure | None
    leaving: tuple[Beside, ...]
    restarts: int = 0
    deaths: Mapping[str, int] = field(default_factory=dict)
