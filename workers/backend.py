"""What a lane needs of the library that runs models: TensorFlow's (`workers.tf`) or the stub's.

A backend is made once a process, on the main thread, and loads each model once. A loaded model is used by all lanes
at the same time, so `run` must be safe from several threads.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pool.wire.exits import Exit
from pool.wire.signatures import ModelInfo
from pool.wire.tensors import Array
from pool.wire.worker_messages import ModelSettings

__all__ = [
    "Backend",
    "BackendMissing",
    "CannotLoad",
    "LoadFailed",
    "Model",
    "NotFree",
    "ProcessUnusable",
    "SessionCall",
    "Unfit",
    "WrongDevices",
]


class Unfit(Exception):
    """Why this process serves nothing; `status` is how it ends."""

    status = Exit.CRASHED


class CannotLoad(Unfit):
    """The model's files are not a model that this backend serves. One line: which, why, what would be right."""

    status = Exit.MODEL_CANNOT_LOAD


class LoadFailed(Unfit):
    """Nothing is known to be wrong with the files: a later load may succeed. One line: which, and what was amiss."""

    status = Exit.LOAD_FAILED


class WrongDevices(Unfit):
    """The process sees other devices than its slot was promised. One line: how many, which, and what to install."""

    status = Exit.WRONG_DEVICES


class ProcessUnusable(Unfit):
    """No later run in this process can succeed, whatever it is fed, so the process must end. One line: what broke."""

    status = Exit.PROCESS_UNUSABLE


class NotFree(Unfit):
    """The process must not touch its GPUs. One line says why."""

    def __init__(self, status: Exit, why: str) -> None:
        super().__init__(why)
        self.status = status


class BackendMissing(Unfit):
    """The library that runs the models does not import. One line: why, and what to install."""

    status = Exit.BACKEND_MISSING


@dataclass(frozen=True, slots=True)
class SessionCall:
    """`feeds`: by the names of tensors, of any dtype; those in `weak` were Python numbers, or lists of them.

    `fetches`: tensors and operations, each once. `may_write`: it may change the model's variables. `trace_level`:
    above 0, TensorFlow is to say where the time goes. `remote`: it came over TCP.
    """

    feeds: Mapping[str, Array]
    weak: frozenset[str]
    fetches: tuple[str, ...]
    may_write: bool
    trace_level: int = 0
    remote: bool = False


class Model(Protocol):
    """A loaded model."""

    @property
    def info(self) -> ModelInfo: ...

    def run(self, signature: str, feeds: Mapping[str, Array], outputs: Sequence[str]) -> dict[str, Array]:
        """Runs one signature.

        `feeds` has each input of the signature, with its dtype and a shape that fits it, in one piece (C order);
        `outputs` are names of the signature's outputs. The feeds are the caller's again when it returns or raises:
        nothing reads or writes them then, whatever the model keeps. Beginning at a multiple of 64 bytes, they are not
        copied on the way in, read-only ones neither.

        Returns an array an output, in one piece (strings as `bytes` in an object array). It may alias the model's own
        memory, so the caller must not write into it, but never what a later run writes. It may be, or be a part of, a
        feed, so the caller copies it before it writes that again: `np.may_share_memory(array, feed)` says so exactly,
        for both are in one piece. What is fetched keeps its memory alive, and so the feed's; what is dropped may be
        freed only when the next run begins.

        Raises `pool.wire.signatures.Refused` with `Fault.MODEL_FAILED` or `Fault.OUT_OF_MEMORY`, and
        `ProcessUnusable`.
        """
        ...

    def to_try(self, signature: str, rows: int) -> Iterator[Mapping[str, Array]]:
        """Feeds of so many rows to try it with: recorded requests, then made-up values. It may refuse any of them."""
        ...

    def bears_change(self, signature: str, inputs: Sequence[str], outputs: Sequence[str]) -> bool:
        """Whether numbers that a run is fed may change while it runs, and nothing is harmed but its own answer.

        Of integers that can be an index nobody asks: they never may. `signature`: one of the model's, or of
        `pool.wire.session_runs`, whose inputs and outputs are named by the graph.
        """
        ...

    def placement(self) -> dict[str, Any]:
        """What of the model ran where, by a run of each signature that keeps no state; values of JSON's types.

        {"devices": ["/cpu:0", …], "signatures": {name: {"nodes": [{"node", "function", "op", "device", "rule"}, …],
        "why": None, or why it was not run}}, "rules": [{"layers", "device", "matched", "ran", "elsewhere": [{"node",
        "device"}, …], "absent": [node, …], "kept"}, …]}. `function` is "" for a node of the graph itself, `rule` the
        number of the rule that moved it, or None. A rule is kept unless a node of it ran elsewhere, or none ran where
        one was to; None: nothing of it was to run. `absent` were to run and did not, as what is folded away.

        Waits while another one is made. Raises `ProcessUnusable`.
        """
        ...

    def session_run(self, call: SessionCall) -> dict[str, Array]:
        """Runs what leads to the fetches of a call, and nothing else, as `tf.Session.run` would.

        As `run`, but the feeds may be of any dtype and shape: they become what `tf.Session.run` makes of them, or it
        raises `Refused` with `Fault.INVALID_INPUT` and TensorFlow's own words. Each tensor that is fetched is in the
        answer, no operation is; `RUN_METADATA` is if something was traced. Where the call may not write and what it
        asks for would, nothing is run and the answer has only `WRITES`. Where the call is remote and would write, or
        touch files, it raises `Refused`.
        """
        ...

    def close(self) -> None:
        """Gives up what the model holds on the device. It is not run any more."""
        ...

    def warm_up(self) -> None:
        """Runs what can be run without knowing the caller's data, so that the first job does not pay for it.

        Called before any lane runs the model. Raises `ProcessUnusable`.
        """
        ...


class Backend(Protocol):
    def load(self, settings: ModelSettings) -> Model:
        """Loads a model onto this process's device, ready to run but for warming up.

        Raises `CannotLoad`, `LoadFailed`, or `WrongDevices` where only a load can tell.
        """
        ...
