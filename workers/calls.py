"""What is asked of one model. Each way to ask is resolved once: parts of a batch, and most batches ask the same."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from pool.wire.calls import ROWS, TABLE_BYTES, Table, TensorHeader
from pool.wire.codec import BadFrame, unpack
from pool.wire.session_runs import SESSION_SIGNATURES
from pool.wire.signatures import PLACEMENT, REPORT, Refused, TensorSpec
from pool.wire.tensors import DTYPES
from workers.backend import Model
from workers.handled import HandledModel
from workers.independence import NOT_KEPT, Sampler, Watch
from workers.inputs import Input
from workers.signatures import Invocation, resolve

__all__ = ["Call", "Calls"]

_KEPT = 512  # ways to ask of each lane, each with every number of rows that its parts come with
_KEPT_BYTES = 4096  # of a table, and of names, that are worth keeping: clients choose them, and 512 are kept
_KEPT_OUTPUTS = 64


class Call:
    """A way to ask: all that is known before a part of so many rows brings its bytes.

    `own`: it is a signature of the model's, and none that asks something about it. `handled`: the model, if there is
    Python around its graph and the call is for that. `watch`: whether its runs are kept to be compared.
    """

    __slots__ = ("_adopts", "handled", "inputs", "model", "outputs", "own", "signature", "watch")

    def __init__(self, model: Model, invocation: Invocation, sampler: Sampler | None) -> None:
        self.model = model
        self.signature = invocation.signature
        self.outputs = invocation.outputs
        self.inputs = invocation.inputs
        self.own = self.signature not in SESSION_SIGNATURES and self.signature != PLACEMENT
        self.handled = model if self.own and isinstance(model, HandledModel) else None
        self.watch: Watch = NOT_KEPT
        if self.own and sampler is not None:
            self.watch = sampler.watch(model.info, self.signature, self.outputs)
        self._adopts: tuple[bool, ...] | None = None

    @property
    def adopts(self) -> tuple[bool, ...]:
        """Of each input, whether the model may be fed the very memory of a client, which that can still write."""
        if self._adopts is None:
            names = [each.name for each in self.inputs]
            bears_change = self.model.bears_change(self.signature, names, self.outputs)
            self._adopts = tuple([bears_change and each.may_change for each in self.inputs])
        return self._adopts


_Resolve = Callable[[bytes, int | None, str | None, tuple[str, ...] | None, Sampler | None, int], Call]


class Calls:
    """Safe from several threads."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._info = model.info
        self._recent: _Resolve = lru_cache(_KEPT)(self._resolve)

    def call(
        self,
        table: bytes,
        rows: int | None,
        signature: str | None,
        outputs: tuple[str, ...] | None,
        sampler: Sampler | None,
    ) -> Call:
        """What a part with this packed `Table` and so many rows asks for; `rows` None: its shapes are whole.

        `sampler`: that of the lane, whose runs are kept as far as it says. What is known of rows may change, and with
        it what is resolved here. Raises `BadFrame` and `Refused`, as `workers.signatures.resolve` does.
        """
        small = len(table) <= _KEPT_BYTES
        if outputs is not None:
            small = small and len(outputs) <= _KEPT_OUTPUTS and sum(map(len, outputs)) <= _KEPT_BYTES
        resolve = self._recent if small else self._resolve
        return resolve(table, rows, signature, outputs, sampler, 0 if sampler is None else sampler.known.changes)

    def _resolve(
        self,
        table: bytes,
        rows: int | None,
        signature: str | None,
        outputs: tuple[str, ...] | None,
        sampler: Sampler | None,
        _changes: int,
    ) -> Call:
        tensors = unpack(Table, table, TABLE_BYTES).tensors
        if signature == PLACEMENT:
            invocation = _resolve_placement(outputs, tensors)
        elif signature in SESSION_SIGNATURES:
            invocation = _resolve_session_run(signature, outputs, tensors)
        else:
            headers = tensors if rows is None else _with_rows(tensors, rows)
            invocation = resolve(self._info, signature, outputs, headers)
        return Call(self._model, invocation, sampler)


def _with_rows(tensors: Sequence[TensorHeader], rows: int) -> list[TensorHeader]:
    if not tensors or rows < 1:
        raise BadFrame(f"{rows} rows of {len(tensors)} tensors")
    for header in tensors:
        if header.shape[:1] != (ROWS,):
            raise BadFrame(f"tensor {header.name!r:.80} does not leave its rows to the message")
    return [replace(header, shape=(rows, *header.shape[1:])) for header in tensors]


def _resolve_placement(outputs: Sequence[str] | None, tensors: Sequence[TensorHeader]) -> Invocation:
    """Raises `Refused` where something is fed, or something else is asked for."""
    if tensors or set(outputs or ()) - {REPORT}:
        raise Refused(f"{PLACEMENT} takes nothing, and gives {REPORT!r} alone")
    return Invocation(PLACEMENT, (REPORT,), ())


def _resolve_session_run(signature: str, outputs: Sequence[str] | None, tensors: Sequence[TensorHeader]) -> Invocation:
    """The inputs as they come, since what dtype and shape they should have is the graph's to say. Raises `BadFrame`."""
    inputs: dict[str, Input] = {}
    for header in tensors:
        if header.dtype not in DTYPES or any(axis < 0 for axis in header.shape):
            raise BadFrame(f"no tensor {header.dtype!r:.40} {header.shape!r:.80}")
        if header.name in inputs:
            raise BadFrame(f"tensor {header.name!r:.80} is fed twice")
        where = f"feed {header.name!r:.200}"
        inputs[header.name] = Input(header.name, header, TensorSpec(header.dtype, header.shape), where)
    return Invocation(signature, tuple(dict.fromkeys(outputs or ())), tuple(inputs.values()))
