"""Rows of different lengths, as TensorFlow has them: the values one after the other, and where each row ends."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

__all__ = ["Ragged"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """A `tf.RaggedTensor` without TensorFlow, of the parts `NAME.flat_values`, `NAME.row_splits_0`, … of a job.

    `row_splits`: the outermost first. Row i of an axis has the rows of the next one, or of `flat_values` in the last,
    from `splits[i]` to `splits[i + 1]`. Raises `ValueError` for splits that fit no rows. Nothing is copied.
    """

    flat_values: Array
    row_splits: tuple[Array, ...]

    def __post_init__(self) -> None:
        if not self.row_splits:
            raise ValueError("a ragged tensor has row_splits, one for each of its ragged axes")
        for number, splits in enumerate(self.row_splits):
            below = len(self.row_splits[number + 1]) - 1 if number + 1 < len(self.row_splits) else len(self.flat_values)
            what = f"row_splits[{number}]"
            if splits.ndim != 1 or splits.dtype.kind not in "iu" or not len(splits):
                raise ValueError(
                    f"{what} is {splits.dtype} {list(splits.shape)}; give a vector of whole numbers from 0"
                )
            if splits[0] != 0 or splits[-1] != below or (np.diff(splits) < 0).any():
                raise ValueError(f"{what} must rise from 0 to {below}, the number of rows that it cuts")

    @classmethod
    def of(cls, answer: Mapping[str, Array], name: str) -> Self:
        """The ragged output `name` of a job. Raises `KeyError` where the answer has none."""
        try:
            splits: list[Array] = []
            while not splits or f"{name}.row_splits_{len(splits)}" in answer:
                splits.append(answer[f"{name}.row_splits_{len(splits)}"])
            return cls(answer[f"{name}.flat_values"], tuple(splits))
        except KeyError:
            raise KeyError(f"there is no ragged tensor {name!r} among {', '.join(sorted(answer))}") from None

    @classmethod
    def from_rows(cls, rows: Sequence[npt.ArrayLike], dtype: npt.DTypeLike | None = None) -> Self:
        """One ragged axis: each row is an array, or what becomes one. Copies. Text becomes bytes, as in all inputs."""
        arrays = [_array(row, dtype) for row in rows]
        filled = [array for array in arrays if len(array)] or arrays[:1] or [np.empty(0, dtype)]
        splits = np.concatenate([[0], np.cumsum([len(array) for array in arrays])]).astype(np.int64)
        return cls(np.concatenate(filled), (splits,))

    def parts(self, name: str) -> dict[str, Array]:
        """What to feed for the ragged input `name`."""
        splits = {f"{name}.row_splits_{number}": each for number, each in enumerate(self.row_splits)}
        return {f"{name}.flat_values": self.flat_values, **splits}

    def __len__(self) -> int:
        return len(self.row_splits[0]) - 1

    def rows(self) -> Iterator["Array | Ragged"]:
        """Each row: an array, or where there are more ragged axes a `Ragged`. They look at this one's memory."""
        splits, *inner = self.row_splits
        for begin, end in zip(splits.tolist(), splits[1:].tolist(), strict=False):
            yield Ragged(*_cut(self.flat_values, inner, begin, end)) if inner else self.flat_values[begin:end]

    def to_list(self) -> list[Any]:
        """Nested lists of Python's numbers and bytes."""
        return [row.to_list() if isinstance(row, Ragged) else row.tolist() for row in self.rows()]


def _cut(values: Array, levels: Sequence[Array], begin: int, end: int) -> tuple[Array, tuple[Array, ...]]:
    """Of the rows of the first level those from `begin` to `end`, with splits that begin at 0."""
    cut = []
    for splits in levels:
        window = splits[begin : end + 1]
        cut.append(window - window[0])
        begin, end = int(window[0]), int(window[-1])
    return values[begin:end], tuple(cut)


def _array(row: npt.ArrayLike, dtype: npt.DTypeLike | None) -> Array:
    array = np.asarray(row, dtype)
    return array.astype(object) if array.dtype.kind in "SU" else array
