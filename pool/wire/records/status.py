"""What `Client.status` tells: what runs where, now."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape

from pool.wire.codec import Record
from pool.wire.records.gateway import Gateway
from pool.wire.records.loads import ModelLoad
from pool.wire.records.slots import Slot

__all__ = [
    "Account",
    "Failover",
    "ModelCopies",
    "Moved",
    "Queue",
    "RollingUpdate",
    "Status",
    "Unloadable",
    "VersionsOnDisk",
]


@dataclass(frozen=True, slots=True)
class RollingUpdate(Record):
    left: tuple[int, ...]
    failure: str


@dataclass(frozen=True, slots=True)
class VersionsOnDisk(Record):
    broken: tuple[str, ...]
    troubles: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Moved(Record):
    """A model of a lost device, and where it is served now."""

    model: str
    home: str
    device: str


@dataclass(frozen=True, slots=True)
class Failover(Record):
    away: tuple[Moved, ...]
    stays: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unloadable(Record):
    """A model that a slot is without, because its worker could not load it."""

    model: str
    slot: int
    why: str


@dataclass(frozen=True, slots=True)
class ModelCopies(Record):
    model: str
    devices: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Queue(Record):
    jobs: int
    queued: int
    bytes: int
    max_jobs: int | None = None
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Account(Record):
    """What one client uses: of a `[[client]]`, a key, a user, or anybody, over all its connections.

    `taken`: jobs that were accepted since the start; `device_s`: the time of devices that they took.
    """

    name: str
    connections: int
    jobs: int
    bytes: int
    taken: int
    device_s: float


@dataclass(frozen=True, slots=True)
class Status(Record):
    """What runs where, now."""

    version: str
    instance: str
    pid: int
    endpoint: str
    uptime_s: float
    state: str
    restart_needed: str | None
    refused: Mapping[str, int]
    dropped: Mapping[str, int]
    unread_bytes: int
    call_bytes: int
    chunk_bytes: int
    lent_bytes: int
    rolling_update: RollingUpdate
    versions: VersionsOnDisk
    failover: Failover
    copies: tuple[ModelCopies, ...]
    slots: tuple[Slot, ...]
    queue: Queue
    models: tuple[ModelLoad, ...]
    answered: Mapping[str, int]
    clients: int = 0
    segments: int = 0
    lendable_bytes: int | None = None
    gateway: Gateway | None = None
    unloadable: tuple[Unloadable, ...] = ()
    accounts: tuple[Account, ...] = ()

    def _repr_html_(self) -> str:
        """For a notebook."""
        slots = [
            (slot.slot, slot.device, slot.state, slot.doing or slot.reason, slot.jobs_done, ", ".join(slot.models))
            for slot in self.slots
        ]
        models = [
            (model.name, model.queued_jobs, model.unanswered_jobs, model.last_minute.done, model.last_minute.failed)
            for model in self.models
        ]
        title = f"pool {self.version} at {self.endpoint}, pid {self.pid}: {self.state}"
        return html_table(title, ("slot", "device", "state", "doing", "jobs", "models"), slots) + html_table(
            "jobs", ("model", "queued", "unanswered", "done in the last minute", "failed in it"), models
        )


def html_table(title: str, headings: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Whatever stands in a cell is text."""
    lines = [_row("th", headings), *(_row("td", row) for row in rows)]
    return f"<table><caption>{escape(title)}</caption>{''.join(lines)}</table>"


def _row(kind: str, cells: Iterable[object]) -> str:
    return f"<tr>{''.join(f'<{kind}>{escape(str(cell))}</{kind}>' for cell in cells)}</tr>"
