"""Rows are joined and padded as numpy would, in memory of their own that TensorFlow need not copy."""

import math

import numpy as np
import pytest

from pool.wire.tensors import DTYPES, Array
from workers.batch import join, own, rows_differ, whole
from workers.memory import BatchMemory


def specimen(dtype: str, rows: int, row_shape: tuple[int, ...], seed: int = 0) -> Array:
    size = rows * math.prod(row_shape)
    numbers = np.random.default_rng(seed).integers(0, 2, size)
    if dtype == "string":
        array = np.empty(size, object)
        array[:] = [b"\0" * number for number in numbers.tolist()]
    else:
        array = numbers.astype(DTYPES[dtype])
    return array


@pytest.mark.parametrize("as_buffers", [False, True])
@pytest.mark.parametrize("pad_to", [6, 8])
@pytest.mark.parametrize("row_shape", [(), (3,), (2, 2), (0,), (2, 0, 3)])
@pytest.mark.parametrize("dtype", ["float32", "bool", "string", "bfloat16", "int4", "complex128", "float8_e5m2"])
def test_joined_is_concatenated_and_padded_with_the_first_row(
    dtype: str, row_shape: tuple[int, ...], pad_to: int, as_buffers: bool
) -> None:
    rows = (1, 3, 2)
    flats = [specimen(dtype, count, row_shape, seed) for seed, count in enumerate(rows)]
    buffers = as_buffers and dtype != "string"
    joined = join(
        [flat.tobytes() if buffers else flat for flat in flats], DTYPES[dtype], 6, pad_to, row_shape, BatchMemory()
    )
    parts = [flat.reshape(count, *row_shape) for flat, count in zip(flats, rows, strict=True)]
    expected = np.concatenate([*parts, *[parts[0][:1]] * (pad_to - 6)])
    assert joined.dtype == DTYPES[dtype]
    assert joined.shape == expected.shape == (pad_to, *row_shape)
    assert joined.tolist() == expected.tolist()
    assert not any(np.shares_memory(joined, flat) for flat in flats)


def test_a_batch_begins_where_tensorflow_takes_it_as_it_is() -> None:
    batches = [
        join([bytes(4 * size)] * 2, DTYPES["float32"], 2 * size, 2 * size, (), BatchMemory()) for size in range(1, 50)
    ]
    assert {batch.ctypes.data % 64 for batch in batches} == {0}
    assert all(batch.flags.c_contiguous and batch.flags.writeable for batch in batches)


def test_one_part_is_copied_only_where_it_is_padded() -> None:
    flat = np.arange(4.0)
    for piece in (flat, flat.data.cast("B")):
        assert np.shares_memory(join([piece], flat.dtype, 2, 2, (2,), BatchMemory()), flat)
        assert np.shares_memory(whole(piece, flat.dtype, (4, 1)), flat)
        padded = join([piece], flat.dtype, 2, 4, (2,), BatchMemory())
        assert not np.shares_memory(padded, flat)
        assert padded.tolist() == [[0, 1], [2, 3], [0, 1], [0, 1]]


@pytest.mark.parametrize(
    ("array", "amiss"),
    [
        (np.zeros(4), None),
        (np.zeros((4, 0)), None),
        (np.zeros(3), "output 'y' came back with 3 rows where 4 were fed"),
        (np.zeros((1, 4)), "output 'y' came back with 1 rows where 4 were fed"),
        (np.zeros((0, 4)), "output 'y' came back with 0 rows where 4 were fed"),
        (np.zeros(()), "output 'y' came back with no rows where 4 were fed"),
    ],
)
def test_rows_are_counted(array: Array, amiss: str | None) -> None:
    assert rows_differ({"x": np.zeros(4), "y": array}, 4) == amiss


def test_what_looks_at_a_feed_is_copied_but_for_what_is_small_where_that_is_packed_at_once() -> None:
    feeds = [np.zeros(8), np.ones((100, 4))]
    mine = np.arange(5.0)
    fetched = {"mine": mine, "small": feeds[0][2:4], "large": feeds[1][:, ::2]}
    for least_bytes, copied in ((0, {"small", "large"}), (17, {"large"}), (10**6, set())):
        kept = own(dict(fetched), feeds, least_bytes)
        assert list(kept) == list(fetched)
        assert {name for name in kept if not np.shares_memory(kept[name], fetched[name])} == copied
        assert all(np.array_equal(kept[name], fetched[name]) for name in fetched)
