"""What the pool tells of itself: one frozen dataclass a thing, from the answer to a question to `--json`.

    Status ── slots ──► Slot ── gpus ──► GpuUse        Model ── signatures ──► SignatureInfo
       │                  └─ replacement, standby,        └──── scheduling ──► ModelLoad
       ├── models ──► ModelLoad    leaving ──► Beside
       ├── rolling_update, versions, failover, queue   Changes ── changes ──► Change
       └── unloadable ──► Unloadable                   Recent ─── jobs ─────► JobSummary
                                                          └────── deaths ───► Death
    JobHistory, SlotHistory ── crash_reports ──► CrashReport

Times are in seconds, memory is in bytes. A field that does not apply is None or empty. `pool/docs/json.md` is made
from these classes. A field that is added later has a default: the pool may be older than its client.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pool.wire.codec import Plain, Record
from pool.wire.html import html_table
from pool.wire.signatures import TensorSpec

__all__ = [
    "Batch",
    "Beat",
    "Beside",
    "BusyLane",
    "Change",
    "Changes",
    "Cost",
    "CrashReport",
    "Death",
    "Decision",
    "Failover",
    "Feed",
    "GpuUse",
    "JobHistory",
    "JobSummary",
    "JobTimes",
    "LastMinute",
    "LogLine",
    "LogLines",
    "Model",
    "ModelCopies",
    "ModelLoad",
    "Moved",
    "Queue",
    "Recent",
    "ReplacementFailure",
    "Restarted",
    "RollingUpdate",
    "SignatureInfo",
    "SizeCost",
    "Slot",
    "SlotHistory",
    "Status",
    "Tensor",
    "Unloadable",
    "VersionsOnDisk",
    "WasInState",
    "WorkingSize",
    "said_of",
]


# --- Client.status --------------------------------------------------------------------------------------------------


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


@dataclass(frozen=True, slots=True)
class Queue(Record):
    jobs: int
    queued: int
    bytes: int


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
    unloadable: tuple[Unloadable, ...] = ()

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


# --- Client.models --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Decision(Record):
    """About an optimization, in one slot."""

    slot: int
    kind: str
    kept: bool
    why: str


@dataclass(frozen=True, slots=True)
class Tensor(TensorSpec, Record):
    """What an input takes, or an output gives: -1 is any size, and a `shape` of None any shape."""


@dataclass(frozen=True, slots=True)
class SignatureInfo(Record):
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    batchable: bool
    rows: str
    amiss: str | None


@dataclass(frozen=True, slots=True)
class Model(Record):
    """What can be asked of a model, or of one version beside others."""

    name: str
    model: str
    version: int | None
    labels: tuple[str, ...]
    default: bool
    slots: tuple[int, ...]
    ready_slots: tuple[int, ...]
    versions: tuple[int, ...]
    path: str | None
    stateful: bool | None
    handler: str | None
    optimizations: tuple[Decision, ...]
    signatures: Mapping[str, SignatureInfo]
    left_out: Mapping[str, str]
    failover: tuple[Moved, ...]
    remarks: tuple[str, ...]
    scheduling: ModelLoad
    unloadable: tuple[Unloadable, ...] = ()


def said_of(models: Iterable[Model], model: str, version: int | str | None = None) -> Model | None:
    """The one that a job with this name and version would reach, if any."""
    for each in models:
        if each.name == model:
            return each
        if each.model != model:
            continue
        if each.default if version is None else version == each.version or version in each.labels:
            return each
    return None


# --- Client.load, unload, reload ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change(Record):
    """A key of the configuration with another value; `line` says it to a person."""

    key: str
    before: Plain
    after: Plain
    line: str


@dataclass(frozen=True, slots=True)
class Changes(Record):
    changes: tuple[Change, ...]
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Restarted(Record):
    """The slot, and the incarnation of the worker that it gets."""

    slot: int
    incarnation: int


# --- Client.explain -------------------------------------------------------------------------------------------------


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


@dataclass(frozen=True, slots=True)
class Death(Record):
    slot: int
    incarnation: int
    device: str
    died_at: str
    exit: str
    killed_for: str | None


@dataclass(frozen=True, slots=True)
class Recent(Record):
    """Jobs and deaths of late, the newest first."""

    jobs: tuple[JobSummary, ...]
    deaths: tuple[Death, ...]


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
class SlotHistory(Record):
    """What became of a slot's workers: `slot` is what it is now."""

    slot: Slot
    crash_reports: tuple[CrashReport, ...]
    folder: str | None


# --- Client.logs ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogLine(Record):
    """`time_s`: seconds since 1970; `level`: a number of the module `logging`."""

    time_s: float
    level: int
    event: str
    message: str
    fields: Mapping[str, Plain]


@dataclass(frozen=True, slots=True)
class LogLines(Record):
    """`last`: the number of the last of them."""

    last: int
    lines: tuple[LogLine, ...]
