"""What the core is told. Plain values: the payloads are opaque to it and only handed on."""

from dataclasses import dataclass

from pool.wire.faults import Fault
from pool.wire.signatures import ModelInfo
from pool.wire.worker_messages import LaneProgress, Phase

__all__ = [
    "BatchDone",
    "BatchUnsent",
    "ClientGone",
    "Death",
    "Event",
    "Failed",
    "JobArrived",
    "JobCancelled",
    "Outcome",
    "Start",
    "StopAsked",
    "Succeeded",
    "Tick",
    "WorkerBeat",
    "WorkerExited",
    "WorkerHello",
    "WorkerReady",
    "WorkerSpawned",
]


@dataclass(frozen=True, slots=True)
class Succeeded:
    payload: object


@dataclass(frozen=True, slots=True)
class Failed:
    fault: Fault
    text: str


Outcome = Succeeded | Failed


@dataclass(frozen=True, slots=True)
class Start:
    """The loop runs: bring the slots up."""


@dataclass(frozen=True, slots=True)
class Tick:
    """`next_deadline()` has passed. Any event does the same work; this one does nothing else."""


@dataclass(frozen=True, slots=True)
class StopAsked:
    """Drain and stop; asked a second time, stop without draining."""

    reason: str


@dataclass(frozen=True, slots=True)
class JobArrived:
    """`job` is the client's own number. `timeout_s` None means the policy's default."""

    client: bytes
    job: int
    model: str
    timeout_s: float | None
    size_bytes: int
    payload: object


@dataclass(frozen=True, slots=True)
class JobCancelled:
    client: bytes
    job: int


@dataclass(frozen=True, slots=True)
class ClientGone:
    client: bytes


@dataclass(frozen=True, slots=True)
class WorkerSpawned:
    slot: int
    incarnation: int
    pid: int


@dataclass(frozen=True, slots=True)
class WorkerHello:
    slot: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class WorkerBeat:
    slot: int
    incarnation: int
    phase: Phase
    detail: str
    running: tuple[LaneProgress, ...]


@dataclass(frozen=True, slots=True)
class WorkerReady:
    slot: int
    incarnation: int
    lanes: int
    models: tuple[ModelInfo, ...]


@dataclass(frozen=True, slots=True)
class BatchDone:
    """One outcome a part, in the order of the batch."""

    slot: int
    incarnation: int
    batch: int
    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True)
class BatchUnsent:
    """The lane cannot be reached, so not a byte of the batch has left the pool."""

    slot: int
    incarnation: int
    batch: int


@dataclass(frozen=True, slots=True)
class Death:
    """How a worker ended, in words; `restartable` False means that the next one would end in the same way."""

    text: str
    restartable: bool
    last_output: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerExited:
    """The process is seen to be gone (or could not be spawned): it will never touch its device or its jobs again."""

    slot: int
    incarnation: int
    death: Death


Event = (
    Start
    | Tick
    | StopAsked
    | JobArrived
    | JobCancelled
    | ClientGone
    | WorkerSpawned
    | WorkerHello
    | WorkerBeat
    | WorkerReady
    | BatchDone
    | BatchUnsent
    | WorkerExited
)
