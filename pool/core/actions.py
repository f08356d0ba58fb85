"""The rare things that the core wants done. The body (`pool.serve`) does each, and never decides anything itself.

What it wants done for every job is in its own objects, see `orders`.
"""

from dataclasses import dataclass

from pool.core.slots import OfWorker, SlotState
from pool.wire.faults import Fault
from pool.wire.independence import RowsJudged
from pool.wire.unpacking import Unpacking

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
    "SpawnStandby",
    "SpawnSuccessor",
    "SpawnWorker",
    "StandbyChanged",
    "StandbyLost",
    "StopWorker",
    "SuccessorChanged",
    "SuccessorFailed",
    "TakeSeat",
    "UnpackChunk",
    "WelcomeWorker",
    "WorkerLeft",
]


@dataclass(frozen=True, slots=True)
class SpawnWorker(OfWorker):
    """Start the process; answer with WorkerSpawned, or with WorkerExited if that fails.

    Before it the answer may be SpawnHeld: the process of a former worker is not gone yet.
    """


@dataclass(frozen=True, slots=True)
class SpawnSuccessor(OfWorker):
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
    """Welcome a standby: it imports, and waits for TakeSeat."""


@dataclass(frozen=True, slots=True)
class TakeSeat(OfWorker):
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
    fault: Fault
    text: str
    retry_after_s: float | None = None


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
    """A job was quarantined: its inputs are worth keeping, so that somebody can look at what kills workers."""

    job: int
    model: str
    signature: str | None
    outputs: tuple[str, ...] | None
    rows: int | None
    payload: object
    story: str


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
    """For people: the log, the status line. `asked`: its worker is gone because somebody wanted another."""

    state: SlotState
    reason: str
    last_output: tuple[str, ...] = ()
    asked: bool = False


@dataclass(frozen=True, slots=True)
class SuccessorChanged(OfWorker):
    """For people: how far the worker is that is to follow the one in the slot's seat."""

    state: SlotState
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SuccessorFailed(OfWorker):
    """The worker that was to follow is gone, or as good as gone; the one in the slot's seat serves on."""

    reason: str
    last_output: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StandbyChanged(OfWorker):
    """For people: how far the slot's standby is; READY when it stands by."""

    state: SlotState
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StandbyLost(OfWorker):
    """For people: the standby is gone; another one comes after a pause."""

    reason: str
    last_output: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerLeft(OfWorker):
    """For people: the exit of a worker was seen that another has followed, or that was not wanted any more."""

    reason: str


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
    | SpawnSuccessor
    | SpawnStandby
    | HoldWorker
    | TakeSeat
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
    | SuccessorChanged
    | SuccessorFailed
    | StandbyChanged
    | StandbyLost
    | WorkerLeft
    | PoolReady
    | PoolStopped
)

GIVES = frozenset(
    {
        SpawnWorker,
        SpawnSuccessor,
        SpawnStandby,
        HoldWorker,
        TakeSeat,
        WelcomeWorker,
        JudgeRows,
        PoolReady,
        PoolStopped,
    }
)
"""What is done once the answers have left. `FailJob` and `UnpackChunk` are answers; the others take something away."""
