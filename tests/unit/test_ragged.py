"""`pool.Ragged` and `pool.Sparse`: from the parts that travel, and back."""

from typing import Any

import numpy as np
import pytest

from pool import Ragged, Sparse

SPLITS = np.array([0, 2, 2, 3])


def test_rows_of_different_lengths_become_parts_and_rows_again() -> None:
    ragged = Ragged.from_rows([[1, 2], [], [4]], np.float32)
    parts = ragged.parts("rows")
    assert {name: part.tolist() for name, part in parts.items()} == {
        "rows.flat_values": [1.0, 2.0, 4.0],
        "rows.row_splits_0": [0, 2, 2, 3],
    }
    assert (parts["rows.flat_values"].dtype, parts["rows.row_splits_0"].dtype) == (np.float32, np.int64)
    again = Ragged.of(parts, "rows")
    assert again.to_list() == [[1.0, 2.0], [], [4.0]]
    assert len(again) == 3
    assert [np.shares_memory(row, parts["rows.flat_values"]) for row in again.rows() if len(row)] == [True, True]


@pytest.mark.parametrize(
    ("rows", "values"),
    [
        ([], []),
        ([[]], []),
        ([["a", "bc"], ["d"]], ["a", "bc", "d"]),
        ([[b"a"], []], [b"a"]),
        ([[[1, 2]], []], [[1, 2]]),
    ],
)
def test_rows_may_be_few_texts_or_have_axes_of_their_own(rows: list[Any], values: list[Any]) -> None:
    ragged = Ragged.from_rows(rows)
    assert ragged.flat_values.tolist() == values
    assert ragged.to_list() == rows


def test_several_ragged_axes() -> None:
    letters = [[[b"a", b"b"], [b"c"]], [], [[]]]
    parts = {
        "letters.flat_values": np.array([b"a", b"b", b"c"], object),
        "letters.row_splits_0": np.array([0, 2, 2, 3]),
        "letters.row_splits_1": np.array([0, 2, 3, 3]),
    }
    ragged = Ragged.of({**parts, "another": np.zeros(1)}, "letters")
    assert ragged.to_list() == letters
    assert ragged.parts("letters").keys() == parts.keys()


@pytest.mark.parametrize(
    ("values", "splits", "why"),
    [
        (3, [], "one for each of its ragged axes"),
        (3, [np.array([0, 2])], r"row_splits\[0\] must rise from 0 to 3"),
        (3, [np.array([1, 3])], "must rise"),
        (3, [np.array([0, 4, 2, 3])], "must rise"),
        (3, [np.array([0, 1]), SPLITS], r"row_splits\[0\] must rise from 0 to 3"),
        (3, [np.array([0.0, 3.0])], "float64"),
        (3, [np.zeros((1, 1), int)], "give a vector"),
        (0, [np.zeros(0, int)], "give a vector"),
    ],
)
def test_splits_that_cut_something_else_are_refused(values: int, splits: list[Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Ragged(np.zeros(values), tuple(splits))


def test_an_answer_without_it_says_what_there_is() -> None:
    for kind in (Ragged, Sparse):
        with pytest.raises(KeyError, match=r"'words' among letters.values, x"):
            kind.of({"x": np.zeros(1), "letters.values": np.zeros(1)}, "words")


@pytest.mark.parametrize(
    "dense",
    [
        np.array([[0, 5, 0], [0, 0, 6]], np.int32),
        np.zeros((2, 0, 3), np.float32),
        np.array([b"", b"a"], object),
        np.array([True, False]),
    ],
)
def test_an_array_becomes_parts_and_an_array_again(dense: np.ndarray[Any, Any]) -> None:
    again = Sparse.of(Sparse.from_dense(dense).parts("long"), "long").to_dense()
    assert again.dtype == dense.dtype
    np.testing.assert_array_equal(again, dense)


def test_what_is_not_there_may_be_anything() -> None:
    sparse = Sparse(np.array([[1]]), np.array([2.0]), np.array([3]))
    assert sparse.to_dense(-1.0).tolist() == [-1.0, 2.0, -1.0]


@pytest.mark.parametrize(
    ("indices", "values", "shape", "why"),
    [
        ([[0], [1]], [1.0], [3], r"\[2, 1\]; give \[1, 1\]"),
        ([[0, 0]], [1.0], [3], r"\[1, 2\]; give \[1, 1\]"),
        ([[3]], [1.0], [3], r"outside of the shape \[3\]"),
        ([[-1]], [1.0], [3], "outside"),
        ([[0]], [[1.0]], [3], "vectors"),
        ([[]], [1.0], [], "at least one axis"),
    ],
)
def test_places_that_are_not_there_are_refused(indices: Any, values: Any, shape: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Sparse(np.array(indices), np.array(values), np.array(shape))
