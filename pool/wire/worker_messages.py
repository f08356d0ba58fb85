"""What a worker and the pool's back socket say to each other, one dataclass a kind.

    pool                          worker
      │ ◄───────────────────── HELLO │  control thread, with the slot's secret
      │ WELCOME ───────────────────► │  settings, models
      │ ◄────────────────────── BEAT │  phase and progress, every heartbeat
      │ ◄─────────────── DEVICE_HELD │  control thread of a worker on a GPU: what it takes there
      │ ◄───────────────────── HELLO │  each lane, with the same secret
      │ WELCOME_LANE ──────────────► │
      │ ◄───────────────────── READY │  what each model takes and gives
      │ RUN ───────────────────────► │  the first of a call says what it is; tensors pass unread
      │ ◄────────────────────── DONE │  one answer a batch, which is the lane's credit again
      │ ◄───────────── ROWS_COMPARED │  a lane, see `pool.wire.independence`
      │ ROWS_JUDGED ───────────────► │  control thread
      │ ◄──────────────────── REMARK │  control thread: what is odd about a model, and harms no job
      │ END_SESSIONS ──────────────► │  control thread: a client is gone
      │ STOP ──────────────────────► │

A standby has a WELCOME with `hold`, imports, beats that it stands by, and goes on as above when TAKE_SLOT comes.

The numbers are the protocol: they are never reused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from pool.wire.batches import Done, Run
from pool.wire.device_memory import DeviceHeld, DeviceWait
from pool.wire.independence import Batching, RowsCompared, RowsJudged
from pool.wire.message import Message
from pool.wire.optimizations import OptimizationSettings
from pool.wire.outcomes import Failed, RowsChanged, Spoiled
from pool.wire.phases import LaneProgress, Phase
from pool.wire.signatures import ModelInfo

__all__ = [
    "WORKER_MESSAGES",
    "Beat",
    "Clear",
    "DeviceHeld",
    "DeviceWait",
    "Done",
    "EndSessions",
    "Failed",
    "HandlerSettings",
    "Hello",
    "LaneProgress",
    "LayerRule",
    "ModelSettings",
    "Phase",
    "Ready",
    "Remark",
    "RowsChanged",
    "Run",
    "Spoiled",
    "Stop",
    "TakeSlot",
    "TensorFlowSettings",
    "Welcome",
    "WelcomeLane",
]


@dataclass(frozen=True, slots=True)
class Hello:
    """`lane` is None for the control thread. `secret` came down the socketpair that only this worker inherited."""

    kind: ClassVar[int] = 32
    slot: int
    incarnation: int
    lane: int | None
    secret: bytes


@dataclass(frozen=True, slots=True)
class Beat:
    """Progress, not proof of life: `detail` names what is loaded, `running` what each busy lane runs."""

    kind: ClassVar[int] = 35
    phase: Phase
    detail: str
    running: tuple[LaneProgress, ...]


@dataclass(frozen=True, slots=True)
class Ready:
    """Every model is loaded and warmed up, every lane has been welcomed."""

    kind: ClassVar[int] = 36
    lanes: int
    models: tuple[ModelInfo, ...]


@dataclass(frozen=True, slots=True)
class TensorFlowSettings:
    """The `ConfigProto` of a worker; the names are TensorFlow's. `op_libraries`: files of custom ops."""

    allow_growth: bool
    per_process_gpu_memory_fraction: float
    allow_soft_placement: bool
    log_device_placement: bool
    intra_op_parallelism_threads: int
    inter_op_parallelism_threads: int
    device_count: Mapping[str, int]
    jit: bool
    op_libraries: tuple[str, ...] = ()


class Clear(Enum):
    """Which of the device strings in a model's graph are cleared, so that TensorFlow places those nodes."""

    MISSING = "missing"
    ALL = "all"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class LayerRule:
    """The nodes whose whole name matches `layers`, a regular expression, run on `device`: "/cpu:0", "/gpu:1"."""

    layers: str
    device: str


@dataclass(frozen=True, slots=True)
class HandlerSettings:
    """The class around a model's graph: `name` is "package.module:Class".

    `folder`: where its module is looked for, after the installed packages; "" where only there. `options`: what the
    configuration tells it, as JSON. `sizes`: the numbers of rows that its batches are padded to.
    """

    name: str
    folder: str = ""
    options: str = "{}"
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """One model to load.

    `tags` choose among the graphs of a SavedModel, `inputs` and `outputs` are tensors of a graph that declares none;
    empty: the loader looks for itself. `batch_sizes`: the numbers of rows that it is warmed up with. `cache`: the
    folder for what is made of a file once, such as a SavedModel of a Keras file; "" where there is none.

    `tensorflow`: of its own Session, where that differs from its worker's; in nothing that belongs to the process.
    `layer_devices`: the first rule that matches a node wins. `clear_devices`: missing ones are those that the worker
    does not have. `least_loaded`: instead of rules, its variables are spread over the worker's devices.
    `copy_per_device`: it is loaded once for each of them. `version`: its number, where `path` is the folder of one.
    `stateful`: what the pool is told of it, whatever the graph says; None: what the graph says.
    `batching`: whether it is tried if its rows are independent.
    """

    name: str
    path: str
    warmup: bool
    tags: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    batch_sizes: tuple[int, ...] = (1,)
    cache: str = ""
    tensorflow: TensorFlowSettings | None = None
    layer_devices: tuple[LayerRule, ...] = ()
    clear_devices: Clear = Clear.MISSING
    handler: HandlerSettings | None = None
    optimizations: OptimizationSettings | None = None
    least_loaded: bool = False
    copy_per_device: bool = False
    version: int | None = None
    stateful: bool | None = None
    batching: Batching = Batching.AUTO


@dataclass(frozen=True, slots=True)
class Welcome:
    """All that the worker needs to know. `gpus`: how many GPUs it must see once TensorFlow is imported.

    `spin_s`: how long a lane looks again and again for work before it sleeps.
    `hold`: it imports what runs the models, touches no device, and waits for TAKE_SLOT.
    `judged`: what is known of its models' rows.
    `device`: what it waits for before it touches its GPUs; None: nothing. A standby hears it in TAKE_SLOT.
    """

    kind: ClassVar[int] = 33
    lanes: int
    gpus: int
    heartbeat_s: float
    tensorflow: TensorFlowSettings
    models: tuple[ModelSettings, ...]
    hold: bool = False
    spin_s: float = 0.0
    judged: tuple[RowsJudged, ...] = ()
    device: DeviceWait | None = None


@dataclass(frozen=True, slots=True)
class TakeSlot:
    """The slot is its own: load and serve. The WELCOME counts in place of the one that said `hold`."""

    kind: ClassVar[int] = 40
    welcome: Welcome


@dataclass(frozen=True, slots=True)
class WelcomeLane:
    kind: ClassVar[int] = 34


@dataclass(frozen=True, slots=True)
class EndSessions:
    """This client is gone: its private sessions end, those too that are still to be opened for it."""

    kind: ClassVar[int] = 41
    owner: int


@dataclass(frozen=True, slots=True)
class Remark:
    """For the log and for `pool models`. `about`: what of the model; the same whenever the same is found again."""

    kind: ClassVar[int] = 44
    model: str
    about: str
    text: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Finish what runs, answer it, exit."""

    kind: ClassVar[int] = 39


WORKER_MESSAGES: Mapping[int, type[Message]] = {
    message.kind: message
    for message in (
        Hello,
        Beat,
        Ready,
        Done,
        Welcome,
        WelcomeLane,
        Run,
        EndSessions,
        Stop,
        TakeSlot,
        Remark,
        DeviceHeld,
        RowsCompared,
        RowsJudged,
    )
}
