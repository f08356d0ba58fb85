"""An answer's tensors as frames: whatever the model gave comes back, and what is no answer is a bad frame."""

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pool.wire.codec import BadFrame
from pool.wire.packing import SMALL_BYTES, pack_answer, pack_answers, unpack_answer
from pool.wire.tensors import DTYPES, Array


def strings(*values: bytes) -> Array:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def assert_same(given: dict[str, Array], found: dict[str, Array]) -> None:
    assert list(found) == list(given)
    for name, array in found.items():
        assert array.dtype == given[name].dtype
        assert array.shape == given[name].shape
        assert array.flags.aligned
        assert (
            array.tolist() == given[name].tolist()
            if array.dtype.hasobject
            else array.tobytes() == given[name].tobytes()
        )


def test_a_hundred_gradients_are_one_frame() -> None:
    gradients = {f"g{number}": np.full((number, 7), number, np.float32) for number in range(100)}
    frames = pack_answer(gradients)
    assert len(frames) == 1
    assert_same(gradients, unpack_answer(frames))


def test_large_tensors_have_frames_of_their_own_and_are_not_copied() -> None:
    large = np.arange(SMALL_BYTES, dtype=np.uint8)
    answer: dict[str, Array] = {
        "a": np.array(1, np.float32),
        "large": large,
        "b": strings(b"x\0"),
        "texts": strings(b"y" * SMALL_BYTES),
    }
    frames = pack_answer(answer)
    assert len(frames) == 3
    assert np.shares_memory(np.frombuffer(frames[1], np.uint8), large)
    found = unpack_answer([bytes(frame) for frame in frames])
    assert_same(answer, found)


@pytest.mark.parametrize("count", [1, 20_000])
def test_any_layout_and_dtype(count: int) -> None:
    numbers = np.arange(6 * count).reshape(3, 2 * count)
    answer: dict[str, Array] = {
        name: numbers.astype(np.int8).astype(dtype) for name, dtype in DTYPES.items() if name != "string"
    }
    answer |= {
        "rows": numbers[1:2],
        "transposed": numbers.T,
        "every second": numbers[:, ::2],
        "backwards": numbers[::-1],
    }
    assert_same(answer, unpack_answer([memoryview(bytes(frame)) for frame in pack_answer(answer)]))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (0, 2**40)])
def test_scalars_and_empty_tensors(shape: tuple[int, ...]) -> None:
    answer: dict[str, Array] = {"n": np.zeros(shape), "s": np.full(shape, b"", object)}
    assert_same(answer, unpack_answer(pack_answer(answer)))


def test_no_tensor_is_an_answer_too() -> None:
    assert unpack_answer(pack_answer({})) == {}


@pytest.mark.parametrize("width", [0, 1, 3, 5000])
@pytest.mark.parametrize("rows", [(1,), (1, 3, 2, 1), (4, 4)])
def test_each_part_has_its_own_rows(rows: tuple[int, ...], width: int) -> None:
    count = sum(rows) + 2  # of padding
    numbers = np.arange(count * width, dtype=np.float32).reshape(count, width)
    small = {"n": numbers, "t": numbers.T.copy().T, "h": numbers.astype(DTYPES["bfloat16"]), "i": np.arange(count)}
    for answer in (small, {**small, "s": strings(*[b"x" * 5000 * (row % 7) for row in range(count)])}):
        start = 0
        for part, frames in zip(rows, pack_answers(answer, rows), strict=True):
            expected = {name: array[start : start + part] for name, array in answer.items()}
            assert_same(expected, unpack_answer([bytes(frame) for frame in frames]))
            start += part


def test_large_rows_are_not_copied() -> None:
    large = np.zeros((3, SMALL_BYTES), np.uint8)
    for _, own in pack_answers({"y": large}, (1, 2)):
        assert np.shares_memory(np.frombuffer(own, np.uint8), large)


def test_parts_of_no_tensor() -> None:
    assert [unpack_answer(frames) for frames in pack_answers({}, (1, 2))] == [{}, {}]


def test_a_bad_answer_is_a_bad_frame() -> None:
    first, own = (bytes(frame) for frame in pack_answer({"a": np.arange(3), "large": np.zeros(5000)}))
    for bad, complaint in [
        ([], "without a table"),
        ([b""], "table is cut short"),
        ([first[:20], own], "table is cut short"),
        ([b"\xff" * 30, own], "table is cut short"),
        ([b"\0\0\0\0"], "not msgpack"),
        ([b"\1\0\0\0\xc1"], "not msgpack"),
        ([first], "0 frames of their own for 1 tensors"),
        ([first, own, own], "2 frames of their own for 1 tensors"),
        ([first, own[:-1]], "39999 bytes for float64"),
        ([first[:-1], own], "23 bytes for int64"),
        ([first + b"x", own], "bytes in the first frame of an answer"),
        ([first[:-25], own], "sizes are cut short"),
    ]:
        with pytest.raises(BadFrame, match=complaint):
            unpack_answer(bad)


@settings(deadline=None, derandomize=True, database=None, max_examples=300)
@given(st.binary(max_size=60), st.lists(st.binary(max_size=9), max_size=2), st.booleans())
def test_any_frames_are_an_answer_or_a_bad_frame(first: bytes, own: list[bytes], framed: bool) -> None:
    frames: list[Any] = [len(first[:-5]).to_bytes(4, "little") + first if framed else first, *own]
    with contextlib.suppress(BadFrame):
        unpack_answer(frames)
