"""Stub models whose jobs run alone: they keep state, or no input of theirs has rows."""

import ctypes
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np

from pool.wire.faults import Fault
from pool.wire.signatures import DEFAULT_SIGNATURE, Refused, Signature, TensorSpec
from pool.wire.tensors import DTYPES
from workers.stub.model import Feeds, Fetched, Functions, pid

__all__ = ["counter", "echo", "faults"]

INT = TensorSpec("int64", ())
INTS = TensorSpec("int64", (-1,))
FLOAT = TensorSpec("float64", ())
STRING = TensorSpec("string", ())
PID = {"pid": INT}


def echo() -> Functions:
    def signature(dtype: str) -> Signature:
        spec = {"x": TensorSpec(dtype, None)}
        return Signature(spec, spec)

    return {
        DEFAULT_SIGNATURE: (signature("float32"), dict),
        **{dtype: (signature(dtype), dict) for dtype in DTYPES},
    }


def faults() -> Functions:
    return {
        "sleep": (Signature({"seconds": FLOAT}, PID), _sleep),
        "fail": (Signature({"text": STRING}, PID), _fail),
        "kill": (Signature({"signal": INT}, PID), _kill),
        "kill_once": (Signature({"signal": INT, "marker": STRING}, PID), _kill_once),
        "exit": (Signature({"status": INT}, PID), lambda feeds: os._exit(int(feeds["status"]))),
        "hang": (Signature({"how": STRING}, PID), _hang),
        "crash": (Signature({"x": TensorSpec("float32", (-1, 4)), "words": STRING}, PID), _crash),
        "pid": (Signature({}, PID), lambda _: pid()),
    }


def counter(ledger: str = "", run_s: float = 0.0) -> Functions:
    """Each `n` is also a line of the file `ledger`, if there is one, `run_s` before it is answered: it
    outlives the worker.

    `gated` takes rows; a negative one then waits until somebody has opened and closed the FIFO `ledger`.gate.
    """
    lock = threading.Lock()
    total = np.array(0)
    file = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600) if ledger else None

    def add(feeds: Feeds) -> Fetched:
        with lock:
            if file is not None:
                os.write(file, b"%d\n" % int(feeds["n"]))
            time.sleep(run_s)
            total[...] += feeds["n"]
            return {"total": total.copy()}

    def gated(feeds: Feeds) -> Fetched:
        totals = [add({"n": n})["total"] for n in feeds["n"]]
        if (feeds["n"] < 0).any():
            Path(f"{ledger}.gate").read_bytes()
        return {"total": np.array(totals)}

    return {
        "add": (Signature({"n": INT}, {"total": INT}), add),
        "gated": (Signature({"n": INTS}, {"total": INTS}), gated),
        "kill_once": faults()["kill_once"],
    }


def _sleep(feeds: Feeds) -> Fetched:
    time.sleep(float(feeds["seconds"]))
    return pid()


def _fail(feeds: Feeds) -> Fetched:
    raise Refused(feeds["text"].item().decode(), Fault.MODEL_FAILED)


def _kill(feeds: Feeds) -> Fetched:
    os.kill(os.getpid(), int(feeds["signal"]))
    return pid()


def _hang(feeds: Feeds) -> Fetched:
    """For ever: in Python, in C as TensorFlow would, in C that keeps the interpreter's lock, or the process stops."""
    hangs = {b"python": _hang_in_python, b"c": _hang_in_c, b"locked": _hang_with_the_lock, b"stopped": _hang_stopped}
    return hangs[feeds["how"].item()]()


def _hang_in_python() -> Fetched:
    while True:
        time.sleep(0.01)


def _hang_in_c() -> Fetched:
    while True:
        ctypes.CDLL(None).pause()


def _hang_with_the_lock() -> Fetched:
    while True:
        ctypes.PyDLL(None).pause()


def _hang_stopped() -> Fetched:
    os.kill(os.getpid(), signal.SIGSTOP)
    return _hang_in_python()  # the signal may come to another thread first


def _crash(feeds: Feeds) -> Fetched:
    """In native code, after some last words."""
    print(feeds["words"].item().decode(), flush=True)  # noqa: T201  # its last words
    ctypes.string_at(0)
    return pid()


def _kill_once(feeds: Feeds) -> Fetched:
    """Dies unless the marker file is there, and makes it first: the next worker lives."""
    marker = Path(feeds["marker"].item().decode())
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return pid()
    return _kill({"signal": feeds["signal"] or np.array(signal.SIGKILL)})
