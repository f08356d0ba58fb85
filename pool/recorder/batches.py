"""What a worker was running, as a report tells it: names, dtypes and shapes, and never what was in the tensors."""

from collections.abc import Iterable
from typing import Any, Protocol

from pool.core import Batch
from pool.core.fleet import Slot
from pool.wire.calls import ROWS, Table, TensorHeader
from pool.wire.codec import BadFrame, unpack

__all__ = ["Tables", "batches_of"]

LARGEST_TABLE = 32 << 10  # a few hundred tensors; a client may send one of a megabyte
MOST_JOBS = 100
MOST_FEEDS = 64
MOST_AXES = 16
NAME_CHARS = 200


class Payload(Protocol):
    """What is read of a job's inputs, as they are while it is in the pool."""

    table: bytes


class Tables:
    """The table of each lane's last batch: a job that is answered while it still runs has lost its own.

    Bounded by the lanes; of the inputs themselves nothing is held.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[int, int], tuple[int, bytes]] = {}

    def note(self, batch: Batch) -> None:
        inputs: Payload = batch.parts[0].job.payload  # type: ignore[assignment]  # as `Front` gave it to the core
        table = inputs.table if len(inputs.table) <= LARGEST_TABLE else b""
        self._last[(batch.slot, batch.lane)] = batch.number, table

    def find(self, batch: Batch) -> bytes:
        """b"" where nobody knows."""
        number, table = self._last.get((batch.slot, batch.lane), (None, b""))
        return table if number == batch.number else b""


def batches_of(slot: Slot, tables: Tables, now: float) -> list[dict[str, Any]]:
    """What the slot's worker holds, the oldest first."""
    batches = sorted(slot.batches.values(), key=lambda batch: batch.started)
    return [_batch(batch, tables.find(batch), now) for batch in batches]


def _batch(batch: Batch, table: bytes, now: float) -> dict[str, Any]:
    jobs = list(dict.fromkeys(part.job.id for part in batch.parts))
    return {
        "batch": batch.number,
        "lane": batch.lane,
        "model": batch.model,
        "signature": batch.key.signature,
        "age_s": now - batch.started,
        "rows": batch.rows or None,
        "fed_rows": batch.padded or None,
        "suspect": batch.suspect,
        "jobs": jobs[:MOST_JOBS],
        "jobs_in_all": len(jobs),
        "feeds": _feeds(table, batch.microbatch),
    }


def _feeds(table: bytes, rows: int) -> list[dict[str, Any]] | None:
    """None where they are not known. The client wrote the table, so it may be anything."""
    try:
        headers: Iterable[TensorHeader] = unpack(Table, table).tensors[:MOST_FEEDS]
    except BadFrame:
        return None
    return [
        {
            "name": header.name[:NAME_CHARS],
            "dtype": header.dtype[:NAME_CHARS],
            "shape": [rows if axis == ROWS else axis for axis in header.shape[:MOST_AXES]],
        }
        for header in headers
    ]
