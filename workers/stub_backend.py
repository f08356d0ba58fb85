"""A backend without TensorFlow, for tests of everything around it: it echoes, and does each wrong thing when told.

path = "stub:echo"         a signature a dtype: gives its input back; serving_default is float32
path = "stub:faults"       sleep, fail, kill, kill_once, exit, pid: what the signature's name says
path = "stub:counter"      stateful: `add` returns the total so far, `kill_once` as above
path = "stub:cannot-load"  the load is refused, as TensorFlow's is of a broken folder
path = "stub:load-failed"  the load fails for want of memory
path = "stub:load-exit"    the process ends while it loads
path = "stub:load-hang"    the load never ends
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from pool.wire.faults import Fault
from pool.wire.signatures import DEFAULT_SIGNATURE, ModelInfo, Refused, Signature, TensorSpec
from pool.wire.tensors import DTYPES, Array
from pool.wire.worker_messages import ModelSettings
from workers.backend import CannotLoad, LoadFailed

__all__ = ["StubBackend"]

Feeds = Mapping[str, Array]
Function = Callable[[Feeds], dict[str, Array]]

INT = TensorSpec("int64", ())
FLOAT = TensorSpec("float64", ())
STRING = TensorSpec("string", ())


class StubBackend:
    """Implements `workers.backend.Backend`."""

    def load(self, settings: ModelSettings) -> "StubModel":
        kind = settings.path.removeprefix("stub:")
        match kind:
            case "echo":
                return StubModel(settings, _echo(), stateful=False)
            case "faults":
                return StubModel(settings, _faults(), stateful=False)
            case "counter":
                return StubModel(settings, _counter(), stateful=True)
            case "load-failed":
                raise LoadFailed(f"model {settings.name}: {settings.path} cannot be loaded now: out of memory")
            case "load-exit":
                print("the stub was told to die while it loads", file=sys.stderr)  # noqa: T201  # its last words
                os._exit(9)
            case "load-hang":
                threading.Event().wait()
        raise CannotLoad(f"model {settings.name}: {settings.path}: the stub backend has no model {kind!r} to load")


class StubModel:
    """Implements `workers.backend.Model`."""

    def __init__(
        self, settings: ModelSettings, functions: Mapping[str, tuple[Signature, Function]], stateful: bool
    ) -> None:
        signatures = {name: signature for name, (signature, _) in functions.items()}
        self._info = ModelInfo(settings.name, settings.path, signatures, stateful)
        self._functions = {name: function for name, (_, function) in functions.items()}

    @property
    def info(self) -> ModelInfo:
        return self._info

    def run(self, signature: str, feeds: Feeds, outputs: Sequence[str]) -> dict[str, Array]:
        fetched = self._functions[signature](feeds)
        return {name: fetched[name] for name in outputs}

    def warm_up(self) -> None:
        """A stub is warm."""


def _echo() -> Mapping[str, tuple[Signature, Function]]:
    def signature(dtype: str) -> tuple[Signature, Function]:
        spec = {"x": TensorSpec(dtype, None)}
        return Signature(spec, spec), dict

    return {DEFAULT_SIGNATURE: signature("float32"), **{dtype: signature(dtype) for dtype in DTYPES}}


def _faults() -> Mapping[str, tuple[Signature, Function]]:
    pid = {"pid": INT}
    return {
        "sleep": (Signature({"seconds": FLOAT}, pid), _sleep),
        "fail": (Signature({"text": STRING}, pid), _fail),
        "kill": (Signature({"signal": INT}, pid), _kill),
        "kill_once": (Signature({"signal": INT, "marker": STRING}, pid), _kill_once),
        "exit": (Signature({"status": INT}, pid), lambda feeds: os._exit(int(feeds["status"]))),
        "pid": (Signature({}, pid), lambda _: _pid()),
    }


def _pid() -> dict[str, Array]:
    return {"pid": np.array(os.getpid())}


def _sleep(feeds: Feeds) -> dict[str, Array]:
    time.sleep(float(feeds["seconds"]))
    return _pid()


def _fail(feeds: Feeds) -> dict[str, Array]:
    raise Refused(feeds["text"].item().decode(), Fault.MODEL_FAILED)


def _kill(feeds: Feeds) -> dict[str, Array]:
    os.kill(os.getpid(), int(feeds["signal"]))
    return _pid()


def _kill_once(feeds: Feeds) -> dict[str, Array]:
    """Dies unless the marker file is there, and makes it first: the next worker lives."""
    marker = Path(feeds["marker"].item().decode())
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return _pid()
    return _kill({"signal": feeds["signal"] or np.array(signal.SIGKILL)})


def _counter() -> Mapping[str, tuple[Signature, Function]]:
    lock = threading.Lock()
    total = np.array(0)

    def add(feeds: Feeds) -> dict[str, Array]:
        with lock:
            total[...] += feeds["n"]
            return {"total": total.copy()}

    kill_once, _ = _faults()["kill_once"]
    return {
        "add": (Signature({"n": INT}, {"total": INT}), add),
        "kill_once": (kill_once, _kill_once),
    }
