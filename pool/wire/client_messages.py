"""What a client and the pool's front socket say to each other, one dataclass a kind.

    client                 pool
      │ OPEN ─────────────► │
      │ ◄─────────── OPENED │  or DENIED: it may not come as whom it says
      │ SUBMIT ───────────► │  the first of a call says what it is; payload: a buffer a tensor
      │ ◄─── RESULT/FAILURE │  payload: the buffers of each piece
      │ ◄──────────── UNPACK │  in their place: a chunk's members are to come by themselves
      │ ◄───── UNREGISTERED │  the call is not known: say it again, with the job
      │ FORGET ───────────► │  of a call
      │ CANCEL, PING ─────► │
      │ ASK ──────► ANSWER  │
      │ ◄───────── RELEASED │
      │ CLOSE ────────────► │
      │ ◄───────── FAREWELL │

The numbers are the protocol: they are never reused (14 was one of version 7). What keeps its form in every version
stands in `pool.wire.refusal`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pool.wire.faults import Fault
from pool.wire.jobs import Result, Results, Submit
from pool.wire.message import Message
from pool.wire.refusal import Refusal
from pool.wire.unpacking import Unpacking

__all__ = [
    "CLIENT_MESSAGES",
    "Answer",
    "Ask",
    "Cancel",
    "Close",
    "Denied",
    "Failure",
    "Farewell",
    "Forget",
    "Open",
    "Opened",
    "Ping",
    "Pong",
    "Refusal",
    "Released",
    "Result",
    "Results",
    "Submit",
    "Unpack",
    "Unregistered",
]


@dataclass(frozen=True, slots=True)
class Open:
    """A client's first message; `name` is shown to people.

    `impersonates`: the client whose standing and account it is to have, which takes a right; "": its own.
    """

    kind: ClassVar[int] = 1
    name: str
    impersonates: str = ""


@dataclass(frozen=True, slots=True)
class Cancel:
    """That of a chunk is that of all its jobs; `member`: of one of them, which its client leaves out from now on."""

    kind: ClassVar[int] = 6
    job: int
    member: bool = False


@dataclass(frozen=True, slots=True)
class Forget:
    """A call that the client sends no more jobs of. Those that are in the pool go on."""

    kind: ClassVar[int] = 16
    call: int


@dataclass(frozen=True, slots=True)
class Ping:
    """Asks for a PONG; sent while a job is outstanding."""

    kind: ClassVar[int] = 7


@dataclass(frozen=True, slots=True)
class Ask:
    """`what`: status, models, explain, restart, drain, reload, load, unload, stop, offers. Answered with msgpack's
    types.

    `about`: of explain the job or `slot:N`, of restart and drain the slot, of unload the model's name, of load name and
    path as a list in JSON, of offers the models' names as a list in JSON, or nothing for all.
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
class Denied:
    """In the place of OPENED: this client would not be let in later either. `text` names the right that it lacks."""

    kind: ClassVar[int] = 18
    text: str


@dataclass(frozen=True, slots=True)
class Failure:
    """`retry_after_s`: when a job that was not taken in may be sent again."""

    kind: ClassVar[int] = 5
    job: int
    fault: Fault
    text: str
    retry_after_s: float | None


@dataclass(frozen=True, slots=True)
class Unpack:
    """The pool has a chunk no more. Its members come by themselves, with its number as their `origin`.

    `ran`: some of them may have run. `text`: what happened, for people.
    """

    kind: ClassVar[int] = 17
    job: int
    cause: Unpacking
    ran: bool
    text: str


@dataclass(frozen=True, slots=True)
class Released:
    """Nobody reads or writes any more what `lent` and `space` of this job named; it had another answer, or none."""

    kind: ClassVar[int] = 13
    job: int


@dataclass(frozen=True, slots=True)
class Unregistered:
    """The pool does not know the call of this job, and nothing of the job has started: register it, and send both."""

    kind: ClassVar[int] = 15
    job: int


@dataclass(frozen=True, slots=True)
class Pong:
    kind: ClassVar[int] = 8


@dataclass(frozen=True, slots=True)
class Answer:
    """`error` is None, or why the request was refused, and `fault` what that is; the payload is one msgpack frame."""

    kind: ClassVar[int] = 10
    request: int
    error: str | None
    fault: Fault = Fault.POOL_FAILED


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
        *(Open, Submit, Cancel, Forget, Ping, Ask, Close),
        *(Opened, Denied, Results, Failure, Released, Unpack, Unregistered, Pong, Answer, Farewell, Refusal),
    )
}
