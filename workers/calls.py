"""What is asked of one model. Each way to ask is resolved once: parts of a batch, and most batches ask the same."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from pool.wire.calls import ROWS, TABLE_BYTES, Table, TensorHeader
from pool.wire.codec import BadFrame, unpack
from pool.wire.session_runs import SESSION_SIGNATURES
from pool.wire.signatures import PLACEMENT, ModelInfo
from workers.placements import resolve_placement
from workers.session_calls import resolve_session_run
from workers.signatures import Invocation, resolve

__all__ = ["Calls"]

_KEPT = 256  # ways to ask, each with every number of rows that its parts come with
_KEPT_BYTES = 4096  # of a table that is worth keeping: clients choose them, and 256 are kept
_KEPT_OUTPUTS = 64

_Resolve = Callable[[bytes, int | None, str | None, tuple[str, ...] | None], Invocation]


class Calls:
    """Safe from several threads."""

    def __init__(self, model: ModelInfo) -> None:
        self._model = model
        self._recent: _Resolve = lru_cache(_KEPT)(self._resolve)

    def invocation(
        self, table: bytes, rows: int | None, signature: str | None, outputs: tuple[str, ...] | None
    ) -> Invocation:
        """What a part with this packed `Table` and so many rows asks for; `rows` None: its shapes are whole.

        Raises `BadFrame` and `Refused`, as `workers.signatures.resolve` does.
        """
        small = len(table) <= _KEPT_BYTES and (outputs is None or len(outputs) <= _KEPT_OUTPUTS)
        return (self._recent if small else self._resolve)(table, rows, signature, outputs)

    def _resolve(
        self, table: bytes, rows: int | None, signature: str | None, outputs: tuple[str, ...] | None
    ) -> Invocation:
        tensors = unpack(Table, table, TABLE_BYTES).tensors
        if signature == PLACEMENT:
            return resolve_placement(outputs, tensors)
        if signature in SESSION_SIGNATURES:
            return resolve_session_run(signature, outputs, tensors)
        return resolve(self._model, signature, outputs, tensors if rows is None else _with_rows(tensors, rows))


def _with_rows(tensors: Sequence[TensorHeader], rows: int) -> list[TensorHeader]:
    if not tensors or rows < 1:
        raise BadFrame(f"{rows} rows of {len(tensors)} tensors")
    for header in tensors:
        if header.shape[:1] != (ROWS,):
            raise BadFrame(f"tensor {header.name!r:.80} does not leave its rows to the message")
    return [replace(header, shape=(rows, *header.shape[1:])) for header in tensors]
