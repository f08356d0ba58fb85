"""Jobs that ask what of a model ran where."""

import json
from collections.abc import Sequence

import numpy as np

from pool.wire.calls import TensorHeader
from pool.wire.signatures import PLACEMENT, REPORT, Refused
from pool.wire.tensors import Array
from workers.backend import Model
from workers.signatures import Invocation

__all__ = ["placement_answer", "resolve_placement"]


def resolve_placement(outputs: Sequence[str] | None, tensors: Sequence[TensorHeader]) -> Invocation:
    """Raises `Refused` where something is fed, or something else is asked for."""
    if tensors or set(outputs or ()) - {REPORT}:
        raise Refused(f"{PLACEMENT} takes nothing, and gives {REPORT!r} alone")
    return Invocation(PLACEMENT, (REPORT,), ())


def placement_answer(model: Model) -> dict[str, Array]:
    return {REPORT: np.array(json.dumps(model.placement()).encode(), object)}
