"""What callers give, as arrays: by the model's signature, and only if no value becomes another one.

Arrays that look like ones seen before need one look into a dict. The signatures are asked of the pool only for values
that may have to be converted, and for inputs of several rows, which may have to be cut.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypedDict, Unpack

import ml_dtypes
import numpy as np
from numpy.ma import MaskedArray  # numpy itself imports it late, where a Ctrl-C would leave half a module

from pool.errors import InvalidInput
from pool.wire.bodies import MOST_SECONDS
from pool.wire.signatures import Signature, TensorInfo, choice, signature_name
from pool.wire.specs import BadMessage, Tensor, common_rows, job_spec, parse_job
from pool.wire.tensors import DTYPE_NAMES, DTYPES, Array, Layout, describe

MOST_PLANS = 1024
DOUBTED_S = 1.0
NUMBERS = (int, float, np.integer, np.floating)
# What numpy makes of Python's numbers. Arrays of these dtypes go where their values go.
OF_PYTHON = frozenset(map(np.dtype, ("bool", "int64", "uint64", "float64", "complex128")))
EXACT = DTYPE_NAMES.keys() - OF_PYTHON - {DTYPES["string"]}

Signatures = Mapping[str, Signature]


class Options(TypedDict, total=False):
    """Of every job."""

    signature: str | None
    """None: the default one, or the only one."""
    outputs: Sequence[str] | None
    """The names of those to be returned; None: all."""
    timeout: float | None
    """Seconds until the job ends in `DeadlineExceeded`; None: what the pool's configuration says."""
    priority: int
    """-100 to 100; higher goes first."""
    version: int | str | None
    """Its number, or a label of the pool's configuration; None: the one that the pool serves by the model's name."""
    slot: int
    """The only one that may run it, before its other work; -1: any. If it has no worker now, the job waits for one."""


class Request(NamedTuple):
    model: str
    signature: str | None = None
    outputs: Sequence[str] | None = None
    timeout: float | None = None
    priority: int = 0
    version: int | str | None = None
    slot: int = -1

    def timeout_s(self, default: float) -> float:
        """Raises `InvalidInput`, for a wrong priority too."""
        if type(self.priority) is not int or not -100 <= self.priority <= 100:
            raise InvalidInput(f"a priority of {self.priority!r}: give -100 to 100; higher goes first")
        return checked_timeout(self.timeout, default)


def requested(model: str, **options: Unpack[Options]) -> Request:
    try:
        request = Request(model, **options)
    except TypeError:
        raise TypeError(f"unknown: {sorted(options.keys() - Request._fields)}; known: {Request._fields[1:]}") from None
    return request if request.version is None else request._replace(model=f"{model}@{request.version}")


class Plan:
    """What jobs of equal specs share."""

    __slots__ = ("is_refused", "layout", "most", "names", "room", "rows", "size", "spec", "strings")

    def __init__(self, spec: bytes, tensors: Sequence[Tensor]) -> None:
        self.spec, self.layout = spec, Layout(tensors)
        self.size, self.strings = self.layout.fixed_bytes, self.layout.strings
        self.names = [tensor.name for tensor in tensors]
        self.rows = common_rows([tensor.shape for tensor in tensors])
        self.room = 0  # what the largest answer so far needed, if it was large
        self.most = 0  # rows that may run together: inputs of more travel in blocks. 0: they are not joined, nor cut
        self.is_refused = False  # a worker took no such job: the signature may be another one since a change


class Unknown(Exception):
    """The model's signatures are needed first."""


class Planner:
    """From any thread: dicts alone are shared, and what is made twice is equal."""

    def __init__(self) -> None:
        self._plans: dict[Any, Plan] = {}  # by spec, and by what arrays look like
        self.known: dict[str, Signatures] = {}
        self._learned_at: dict[str, float] = {}

    def prepare(self, request: Request, inputs: Any, known: Signatures | None = None) -> tuple[Plan, list[Array]]:
        """The arrays to send, in the plan's order. Raises `InvalidInput`, and `Unknown` if `known` is needed.

        What was learned of a model a second ago refuses nothing by itself, for a change may have come since.
        """
        model, signature, outputs, _, _, _, slot = request
        if outputs is not None:
            outputs = (outputs,) if isinstance(outputs, str) else tuple(outputs)
        key = None
        try:
            looks = [(name, array.__class__, array.dtype, array.shape) for name, array in inputs.items()]
            key = (model, signature, outputs, slot, *looks)
            if not (plan := self._plans[key]).is_refused:
                return plan, [inputs[name] for name in plan.names]
        except (AttributeError, KeyError, TypeError):
            pass
        if not isinstance(model, str) or not isinstance(signature, str | None):
            raise InvalidInput(f"model {model!r:.80}, signature {signature!r:.80}: give their names")
        if known is None:
            known = self.known.get(model)
            if known is not None and time.monotonic() - self._learned_at[model] > DOUBTED_S:
                with suppress(InvalidInput):
                    found = self.prepare(request, inputs, known)
                    if not found[0].is_refused:
                        return found
                raise Unknown(model)
        if known is not None:
            info = chosen(request, known)
            arrays = convert(inputs, info)
        elif is_exact(inputs) and common_rows([array.shape for array in inputs.values()]) <= 1:
            info, arrays = None, inputs
        else:
            raise Unknown(model)
        arrays = {name: arrays[name] for name in sorted(arrays)}
        plan = self.plan(request._replace(signature=signature or "", outputs=outputs), arrays, info)
        if key is not None and all(arrays[name] is inputs[name] for name in arrays):
            self._plans[key] = plan
        return plan, [*arrays.values()]

    def plan(self, request: Request, arrays: dict[str, Array], info: Signature | None) -> Plan:
        """REQUIRES that the arrays are in the order of their names. Raises `InvalidInput`."""
        try:
            spec = job_spec(request.model, request.signature, request.outputs, describe(arrays), request.slot)
            if (plan := self._plans.get(spec)) is not None:
                return plan
            job = parse_job(spec)
            plan = Plan(spec, job.tensors)
            if info is not None and (why := info.mismatch(job.tensors, job.outputs)):
                raise ValueError(why)
        except (BadMessage, TypeError, ValueError) as error:
            raise InvalidInput(f"model {request.model!r:.80}: {error}") from None
        if info is not None and info.is_joined(plan.names, job.outputs):
            plan.most = info.max_batch
        if len(self._plans) >= MOST_PLANS:
            self._plans.clear()
        self._plans[spec] = plan
        return plan

    def learn(self, model: str, record: Mapping[str, Any]) -> Signatures:
        """From the pool's answer to the question "model"."""
        made = signatures_of(record)
        self._plans.clear()  # some may have been made without them
        self._learned_at[model] = time.monotonic()
        self.known[model] = made
        return made


def signatures_of(record: Mapping[str, Any]) -> Signatures:
    """`record`: what the pool says of a model."""
    return {name: Signature.from_record(each) for name, each in record["signatures"].items()}


def chosen(request: Request, known: Signatures) -> Signature:
    try:
        return known[signature_name(request.signature or "", known)]
    except LookupError as error:
        raise InvalidInput(f"model {request.model}: {error.args[0]}") from None


def is_exact(inputs: Any) -> bool:
    """Whether the inputs can travel as they are, for all that can be said without the signature."""
    return isinstance(inputs, Mapping) and all(
        type(array) is np.ndarray and array.dtype in EXACT and isinstance(name, str) for name, array in inputs.items()
    )


def checked_timeout(timeout: float | None, default: float) -> float:
    if timeout is None:
        return default
    if not isinstance(timeout, NUMBERS) or not timeout >= 0.0:  # NaN is neither
        raise InvalidInput(f"a timeout of {timeout!r:.80}: give seconds, 0 or more")
    return float(min(timeout, MOST_SECONDS))


def convert(inputs: Any, info: Signature) -> dict[str, Array]:
    """Each input in the dtype of the signature. Shapes are not checked. Raises `InvalidInput`."""
    if not isinstance(inputs, Mapping):
        names = [name for name in info.inputs if name not in info.defaults] or [*info.inputs]
        if len(names) != 1:
            raise InvalidInput(f"give a mapping: the signature has the inputs {', '.join(sorted(names)) or '(none)'}")
        inputs = {names[0]: inputs}
    for name in inputs:
        if name not in info.inputs:
            raise InvalidInput(f"no input {name!r:.80}; {choice(str(name), info.inputs)}")
    return {name: converted(name, value, info.inputs[name]) for name, value in inputs.items()}


def converted(name: str, value: Any, wanted: TensorInfo) -> Array:
    if isinstance(value, MaskedArray):
        raise InvalidInput(f"input {name!r}: a masked array has no values where it is masked; fill it: array.filled(0)")
    try:
        if wanted.dtype == "string":
            return texts(value)
        array = np.asarray(value)
        if array.dtype.hasobject:
            array = np.asarray(array.tolist())
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        target = DTYPES[wanted.dtype]
        is_mixed = wanted.dtype == "uint64" and array.dtype == np.float64  # numpy's of small and large whole numbers
        if is_mixed and {*map(type, np.array(value, object).flat)} == {int}:
            array = np.array(value, target)
        if array.dtype not in DTYPE_NAMES or array.dtype.hasobject:
            raise TypeError(f"got elements of {array.dtype}")
        if array.dtype == target:
            return array
        if isinstance(value, np.ndarray) and array.dtype not in OF_PYTHON:
            got = TensorInfo(DTYPE_NAMES[array.dtype], array.shape)
            raise TypeError(f"got {got}: convert it: array.astype({wanted.dtype!r})")
        return cast(array, target)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"input {name!r}: expected {wanted}, {error}") from None


def texts(value: Any) -> Array:
    """Whether each element is one is seen when they are encoded."""
    array = value if isinstance(value, np.ndarray) else np.array(value, dtype=object)
    if array.dtype.kind not in "OUST":
        raise TypeError(f"got {array.dtype}")
    return np.asarray(array).astype(object, copy=False)


def cast(array: Array, target: "np.dtype[Any]") -> Array:
    """Python's numbers in another dtype. Floats may lose digits, as in TensorFlow.

    Raises `TypeError` where a number would wrap, lose its fraction or overflow: numpy does all that in silence.
    """
    name = DTYPE_NAMES[target]
    is_whole = name.startswith(("int", "uint"))
    kinds = "b" if name == "bool" else "biu" if is_whole else "biufc" if name.startswith("complex") else "biuf"
    if array.size and array.dtype.kind not in kinds:
        raise TypeError(f"got {array.dtype} values")
    with np.errstate(all="ignore"):
        made = array.astype(target)
        if is_whole:
            limits = ml_dtypes.iinfo(target)
            is_held = (array >= int(limits.min)) & (array <= int(limits.max))
        else:
            asked, got = array.astype(np.complex128), made.astype(np.complex128)
            most = 1.0 if name == "bool" else float(ml_dtypes.finfo(target).max)
            is_held = np.where(np.isfinite(asked), np.abs(asked) <= most, np.isinf(asked) == np.isinf(got))
    if not is_held.all():
        raise TypeError(f"got {array.dtype} values that {name} does not hold")
    return made
