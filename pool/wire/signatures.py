"""What a model takes and gives, as a worker tells it when it is READY."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pool.wire.faults import Fault
from pool.wire.independence import Trial
from pool.wire.optimizations import Optimization

__all__ = ["DEFAULT_SIGNATURE", "PLACEMENT", "REPORT", "Context", "ModelInfo", "Refused", "Signature", "TensorSpec"]

DEFAULT_SIGNATURE = "serving_default"

PLACEMENT = "Model.placement"
"""No model has it: a job of this signature, which takes nothing, asks the worker what of the model ran where.

It gives `REPORT` alone, which is JSON.
"""
REPORT = "report"


class Refused(Exception):
    """A call that cannot be run as it was asked for; `fault` says which `pool.errors` class it becomes."""

    def __init__(self, text: str, fault: Fault = Fault.INVALID_INPUT) -> None:
        super().__init__(text)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """`dtype` is TensorFlow's name of it; `shape` is None when the rank is unknown, -1 stands for an unknown axis.

    `name`: of the tensor in the model's graph; "" where it has none, or none is known. Specs that differ in nothing
    else are equal: they take the same.
    """

    dtype: str
    shape: tuple[int, ...] | None
    name: str = field(default="", compare=False)

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.dtype} of any shape"
        axes = ", ".join("?" if axis < 0 else str(axis) for axis in self.shape)
        return f"{self.dtype} [{axes}]"


@dataclass(frozen=True, slots=True)
class Signature:
    """Named feeds and fetches with dtype and shape.

    `composite`: some are the parts of ragged or sparse tensors, whose axes 0 are of sizes of their own. `parts`: what
    inputs are called, too, whose own name does not say which part they are: `r.row_splits_0` is `r_1`.
    `method_name`: which of TensorFlow Serving's methods it is made for, such as `tensorflow/serving/predict`; "" where
    the model does not say.
    """

    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    composite: bool = False
    parts: Mapping[str, str] = field(default_factory=dict)
    method_name: str = ""

    def asked(self, outputs: Collection[str] | None) -> Collection[str]:
        """The outputs that a call means: None are all of them."""
        return self.outputs.keys() if outputs is None else outputs

    def has_rows(self, outputs: Collection[str] | None) -> bool:
        """Whether every input and these outputs (None: all) have an axis 0 of unknown size.

        Only then may jobs be joined and cut along it. That each row is computed by itself cannot be seen here.
        """
        if self.composite:
            return False
        fetched = self.outputs.keys() if outputs is None else self.outputs.keys() & outputs
        specs = [*self.inputs.values(), *(self.outputs[name] for name in fetched)]
        return bool(self.inputs) and all(spec.shape is not None and spec.shape[:1] == (-1,) for spec in specs)


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """`stateful`: a run of it may change what later runs return, so a run that may have started is never repeated.

    `optimizations`: what the worker decided about those that are asked for.
    `handler`: the class around its graph, "" where there is none; the signatures are then what that takes and gives.
    `version`: as in `ModelSettings`.
    `identity`: of the files, the settings that decide what is computed, and the library's version; a digest.
    `trials`: what the worker found of the rows of each signature that has some, where it tried.
    `amiss`: of each signature whose warm-up runs all failed, why; one line, the library's own words.
    `left_out`: of each signature of the files that is not offered, why.
    """

    name: str
    path: str
    signatures: Mapping[str, Signature]
    stateful: bool
    handler: str = ""
    optimizations: tuple[Optimization, ...] = ()
    version: int | None = None
    identity: str = ""
    trials: Mapping[str, Trial] = field(default_factory=dict)
    amiss: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    def signature_name(self, asked: str | None) -> str | None:
        """The signature that a call means: the one it asks for, else the default one, else the only one, else None."""
        if asked is not None:
            return asked
        if DEFAULT_SIGNATURE in self.signatures:
            return DEFAULT_SIGNATURE
        return next(iter(self.signatures)) if len(self.signatures) == 1 else None

    def has_rows(self, signature: str | None, outputs: Collection[str] | None) -> bool:
        """Whether these outputs of this signature have rows; that each is computed by itself is still to be proven."""
        found = self.signatures.get(signature or "")
        return not self.stateful and found is not None and found.has_rows(outputs)


@dataclass(frozen=True, slots=True)
class Context:
    """What a handler is made with: the model's name, the signatures of its graph, and its `handler_options`."""

    model: str
    signatures: Mapping[str, Signature]
    options: Mapping[str, Any]
