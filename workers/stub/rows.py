"""A stub model whose jobs may run together: each signature has rows. In most, a negative row is the guilty one.

double    y = 2x, and batch: the rows of the run that it was in, padding too
sleep     as long as the longest row says, in seconds; pid
fail      a negative row fails the run
kill      a negative row kills the worker, by SIGKILL
oom       a negative row, or more rows than fit, are too much for the device's memory
unusable  a negative row breaks the process
shrink    y = x, but of more than one row only the first comes back
text      strings: upper, and length
view      column and same: views of what was fed, one with another shape
"""

import os
import signal
import time
from collections.abc import Callable

import numpy as np

from pool.wire.faults import Fault
from pool.wire.signatures import DEFAULT_SIGNATURE, Refused, Signature, TensorSpec
from pool.wire.tensors import Array
from workers.backend import ProcessUnusable
from workers.stub.device import Device
from workers.stub.model import Feeds, Fetched, Functions, pid

__all__ = ["crowd", "rows", "tell", "touchy"]

FLOATS = TensorSpec("float32", (-1,))
INTS = TensorSpec("int64", (-1,))
STRINGS = TensorSpec("string", (-1,))
SMALL = 1e-3  # no number that a stub is tried with is larger
X, Y = {"x": FLOATS}, {"y": FLOATS}


def rows(device: Device, fits: float, run_s: float, row_s: float) -> Functions:
    """Each run has the device for `run_s`, and `row_s` for each row. More than `fits` rows are too many for `oom`."""

    def oom(feeds: Feeds) -> Fetched:
        count = len(feeds["x"])
        if count > fits or (feeds["x"] < 0).any():
            raise Refused(f"{count} rows do not fit into the device's memory", Fault.OUT_OF_MEMORY)
        return {"y": feeds["x"]}

    functions: Functions = {
        "double": (Signature(X, {"y": FLOATS, "batch": INTS}), _double),
        "sleep": (Signature({"seconds": TensorSpec("float64", (-1,))}, {"pid": INTS}), _sleep),
        "fail": (Signature(X, Y), _fail),
        "kill": (Signature(X, Y), _kill),
        "oom": (Signature(X, Y), oom),
        "unusable": (Signature(X, Y), _unusable),
        "shrink": (Signature(X, Y), lambda feeds: {"y": feeds["x"][:1]}),
        "text": (Signature({"x": STRINGS}, {"upper": STRINGS, "length": INTS}), _text),
        "view": (Signature(X, {"column": TensorSpec("float32", (-1, 1)), "same": FLOATS}), _view),
    }

    def on_device(function: Callable[[Feeds], Fetched]) -> Callable[[Feeds], Fetched]:
        def run(feeds: Feeds) -> Fetched:
            (fed,) = feeds.values()
            device.work(run_s + row_s * len(fed))
            return function(feeds)

        return run

    return {name: (signature, on_device(function)) for name, (signature, function) in functions.items()}


def tell(number: float) -> Functions:
    """A model that says which one it is, in each row of its answer."""
    return {DEFAULT_SIGNATURE: (Signature(X, Y), lambda feeds: {"y": np.full(len(feeds["x"]), number, np.float32)})}


def touchy() -> Functions:
    """A model that made-up values kill, whichever of its signatures is fed them."""
    run = _dying_of(lambda x: bool(((x > 0) & (x < SMALL)).any()))
    return {name: (Signature(X, Y), run) for name in (DEFAULT_SIGNATURE, "classify", "regress")}


def crowd() -> Functions:
    """A model that rows of several jobs kill, if they run together."""
    return {DEFAULT_SIGNATURE: (Signature(X, Y), _dying_of(lambda x: bool((x != x[0]).any())))}


def _dying_of(what: Callable[[Array], bool]) -> Callable[[Feeds], Fetched]:
    def run(feeds: Feeds) -> Fetched:
        if what(feeds["x"]):
            os.kill(os.getpid(), signal.SIGKILL)
        return {"y": feeds["x"]}

    return run


def _double(feeds: Feeds) -> Fetched:
    return {"y": feeds["x"] * 2, "batch": np.full(len(feeds["x"]), len(feeds["x"]))}


def _sleep(feeds: Feeds) -> Fetched:
    time.sleep(float(feeds["seconds"].max()))
    return pid(feeds["seconds"].shape)


def _fail(feeds: Feeds) -> Fetched:
    if (feeds["x"] < 0).any():
        raise Refused("a row is negative", Fault.MODEL_FAILED)
    return {"y": feeds["x"]}


def _kill(feeds: Feeds) -> Fetched:
    if (feeds["x"] < 0).any():
        os.kill(os.getpid(), signal.SIGKILL)
    return {"y": feeds["x"]}


def _unusable(feeds: Feeds) -> Fetched:
    if (feeds["x"] < 0).any():
        raise ProcessUnusable("a row broke this process")
    return {"y": feeds["x"]}


def _text(feeds: Feeds) -> Fetched:
    texts = feeds["x"].tolist()
    upper = np.empty(len(texts), dtype=object)
    upper[:] = [text.upper() for text in texts]
    return {"upper": upper, "length": np.array([len(text) for text in texts])}


def _view(feeds: Feeds) -> Fetched:
    return {"column": feeds["x"].reshape(-1, 1), "same": feeds["x"]}
