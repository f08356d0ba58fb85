"""Every message of the protocol, one dataclass a kind.

A client speaks to the pool's front socket, a worker's control thread and its lanes to the back socket:

    client                 pool                          worker
      │ OPEN ─────────────► │ ◄───────────────────── HELLO │  control thread, with the slot's secret
      │ ◄─────────── OPENED │ WELCOME ───────────────────► │  settings, models
      │                     │ ◄────────────────────── BEAT │  phase and progress, every heartbeat
      │                     │ ◄───────────────────── HELLO │  each lane, with the same secret
      │                     │ WELCOME_LANE ──────────────► │
      │                     │ ◄───────────────────── READY │  what each model takes and gives
      │ SUBMIT ───────────► │ RUN ───────────────────────► │  tensors pass unread
      │ ◄─── RESULT/FAILURE │ ◄────────────────────── DONE │  one answer a batch, which is the lane's credit again
      │ CANCEL, PING ─────► │                              │
      │ ASK ──────► ANSWER  │ STOP ──────────────────────► │
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from pool.wire.faults import Fault
from pool.wire.signatures import ModelInfo

__all__ = [
    "CALL_BYTES",
    "MESSAGES",
    "Answer",
    "Ask",
    "Beat",
    "Call",
    "Cancel",
    "Close",
    "Done",
    "Failure",
    "Hello",
    "LaneProgress",
    "Message",
    "ModelSettings",
    "Open",
    "Opened",
    "PartDone",
    "PartFailed",
    "Phase",
    "Ping",
    "Pong",
    "Ready",
    "Refusal",
    "Result",
    "Run",
    "SessionSettings",
    "Stop",
    "Submit",
    "Table",
    "TensorHeader",
    "Welcome",
    "WelcomeLane",
]


CALL_BYTES = 1 << 20  # of a packed `Call`: names, dtypes and shapes of a few thousand inputs


# --- tensors, as every message that carries some describes them -------------------------------------------------


@dataclass(frozen=True, slots=True)
class TensorHeader:
    """`weak`: made from Python numbers, which have no dtype of their own; the worker gives them the input's."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    weak: bool


@dataclass(frozen=True, slots=True)
class Call:
    """What to run, read by the worker alone. An input named "" is the only input of its signature."""

    signature: str | None
    outputs: tuple[str, ...] | None
    tensors: tuple[TensorHeader, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """The tensors that a RESULT carries."""

    tensors: tuple[TensorHeader, ...]


# --- client → pool ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Open:
    """A client's first message; `name` is shown to people."""

    name: str


@dataclass(frozen=True, slots=True)
class Submit:
    """One job; its payload is a `Call` and a buffer a tensor. `job` is unique for this connection."""

    job: int
    model: str
    timeout_s: float | None


@dataclass(frozen=True, slots=True)
class Cancel:
    job: int


@dataclass(frozen=True, slots=True)
class Ping:
    """Asks for a PONG; sent while a job is outstanding."""


@dataclass(frozen=True, slots=True)
class Ask:
    """`what`: status, models, stop. Answered with msgpack's types."""

    request: int
    what: str


@dataclass(frozen=True, slots=True)
class Close:
    """The client goes; what it still has queued is cancelled."""


# --- pool → client ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Opened:
    """`credit_bytes`: how much a client may have unanswered. `default_timeout_s`: what `timeout=None` means."""

    version: str
    credit_bytes: int
    default_timeout_s: float


@dataclass(frozen=True, slots=True)
class Result:
    """Its payload is a `Table` and a buffer a tensor."""

    job: int


@dataclass(frozen=True, slots=True)
class Failure:
    job: int
    fault: Fault
    text: str


@dataclass(frozen=True, slots=True)
class Pong:
    pass


@dataclass(frozen=True, slots=True)
class Answer:
    """`error` is None, or why the request was refused; the payload is one msgpack frame."""

    request: int
    error: str | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """The peer's message was not understood, or was meant for an older instance of the pool."""

    text: str


# --- worker → pool ---------------------------------------------------------------------------------------------


class Phase(Enum):
    """What a worker is doing; each has its own time budget."""

    IMPORTING = "importing"
    LOADING = "loading"
    WARMING_UP = "warming up"
    SERVING = "serving"


@dataclass(frozen=True, slots=True)
class Hello:
    """`lane` is None for the control thread. `secret` came down the socketpair that only this worker inherited."""

    slot: int
    incarnation: int
    lane: int | None
    secret: bytes


@dataclass(frozen=True, slots=True)
class LaneProgress:
    lane: int
    batch: int
    age_s: float


@dataclass(frozen=True, slots=True)
class Beat:
    """Progress, not proof of life: `detail` names what is loaded, `running` what each busy lane runs."""

    phase: Phase
    detail: str
    running: tuple[LaneProgress, ...]


@dataclass(frozen=True, slots=True)
class Ready:
    """Every model is loaded and warmed up, every lane has been welcomed."""

    lanes: int
    models: tuple[ModelInfo, ...]


@dataclass(frozen=True, slots=True)
class PartDone:
    """The part's answer is the next `frames` frames of the payload: a `Table` and a buffer a tensor."""

    frames: int


@dataclass(frozen=True, slots=True)
class PartFailed:
    fault: Fault
    text: str


@dataclass(frozen=True, slots=True)
class Done:
    """One outcome a part, in the order of the RUN."""

    batch: int
    outcomes: tuple[PartDone | PartFailed, ...]


# --- pool → worker ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """The one `ConfigProto` of a worker; the names are TensorFlow's."""

    allow_growth: bool
    per_process_gpu_memory_fraction: float
    allow_soft_placement: bool
    log_device_placement: bool
    intra_op_parallelism_threads: int
    inter_op_parallelism_threads: int
    device_count: Mapping[str, int]
    jit: bool


@dataclass(frozen=True, slots=True)
class ModelSettings:
    name: str
    path: str
    warmup: bool


@dataclass(frozen=True, slots=True)
class Welcome:
    """All that the worker needs to know. `gpus`: how many GPUs it must see once TensorFlow is imported."""

    lanes: int
    gpus: int
    heartbeat_s: float
    session: SessionSettings
    models: tuple[ModelSettings, ...]


@dataclass(frozen=True, slots=True)
class WelcomeLane:
    pass


@dataclass(frozen=True, slots=True)
class Run:
    """A batch of `model`; `parts` are the numbers of payload frames of each part: its `Call` and its buffers."""

    batch: int
    model: str
    parts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """Finish what runs, answer it, exit."""


Message = (
    Open
    | Submit
    | Cancel
    | Ping
    | Ask
    | Close
    | Opened
    | Result
    | Failure
    | Pong
    | Answer
    | Refusal
    | Hello
    | Beat
    | Ready
    | Done
    | Welcome
    | WelcomeLane
    | Run
    | Stop
)

# The numbers are the protocol: they are never reused, and REFUSAL keeps its number and form in every version, so
# that an older peer can read why it is refused.
MESSAGES: Mapping[int, type[Message]] = {
    0: Refusal,
    1: Open,
    2: Opened,
    3: Submit,
    4: Result,
    5: Failure,
    6: Cancel,
    7: Ping,
    8: Pong,
    9: Ask,
    10: Answer,
    11: Close,
    32: Hello,
    33: Welcome,
    34: WelcomeLane,
    35: Beat,
    36: Ready,
    37: Run,
    38: Done,
    39: Stop,
}
