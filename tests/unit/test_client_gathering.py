"""Inputs that are gathered as the rows of one job."""

from typing import Any

import numpy as np
import pytest

from pool.client.bulk.gathering import LENT_INPUT_BYTES, SMALL_BYTES, Gathering
from pool.client.bulk.grain import CHUNK_BYTES
from pool.client.payload import Inputs, to_inputs
from pool.client.shared_memory import SharedMemory


class Lending(SharedMemory):
    """As where the pool lends, and all of it is in use."""

    lends = True


def inputs(**arrays: Any) -> Inputs:
    return to_inputs("m", arrays)


def test_those_that_are_plainly_alike_are_taken_without_a_further_look() -> None:
    gathering = Gathering(inputs(x=np.zeros((1, 2), np.float32)), 4, SharedMemory())
    assert gathering.take({"x": np.ones((2, 2), np.float32)})
    assert gathering.rows == [1, 2]
    (array, weak) = gathering.inputs().tensors["x"]
    assert (array.tolist(), weak) == ([[0, 0], [1, 1], [1, 1]], False)


@pytest.mark.parametrize(
    "other",
    [
        {"x": np.ones((1, 2), np.float64)},
        {"x": np.ones((1, 3), np.float32)},
        {"x": np.ones((1, 2), ">f4")},
        {"x": np.float32(1)},
        {"x": np.ones((0, 2), np.float32)},
        {"x": [[1.0, 2.0]]},
        {"y": np.ones((1, 2), np.float32)},
        {"x": np.ones((1, 2), np.float32), "y": np.ones((1, 2), np.float32)},
        {"x": np.ma.array(np.ones((1, 2), np.float32))},
        {"x": np.ones((SMALL_BYTES, 2), np.float32)},
        np.ones((1, 2), np.float32),
        "x",
        None,
    ],
)
def test_whatever_else_is_given_is_not_taken(other: object) -> None:
    gathering = Gathering(inputs(x=np.zeros((1, 2), np.float32)), 4, SharedMemory())
    assert not gathering.take(other)
    assert gathering.rows == [1]


def test_inputs_that_differ_in_height_are_not_taken() -> None:
    gathering = Gathering(inputs(a=np.zeros(1), b=np.zeros(1)), 4, SharedMemory())
    assert not gathering.take({"a": np.zeros(2), "b": np.zeros(1)})
    assert gathering.take({"b": np.ones(2), "a": np.zeros(2)})
    assert gathering.inputs().tensors["b"][0].tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    "other",
    [
        {"a": np.array(1.0), "b": np.array(1.0)},
        {"a": np.zeros(0), "b": np.zeros(3)},
        {"a": np.zeros(3), "b": np.zeros(0)},
        {"a": np.zeros(0), "b": np.zeros(0)},
    ],
)
def test_what_has_no_rows_of_its_own_is_not_taken(other: dict[str, Any]) -> None:
    gathering = Gathering(inputs(a=np.zeros(1), b=np.zeros(1)), 4, SharedMemory())
    assert not gathering.take(other)
    assert gathering.rows == [1]


def test_strings_count_by_their_length() -> None:
    text = "x" * 1000
    assert Gathering(inputs(x=["x" * (SMALL_BYTES + 1)]), 256, SharedMemory()).is_full
    gathering = Gathering(inputs(x=[""]), 1000, SharedMemory(), 10_000)
    added = 0
    while not gathering.is_full:
        gathering.add(inputs(x=[text]))
        added += 1
    assert added == 10, "the first does not tell how long the others are"
    assert Gathering(inputs(x=[text]), 1000, SharedMemory(), 10_000).most_rows == 9


def test_it_grows_past_what_it_was_made_for() -> None:
    gathering = Gathering(inputs(x=np.zeros(1)), 2, SharedMemory())
    for height in (1, 5, 9):
        gathering.add(inputs(x=np.full(height, height)))
    assert gathering.inputs().tensors["x"][0].tolist() == [0] + [1] + [5] * 5 + [9] * 9


def test_weak_inputs_and_strings_keep_what_they_are() -> None:
    gathering = Gathering(inputs(x=[1.5]), 4, SharedMemory())
    assert not gathering.take({"x": np.zeros(1)})  # an array has a dtype of its own
    assert gathering.fits(inputs(x=[2.5, 3.5]))
    assert not gathering.fits(inputs(x=np.zeros(1)))
    strings = Gathering(inputs(x=[b"a\0", "ü"]), 4, SharedMemory())
    strings.add(inputs(x=[b""]))
    assert strings.inputs().tensors["x"][0].tolist() == [b"a\0", "ü".encode(), b""]


def test_large_ones_are_gathered_where_they_would_be_copied_anyway() -> None:
    large = inputs(x=np.zeros((1, LENT_INPUT_BYTES), np.uint8))
    assert Gathering(large, 256, SharedMemory()).is_full
    assert not Gathering(large, 256, Lending()).is_full
    assert Gathering(inputs(x=np.zeros((1, LENT_INPUT_BYTES + 1), np.uint8)), 256, Lending()).is_full
    assert Gathering(inputs(x=1.0), 256, Lending()).is_full
    assert Gathering(large, 256, Lending()).most_rows == CHUNK_BYTES // LENT_INPUT_BYTES
