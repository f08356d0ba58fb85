"""What a model takes and gives, as a worker tells it when it is READY."""

from collections.abc import Mapping
from dataclasses import dataclass

from pool.wire.faults import Fault

__all__ = ["DEFAULT_SIGNATURE", "ModelInfo", "Refused", "Signature", "TensorSpec"]

DEFAULT_SIGNATURE = "serving_default"


class Refused(Exception):
    """A call that cannot be run as it was asked for; `fault` says which `pool.errors` class it becomes."""

    def __init__(self, text: str, fault: Fault = Fault.INVALID_INPUT) -> None:
        super().__init__(text)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """`dtype` is TensorFlow's name of it; `shape` is None when the rank is unknown, -1 stands for an unknown axis."""

    dtype: str
    shape: tuple[int, ...] | None

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.dtype} of any shape"
        axes = ", ".join("?" if axis < 0 else str(axis) for axis in self.shape)
        return f"{self.dtype} [{axes}]"


@dataclass(frozen=True, slots=True)
class Signature:
    """Named feeds and fetches with dtype and shape."""

    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """`stateful`: a run of it may change what later runs return, so a run that may have started is never repeated."""

    name: str
    path: str
    signatures: Mapping[str, Signature]
    stateful: bool
