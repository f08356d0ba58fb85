"""Models without TensorFlow, which can be told to fail in every way: `path = "stub:double?log=FILE"`.

    stub:double     y = 2 x, for x float32 [?, width]; `times=N`: y = N x
    stub:echo       y = x, of dtype `dtype` and any shape
    stub:count      y = how many runs there were before: a stateful model
    stub:shrink     y has one row less than x
    stub:/FOLDER    what the file `model.stub` in it says, such as "double?times=3", so a stub may have versions

Options: `log=FILE` (a line for each run, with the first value of each row, before it answers), `gate=FILE` (each run
waits until the file is there), `proven=1` (`batching = "auto"` joins its jobs), `load=fail|later|hang|kill|exit`,
`sleep=SECONDS`, `width=N`, `dtype=NAME`.
A row whose first value is one of these does it, in whatever run it is:
"""

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

import numpy as np

from pool.wire import Exit
from pool.wire.signatures import DEFAULT_SIGNATURE, Signature, TensorInfo
from workers.backend import Arrays, CannotLoad, LoadFailed, Run, RunFailed, Traced, Unfit

POLL_S = 0.002


def _raise(error: BaseException) -> None:
    raise error


FAULTS: dict[str, tuple[float, Callable[[], object]]] = {
    "fail": (-1.0, lambda: _raise(RunFailed("ModelFailed", "a row that the model does not bear"))),
    "kill": (-2.0, lambda: os.kill(os.getpid(), signal.SIGKILL)),
    "hang": (-3.0, lambda: threading.Event().wait()),
    "hang with gil": (-4.0, lambda: ctypes.PyDLL(None).pause()),
    "no memory": (-5.0, lambda: _raise(RunFailed("OutOfMemory", "no memory for this row"))),
    "exit": (-6.0, lambda: os._exit(3)),
    "unfit": (-7.0, lambda: _raise(Unfit(Exit.PROCESS_UNUSABLE, "the device is broken"))),
    "bug": (-8.0, lambda: _raise(ZeroDivisionError("a bug of the model"))),
}
_FIRST = dict(FAULTS.values())
__doc__ += "".join(f"\n    {value:g}: {name}" for name, (value, _) in FAULTS.items())


def load(settings: Mapping[str, Any]) -> "Model":
    text = str(settings["path"]).removeprefix("stub:")
    if text.startswith("/"):
        with open(os.path.join(text, "model.stub")) as file:
            text = file.read().strip()
    kind, _, query = text.partition("?")
    options = dict(parse_qsl(query))
    match options.get("load", ""):
        case "fail":
            raise CannotLoad(f"model {settings['name']}: it is told to fail")
        case "later":
            raise LoadFailed(f"model {settings['name']}: no memory now")
        case fault if fault in FAULTS:
            FAULTS[fault][1]()
    if kind not in _KINDS:
        raise CannotLoad(f"model {settings['name']}: no stub {kind!r}")
    return Model(kind, options)


class Model:
    def __init__(self, kind: str, options: dict[str, str]) -> None:
        self._kind, self._options = kind, options
        self._runs = 0
        dtype = options.get("dtype", "float32")
        shape = None if kind == "echo" else (-1, int(options.get("width", "1")))
        x, y = TensorInfo(dtype, shape), TensorInfo("int64" if kind == "count" else dtype, shape)
        self.signatures: Mapping[str, Signature] = {DEFAULT_SIGNATURE: Signature({"x": x}, {"y": y})}
        self.left_out: Mapping[str, str] = {}
        self.is_stateful = kind == "count"
        self.notes: list[str] = []

    def verdicts(self, signature: str, batching: str) -> Mapping[str, str]:  # noqa: ARG002
        is_proven = batching == "on" or (batching == "auto" and "proven" in self._options)
        is_joined = is_proven and self._kind in ("double", "shrink")
        return {"y": "" if is_joined else f'a stub, and batching = "{batching}"'}

    def prepare_session(self, feeds: Sequence[str], fetches: Sequence[str]) -> Run:
        raise RunFailed("InvalidInput", f"a stub has no graph with {feeds} and {fetches}")

    def trace(self, signature: str) -> Sequence[Traced]:
        began = time.monotonic()
        self.prepare(signature, ["x"], ["y"])({"x": np.zeros((1, 1), np.float32)})
        return [Traced("/cpu:0", 1, time.monotonic() - began, [self._kind])]

    def warm_up(self) -> None:
        pass

    def prepare(self, signature: str, inputs: Sequence[str], outputs: Sequence[str]) -> Run:  # noqa: ARG002
        compute, times = _KINDS[self._kind], float(self._options.get("times", 2))

        def run(arrays: Arrays) -> Arrays:
            x = arrays["x"]
            firsts = x.reshape(len(x), -1)[:, :1].ravel().tolist() if x.ndim and x.size else []
            if gate := self._options.get("gate"):
                while not os.path.exists(gate):
                    time.sleep(POLL_S)
            if log := self._options.get("log"):
                with open(log, "a") as file:
                    file.write(f"{os.getpid()} {' '.join(f'{first:.9g}' for first in firsts)}\n")
            if pause := self._options.get("sleep"):
                time.sleep(float(pause))
            for first in firsts:
                if isinstance(first, float) and (fault := _FIRST.get(first)):
                    fault()
            self._runs += 1
            y = compute(x, self._runs)
            return {"y": y if times == 2 else y * x.dtype.type(times / 2)}

        return run


_KINDS: dict[str, Callable[[Any, int], Any]] = {
    "double": lambda x, _: x * x.dtype.type(2),
    "echo": lambda x, _: x,
    "count": lambda x, runs: np.full(x.shape, runs - 1, np.int64),
    "shrink": lambda x, _: x[1:],
}
