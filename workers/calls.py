"""What jobs with equal specs share: the checked signature, where their tensors lie, and the prepared run."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from pool.wire.signatures import signature_name
from pool.wire.specs import common_rows, parse_job
from pool.wire.tensors import Layout
from workers.backend import Model, Run, RunFailed

MOST_CALLS = 2048

Loaded = tuple[Model, Mapping[str, Any]]
"""And its settings, as the pool told them."""


@dataclass(slots=True, eq=False)
class Joint:
    """What may share a run: one signature of one model with the same inputs and outputs."""

    run: Run
    is_joined: bool
    sizes: tuple[int, ...]  # numbers of rows that a batch is padded to, ascending; none: as it comes

    def padding(self, rows: int) -> int:
        """How many rows to add to a batch of so many."""
        return next((size - rows for size in self.sizes if size >= rows > 0), 0)


class Call(NamedTuple):
    layout: Layout
    rows: int  # the first dimension of all inputs; 0 if there is none or they differ
    joint: Joint
    version: str  # of the model


class Calls:
    """For all lanes of the worker: `get(number, spec)` returns the Call, or raises as `_call` does."""

    def __init__(self, loaded: Sequence[Loaded]) -> None:
        """`loaded`: in the order in which the pool was told of them, by which it counts them."""
        self._loaded = loaded
        self._lock = threading.Lock()
        self.get = lru_cache(MOST_CALLS)(self._call)  # varying shapes must not fill the worker
        self._joint = lru_cache(MOST_CALLS)(self._prepared)

    def _call(self, number: int, spec: bytes) -> Call:
        """Raises `RunFailed` and `BadMessage`; a prepare of the backend may raise whatever it raises."""
        job = parse_job(spec)
        model, settings = self._loaded[number]
        version, asked = settings["version"], job.model.partition("@")[2]
        if asked.isdecimal() and asked != version.partition("+")[0]:  # the pool changes versions now
            raise RunFailed("ModelNotFound", f"version {asked} of the model is not served here; version {version} is")
        layout = Layout(job.tensors)
        if job.signature is None:
            run = model.prepare_session([tensor.name for tensor in job.tensors], job.outputs or ())
            return Call(layout, 0, Joint(run, False, ()), version)
        try:
            name = signature_name(job.signature, model.signatures)
        except LookupError as error:
            why = model.left_out.get(job.signature)
            text = f"signature {job.signature!r} is not offered: {why}" if why else error
            raise RunFailed("InvalidInput", f"model {job.model}: {text}") from None
        signature = model.signatures[name]
        if why := signature.mismatch(job.tensors, job.outputs):
            raise RunFailed("InvalidInput", f"model {job.model}, signature {name}: {why}")
        rows = common_rows([tensor.shape for tensor in job.tensors])
        inputs = tuple(tensor.name for tensor in job.tensors)
        outputs = tuple(sorted(job.outputs or signature.outputs))
        with self._lock:  # so that two lanes do not prepare the same
            return Call(layout, rows, self._joint(number, name, inputs, outputs), version)

    def _prepared(self, number: int, name: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Joint:
        model, settings = self._loaded[number]
        is_joined = model.signatures[name].is_joined(inputs, outputs)
        sizes = sorted(settings["allowed_batch_sizes"]) if is_joined else ()
        return Joint(model.prepare(name, inputs, outputs), is_joined, tuple(sizes))
