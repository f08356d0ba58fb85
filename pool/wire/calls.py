"""What to run and what came of it, as the payload frames of a job describe it. The pool never reads these."""

from dataclasses import dataclass

__all__ = ["CALL_BYTES", "Call", "Table", "TensorHeader"]

CALL_BYTES = 1 << 20  # of a packed `Call`: names, dtypes and shapes of a few thousand inputs


@dataclass(frozen=True, slots=True)
class TensorHeader:
    """`weak`: made from Python numbers, which have no dtype of their own; the worker gives them the input's."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    weak: bool


@dataclass(frozen=True, slots=True)
class Call:
    """What to run, read by the worker alone. An input named "" is the only input of its signature."""

    signature: str | None
    outputs: tuple[str, ...] | None
    tensors: tuple[TensorHeader, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """The tensors that a RESULT carries."""

    tensors: tuple[TensorHeader, ...]
