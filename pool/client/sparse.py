"""A tensor of which few elements are not zero, as TensorFlow has it: where they are, and what."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

__all__ = ["Sparse"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Sparse:
    """A `tf.SparseTensor` without TensorFlow, of the parts `NAME.indices`, `NAME.values`, `NAME.dense_shape` of a job.

    `indices`: a row of `dense_shape`'s length for each of the values. Raises `ValueError` where they do not fit.
    """

    indices: Array
    values: Array
    dense_shape: Array

    def __post_init__(self) -> None:
        if not all(isinstance(part, np.ndarray) for part in (self.indices, self.values, self.dense_shape)):
            raise TypeError("the parts of a sparse tensor are numpy arrays")
        if self.dense_shape.ndim != 1 or self.values.ndim != 1 or not len(self.dense_shape):
            raise ValueError(
                "values and dense_shape of a sparse tensor must be vectors; dense_shape needs at least one axis"
            )
        expected = (len(self.values), len(self.dense_shape))
        if self.indices.shape != expected:
            raise ValueError(f"indices are {list(self.indices.shape)}; give {list(expected)}")
        if ((self.indices < 0) | (self.indices >= self.dense_shape)).any():
            raise ValueError(f"indices lie outside of the shape {self.dense_shape.tolist()}")

    @classmethod
    def of(cls, answer: Mapping[str, Array], name: str) -> Self:
        """The sparse output `name` of a job. Raises `KeyError` where the answer has none."""
        try:
            return cls(answer[f"{name}.indices"], answer[f"{name}.values"], answer[f"{name}.dense_shape"])
        except KeyError:
            raise KeyError(f"there is no sparse tensor {name!r} among {', '.join(sorted(answer))}") from None

    @classmethod
    def from_dense(cls, dense: npt.ArrayLike) -> Self:
        """Of an array's elements those that are not zero, empty or false."""
        array = np.asarray(dense)
        indices = np.argwhere(array).astype(np.int64)
        return cls(indices, array[tuple(indices.T)].reshape(-1), np.array(array.shape, np.int64))

    def parts(self, name: str) -> dict[str, Array]:
        """What to feed for the sparse input `name`."""
        return {f"{name}.indices": self.indices, f"{name}.values": self.values, f"{name}.dense_shape": self.dense_shape}

    def to_dense(self, default: object = None) -> Array:
        """An array of its whole shape, with zeros, or empty strings, or `default` where it has no value."""
        nothing = (b"" if self.values.dtype.hasobject else 0) if default is None else default
        dense = np.full(tuple(self.dense_shape.tolist()), nothing, self.values.dtype)
        dense[tuple(self.indices.T)] = self.values
        return dense
