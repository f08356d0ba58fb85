"""The rare things that the core wants done. The body (`pool.serve`) does each, and never decides anything itself.

What it wants done for every job is in its own objects, see `orders`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pool.core.events import Death, OfWorker
from pool.wire.faults import Fault
from pool.wire.independence import RowsJudged
from pool.wire.unpacking import Unpacking

if TYPE_CHECKING:
    from pool.core.fleet import Role, SlotState, WorkerState

__all__ = [
    "GIVES",
    "Action",
    "EndSessions",
    "FailJob",
    "HoldWorker",
    "JobFailed",
    "JudgeRows",
    "KeepJob",
    "KillWorker",
    "Notice",
    "PoolReady",
    "PoolStopped",
    "SlotChanged",
    "SpawnReplacement",
    "SpawnStandby",
    "SpawnWorker",
    "StopWorker",
    "TakeSlot",
    "UnpackChunk",
    "WelcomeWorker",
    "WorkerChanged",
]


@dataclass(frozen=True, slots=True)
class SpawnWorker(OfWorker):
    """Start the process; answer with WorkerSpawned, or with WorkerExited if that fails.

    Before it the answer may be SpawnHeld: the process of a former worker is not gone yet.
    """


@dataclass(frozen=True, slots=True)
class SpawnReplacement(OfWorker):
    """Start a second process for the slot, beside the one that sits in it; the answers are those to SpawnWorker.

    `must_fit`: only where its device is known to have room for both; otherwise its end is a death with `no_room`.
    """

    must_fit: bool


@dataclass(frozen=True, slots=True)
class SpawnStandby(OfWorker):
    """Start a second process for the slot that will touch no device before it is told to; answers as to SpawnWorker."""


@dataclass(frozen=True, slots=True)
class JudgeRows(OfWorker):
    """Tell a worker what is known of a signature's rows."""

    judged: RowsJudged


@dataclass(frozen=True, slots=True)
class HoldWorker(OfWorker):
    """Welcome a standby: it imports, and waits for TakeSlot."""


@dataclass(frozen=True, slots=True)
class TakeSlot(OfWorker):
    """Tell the standby that it is a worker like any other from now on, and of what."""


@dataclass(frozen=True, slots=True)
class WelcomeWorker(OfWorker):
    """Tell it what it is to load."""


@dataclass(frozen=True, slots=True)
class EndSessions(OfWorker):
    """A client is gone: the worker ends the private sessions that were opened for this `owner`."""

    owner: int


@dataclass(frozen=True, slots=True)
class JobFailed:
    """`others`: what follows the text for who may know of other models."""

    fault: Fault
    text: str
    retry_after_s: float | None = None
    others: str = ""


@dataclass(slots=True)
class FailJob:
    """The one answer of a job that has no result. There is never a second."""

    client: bytes
    job: int
    failed: JobFailed


@dataclass(frozen=True, slots=True)
class UnpackChunk:
    """In the place of an answer: the client is to send the chunk's members by themselves. `ran`: some may have run."""

    client: bytes
    job: int
    cause: Unpacking
    ran: bool
    text: str


@dataclass(frozen=True, slots=True)
class KeepJob:
    """A job was quarantined: its inputs are worth keeping, so that somebody can look at what kills workers.

    `number` is its client's own, as in the `FailJob` that follows.
    """

    job: int
    model: str
    signature: str | None
    outputs: tuple[str, ...] | None
    rows: int | None
    payload: object
    history: str
    client: bytes
    number: int


@dataclass(frozen=True, slots=True)
class Notice:
    """A line for the log: what the core found out about a model and acts on from now on."""

    text: str


@dataclass(frozen=True, slots=True)
class StopWorker(OfWorker):
    """Ask the worker to finish and exit."""


@dataclass(frozen=True, slots=True)
class KillWorker(OfWorker):
    """`stacks`: it hangs, so where it hangs is worth a moment before it is killed."""

    reason: str
    stacks: bool = False


@dataclass(frozen=True, slots=True)
class SlotChanged(OfWorker):
    """For people, and for the plan. `death`: its worker's, which the change is for, where there is one to tell of.

    `asked`: its worker is gone because somebody wanted another.
    """

    state: SlotState
    reason: str
    death: Death | None = None
    asked: bool = False


@dataclass(frozen=True, slots=True)
class WorkerChanged(OfWorker):
    """For people, and for the plan: what becomes of a worker beside the one that serves, which serves on.

    GONE, or STUCK: a replacement has failed, another standby comes after a pause, or the worker that was to leave has.
    """

    role: Role
    state: WorkerState
    reason: str = ""
    death: Death | None = None


@dataclass(frozen=True, slots=True)
class PoolReady:
    """Emitted once: the quorum of slots serves."""

    serving: int
    slots: int


@dataclass(frozen=True, slots=True)
class PoolStopped:
    """Nothing is left to do; the process may exit."""

    failed: bool
    reason: str


Action = (
    SpawnWorker
    | SpawnReplacement
    | SpawnStandby
    | HoldWorker
    | TakeSlot
    | WelcomeWorker
    | EndSessions
    | JudgeRows
    | FailJob
    | UnpackChunk
    | KeepJob
    | Notice
    | StopWorker
    | KillWorker
    | SlotChanged
    | WorkerChanged
    | PoolReady
    | PoolStopped
)

GIVES = frozenset(
    {
        SpawnWorker,
        SpawnReplacement,
        SpawnStandby,
        HoldWorker,
        TakeSlot,
        WelcomeWorker,
        JudgeRows,
        PoolReady,
        PoolStopped,
    }
)
"""What is done once the answers have left. `FailJob` and `UnpackChunk` are answers; the others take something away."""
