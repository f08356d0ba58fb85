"""A worker's life: environment checked, settings heard, models loaded, lanes started; then until the pool ends it.

    link ── WELCOME, models ─► memory ─► import ─► load each ─► warm up each ─► READY ─► lanes

The link's thread is its only reader. At the link's end it kills the whole process group: nothing outlives the pool.
"""

import ctypes
import faulthandler
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from pool.wire import RELEASE, WIRE, Exit
from pool.wire.files import files_at, handler_files
from pool.wire.link import Link
from pool.wire.specs import BadMessage, unpack
from workers.backend import CannotLoad, Load, LoadFailed, Model, RunFailed, Unfit
from workers.calls import Calls, Loaded
from workers.handlers import Handled
from workers.lane import Arenas, Lane
from workers.memory import wait_until_free

PR_SET_PDEATHSIG = 1
BEAT_S = 2.0
WELCOME_S = 60.0
MOST_TRACED = 12  # devices


def main() -> None:
    """`python -m workers LINK PARENT STACKS`: descriptors, and the pool's pid, by which others know an orphan."""
    descriptor, _, stacks = map(int, sys.argv[1:])
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # of a pool that has gone before, the link tells
    os.set_inheritable(descriptor, False)
    os.set_inheritable(stacks, False)
    faulthandler.register(signal.SIGUSR1, stacks, all_threads=True)
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)  # the pool decides when a worker ends
    worker = Worker(Link(socket.socket(fileno=descriptor)))
    worker.guard(worker.serve)


class Worker:
    def __init__(self, link: Link) -> None:
        self._link = link
        self._arenas = Arenas()
        self._loaded: list[Loaded] = []
        self._tracing = threading.Lock()

    def serve(self) -> NoReturn:
        self._link.socket.settimeout(WELCOME_S)
        welcome, models = self._link.receive() or os._exit(Exit.POOL_GONE)
        if welcome.get("wire") != WIRE:
            text = f"the pool is of release {welcome.get('release')}, the worker's files are of {RELEASE}"
            raise Unfit(Exit.OTHER_RELEASE, text)
        device = welcome["device"]
        if os.environ.get("CUDA_VISIBLE_DEVICES") != ",".join(device["uuids"]):
            raise Unfit(Exit.WRONG_ENVIRONMENT, "CUDA_VISIBLE_DEVICES does not name the devices of its slot")
        with open(models, "rb") as file:
            file.seek(0)  # the pool has written
            settings = unpack(file.read())
        self._link.socket.settimeout(BEAT_S)
        threading.Thread(target=self.guard, args=(self._listen,), name="link", daemon=True).start()
        if device["uuids"]:
            wait_until_free(device, welcome["former"], self._tell)
            self._tell(phase="import")
        self._load(welcome, settings)
        calls = Calls(self._loaded)
        self._tell(ready=True)
        for number in range(welcome["lanes"]):
            lane = Lane(calls, self._arenas, welcome["slot"], device["label"])
            serve = partial(lane.serve, welcome["address"], welcome["token"])
            threading.Thread(target=self.guard, args=(serve,), name=f"lane {number}").start()
        while True:
            signal.pause()  # signals come to this thread, so they interrupt no model

    def guard(self, act: Callable[[], None]) -> None:
        """A thread's work. Whatever it raises ends the process."""
        try:
            act()
        except BaseException as error:
            crash = Unfit(Exit.CRASHED, f"{threading.current_thread().name}: {type(error).__name__}: {error}")
            unfit = error if isinstance(error, Unfit) else crash
            self._tell(ending=str(unfit)[:2000])
            os._exit(unfit.status)

    def _load(self, welcome: Mapping[str, Any], settings: list[dict[str, Any]]) -> None:
        load: Load | None = None
        status = Exit.MODEL_CANNOT_LOAD
        for each in settings:
            name = each["name"]
            try:
                load = load or load_of(each["path"], welcome)
                self._tell(phase="load", model=name)
                check_files(each)
                model: Model = load(each)
                if each["handler"]:
                    model = Handled(model, each)
                check_files(each)  # while they were read, too
                self._tell(phase="warm-up", model=name)
                model.warm_up()
                self._offer(model, each)
                self._loaded.append((model, each))
            except (CannotLoad, LoadFailed, BadMessage) as error:
                if isinstance(error, LoadFailed):
                    status = Exit.LOAD_FAILED
                self._tell(failed=[name, str(error)])
        if not self._loaded:
            raise Unfit(status, "none of its models can be loaded")

    def _offer(self, model: Model, settings: Mapping[str, Any]) -> None:
        """Tells of a loaded model. Its signatures say from now on whether their jobs are joined."""
        batching, most = settings["batching"], settings["max_batch"]
        model.signatures = {
            name: replace(signature, verdicts=model.verdicts(name, batching), max_batch=most)
            for name, signature in model.signatures.items()
        }
        for name, signature in model.signatures.items():
            self._tell(signature=[settings["name"], name, signature.record()])
        self._tell(
            model=settings["name"],
            is_stateful=model.is_stateful,
            left_out={key: text[:500] for key, text in list(model.left_out.items())[:50]},
            notes=[note[:500] for note in model.notes[:50]],
        )

    def _tell(self, **message: Any) -> None:
        """Safe from several threads: the kernel takes a message whole, or not at all."""
        with suppress(OSError):  # the link's thread sees the pool's end
            self._link.send(message)

    def _listen(self) -> NoReturn:
        """Each beat says that the process is not stopped, whether the pool has said something or not."""
        beat_at = time.monotonic() + BEAT_S
        while True:
            with suppress(TimeoutError):
                match self._link.receive():
                    case None:
                        os.killpg(os.getpid(), signal.SIGKILL)  # what a model has started goes, too
                    case {"arena": int(arena)}, descriptor if descriptor >= 0:
                        self._arenas.add(arena, descriptor)
                    case {"drop": int(arena)}, _:
                        self._arenas.drop(arena)
                    case {"trace": int(number), "model": str(model), "signature": str(signature)}, _:
                        traced = partial(self._trace, number, model, signature)
                        threading.Thread(target=self.guard, args=(traced,), name="trace", daemon=True).start()
            if time.monotonic() >= beat_at:
                beat_at = time.monotonic() + BEAT_S
                self._arenas.sweep()
                self._tell(beat=True)

    def _trace(self, number: int, name: str, signature: str) -> None:
        """Answers what one run of a signature did on each device: {"traced": number} with "devices", or an "error"."""
        answer: dict[str, Any] = {"error": "another trace runs in this worker: ask again once it has ended"}
        if self._tracing.acquire(blocking=False):
            try:
                models = {settings["name"]: model for model, settings in self._loaded}
                traced = models[name].trace(signature)[:MOST_TRACED]  # what one message of the link takes
                answer = {"devices": [each._asdict() | {"names": [n[:200] for n in each.names]} for each in traced]}
            except Exception as error:
                kind = "" if isinstance(error, RunFailed) else f"{type(error).__name__}: "
                answer = {"error": f"{kind}{error}"[:2000]}
            finally:
                self._tracing.release()
        self._tell(traced=number, **answer)


def load_of(path: str, welcome: Mapping[str, Any]) -> Load:
    """Imports the library that runs such models."""
    if path.startswith("stub:"):
        from workers.stub import load

        return load
    from workers.tf.model import Backend

    return Backend(welcome).load


def check_files(settings: Mapping[str, Any]) -> None:
    """Raises `LoadFailed` if they are not those that the pool has chosen for all slots."""
    path, extra = settings["path"].removeprefix("stub:"), handler_files(settings["handler"], settings["handler_path"])
    try:
        if settings["files"] and files_at(path, *extra).digest != settings["files"]:
            raise LoadFailed(f"model {settings['name']}: files of {path} have changed since the pool looked at them")
    except OSError as error:
        raise LoadFailed(f"model {settings['name']}: {path} cannot be read: {error}") from None
