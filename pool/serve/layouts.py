"""How long the buffers of a job with rows must be, read from its packed `Table` without numpy: once for each call."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgpack

from pool.wire.calls import MOST_TENSORS, ROWS
from pool.wire.codec import BadFrame
from pool.wire.dtypes import END_BYTES, ITEM_BYTES, STRING

__all__ = ["Column", "Layout", "form_of", "memory_of", "read"]

MOST_ROWS = 1 << 31  # an axis of a tensor is no longer
MOST_EMPTY_ROWS = 1 << 16  # of tensors without a byte: else a message of no size would be work without end
FORM_BYTES = 256  # tables up to here are their own form
MOST_RANK = 64  # numpy's own bound
SHOWN_AXES = 8


@dataclass(frozen=True, slots=True)
class Column:
    """One tensor of a job: `row_bytes` of its buffer belong to each row; of strings, these are their ends.

    `what` names it for its caller.
    """

    row_bytes: int
    strings: bool
    what: str


@dataclass(frozen=True, slots=True)
class Layout:
    """What jobs with this table have in common. `row_bytes`: of all columns."""

    table: bytes
    form: bytes
    columns: tuple[Column, ...]
    row_bytes: int

    def check(self, rows: int, buffers: Sequence[Any]) -> None:
        """Raises `BadFrame` for buffers that are not so many rows of this layout.

        Of strings only the number and the last end are looked at: the worker reads them.
        """
        if not 1 <= rows <= MOST_ROWS:
            raise BadFrame(f"it has {rows} rows")
        if len(buffers) != len(self.columns):
            raise BadFrame(f"{len(buffers)} buffers for {len(self.columns)} tensors")
        for column, buffer in zip(self.columns, buffers, strict=True):
            size_bytes = rows * column.row_bytes
            if column.strings:
                _check_strings(column, rows, memory_of(buffer))
            elif len(buffer) != size_bytes:
                raise BadFrame(f"{column.what}: {len(buffer)} bytes where {rows} rows have {size_bytes}")
        if not self.row_bytes and rows > MOST_EMPTY_ROWS:
            raise BadFrame(f"it has {rows} rows without a byte in them; at most {MOST_EMPTY_ROWS} are allowed")


def _check_strings(column: Column, rows: int, buffer: memoryview) -> None:
    table_bytes = rows * column.row_bytes
    if len(buffer) < table_bytes:
        raise BadFrame(f"{column.what}: {len(buffer)} bytes are too few for the strings of {rows} rows")
    last = int.from_bytes(buffer[max(0, table_bytes - END_BYTES) : table_bytes], "little")
    if last < len(buffer) - table_bytes:
        raise BadFrame(f"{column.what}: {len(buffer) - table_bytes - last} bytes belong to no string")


def memory_of(buffer: Any) -> memoryview:
    """Of a buffer that shares a frame with others, has one of its own, or lies in a segment."""
    return buffer if type(buffer) is memoryview else buffer.buffer


def form_of(table: bytes) -> bytes:
    """Equal for equal tables and for no others, and short, because the core keeps it for long."""
    return table if len(table) <= FORM_BYTES else hashlib.blake2b(table).digest()


def read(table: bytes) -> Layout:
    """The layout that a table describes. Raises `BadFrame`.

    It is read by hand: the codec's checks of each field, in Python, would let one table of many axes hold up the pool.
    """
    try:
        raw = msgpack.unpackb(table, raw=False, use_list=False, strict_map_key=True)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise BadFrame(f"its table is not msgpack: {type(error).__name__}") from None
    if type(raw) is not tuple or len(raw) != 1 or type(raw[0]) is not tuple:
        raise BadFrame("its table is not a list of tensors")
    if not 1 <= len(raw[0]) <= MOST_TENSORS:
        raise BadFrame(f"it has rows and {len(raw[0])} tensors")
    columns = tuple([_column(header) for header in raw[0]])
    return Layout(table, form_of(table), columns, sum(column.row_bytes for column in columns))


def _column(header: object) -> Column:
    if type(header) is not tuple or len(header) != 4:
        raise BadFrame("its table has an entry that is not a tensor")
    name, dtype, shape, weak = header
    if type(name) is not str or type(dtype) is not str or type(shape) is not tuple or type(weak) is not bool:
        raise BadFrame("its table has an entry that is not a tensor")
    where = f"input {name!r:.80}"
    strings = dtype == STRING
    item_bytes = END_BYTES if strings else ITEM_BYTES.get(dtype)
    if item_bytes is None:
        raise BadFrame(f"{where}: no dtype {dtype!r:.40}")
    axes = shape[1:]
    if len(shape) > MOST_RANK or set(map(type, shape)) != {int} or shape[0] != ROWS or min(axes, default=0) < 0:
        raise BadFrame(f"{where}: no shape of rows: {list(shape[:SHOWN_AXES])!r:.80}")
    shown = ", ".join(["?", *map(str, axes[:SHOWN_AXES])])
    return Column(math.prod(axes) * item_bytes, strings, f"{where}, {dtype} [{shown}]")
