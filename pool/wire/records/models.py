"""What `Client.models` tells: what can be asked of each model."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pool.wire.codec import Record
from pool.wire.records.loads import ModelLoad
from pool.wire.records.status import Moved, Unloadable
from pool.wire.signatures import TensorSpec

__all__ = [
    "Decision",
    "Model",
    "SignatureInfo",
    "Tensor",
    "said_of",
]


@dataclass(frozen=True, slots=True)
class Decision(Record):
    """About an optimization, in one slot."""

    slot: int
    kind: str
    kept: bool
    why: str


@dataclass(frozen=True, slots=True)
class Tensor(TensorSpec, Record):
    """What an input takes, or an output gives: -1 is any size, and a `shape` of None any shape.

    `name`: of the tensor in the model's graph.
    """


@dataclass(frozen=True, slots=True)
class SignatureInfo(Record):
    """`method_name`: which of TensorFlow Serving's methods it is made for."""

    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    batchable: bool
    rows: str
    amiss: str | None
    method_name: str = ""


@dataclass(frozen=True, slots=True)
class Model(Record):
    """What can be asked of a model, or of one version beside others."""

    name: str
    model: str
    version: int | None
    labels: tuple[str, ...]
    default: bool
    slots: tuple[int, ...]
    ready_slots: tuple[int, ...]
    versions: tuple[int, ...]
    path: str | None
    stateful: bool | None
    handler: str | None
    optimizations: tuple[Decision, ...]
    signatures: Mapping[str, SignatureInfo]
    left_out: Mapping[str, str]
    failover: tuple[Moved, ...]
    remarks: tuple[str, ...]
    scheduling: ModelLoad
    unloadable: tuple[Unloadable, ...] = ()


def said_of(models: Iterable[Model], model: str, version: int | str | None = None) -> Model | None:
    """The one that a job with this name and version would reach, if any."""
    for each in models:
        if each.name == model:
            return each
        if each.model != model:
            continue
        if each.default if version is None else version == each.version or version in each.labels:
            return each
    return None
