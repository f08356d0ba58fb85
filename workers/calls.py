"""What jobs with equal specs share: the checked signature, where their tensors lie, and the prepared run."""

import threading
from collections.abc import Mapping
from typing import Any

from pool.wire.signatures import Signature, signature_name
from pool.wire.specs import parse_job
from pool.wire.tensors import Layout
from workers.backend import Model, Run

__all__ = ["Call", "Calls", "Joint", "Refused"]

MOST_CALLS = 2048


class Joint:
    """What may share a run: one signature of one model with the same outputs."""

    __slots__ = ("is_joined", "run", "sizes")

    def __init__(self, run: Run, is_joined: bool, sizes: tuple[int, ...]) -> None:
        """`sizes`: numbers of rows that a batch is padded to, ascending; none: as it comes."""
        self.run, self.is_joined, self.sizes = run, is_joined, sizes

    def padding(self, rows: int) -> int:
        """How many rows to add to a batch of so many."""
        return next((size - rows for size in self.sizes if size >= rows), 0)


class Call:
    __slots__ = ("joint", "layout", "rows")

    def __init__(self, layout: Layout, rows: int, joint: Joint) -> None:
        """`rows`: the first dimension of all inputs; 0 if there is none or they differ."""
        self.layout, self.rows, self.joint = layout, rows, joint


class Refused(Exception):
    """A spec that the model does not take; the text is for the caller."""


class Calls:
    """By spec, for all lanes of the worker."""

    def __init__(self, models: Mapping[str, Model], settings: Mapping[str, Mapping[str, Any]]) -> None:
        self._models, self._settings = models, settings
        self._calls: dict[bytes, Call] = {}
        self._joints: dict[tuple[object, ...], Joint] = {}
        self._lock = threading.Lock()

    def get(self, spec: bytes) -> Call:
        """Raises `Refused` and `BadMessage`; a prepare of the backend may raise whatever it raises."""
        call = self._calls.get(spec)
        if call is None:
            with self._lock:
                if len(self._calls) >= MOST_CALLS:
                    self._calls.clear()  # varying shapes must not fill the worker
                call = self._calls[spec] = self._prepared(spec)
        return call

    def _prepared(self, spec: bytes) -> Call:
        job = parse_job(spec)
        model = self._models.get(job.model)
        if model is None:
            raise Refused(f"this worker does not serve the model {job.model!r:.80}")
        try:
            name = signature_name(job.signature, model.signatures)
        except LookupError as error:
            raise Refused(f"model {job.model}: {_left_out(model, job.signature) or error}") from None
        signature = model.signatures[name]
        if why := signature.mismatch(job.tensors, job.outputs):
            raise Refused(f"model {job.model}, signature {name}: {why}")
        rows = {tensor.shape[0] if tensor.shape else 0 for tensor in job.tensors}
        layout = Layout(job.tensors)
        inputs = tuple(tensor.name for tensor in job.tensors)
        outputs = job.outputs or tuple(sorted(signature.outputs))
        return Call(
            layout, rows.pop() if len(rows) == 1 else 0, self._joint(job.model, name, signature, inputs, outputs)
        )

    def _joint(
        self, model: str, name: str, signature: Signature, inputs: tuple[str, ...], outputs: tuple[str, ...]
    ) -> Joint:
        key = (model, name, inputs, frozenset(outputs))
        joint = self._joints.get(key)
        if joint is None:
            if len(self._joints) >= MOST_CALLS:
                self._joints.clear()
            run = self._models[model].prepare(name, inputs, outputs)
            sizes = tuple(sorted(self._settings[model]["allowed_batch_sizes"]))
            joint = self._joints[key] = Joint(run, signature.is_joined, sizes if signature.is_joined else ())
        return joint


def _left_out(model: Model, signature: str) -> str:
    why = model.left_out.get(signature)
    return f"signature {signature!r} is not offered: {why}" if why else ""
