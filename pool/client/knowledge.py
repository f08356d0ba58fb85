"""What a client knows of the pool's models, and of inputs like those that came before.

Equal inputs are prepared once: a call with the same names, dtypes and shapes finds its spec in a dict.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from pool.client.inputs import arrays_of
from pool.errors import InvalidInput
from pool.wire.bodies import seconds_of
from pool.wire.signatures import Signature, signature_name
from pool.wire.specs import BadMessage, job_spec, parse_answer, parse_job
from pool.wire.tensors import DTYPE_NAMES, Layout, describe

__all__ = ["Knowledge", "Options", "Prepared", "Request", "Unknown"]

MOST = 2048

Array = NDArray[Any]
ndarray = np.ndarray


class Unknown(Exception):
    """The model's signatures are not known yet: ask the pool, `learn`, and prepare again."""

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self.model = model


class Prepared:
    """What jobs with equal specs share."""

    __slots__ = ("layout", "names", "room", "rows", "signature", "spec")

    def __init__(self, spec: bytes, signature: Signature) -> None:
        self.spec, self.signature = spec, signature
        self.layout = Layout(parse_job(spec).tensors)
        self.names = tuple(tensor.name for tensor in self.layout.tensors)
        rows = {tensor.shape[0] if tensor.shape else 0 for tensor in self.layout.tensors}
        self.rows = rows.pop() if len(rows) == 1 else 0
        self.room = 0
        """Bytes that the last answer took, if it was too large to travel in the body."""


class Options(TypedDict, total=False):
    """What may be said of a job beside its model and its inputs."""

    signature: str
    """Of the model; by default "serving_default", or the only one."""
    outputs: Sequence[str] | None
    """By default all."""
    timeout: float | None
    """Seconds; by default the pool's `default_timeout`."""
    priority: int
    """-100 to 100; higher ones go first, 0 is usual."""


class Request(NamedTuple):
    """A job that may be encoded."""

    prepared: Prepared
    arrays: list[Array]
    """In the spec's order."""
    timeout_s: float
    priority: int = 0
    flags: int = 0


class Knowledge:
    """Dicts alone, so that threads need no lock; at worst something is prepared twice."""

    def __init__(self) -> None:
        self._signatures: dict[str, dict[str, Signature]] = {}
        self._prepared: dict[Any, Prepared] = {}
        self._answers: dict[bytes, tuple[int, str, str, Layout]] = {}

    def learn(self, model: str, record: Mapping[str, Any]) -> None:
        """`record`: the pool's answer to the question "model"."""
        known = {str(name): Signature.from_record(each) for name, each in record["signatures"].items()}
        self._signatures[model] = known

    def request(self, model: str, inputs: Any, options: Options, timeout_s: float) -> Request:
        """`timeout_s`: unless the options say. Raises `Unknown` and `InvalidInput`."""
        if not options:
            return Request(*self._prepared_inputs(model, inputs, "", None), timeout_s)
        timeout, outputs, priority = options.get("timeout"), options.get("outputs"), options.get("priority", 0)
        if not -100 <= priority <= 100:
            raise InvalidInput(f"priority={priority}: give -100 to 100; higher ones go first")
        if isinstance(outputs, str):
            raise InvalidInput(f"outputs={outputs!r}: give a list of names")
        try:
            timeout_s = seconds_of(timeout_s if timeout is None else timeout)
            names = None if outputs is None else tuple(outputs)
        except (TypeError, ValueError) as error:
            raise InvalidInput(str(error)) from None
        return Request(*self._prepared_inputs(model, inputs, options.get("signature", ""), names), timeout_s, priority)

    def _prepared_inputs(
        self, model: str, inputs: Any, signature: str, outputs: tuple[str, ...] | None
    ) -> tuple[Prepared, list[Array]]:
        described = []
        if inputs.__class__ is dict:
            for name, value in inputs.items():
                if value.__class__ is not ndarray:
                    break
                described.append((name, DTYPE_NAMES.get(value.dtype), value.shape))
            else:
                prepared = self._prepared.get((model, signature, outputs, tuple(described)))
                if prepared is not None:
                    return prepared, [inputs[name] for name in prepared.names]
        return self._prepare(model, inputs, signature, outputs, described)

    def _prepare(
        self, model: str, inputs: Any, signature: str, outputs: tuple[str, ...] | None, described: list[Any]
    ) -> tuple[Prepared, list[Array]]:
        found = self.signature(model, signature)
        arrays = arrays_of(inputs, found, f"model {model}")
        description = describe(arrays)
        try:
            prepared = Prepared(job_spec(model, signature, outputs, description), found)
        except BadMessage as error:
            raise InvalidInput(f"model {model}: {error}") from None
        if why := found.mismatch(prepared.layout.tensors, outputs):
            raise InvalidInput(f"model {model}: {why}")
        if len(self._prepared) >= MOST:
            self._prepared.clear()
        prepared = self._prepared.setdefault((model, signature, outputs, description), prepared)
        if len(described) == len(arrays) and all(arrays[name] is inputs[name] for name in arrays):
            self._prepared[model, signature, outputs, tuple(described)] = prepared
        return prepared, [*arrays.values()]

    def signature(self, model: str, name: str) -> Signature:
        """Raises `Unknown` and `InvalidInput`."""
        known = self._signatures.get(model)
        if known is None:
            raise Unknown(model)
        try:
            return known[signature_name(name, known)]
        except LookupError as error:
            raise InvalidInput(f"model {model}: {error.args[0]}") from None

    def answer(self, spec: bytes) -> tuple[int, str, str, Layout]:
        """Slot, device, version and layout of an answer. Raises `BadMessage`."""
        known = self._answers.get(spec)
        if known is None:
            if len(self._answers) >= MOST:
                self._answers.clear()
            slot, device, version, tensors = parse_answer(spec)
            known = self._answers[spec] = slot, device, version, Layout(tensors)
        return known
