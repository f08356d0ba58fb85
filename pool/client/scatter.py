"""One call on all slots that serve a model. An `AsyncClient` awaits what the steps yield, before it sends it back."""

import time
from collections.abc import Generator, Sequence
from functools import reduce as folded
from typing import Any

import numpy as np

from pool.client.blocks import derived, joined
from pool.client.futures import Result
from pool.client.inputs import Options, Request, chosen
from pool.errors import InvalidInput
from pool.wire.signatures import Signature
from pool.wire.tensors import DTYPE_NAMES, Array

Jobs = Sequence[tuple[Any, Options]]  # inputs, and options of `submit`
Steps = Generator[Any, Any, Any]


def broadcasting(client: Any, request: Request, inputs: Any, options: Options) -> Steps:
    slots = (yield client.model(request.model, request.timeout))["slots"]
    jobs: Jobs = [(inputs, {**options, "version": None, "slot": slot}) for slot in slots]
    return dict(zip(slots, (yield client._all(request.model, jobs)), strict=True))


def scattering(client: Any, request: Request, batch: Any, reduce: str | None, options: Options) -> Steps:
    """What met two versions is asked again, until the call's time is over."""
    until = time.monotonic() + request.timeout_s(client._connector.timeout_s)
    known = yield client._learned(request)
    plan, arrays = client._connector.planner.prepare(request, batch, known)
    if not plan.rows and any(array.size for array in arrays):
        raise InvalidInput("scatter: give arrays of one length")
    if reduce is not None:
        check(chosen(request, known), request.outputs, reduce)
    while True:
        slots = (yield client.model(request.model, max(0.0, until - time.monotonic())))["slots"]
        count = max(1, min(len(slots), plan.rows))
        ends = [plan.rows * index // count for index in range(count + 1)]
        rest: Options = {**options, "version": None, "timeout": max(0.0, until - time.monotonic())}
        jobs: Jobs = [
            ({name: array[ends[at] : ends[at + 1]] for name, array in zip(plan.names, arrays, strict=True)}, rest)
            for at in range(count)
        ]
        parts = yield client._all(request.model, jobs)
        if all(part.version == parts[0].version for part in parts):
            return combined(parts, np.diff(ends).tolist(), reduce)


def check(info: Signature, outputs: Sequence[str] | None, reduce: str) -> None:
    """Raises `InvalidInput` for outputs that cannot be added, before anything runs."""
    if reduce not in ("sum", "mean"):
        raise InvalidInput(f'reduce={reduce!r:.80}: give None, "sum" or "mean"')
    for name in [outputs] if isinstance(outputs, str) else outputs or info.outputs:
        dtype = info.outputs[name].dtype
        if dtype in ("bool", "string") or (reduce == "mean" and dtype.startswith(("int", "uint"))):
            raise InvalidInput(f"output {name!r} of {dtype} has no {reduce}; name other outputs, such as outputs=['y']")


def combined(parts: list[Result], rows: list[int], reduce: str | None) -> Result:
    """Raises `InvalidInput` for outputs whose shapes do not fit."""
    for name in parts[0]:
        shapes = [part[name].shape for part in parts]
        if reduce is None and [shape[:1] for shape in shapes] != [(count,) for count in rows]:
            raise InvalidInput(f"output {name!r} has not the rows of its inputs: give reduce='sum' or 'mean'")
        if reduce is not None and len({*shapes}) > 1:
            raise InvalidInput(f"output {name!r}: shapes {shapes} of pieces cannot be added; give reduce=None")
    if reduce is None:
        return joined(parts)
    weights = [max(1, count) for count in rows] if reduce == "mean" else []
    return derived(parts[-1], {name: added([part[name] for part in parts], weights) for name in parts[0]})


def added(arrays: list[Array], weights: list[int]) -> Array:
    """Their sum in order, or with weights their mean."""
    dtype = arrays[0].dtype
    is_half = dtype.itemsize < 4 and "float" in DTYPE_NAMES[dtype]
    terms = [array.astype(np.float32) for array in arrays] if is_half else arrays
    if weights:
        terms = [term * weight for term, weight in zip(terms, weights, strict=True)]
    total = folded(np.add, terms)
    return np.asarray(total / sum(weights) if weights else total).astype(dtype)
