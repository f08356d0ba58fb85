"""Faults on order in a worker of the stub backend: which fault, at which moment, of whose.

Python imports this first where $PYTHONPATH has its folder. The orders are files in the folder that $FAULT_ORDERS names:
`slot-3` is for the next worker of that slot that comes to the moment, `job-7` for whoever has the job that was fed 7.
In it stand the moment and the fault. Who acts on an order claims it before, by renaming it, so it is acted on once.
"""

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

LOOK_S = 0.01


def wait(path: Path | None = None) -> None:
    """Until the file is there; for ever without one. Other threads run meanwhile."""
    while path is None or not path.exists():
        time.sleep(LOOK_S)


class Hook:
    def __init__(self, folder: Path, slot: int) -> None:
        self.folder = folder
        self.slot = slot
        self.garbage = False
        """The next message of this process has some before it."""
        self.silent = False
        """The control thread is to say nothing any more, and take no order."""
        self._mute = threading.Event()

    def reach(self, moment: str, whose: str) -> None:
        """Acts on the order for this moment, if there is one."""
        order = self.folder / whose
        try:
            when, _, fault = order.read_text().partition(" ")
            if when != moment:
                return
            order.rename(self.folder / f"claimed-{whose}-{self.slot}-{os.getpid()}")
        except FileNotFoundError:
            return
        if moment == "draining":
            wait(self.folder / f"go-{whose}")
        self._act(fault, moment)

    def reach_own(self, moment: str) -> None:
        self.reach(moment, f"slot-{self.slot}")

    def _act(self, fault: str, moment: str) -> None:
        match fault:
            case "SIGKILL" | "SIGSEGV" | "SIGSTOP":
                os.kill(os.getpid(), getattr(signal, fault))
                wait()  # the signal may come to another thread first
            case "exit(0)":
                os._exit(0)
            case "sys.exit(0)":
                sys.exit(0)
            case "exception":
                raise RuntimeError("as ordered")
            case "out of memory":
                raise MemoryError("as ordered")
            case "loop in C":
                while True:
                    ctypes.PyDLL(None).pause()  # keeps the interpreter's lock
            case "loop in Python":
                while True:
                    pass
            case "garbage":
                self.garbage = True
                # Where this thread itself sends next it goes on; else the control thread's next beat brings it.
                if moment not in ("start", "idle", "answering"):
                    wait()
            case "silence":
                if moment in ("start", "idle"):
                    wait()
                self.silent = True
                self._mute.wait()
            case "wait":
                wait(self.folder / "go")
            case _:
                raise AssertionError(f"no fault {fault!r}")

    def send(self, original: Callable[..., None], connection: Any, *message: object) -> None:
        if self.silent and in_control_thread():
            self._mute.set()
            wait()
        if self.garbage:
            self.garbage = False
            connection.socket.send_multipart([b"TFWP", b"\xc1", b"garbage"])
        original(connection, *message)


class Tapped:
    """A lane's connection, for `Lane._serve`."""

    def __init__(self, hook: Hook, connection: Any) -> None:
        self._hook = hook
        self._connection = connection
        self._whose = ""

    def receive(self, timeout_s: float) -> Any:
        import numpy as np

        envelope = self._connection.receive(timeout_s)
        if envelope is None:
            return None
        self._whose = f"job-{int(np.frombuffer(envelope.payload[1], '<f4')[0])}"
        self._hook.reach("receiving", self._whose)
        return envelope

    def send(self, message: object, payload: Sequence[Any]) -> None:
        self._hook.reach("answering", self._whose)
        self._connection.send(message, payload)


def in_control_thread() -> bool:
    return threading.current_thread().name == "control"


def before(owner: Any, name: str, act: Callable[..., None]) -> None:
    """Has `act` called with the same arguments before each call of `owner.name`."""
    original = getattr(owner, name)

    def both(*arguments: Any) -> Any:
        act(*arguments)
        return original(*arguments)

    setattr(owner, name, both)


def install(hook: Hook) -> None:
    from pool.wire.worker_messages import Phase
    from workers import connection, lane, progress, worker
    from workers.stub import backend, model

    def beat(self: progress.Progress, _: float) -> None:
        if in_control_thread() and self.phase is Phase.SERVING and not any(self.running.values()):
            hook.reach_own("idle")

    def run(_self: object, _signature: str, feeds: Any, _outputs: object) -> None:
        for moment in ("mid-batch", "draining"):
            hook.reach(moment, f"job-{int(feeds['x'][0])}")

    before(worker, "run", lambda _: hook.reach_own("start"))
    before(worker._Backends, "serving", lambda *_: hook.reach_own("import"))
    before(backend.StubBackend, "load", lambda *_: hook.reach_own("load"))
    before(model.StubModel, "warm_up", lambda _: hook.reach_own("warm-up"))
    before(progress.Progress, "beat", beat)
    before(model.StubModel, "run", run)
    serve: Callable[..., bool] = lane.Lane._serve
    send = connection.Connection.send

    def serve_tapped(self: object, connection: Any, checks: object) -> bool:
        return serve(self, Tapped(hook, connection), checks)

    lane.Lane._serve = serve_tapped  # type: ignore[method-assign]
    connection.Connection.send = lambda *arguments: hook.send(send, *arguments)  # type: ignore[method-assign]


def broken(error: BaseException) -> NoReturn:
    """A hook that does not fit the workers any more must not pass for a healthy worker."""
    print(f"the fault hook: {type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201  # the pool reads this
    os._exit(71)


if "workers" in sys.orig_argv and os.environ.get("FAULT_ORDERS"):
    try:
        install(Hook(Path(os.environ["FAULT_ORDERS"]), int(sys.orig_argv[sys.orig_argv.index("--slot") + 1])))
    except BaseException as error:
        broken(error)
