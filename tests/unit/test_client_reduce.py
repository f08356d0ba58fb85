"""Sums and means over pieces: numpy's, whoever answers first."""

import math
from typing import Any, Literal

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pool.client.reduce import Reduction
from pool.client.scatter import piece_sizes
from pool.errors import InvalidInput
from pool.wire.tensors import DTYPES, Array

steady = settings(deadline=None, derandomize=True, database=None)

FLOATS = [name for name in DTYPES if "float" in name or name.startswith("complex")]
INTEGERS = [name for name in DTYPES if name.startswith(("int", "uint"))]

elements = st.floats(-1e6, 1e6, width=32)


def reduced(how: Literal["sum", "mean"], rows: list[int], pieces: list[Array], order: list[int]) -> Array:
    reduction = Reduction(how, rows)
    for piece in order:
        reduction.add(piece, {"y": pieces[piece].copy()})
    return reduction.result()["y"]


@st.composite
def some_pieces(draw: st.DrawFn) -> tuple[list[int], list[Array], list[int]]:
    count = draw(st.integers(1, 17))
    shape = draw(st.sampled_from([(), (1,), (3,), (2, 2), (0,)]))
    size = math.prod(shape)
    pieces = [
        np.array(draw(st.lists(elements, min_size=size, max_size=size)), np.float64).reshape(shape)
        for _ in range(count)
    ]
    rows = draw(st.lists(st.integers(1, 9), min_size=count, max_size=count))
    return rows, pieces, draw(st.permutations(range(count)))


@steady
@given(some_pieces())
def test_a_tree_sums_as_numpy_does(case: tuple[list[int], list[Array], list[int]]) -> None:
    rows, pieces, order = case
    total = reduced("sum", rows, pieces, order)
    np.testing.assert_allclose(total, np.sum(pieces, axis=0), rtol=1e-12, atol=1e-6)
    assert total.shape == pieces[0].shape


@steady
@given(some_pieces())
def test_the_order_of_arrival_changes_no_bit(case: tuple[list[int], list[Array], list[int]]) -> None:
    rows, pieces, order = case
    pieces = [piece.astype(np.float32) for piece in pieces]
    for how in ("sum", "mean"):
        in_order = reduced(how, rows, pieces, list(range(len(pieces))))
        assert reduced(how, rows, pieces, order).tobytes() == in_order.tobytes()


@steady
@given(st.lists(st.lists(elements, min_size=3, max_size=3), min_size=1, max_size=50), st.integers(1, 12), st.randoms())
def test_the_mean_of_means_is_the_mean_of_all_rows(values: Any, pieces: int, rng: Any) -> None:
    whole = np.array(values)
    sizes = piece_sizes(len(whole), pieces)
    cut = np.split(whole, np.cumsum(sizes)[:-1])
    order = list(range(len(sizes)))
    rng.shuffle(order)
    mean = reduced("mean", sizes, [piece.mean(axis=0) for piece in cut], order)
    np.testing.assert_allclose(mean, whole.mean(axis=0), rtol=1e-9, atol=1e-6)


@given(st.integers(1, 1000), st.integers(1, 64))
def test_pieces_differ_by_one_row_at_most(rows: int, pieces: int) -> None:
    sizes = piece_sizes(rows, pieces)
    assert sum(sizes) == rows
    assert len(sizes) == min(rows, pieces)
    assert 1 <= max(sizes) <= min(sizes) + 1


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_come_back_as_they_were(dtype: str) -> None:
    ones = np.ones((2, 2)).astype(DTYPES[dtype])
    assert reduced("sum", [1] * 3, [ones] * 3, [2, 0, 1]).tolist() == [[3.0, 3.0], [3.0, 3.0]]
    for how in ("sum", "mean"):
        assert reduced(how, [1] * 3, [ones] * 3, [2, 0, 1]).dtype == DTYPES[dtype]
    assert reduced("mean", [3, 2, 2], [ones] * 3, [2, 0, 1]).tolist() == [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize(("dtype", "still"), [(np.float16, 2048), (ml_dtypes.bfloat16, 256)])
def test_half_floats_are_added_in_whole_ones(dtype: Any, still: int) -> None:
    """One by one in its own dtype, the sum would stand still at `still`."""
    ones = [np.ones((), dtype)] * (still * 2)
    assert float(reduced("sum", [1] * len(ones), ones, list(range(len(ones))))) == still * 2
    # and what is too large for a half float on the way is not too large for the mean
    large = [np.full((), 40_000.0, np.float16)] * 4
    assert float(reduced("mean", [1] * 4, large, [0, 1, 2, 3])) == 40_000.0


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_are_summed_in_their_dtype_and_have_no_mean(dtype: str) -> None:
    ones = np.ones(2).astype(DTYPES[dtype])
    assert reduced("sum", [1, 1, 1], [ones, ones, np.zeros(2).astype(DTYPES[dtype])], [0, 2, 1]).dtype == DTYPES[dtype]
    with pytest.raises(InvalidInput, match=f"output 'y' is {dtype}, and its mean would not be {dtype}"):
        reduced("mean", [1], [ones], [0])


@pytest.mark.parametrize("how", ["sum", "mean"])
@pytest.mark.parametrize("value", [np.array([b"x"], object), np.array([True])], ids=["string", "bool"])
def test_strings_and_booleans_have_neither(how: Literal["sum", "mean"], value: Array) -> None:
    with pytest.raises(InvalidInput, match=f"output 'y' is (string|bool), which has no {how}"):
        reduced(how, [1, 1], [value, value], [0, 1])


def test_pieces_that_do_not_belong_together() -> None:
    with pytest.raises(InvalidInput, match=r"output 'y' is float64 \[3\] of one piece, float64 \[2\] of another"):
        reduced("sum", [3, 2], [np.zeros(3), np.zeros(2)], [1, 0])
    reduction = Reduction("sum", [1, 1])
    reduction.add(0, {"y": np.zeros(1)})
    with pytest.raises(InvalidInput, match="one piece gave the outputs y, another z"):
        reduction.add(1, {"z": np.zeros(1)})


def test_pairs_are_added_as_they_come() -> None:
    reduction = Reduction("sum", [1] * 8)
    for piece in (0, 1, 2, 3, 6, 7):
        reduction.add(piece, {"y": np.ones(1)})
    assert sorted(reduction._nodes) == [(1, 3), (2, 0)]  # 6+7, and (0+1)+(2+3): no answer is kept by itself


def test_an_answer_that_cannot_be_written_to_is_left_as_it_is() -> None:
    fixed = np.frombuffer(bytes(8), np.float64)
    assert reduced("sum", [1, 1], [np.ones(1), np.ones(1)], [0, 1]) == 2
    reduction = Reduction("sum", [1, 1])
    reduction.add(0, {"y": fixed})
    reduction.add(1, {"y": np.ones(1)})
    assert reduction.result()["y"] == 1
    assert fixed == 0
