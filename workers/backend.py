"""What a lane needs of the library that runs models: TensorFlow's (`workers.tf`) or the stub's.

A backend is made once a process, on the main thread, and loads each model once. A loaded model is used by all lanes
at the same time, so `run` must be safe from several threads.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from pool.wire.signatures import ModelInfo
from pool.wire.tensors import Array
from pool.wire.worker_messages import ModelSettings

__all__ = ["Backend", "CannotLoad", "LoadFailed", "Model", "ProcessUnusable", "WrongDevices"]


class CannotLoad(Exception):
    """The model's files are not a model that this backend serves. One line: which, why, what would be right."""


class LoadFailed(Exception):
    """Nothing is known to be wrong with the files: a later load may succeed. One line: which, and what was amiss."""


class WrongDevices(Exception):
    """The process sees other devices than its slot was promised. One line: how many, which, and what to install."""


class ProcessUnusable(Exception):
    """No later run in this process can succeed, whatever it is fed, so the process must end. One line: what broke."""


class Model(Protocol):
    """A loaded model."""

    @property
    def info(self) -> ModelInfo: ...

    def run(self, signature: str, feeds: Mapping[str, Array], outputs: Sequence[str]) -> dict[str, Array]:
        """Runs one signature.

        `feeds` has each input of the signature, with its dtype and a shape that fits it; `outputs` are names of the
        signature's outputs. Returns an array an output (strings as `bytes` in an object array); an array may alias
        a feed or the model's own memory, so the caller must not write into it, but never memory that a later run
        writes. Raises `pool.wire.signatures.Refused` with `Fault.MODEL_FAILED` or `Fault.OUT_OF_MEMORY`, and
        `ProcessUnusable`.
        """
        ...

    def warm_up(self) -> None:
        """Runs what can be run without knowing the caller's data, so that the first job does not pay for it.

        Raises `ProcessUnusable`.
        """
        ...


class Backend(Protocol):
    def load(self, settings: ModelSettings) -> Model:
        """Loads a model onto this process's device, ready to run but for warming up.

        Raises `CannotLoad`, `LoadFailed`, or `WrongDevices` where only a load can tell.
        """
        ...
