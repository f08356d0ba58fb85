"""What a lane needs of the library that runs models: TensorFlow's (`workers.tf`) or the stub's (`workers.stub`).

A backend is made once a process, on the main thread, and loads each model once. All lanes use a loaded model at the
same time, so a prepared run must be safe from several threads.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from pool.wire import Exit
from pool.wire.signatures import Signature

Arrays = dict[str, np.ndarray]
Run = Callable[[Arrays], Arrays]


class Unfit(BaseException):
    """The process must end with `status`, so no `except Exception` stops it. One line says why, what would be right."""

    def __init__(self, status: Exit, text: str) -> None:
        super().__init__(text)
        self.status = status


class CannotLoad(Exception):
    """The files are not a model that this backend serves. One line: which, why, what would be right."""


class LoadFailed(Exception):
    """The load failed, but a later one may succeed: no memory, a device or storage that is away. One line."""


class RunFailed(Exception):
    """A run failed. `name`: one of `OUTCOMES` in `pool/core/scheduler.py`, or the pool kills the worker for a lie."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


class RowsDiffer(RunFailed):
    """Rows that ran together have no answer together. A lane runs such jobs one by one."""


class Traced(NamedTuple):
    """What one traced run of a model did on one device."""

    device: str  # as the worker sees it: "/gpu:0" is its first GPU
    ops: int  # of the model's ops that ran here, without what the library adds, such as copies to another device
    seconds: float  # the sum of their times; of a GPU it is the time to start its kernels, not that of the kernels
    names: Sequence[str]  # those of the ops that took longest, the longest first, as `layer_devices` takes them


class Model(Protocol):
    signatures: Mapping[str, Signature]
    left_out: Mapping[str, str]  # of each signature of the files that is not offered, why
    is_stateful: bool  # a run of it may change what later runs return
    notes: list[str]  # lines for the log and for `pool models`

    def prepare(self, signature: str, inputs: Sequence[str], outputs: Sequence[str]) -> Run:
        """A run of one signature, fed these inputs, that fetches these outputs. Calling it again may cost 50 ms.

        The run takes C-contiguous arrays of the signature's dtypes and of shapes that fit it (strings as objects of
        `bytes`), which may be read-only views of memory that is not the process's own. It returns one array for each
        output; they may alias the model's memory or the inputs, so the caller copies them before it uses either again.
        Neither memory of the inputs is kept nor written after it has returned. Raises `RunFailed`, or `Unfit` where
        no later run in this process can succeed.
        """
        ...

    def prepare_session(self, feeds: Sequence[str], fetches: Sequence[str]) -> Run:
        """A `Session.run`: its inputs and outputs are named as in the model's graph. Fetched operations give nothing.

        Raises `RunFailed`, also for a run that writes variables of a model that is not stateful.
        """
        ...

    def verdicts(self, signature: str, batching: str) -> Mapping[str, str]:
        """Of each output, why jobs that ask for it run alone; "" if they may share a run.

        `batching`: "auto" asks for a proof that rows are independent, "on" vouches for it, "off" forbids it. Nobody
        can vouch for what has state, or an input or output without an axis 0 of any size.
        """
        ...

    def trace(self, signature: str) -> Sequence[Traced]:
        """Runs a signature on zeros and tells what ran where; a device on which no op ran is left out.

        It takes the time of several runs, and may run beside others. Raises `RunFailed`, also for a signature whose
        run would change the model's state, and `Unfit`.
        """
        ...

    def warm_up(self) -> None:
        """Runs each signature once, so that the first job does not pay for it. Raises nothing but `Unfit`."""
        ...


Load = Callable[[Mapping[str, Any]], Model]
"""Of the `[[model]]` section as `pool.config` dumps it. Raises `CannotLoad`, `LoadFailed`, `Unfit`."""
