"""One input of a call: its buffer on the wire is what the model takes, or becomes it, or is refused."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pool.wire.calls import TensorHeader
from pool.wire.signatures import Refused, TensorSpec
from pool.wire.tensors import DTYPES, Array, decode_tensor
from workers.casts import cast

__all__ = ["Buffer", "Input", "Piece"]

Buffer = bytes | memoryview
Piece = Buffer | Array
"""What a part gives to an input: the very bytes, or a flat array of the model's dtype."""

Read = Callable[[Buffer], Piece]

_PLAIN_RANK = 32  # more axes, and `decode_tensor` says what numpy makes of them


@dataclass(frozen=True, slots=True)
class Input:
    """An input named `name` that comes as `header` says, whose shape fits `spec`. `where` begins what is refused."""

    name: str
    header: TensorHeader
    spec: TensorSpec
    where: str
    may_change: bool = field(init=False, repr=False, compare=False)
    """Whether the very buffer may be fed, though its values may change meanwhile, to a model that bears that.

    An index that changes after it was checked reads another's memory; no index is a float or a byte.
    """
    read: Read = field(init=False, repr=False, compare=False)
    """The buffer itself where it is what the model takes, else an array made of it; the same for all buffers.

    Raises `BadFrame` for one that is no such tensor, and `Refused` for values that the input does not take.
    """

    def __post_init__(self) -> None:
        # Most inputs are numbers that need no cast, and a batch has many: this is their short way.
        size_bytes = math.prod(self.header.shape) * self.dtype.itemsize
        same = self.header.dtype == self.spec.dtype and self.spec.dtype not in ("bool", "string")
        plain = same and size_bytes > 0 and len(self.header.shape) <= _PLAIN_RANK
        object.__setattr__(self, "may_change", plain and (self.dtype.kind not in "iu" or self.dtype.itemsize == 1))
        object.__setattr__(self, "read", self._plain_reader(size_bytes) if plain else self._read_any)

    @property
    def dtype(self) -> np.dtype[Any]:
        return DTYPES[self.spec.dtype]

    def _plain_reader(self, size_bytes: int) -> Read:
        return lambda buffer: buffer if len(buffer) == size_bytes else self._read_any(buffer)

    def _read_any(self, buffer: Buffer) -> Array:
        array = decode_tensor(self.header, buffer)
        if self.header.dtype == "bool" and array.size and array.view("uint8").max() > 1:
            raise Refused(f"{self._expected()} with a byte that is neither 0 nor 1")
        kept = cast(array, self.dtype, self.header.weak)
        if kept is None:
            raise Refused(f"{self._expected()}, which cannot be cast without loss")
        return kept.reshape(-1)

    def _expected(self) -> str:
        return f"{self.where}: expected {self.spec}, got {TensorSpec(self.header.dtype, self.header.shape)}"
