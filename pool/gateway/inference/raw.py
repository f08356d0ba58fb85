"""A request without a JSON header, as Triton has it: its body is the only input, whose shape follows from its size."""

import math

import numpy as np
from numpy.typing import NDArray

from pool.gateway.http import Refused
from pool.gateway.inference.datatypes import DATATYPES, shown
from pool.gateway.inference.descriptions import has_rows, signature_of
from pool.gateway.inference.paths import Place
from pool.gateway.inference.plan import Binary, Plan
from pool.gateway.inference.strings import array_of
from pool.wire.records import Model
from pool.wire.tensors import Array

__all__ = ["raw"]


def raw(place: Place, model: Model, signature: str | None, body: NDArray[np.uint8]) -> tuple[Plan, dict[str, Array]]:
    """One row, where the input has rows. Raises `Refused`."""
    chosen, info = signature_of(model, signature)
    options = {"signature": chosen, **({} if place.version is None else {"version": place.version})}
    whose = f"a body without a JSON header: model {model.name!r:.200}, signature {chosen!r:.200}"
    if len(info.inputs) != 1:
        raise Refused(400, f"{whose} has not one input: {', '.join(info.inputs)!s:.400}")
    [(name, spec)] = info.inputs.items()
    dtype = DATATYPES.get(shown(spec.dtype))
    if dtype is None or spec.shape is None:
        raise Refused(400, f"{whose}, input {name!r:.200} is {spec}, which needs a header")
    shape = [*spec.shape]
    if has_rows(info):
        shape[0] = 1
    wrong = Refused(400, f"{whose}, input {name!r:.200} is {spec}, to which {len(body)} bytes have no single shape")
    if dtype.hasobject:
        alone = tuple(max(axis, 1) if axis < 0 else axis for axis in shape)
        if math.prod(alone) != 1:
            raise wrong
        plan = Plan(place.name, place.version, options, {}, (), 0, 0, None, True, None)
        return plan, {name: array_of([body.tobytes()], alone)}
    known = math.prod(axis for axis in shape if axis >= 0) * dtype.itemsize
    if shape.count(-1) > 1 or (-1 in shape and not known):
        raise wrong
    found = tuple(len(body) // known if axis < 0 else axis for axis in shape)
    count = math.prod(found)
    if count * dtype.itemsize != len(body):
        raise wrong
    binary = (Binary(name, dtype, found, count, 0, len(body)),) if count else ()
    given = {} if count else {name: np.empty(found, dtype)}
    plan = Plan(place.name, place.version, options, given, binary, len(body), 0, None, True, None)
    return plan, plan.arrays(body, 0)
