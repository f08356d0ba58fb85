"""One input of a call: its buffer on the wire is what the model takes, or becomes it, or is refused."""

import math
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

_PLAIN_RANK = 32  # more axes, and `decode_tensor` says what numpy makes of them


@dataclass(frozen=True, slots=True)
class Input:
    """An input named `name` that comes as `header` says, whose shape fits `spec`. `where` begins what is refused."""

    name: str
    header: TensorHeader
    spec: TensorSpec
    where: str
    dtype: np.dtype[Any] = field(init=False, repr=False, compare=False)
    """What the model takes."""
    plain_bytes: int = field(init=False, repr=False, compare=False)
    """A buffer of so many bytes is what the model takes, as it is; -1: none is, so each must be read.

    Most inputs are numbers that need no cast, and a batch has many: a comparison is all that is left to check.
    """
    may_change: bool = field(init=False, repr=False, compare=False)
    """Whether the very buffer may be fed, though its values may change meanwhile, to a model that bears that.

    An index that changes after it was checked reads another's memory; no index is a float or a byte.
    """

    def __post_init__(self) -> None:
        dtype = DTYPES[self.spec.dtype]
        size_bytes = math.prod(self.header.shape) * dtype.itemsize
        same = self.header.dtype == self.spec.dtype and self.spec.dtype not in ("bool", "string")
        plain = same and size_bytes > 0 and len(self.header.shape) <= _PLAIN_RANK
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "plain_bytes", size_bytes if plain else -1)
        object.__setattr__(self, "may_change", plain and (dtype.kind not in "iu" or dtype.itemsize == 1))

    def read(self, buffer: Buffer) -> Piece:
        """The buffer itself where it is what the model takes, else an array made of it; the same for all buffers.

        Raises `BadFrame` for one that is no such tensor, and `Refused` for values that the input does not take.
        """
        if len(buffer) == self.plain_bytes:
            return buffer
        array = decode_tensor(self.header, buffer)
        if self.header.dtype == "bool" and array.size and array.view("uint8").max() > 1:
            raise Refused(f"{self._expected()} with a byte that is neither 0 nor 1")
        kept = cast(array, self.dtype, self.header.weak)
        if kept is None:
            raise Refused(f"{self._expected()}, which cannot be cast without loss")
        return kept.reshape(-1)

    def _expected(self) -> str:
        return f"{self.where}: expected {self.spec}, got {TensorSpec(self.header.dtype, self.header.shape)}"
