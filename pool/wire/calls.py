"""What jobs of one kind share: a call is a set of names. A client sends them once and then says the call's number.

    Names · Table · buffer · buffer · …    one buffer a tensor, in the order of the table

A job that can be cut and joined by rows says how many it has in its SUBMIT, and -1 for axis 0 of every tensor here. So
the tables of all jobs that may run together are the same bytes, which is what the pool compares; it never reads a
tensor.

A client numbers its calls from 1 on, and never uses a number again on its connection. It may have `MOST_CALLS` of
`CALLS_BYTES` together: before it registers one more it FORGETs the idle one that it used least recently.
"""

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = [
    "CALLS_BYTES",
    "MOST_CALLS",
    "MOST_TENSORS",
    "NAMES_BYTES",
    "ROWS",
    "TABLE_BYTES",
    "Names",
    "Table",
    "TensorHeader",
    "call_bytes",
]

TABLE_BYTES = 1 << 20  # of a packed `Table`: names, dtypes and shapes of a few thousand tensors
NAMES_BYTES = 64 << 10  # of packed `Names`: Python's objects take up to 80 times the bytes that describe them
MOST_TENSORS = 4095  # of one job: each may have a frame of its own, and the pool reads no message of more than 4096
ROWS = -1

MOST_CALLS = 1024  # of one client, and of one lane
CALLS_BYTES = 4 << 20  # … of one client, as `call_bytes` counts them: one of the largest calls fits
CALL_BYTES = 1024  # Python's own for one call …
NAME_BYTES = 72  # … for a text and its place in a tuple …
COLUMN_BYTES = 400  # … and for one column of a job with rows


@dataclass(frozen=True, slots=True)
class Names:
    """A call but for its table. `counted`: its jobs say how many rows they have. The rest as `Client.submit` has it.

    `outputs` None: all of the signature's. `device`: a name of the devices in `pool status`, or None for any.
    `version`: of the model, by its number or by a label; None for any that is served.
    """

    model: str
    signature: str | None
    outputs: tuple[str, ...] | None
    device: str | None
    version: int | str | None
    counted: bool


def call_bytes(names: Names, table_bytes: int, tensors: int) -> int:
    """What it costs to hold a call. Client and pool reckon alike, so that no honest client is refused."""
    texts = (names.model, names.signature, names.device, names.version, *(names.outputs or ()))
    columns = COLUMN_BYTES * tensors if names.counted else 0
    return CALL_BYTES + table_bytes + columns + _texts_bytes(texts)


def _texts_bytes(texts: Iterable[object]) -> int:
    return sum([NAME_BYTES + len(text) * (1 if text.isascii() else 4) for text in texts if isinstance(text, str)])


@dataclass(frozen=True, slots=True)
class TensorHeader:
    """`shape` may begin with `ROWS`, which stands for the rows that the message names.

    `weak`: made from Python numbers, which have no dtype of their own; the worker gives them the input's.
    An input named "" is the only input of its signature.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    weak: bool


@dataclass(frozen=True, slots=True)
class Table:
    tensors: tuple[TensorHeader, ...]
