"""A worker's life: environment checked, settings heard, models loaded, lanes started; then until the pool ends it.

    link ── WELCOME, models ─► import ─► load each ─► warm up each ─► READY ─► lanes

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
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NoReturn

import zmq

from pool.wire import RELEASE, WIRE
from pool.wire.exits import Exit
from pool.wire.link import Link
from pool.wire.signatures import Signature
from pool.wire.specs import BadMessage
from workers.arenas import Arenas
from workers.backend import Backend, CannotLoad, LoadFailed, Model, Unfit
from workers.calls import Calls
from workers.lane import ConnectionLost, Lane

__all__ = ["main"]

PR_SET_PDEATHSIG = 1
BEAT_S = 2.0
WELCOME_S = 60.0


def main() -> None:
    """`python -m workers LINK PARENT STACKS`: descriptors, and the pool's pid."""
    try:
        descriptor, parent, stacks = map(int, sys.argv[1:])
    except ValueError:
        print("a worker is started by a pool alone: pool start", file=sys.stderr)
        os._exit(Exit.WRONG_ENVIRONMENT)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(Exit.POOL_GONE)
    os.set_inheritable(descriptor, False)
    os.set_inheritable(stacks, False)
    faulthandler.register(signal.SIGUSR1, stacks, all_threads=True)
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)  # the pool decides when a worker ends
    worker = Worker(Link(socket.socket(fileno=descriptor)))
    try:
        worker.serve()
    except Unfit as unfit:
        worker.end(unfit.status, str(unfit))
    except ConnectionLost as lost:
        worker.end(Exit.CONNECTION_LOST, str(lost))
    except BaseException as error:
        worker.end(Exit.CRASHED, f"{type(error).__name__}: {error}")


class Worker:
    def __init__(self, link: Link) -> None:
        self._link = link
        self._arenas = Arenas()
        self._backends: dict[str, Backend] = {}

    def serve(self) -> NoReturn:
        self._link.socket.settimeout(WELCOME_S)
        welcome = self._hear()
        if welcome.get("wire") != WIRE:
            text = f"the pool is of release {welcome.get('release')}, the worker's files are of {RELEASE}"
            raise Unfit(Exit.OTHER_RELEASE, text)
        device = welcome["device"]
        if os.environ.get("CUDA_VISIBLE_DEVICES") != ",".join(device["uuids"]):
            raise Unfit(Exit.WRONG_ENVIRONMENT, "CUDA_VISIBLE_DEVICES does not name the devices of its slot")
        settings = [self._hear()["model"] for _ in range(welcome["models"])]
        self._link.socket.settimeout(BEAT_S)
        threading.Thread(target=self._listen, name="link", daemon=True).start()
        models = self._load(welcome, settings)
        calls = Calls(models, {each["name"]: each for each in settings})
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._tell(ready=True)
        lanes = [
            threading.Thread(target=self._lane, args=(calls, context, welcome), name=f"lane-{number}")
            for number in range(welcome["lanes"])
        ]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()
        raise Unfit(Exit.CRASHED, "its lanes ended")

    # --- loading ------------------------------------------------------------------------------------------------

    def _load(self, welcome: Mapping[str, Any], settings: list[dict[str, Any]]) -> dict[str, Model]:
        models: dict[str, Model] = {}
        later = ""
        for each in settings:
            name = each["name"]
            try:
                kind = "stub" if each["path"].startswith("stub:") else "tf"
                if kind not in self._backends:
                    self._tell(phase="import", model="")
                    self._backends[kind] = backend_of(kind, welcome)
                self._tell(phase="load", model=name)
                model = self._backends[kind].load(each)
                self._tell(phase="warm-up", model=name)
                model.warm_up()
            except CannotLoad as error:
                self._tell(failed=[name, str(error)])
                continue
            except LoadFailed as error:
                later = str(error)
                self._tell(failed=[name, str(error)])
                continue
            models[name] = self._offered(model, each)
        if not models:
            status = Exit.LOAD_FAILED if later else Exit.MODEL_CANNOT_LOAD
            raise Unfit(status, "none of its models can be loaded")
        return models

    def _offered(self, model: Model, settings: Mapping[str, Any]) -> Model:
        """Tells of a loaded model. Its signatures say from now on whether their jobs are joined."""
        name = settings["name"]
        vouched = settings["batching"] == "on"
        model.signatures = {
            each: replace(
                signature,
                is_joined=vouched and model.can_be_joined(each),
                max_batch=settings["max_batch"],
            )
            for each, signature in model.signatures.items()
        }
        for each, signature in model.signatures.items():
            self._describe(name, each, signature)
        self._tell(
            model=name,
            is_stateful=model.is_stateful,
            left_out={key: text[:500] for key, text in list(model.left_out.items())[:50]},
            notes=[note[:500] for note in model.notes[:50]],
        )
        return model

    def _describe(self, model: str, name: str, signature: Signature) -> None:
        try:
            self._tell(signature=[model, name, signature.record()])
        except BadMessage:  # too large for the link: it serves, and nobody can read what it takes
            record = replace(signature, inputs={}, outputs={}, defaults=frozenset()).record()
            self._tell(signature=[model, name, record])

    # --- lanes --------------------------------------------------------------------------------------------------

    def _lane(
        self,
        calls: Calls,
        context: "zmq.Context[zmq.Socket[bytes]]",
        welcome: Mapping[str, Any],
    ) -> None:
        try:
            for backend in self._backends.values():
                backend.enter_lane()
            Lane(calls, self._arenas, welcome["slot"], welcome["device"]["label"]).serve(
                context, welcome["address"], welcome["token"]
            )
        except Unfit as unfit:
            self.end(unfit.status, str(unfit))
        except ConnectionLost as lost:
            self.end(Exit.CONNECTION_LOST, str(lost))
        except BaseException as error:
            self.end(Exit.CRASHED, f"a lane: {type(error).__name__}: {error}")

    # --- the link -----------------------------------------------------------------------------------------------

    def _hear(self) -> dict[str, Any]:
        said = self._link.receive()
        if said is None:
            os._exit(Exit.POOL_GONE)
        return said[0]

    def _tell(self, **message: Any) -> None:
        with suppress(OSError):  # the link's thread sees the pool's end
            self._link.send(message)

    def _listen(self) -> None:
        """Each beat says that the process is not stopped, whether the pool has said something or not."""
        beat_at = time.monotonic() + BEAT_S
        try:
            while True:
                with suppress(TimeoutError):
                    said = self._link.receive()
                    if said is None:
                        self._vanish()
                    self._told(*said)
                if time.monotonic() >= beat_at:
                    beat_at = time.monotonic() + BEAT_S
                    self._arenas.sweep()
                    self._tell(beat=True)
        except BaseException as error:
            self.end(Exit.CRASHED, f"the link: {type(error).__name__}: {error}")

    def _told(self, message: Mapping[str, Any], descriptor: int) -> None:
        match message:
            case {"arena": int(arena)} if descriptor >= 0:
                self._arenas.add(arena, descriptor)
            case {"drop": int(arena)}:
                self._arenas.drop(arena)
            case {"stop": True}:
                os._exit(Exit.STOPPED)  # neither Python's nor TensorFlow's teardown may hang

    def _vanish(self) -> NoReturn:
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)  # what a model has started goes, too
        os._exit(Exit.POOL_GONE)

    def end(self, status: int, text: str) -> NoReturn:
        self._tell(ending=text[:2000])
        os._exit(status)


def backend_of(kind: str, welcome: Mapping[str, Any]) -> Backend:
    """Imports the library that runs the models."""
    if kind == "stub":
        from workers.stub import Backend as Stub

        return Stub()
    from workers.tf import Backend as TensorFlow

    return TensorFlow({key: welcome[key] for key in ("tensorflow", "device", "state")})
