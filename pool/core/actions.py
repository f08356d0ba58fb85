"""What the core wants done. The body (`pool.service`) does each, in order, and never decides anything itself."""

from dataclasses import dataclass

from pool.core.events import Outcome
from pool.core.slots import SlotState

__all__ = [
    "Action",
    "AnswerJob",
    "KillWorker",
    "PoolReady",
    "PoolStopped",
    "RunBatch",
    "SlotChanged",
    "SpawnWorker",
    "StopWorker",
    "WelcomeWorker",
]


@dataclass(frozen=True, slots=True)
class SpawnWorker:
    """Start the process; answer with WorkerSpawned, or with WorkerExited if that fails."""

    slot: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class WelcomeWorker:
    slot: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class RunBatch:
    """Send the payloads, one a part, to a lane. The lane has credit for it: it runs nothing else."""

    slot: int
    incarnation: int
    lane: int
    batch: int
    model: str
    payloads: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class AnswerJob:
    """The one answer of a job. There is never a second."""

    client: bytes
    job: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class StopWorker:
    """Ask the worker to finish and exit."""

    slot: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class KillWorker:
    slot: int
    incarnation: int
    reason: str


@dataclass(frozen=True, slots=True)
class SlotChanged:
    """For people: the log, the status line."""

    slot: int
    incarnation: int
    state: SlotState
    reason: str
    last_output: tuple[str, ...] = ()


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
    SpawnWorker | WelcomeWorker | RunBatch | AnswerJob | StopWorker | KillWorker | SlotChanged | PoolReady | PoolStopped
)
