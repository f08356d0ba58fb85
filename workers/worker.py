"""The main thread of a worker: from HELLO to the last answer.

HELLO ─► WELCOME ──────────────────────────┬─► wait for the GPUs' memory ─► import ─► load ─► warm up ─► lanes say HELLO
            └─ hold ─► import ─► TAKE_SLOT ─┘                                                                ▼
                                                                      exit ◄─ STOP ◄─ serve ◄─ READY
"""

import logging
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import zmq

from pool.wire.exits import Exit
from pool.wire.frames import BadFrame, OtherVersion
from pool.wire.signatures import ModelInfo
from pool.wire.worker_messages import DeviceWait, ModelSettings, Phase, Ready, Welcome
from workers.backend import Backend, Model, Unfit
from workers.connection import Connection, PoolGone
from workers.control import Control
from workers.environment import Assignment, WrongEnvironment
from workers.independence import Known, files_seen, identity_of, trials_of
from workers.kinds import kind_of
from workers.lane import Lane
from workers.progress import Progress
from workers.runner import Runner
from workers.sessions import Sessions
from workers.shared_memory import SharedMemory

if TYPE_CHECKING:
    from workers.device_memory import DeviceMemory

__all__ = ["run"]

log = logging.getLogger("workers")

SECRET_BYTES = 32
LANE_POLL_S = 0.5


def run(assignment: Assignment) -> Exit:
    """Everything between the first look around and the exit status."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s")
    log.setLevel(logging.INFO)
    link = socket.socket(fileno=assignment.link_fd)
    link.settimeout(10.0)  # the pool writes the secret before it does anything else
    try:
        secret = link.recv(SECRET_BYTES, socket.MSG_WAITALL)
    except OSError:  # it took too long, or the pool died
        secret = b""
    if len(secret) != SECRET_BYTES:
        return Exit.POOL_GONE
    context = zmq.Context()
    try:
        connection = Connection(context, assignment, None, secret)
        welcome = connection.receive_first(link).message
    except WrongEnvironment as error:
        log.error("%s", error)
        return Exit.WRONG_ENVIRONMENT
    except PoolGone:
        return Exit.POOL_GONE
    except OtherVersion as error:  # most often the REFUSAL of a pool whose files were replaced
        log.error("%s", error)
        return Exit.OTHER_RELEASE
    except BadFrame as error:
        log.error("the pool answered HELLO with an invalid message: %s", error)
        return Exit.CRASHED
    if not isinstance(welcome, Welcome):
        log.error("the pool answered HELLO with %s", type(welcome).__name__)
        return Exit.CRASHED
    progress = Progress()
    shared_memory = SharedMemory()
    control = Control(connection, link, shared_memory, progress, welcome.heartbeat_s)
    control.start()
    try:
        backends = _Backends()
        if welcome.hold:
            control.enter(Phase.IMPORTING, "what runs its models")
            backends.prepare([model.path for model in welcome.models])
            welcome = control.await_slot()
        memory = _await_memory(welcome.device, control)
        known = Known(welcome.models, welcome.judged)
        models, infos = _load(welcome, backends, control, known)
    except Unfit as error:
        log.error("%s", error)
        return error.status
    # A private session is the model itself, with its variables: what belongs to one client alone needs no second copy.
    settings = {each.name: replace(each, optimizations=None, copy_per_device=False) for each in welcome.models}
    sessions = Sessions(models, lambda name: backends.serving(settings[name].path, welcome, known).load(settings[name]))
    control.heed(sessions.client_left, known.judge)
    runner = Runner(models, shared_memory, sessions, control.send)
    lanes = [
        Lane(number, context, assignment, secret, runner, progress, welcome.spin_s, known)
        for number in range(welcome.lanes)
    ]
    if memory is not None:
        memory.tell_warm()
    return _serve(lanes, infos, control)


def _await_memory(wait: DeviceWait | None, control: Control) -> "DeviceMemory | None":
    """Until its GPUs may be touched. Raises `NotFree`. One on the CPU never imports what reads NVML."""
    if wait is None:
        return None
    from workers.device_memory import DeviceMemory

    memory = DeviceMemory(wait, lambda what: control.enter(Phase.AWAITING_DEVICE, what), control.send)
    memory.await_free()
    return memory


def _load(
    welcome: Welcome, backends: "_Backends", control: Control, known: Known
) -> tuple[Mapping[str, Model], tuple[ModelInfo, ...]]:
    """The models, and what the pool is told of them."""
    models: dict[str, Model] = {}
    files: dict[str, object] = {}
    told: list[ModelInfo] = []
    for settings in welcome.models:
        control.enter(Phase.IMPORTING, f"what runs {settings.name}")
        backend = backends.serving(settings.path, welcome, known)
        control.enter(Phase.LOADING, settings.name, settings.name)
        files[settings.name] = files_seen(settings.path)
        models[settings.name] = _handled(settings, backend.load(settings), control, known)
    for settings in welcome.models:
        model = models[settings.name]
        if settings.warmup:
            control.enter(Phase.WARMING_UP, settings.name, settings.name)
            model.warm_up()
        info = _told(settings, model.info, files[settings.name])
        known.load(info.name, info.identity)
        if settings.warmup or not known.marks(info.name).are_kept:  # which is worth saying in any case
            info = replace(info, trials=trials_of(model, info, known))
        told.append(info)
    return models, tuple(told)


def _told(settings: ModelSettings, info: ModelInfo, files: object) -> ModelInfo:
    """What the pool is told of a model: whether it keeps state, the configuration may know better than its graph.

    `files`: as they were before they were loaded.
    """
    stateful = info.stateful if settings.stateful is None else settings.stateful
    return replace(info, stateful=stateful, identity=identity_of(settings, info, files))


def _handled(settings: ModelSettings, model: Model, control: Control, known: Known) -> Model:
    """After the load: what the handler imports may be TensorFlow, and the first Session's GPU options count."""
    if settings.handler is None:
        return model
    control.enter(Phase.IMPORTING, f"the handler of {settings.name}", settings.name)
    from workers.handled import HandledModel
    from workers.handlers import load_handler

    return HandledModel(model, load_handler(settings.handler, model.info), settings.handler.sizes, known)


class _Backends:
    """One of each kind a process, imported when the first model asks for it."""

    def __init__(self) -> None:
        self._made: dict[type[Backend], Backend] = {}

    def prepare(self, paths: Sequence[str]) -> None:
        """Imports what runs these models. Touches no device, and reads none of them."""
        for path in paths:
            kind_of(path)

    def serving(self, path: str, welcome: Welcome, known: Known) -> Backend:
        kind = kind_of(path)
        if kind not in self._made:
            self._made[kind] = kind(welcome.tensorflow, welcome.gpus, known)
        return self._made[kind]


def _serve(lanes: list[Lane], infos: tuple[ModelInfo, ...], control: Control) -> Exit:
    for lane in lanes:
        lane.start()
    for lane in lanes:
        while not lane.welcomed.wait(LANE_POLL_S):
            if lane.failure is not None:
                return Exit.CRASHED
    control.enter(Phase.SERVING)
    control.send(Ready(len(lanes), infos))
    while not control.stop_asked.wait(LANE_POLL_S):
        if any(not lane.is_alive() for lane in lanes):
            return Exit.CRASHED
    for lane in lanes:
        lane.stop()
    for lane in lanes:
        lane.join()
    return Exit.STOPPED
