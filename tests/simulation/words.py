"""What the tests say to the core and hear from it, in words of their own. `simulation.core` alone translates them.

Those that are made for every job or batch are not frozen, which would make them cost five times as much; nobody
changes one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from pool.core.fleet import SlotState
from pool.wire.faults import Fault
from pool.wire.timeline import Timeline
from pool.wire.unpacking import Unpacking

__all__ = [
    "Answered",
    "Ask",
    "Changed",
    "Death",
    "Ended",
    "Failed",
    "Held",
    "JobDone",
    "JobFailed",
    "Kept",
    "Killed",
    "Noticed",
    "Outcome",
    "Piece",
    "Ready",
    "Role",
    "RowsChanged",
    "SeatGiven",
    "Seen",
    "Sent",
    "Spawned",
    "Spoiled",
    "Stopped",
    "Succeeded",
    "Unpacked",
    "Welcomed",
]


# --- what is said -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Ask:
    """A job as its client asks for it; the fields mean what they mean in the wire's SUBMIT.

    `rows` None: it cannot be joined or cut. `timeout_s` None: the policy's default. With a `weight` it is a chunk.
    """

    client: bytes
    job: int
    model: str
    rows: int | None
    payload: object
    signature: str | None
    outputs: tuple[str, ...] | None
    timeout_s: float | None
    priority: int
    device: str | None
    size_bytes: int
    form: bytes
    attempts: int
    in_doubt: bool
    weight: int
    origin: int
    version: int | str | None


@dataclass(slots=True)
class Succeeded:
    """The answer of a part."""

    payload: object


@dataclass(frozen=True, slots=True)
class Failed:
    """By the part's own fault."""

    fault: Fault
    text: str


@dataclass(frozen=True, slots=True)
class Spoiled:
    """The run that the part shared with others failed; whose fault that is, nobody knows yet."""

    fault: Fault
    text: str


@dataclass(frozen=True, slots=True)
class RowsChanged:
    """The run gave other rows than it was fed."""

    text: str


Outcome = Succeeded | Failed | Spoiled | RowsChanged


@dataclass(frozen=True, slots=True)
class Death:
    """How a worker ended; `restartable` False means that the next one would end in the same way."""

    text: str
    restartable: bool = True


# --- what is heard ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Piece:
    """Rows `start` to `stop` of a job's payload; both 0 where the job has no rows."""

    payload: object
    start: int
    stop: int


@dataclass(slots=True)
class Sent:
    """A batch went to a lane; `pad_to`, `by_rows` and `microbatch` as in the wire's RUN."""

    slot: int
    incarnation: int
    lane: int
    batch: int
    model: str
    signature: str | None
    outputs: tuple[str, ...] | None
    parts: Sequence[Piece]
    pad_to: int
    by_rows: bool
    microbatch: int


@dataclass(slots=True)
class JobDone:
    """A client was given the answer of a job, or of a chunk: the answers of its pieces, in the order of its rows."""

    client: bytes
    job: int
    payloads: Sequence[object]
    timeline: Timeline


@dataclass(slots=True)
class JobFailed:
    """A client was given the error of a job, or of all jobs of a chunk."""

    client: bytes
    job: int
    fault: Fault
    text: str
    retry_after_s: float | None


Answered = JobDone | JobFailed


@dataclass(frozen=True, slots=True)
class Unpacked:
    """A chunk was given back: its client sends its members by themselves. `ran`: some may have run."""

    client: bytes
    job: int
    cause: Unpacking
    ran: bool


@dataclass(frozen=True, slots=True)
class Kept:
    """The inputs of a job in quarantine are to be kept."""

    payload: object


class Role(Enum):
    SERVING = "it gets the slot"
    REPLACEMENT = "it takes the slot over when it is ready"
    STANDBY = "it touches no device before the slot is given to it"


@dataclass(frozen=True, slots=True)
class Spawned:
    """A worker is to be spawned; a replacement that `must_fit` only where its device has room for both."""

    slot: int
    incarnation: int
    role: Role
    must_fit: bool = False


@dataclass(frozen=True, slots=True)
class Welcomed:
    """A worker was told its models."""

    slot: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class Held:
    """A worker was told to stand by."""

    slot: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class SeatGiven:
    """A standby was told its models: it is a worker like any other from now on."""

    slot: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """A worker was told to finish and exit."""

    slot: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class Killed:
    """`batch`: the one that ran for too long, if that is why."""

    slot: int
    incarnation: int
    reason: str
    batch: int | None


@dataclass(frozen=True, slots=True)
class Changed:
    """A slot has another state."""

    slot: int
    incarnation: int
    state: SlotState


@dataclass(frozen=True, slots=True)
class Noticed:
    """The core found something out about a model."""

    text: str


@dataclass(frozen=True, slots=True)
class Ready:
    """The pool serves."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Nothing is left to do."""

    failed: bool
    reason: str


Seen = (
    Sent
    | JobDone
    | JobFailed
    | Unpacked
    | Kept
    | Spawned
    | Welcomed
    | Held
    | SeatGiven
    | Stopped
    | Killed
    | Changed
    | Noticed
    | Ready
    | Ended
)
