"""What a client and the pool's front socket say to each other, one dataclass a kind.

    client                 pool
      │ OPEN ─────────────► │
      │ ◄─────────── OPENED │
      │ SUBMIT ───────────► │  payload: a `Table` and a buffer a tensor
      │ ◄─── RESULT/FAILURE │  payload: a `Table` and a buffer a tensor, of each piece
      │ CANCEL, PING ─────► │
      │ ASK ──────► ANSWER  │
      │ ◄───────── RELEASED │
      │ CLOSE ────────────► │
      │ ◄───────── FAREWELL │

The numbers are the protocol: they are never reused. What keeps its form in every version stands in `pool.wire.refusal`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pool.wire.faults import Fault
from pool.wire.lent import Lent, Room
from pool.wire.message import Message
from pool.wire.refusal import Refusal
from pool.wire.timeline import Timeline

__all__ = [
    "CLIENT_MESSAGES",
    "Answer",
    "Ask",
    "Cancel",
    "Close",
    "Failure",
    "Farewell",
    "Open",
    "Opened",
    "Ping",
    "Pong",
    "Refusal",
    "Released",
    "Result",
    "Results",
    "Submit",
]


@dataclass(frozen=True, slots=True)
class Open:
    """A client's first message; `name` is shown to people."""

    kind: ClassVar[int] = 1
    name: str


@dataclass(frozen=True, slots=True)
class Submit:
    """One job; its payload is a `Table` and a buffer a tensor. `job` is unique for this connection.

    `outputs` None: all of the signature's. `rows`: the common axis 0 of all its tensors, at least 1, which their shapes
    leave out; None if they have none in common. `priority`: higher first. `device`: a name of the devices in `pool
    status`, or None for any. `attempts`: how many instances of the pool ended unexpectedly while they held it.
    `in_doubt`: it was sent before, to this instance or an older one, and may have started there.

    `version`: of the model, by its number or by a label; None for any that is served.

    `members`: it is a pack of jobs with so many rows each, which have the numbers after its own. It is answered as
    one job, or each member is; which of the two, nobody knows before.

    `lent`: the buffers that lie in an arena of the client's, and `room` is where its answer may be written. Both are
    the pool's until the RESULT, or else RELEASED.
    """

    kind: ClassVar[int] = 3
    job: int
    model: str
    signature: str | None
    outputs: tuple[str, ...] | None
    rows: int | None
    timeout_s: float | None
    priority: int
    device: str | None
    attempts: int
    in_doubt: bool
    lent: tuple[Lent, ...] = ()
    room: Room | None = None
    members: tuple[int, ...] = ()
    version: int | str | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """That of a pack is that of all its jobs, however they are answered."""

    kind: ClassVar[int] = 6
    job: int


@dataclass(frozen=True, slots=True)
class Ping:
    """Asks for a PONG; sent while a job is outstanding."""

    kind: ClassVar[int] = 7


@dataclass(frozen=True, slots=True)
class Ask:
    """`what`: status, models, explain, restart, drain, reload, load, unload, stop. Answered with msgpack's types.

    `about`: of explain the job or `slot:N`, of restart and drain the slot, of unload the model's name, of load name and
    path as a list in JSON.
    """

    kind: ClassVar[int] = 9
    request: int
    what: str
    about: str


@dataclass(frozen=True, slots=True)
class Close:
    """The client goes; what it still has queued is cancelled."""

    kind: ClassVar[int] = 11


@dataclass(frozen=True, slots=True)
class Opened:
    """`credit_bytes`: how much a client may have unanswered. `default_timeout_s`: what `timeout=None` means.

    `ticket`: by which the client is known where memory is lent; empty where it cannot be.

    It comes again, unasked, when these are others since.
    """

    kind: ClassVar[int] = 2
    version: str
    credit_bytes: int
    default_timeout_s: float
    ticket: bytes = b""


@dataclass(frozen=True, slots=True)
class Result:
    """`pieces`: how many payload frames each piece of the answer has: its `Table` and a buffer a tensor.

    The tensors of several pieces belong together along axis 0, in this order. `released`: nobody else uses any more
    what the job was lent; otherwise RELEASED follows.
    """

    kind: ClassVar[int] = 4
    job: int
    pieces: tuple[int, ...]
    timeline: Timeline
    released: bool = True


@dataclass(frozen=True, slots=True)
class Results:
    """Those of several jobs, in no order; the payload has the frames of each in turn."""

    kind: ClassVar[int] = 14
    results: tuple[Result, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """`retry_after_s`: when a job that was not taken in may be sent again."""

    kind: ClassVar[int] = 5
    job: int
    fault: Fault
    text: str
    retry_after_s: float | None


@dataclass(frozen=True, slots=True)
class Released:
    """Nobody reads or writes any more what `lent` and `room` of this job named; it had another answer, or none."""

    kind: ClassVar[int] = 13
    job: int


@dataclass(frozen=True, slots=True)
class Pong:
    kind: ClassVar[int] = 8


@dataclass(frozen=True, slots=True)
class Answer:
    """`error` is None, or why the request was refused; the payload is one msgpack frame."""

    kind: ClassVar[int] = 10
    request: int
    error: str | None


@dataclass(frozen=True, slots=True)
class Farewell:
    """The pool forgets this client, which may come again: as a new one, to this instance or to the next.

    What of its jobs has no answer yet gets none. `unread`: none of those was ever read, so none has started.
    """

    kind: ClassVar[int] = 12
    text: str
    unread: bool


CLIENT_MESSAGES: Mapping[int, type[Message]] = {
    message.kind: message
    for message in (
        *(Open, Submit, Cancel, Ping, Ask, Close),
        *(Opened, Result, Results, Failure, Released, Pong, Answer, Farewell, Refusal),
    )
}
