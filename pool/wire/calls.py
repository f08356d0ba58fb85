"""The tensors that follow a message, as the first payload frame of a job or of an answer describes them.

    Table · buffer · buffer · …            one buffer a tensor, in the order of the table

A job that can be cut and joined by rows says how many it has in its SUBMIT, and -1 for axis 0 of every tensor here. So
the tables of all jobs that may run together are the same bytes, which is what the pool compares; it never reads a
tensor.
"""

from dataclasses import dataclass

__all__ = ["ROWS", "TABLE_BYTES", "Table", "TensorHeader"]

TABLE_BYTES = 1 << 20  # of a packed `Table`: names, dtypes and shapes of a few thousand tensors
ROWS = -1


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
