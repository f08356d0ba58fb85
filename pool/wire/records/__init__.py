"""What the pool tells of itself: one frozen dataclass a thing, from the answer to a question to `--json`.

    Status ── slots ──► Slot ── gpus ──► GpuUse        Model ── signatures ──► SignatureInfo
       │                  └─ replacement, standby,        └──── scheduling ──► ModelLoad
       ├── models ──► ModelLoad    leaving ──► Beside
       ├── rolling_update, versions, failover, queue   Changes ── changes ──► Change
       │                                               Recent ─── jobs ─────► JobSummary
       ├── gateway ── processes ──► GatewayProcess        └────── deaths ───► Death
       ├── copies ──► ModelCopies, accounts ──► Account
       └── unloadable ──► Unloadable                   Placement ── signatures ──► PlacedSignature
    JobHistory, SlotHistory ── crash_reports ──►           └─────── rules ───────► PlacedRule
                                    CrashReport
    Metrics ── status ──► Status
       └────── models ──► ModelCounts ── versions ──► VersionCounts ── total, queue, … ──► Histogram

Answers come in and objects go out. Times are in seconds, memory is in bytes. A field that does not apply is None or
empty, and one that is added later has a default: the pool may be older than its client. `pool/docs/json.md` is made
from these classes. They never ask, and never act. What `pool devices` prints is in `pool.devices`.
"""

from pool.wire.records.changes import Change, Changes, Restarted
from pool.wire.records.crash_reports import (
    Batch,
    Beat,
    BusyLane,
    CrashReport,
    Death,
    Feed,
    Recent,
    SlotHistory,
    WasInState,
)
from pool.wire.records.gateway import Gateway, GatewayProcess
from pool.wire.records.jobs import JobHistory, JobSummary, JobTimes
from pool.wire.records.loads import Cost, LastMinute, ModelLoad, SizeCost, WorkingSize
from pool.wire.records.logs import LogLine, LogLines
from pool.wire.records.metrics import Histogram, Metrics, ModelCounts, VersionCounts
from pool.wire.records.models import Decision, Model, SignatureInfo, Tensor, said_of
from pool.wire.records.placement import PlacedNode, PlacedRule, PlacedSignature, Placement, RanElsewhere
from pool.wire.records.slots import Beside, GpuUse, ReplacementFailure, Slot
from pool.wire.records.status import (
    Account,
    Failover,
    ModelCopies,
    Moved,
    Queue,
    RollingUpdate,
    Status,
    Unloadable,
    VersionsOnDisk,
)

__all__ = [
    "Account",
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
    "Gateway",
    "GatewayProcess",
    "GpuUse",
    "Histogram",
    "JobHistory",
    "JobSummary",
    "JobTimes",
    "LastMinute",
    "LogLine",
    "LogLines",
    "Metrics",
    "Model",
    "ModelCopies",
    "ModelCounts",
    "ModelLoad",
    "Moved",
    "PlacedNode",
    "PlacedRule",
    "PlacedSignature",
    "Placement",
    "Queue",
    "RanElsewhere",
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
    "VersionCounts",
    "VersionsOnDisk",
    "WasInState",
    "WorkingSize",
    "said_of",
]
