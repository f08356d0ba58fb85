"""What the core is told. Plain values: the payloads are opaque to it and only handed on.

Those that are made for every job are not frozen, which would make them cost five times as much; nobody changes one.
"""

from dataclasses import dataclass

from pool.core.policy import Policy
from pool.wire import independence as wire
from pool.wire.outcomes import Failed, Failure, RowsChanged, Spoiled
from pool.wire.phases import LaneProgress, Phase
from pool.wire.signatures import ModelInfo

__all__ = [
    "BatchUnsent",
    "ClientGone",
    "Death",
    "DrainAsked",
    "Event",
    "Failed",
    "Failure",
    "JobCancelled",
    "ModelsAwaited",
    "OfWorker",
    "PolicyChanged",
    "RestartAsked",
    "RowsChanged",
    "SlotPlanned",
    "SpawnHeld",
    "Spoiled",
    "Start",
    "StartFailed",
    "StopAsked",
    "Tick",
    "WorkerBeat",
    "WorkerBroken",
    "WorkerCompared",
    "WorkerExited",
    "WorkerHello",
    "WorkerMeasured",
    "WorkerReady",
    "WorkerSpawned",
]


@dataclass(frozen=True, slots=True)
class OfWorker:
    """What is told of a worker, or to one, which these two numbers name for ever."""

    slot: int
    incarnation: int


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
class StartFailed(StopAsked):
    """Only another start can serve what is wanted."""


@dataclass(frozen=True, slots=True)
class RestartAsked:
    """A slot is to have a new worker, and what the old one runs is finished. A FATAL or STOPPED one is tried again.

    `sparing`: where the old one has to go first, it waits until enough others of its models are READY (`min_ready`).
    """

    slot: int
    sparing: bool = False


@dataclass(frozen=True, slots=True)
class DrainAsked:
    """A slot is to have no worker: what this one runs is finished first. It stays STOPPED until a restart is asked."""

    slot: int


@dataclass(frozen=True, slots=True)
class SlotPlanned:
    """From now on a new worker of the slot has these models; the one that is there keeps its own until it goes.

    With none it is to go once it has finished what it holds. A model that no slot is planned to have any more is
    forgotten, and no job of it is taken in; one that is new is known from now on.
    """

    slot: int
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModelsAwaited:
    """Slots are about to get these models, and only these: until then their jobs wait, though no slot may have them.

    Before the loss of the slot that had them is told. With none nobody waits any more.
    """

    models: frozenset[str]


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """From now on the core decides by this policy.

    What was decided stays: jobs that are in the pool beyond a lower bound, timers that run, batches that were formed.
    """

    policy: Policy


@dataclass(frozen=True, slots=True)
class WorkerMeasured(OfWorker):
    """How much of the machine's memory a worker holds."""

    resident_bytes: int


@dataclass(frozen=True, slots=True)
class JobCancelled:
    """`member`: one of a chunk, whose others are wanted: it is unpacked, unless it runs."""

    client: bytes
    job: int
    member: bool = False


@dataclass(frozen=True, slots=True)
class ClientGone:
    client: bytes


@dataclass(frozen=True, slots=True)
class SpawnHeld(OfWorker):
    """The worker is not spawned yet; `why` is for people. WorkerSpawned or WorkerExited follows in bounded time."""

    why: str


@dataclass(frozen=True, slots=True)
class WorkerSpawned(OfWorker):
    pid: int


@dataclass(frozen=True, slots=True)
class WorkerHello(OfWorker):
    pass


@dataclass(frozen=True, slots=True)
class WorkerBeat(OfWorker):
    phase: Phase
    detail: str
    running: tuple[LaneProgress, ...]


@dataclass(frozen=True, slots=True)
class WorkerBroken(OfWorker):
    """It said what cannot be understood, so an answer may be missing for ever."""

    what: str


@dataclass(frozen=True, slots=True)
class WorkerReady(OfWorker):
    lanes: int
    models: tuple[ModelInfo, ...]


@dataclass(frozen=True, slots=True)
class WorkerCompared(OfWorker):
    """A lane has compared rows of a job that ran both ways."""

    compared: wire.RowsCompared


@dataclass(frozen=True, slots=True)
class BatchUnsent(OfWorker):
    """The lane cannot be reached, so not a byte of the batch has left the pool."""

    batch: int


@dataclass(frozen=True, slots=True)
class Death:
    """How a worker ended, in words; `restartable` False means that the next one would end in the same way.

    `untouched`: it ended by itself, or by others, before the pool's kill came to it, if there was one.
    `other_release`: it said that it is of another release than the pool. Only the pool's restart mends that, or the
    former files. `no_room`: it was to follow a worker beside it, and its device has no room for both.
    `cause`: the signal's name, or that of its exit status, for those that count deaths.
    `loading`: the model at which it was on its way to READY. `blamed`: the model that it could not load, or did not
    come to an end with. `unloadable`: it is that model's files, so that another version may do.
    """

    text: str
    restartable: bool
    last_output: tuple[str, ...] = ()
    untouched: bool = False
    other_release: bool = False
    no_room: bool = False
    loading: str | None = None
    blamed: str | None = None
    unloadable: bool = False
    cause: str = "OTHER"


@dataclass(frozen=True, slots=True)
class WorkerExited(OfWorker):
    """The process is seen to be gone (or could not be spawned): it will never touch its device or its jobs again."""

    death: Death


Event = (
    Start
    | Tick
    | StopAsked
    | RestartAsked
    | DrainAsked
    | SlotPlanned
    | ModelsAwaited
    | WorkerMeasured
    | PolicyChanged
    | JobCancelled
    | ClientGone
    | SpawnHeld
    | WorkerSpawned
    | WorkerHello
    | WorkerBeat
    | WorkerBroken
    | WorkerReady
    | WorkerCompared
    | BatchUnsent
    | WorkerExited
)
