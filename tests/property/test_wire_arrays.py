"""Any header over any buffer: an array of exactly that dtype and shape, or `BadFrame`, and no large allocation."""

import math
import struct
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pool.wire.calls import TensorHeader
from pool.wire.codec import BadFrame
from pool.wire.tensors import DTYPES, Array, decode_tensor, to_array
from support.encoded import encode_tensor

steady = settings(deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])

dtypes = st.sampled_from([*DTYPES, "", "object", "O", "resource", "half", "<f4", "V2", "datetime64[s]"]) | st.text(
    max_size=20
)
axes = st.integers(0, 5) | st.integers(-3, 3) | st.sampled_from([2**31, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1])
shapes = st.one_of(
    st.lists(axes, max_size=6),
    st.lists(st.integers(0, 1), min_size=60, max_size=70),
    st.lists(st.just(2**64 - 1), min_size=250, max_size=256),
).map(tuple)


def check(header: TensorHeader, buffer: bytes) -> None:
    tracemalloc.start()
    try:
        result: Array | str = decode_tensor(header, memoryview(buffer))
    except BadFrame as error:
        result = str(error)
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 50_000 + 20 * len(buffer)
    if isinstance(result, str):
        assert 0 < len(result) < 300
        return
    assert result.dtype == DTYPES[header.dtype]
    assert result.shape == header.shape
    if header.dtype == "string":
        strings = result.reshape(-1).tolist()
        assert all(type(element) is bytes for element in strings)
        assert len(buffer) == sum(8 + len(element) for element in strings)
    else:
        assert result.tobytes() == buffer


@settings(steady, max_examples=400)
@given(dtypes, shapes, st.binary(max_size=80))
def test_any_header_over_any_buffer(dtype: str, shape: tuple[int, ...], buffer: bytes) -> None:
    check(TensorHeader("x", dtype, shape, False), buffer)


@pytest.mark.parametrize("count", range(5))
def test_strings_over_a_buffer_of_any_length(count: int) -> None:
    for length in range(50):
        for fill in (0, 1, 255):
            check(TensorHeader("x", "string", (count,), False), bytes([fill]) * length)


@settings(steady, max_examples=300)
@given(st.sampled_from([name for name in DTYPES if name != "string"]), st.lists(st.integers(0, 5), max_size=5))
def test_a_buffer_of_the_right_size_is_taken_and_no_other(dtype: str, shape: list[int]) -> None:
    header = TensorHeader("x", dtype, tuple(shape), False)
    size = math.prod(shape) * DTYPES[dtype].itemsize
    assert decode_tensor(header, bytes(size)).shape == tuple(shape)
    for wrong in {size + 1, max(0, size - 1), 2 * size + 8} - {size}:
        with pytest.raises(BadFrame):
            decode_tensor(header, bytes(wrong))


@pytest.mark.parametrize("dtype", ["string", "int8", "complex128", "bfloat16", "int4"])
@pytest.mark.parametrize(
    "shape",
    [
        (2**40,),
        (2**61,),
        (2**63,),
        (2**64,),
        (2**32, 2**32),
        (2**32, 2**32, 2**32),
        (0, 2**62),
        (2**62, 0),
        (0, 2**63),
        (0, 2**64 - 1),
        (0, 2**62, 2**62),
        (-1,),
        (-1, -8),
        (1,) * 64,
        (1,) * 65,
        (0,) * 65,
        (1,) * 255,
        (2**64 - 1,) * 254,
        (2**64 - 1,) * 100_000,
    ],
    ids=lambda shape: f"rank {len(shape)} from {shape[0]}",
)
def test_shapes_that_are_out_of_all_bounds(dtype: str, shape: tuple[int, ...]) -> None:
    for buffer in (b"", bytes(8), bytes(16)):
        check(TensorHeader("x", dtype, shape, False), buffer)


@settings(steady, max_examples=200)
@given(st.lists(st.binary(max_size=12), max_size=9))
def test_strings_of_any_bytes(strings: list[bytes]) -> None:
    header, buffer = encode_tensor("x", to_array(strings)[0] if strings else to_array(b"")[0].reshape(1)[:0])
    check(header, bytes(buffer))
    assert decode_tensor(header, buffer).tolist() == strings


@settings(steady, max_examples=300)
@given(st.lists(st.binary(max_size=6), min_size=1, max_size=4), st.integers(0), st.integers(0, 2**64 - 1))
def test_ends_that_lie(strings: list[bytes], index: int, end: int) -> None:
    """They cut the same bytes elsewhere, at most."""
    header, buffer = encode_tensor("x", to_array(strings)[0])
    position = index % len(strings)
    lying = bytearray(buffer)
    lying[8 * position : 8 * position + 8] = end.to_bytes(8, "little")
    check(header, bytes(lying))


@settings(steady, max_examples=200)
@given(st.lists(st.binary(max_size=9), min_size=1, max_size=9), st.data())
def test_some_rows_of_strings_are_some_ends_and_some_bytes(strings: list[bytes], data: st.DataObject) -> None:
    _, encoded = encode_tensor("x", to_array(strings)[0])
    whole = bytes(encoded)
    start = data.draw(st.integers(0, len(strings)))
    stop = data.draw(st.integers(start, len(strings)))
    ends = [0, *struct.unpack(f"<{len(strings)}Q", whole[: 8 * len(strings)])]
    blob = whole[8 * len(strings) :]
    piece = whole[8 * start : 8 * stop] + blob[ends[start] : ends[stop]]
    header = TensorHeader("x", "string", (stop - start,), False)
    check(header, piece)
    assert decode_tensor(header, piece).tolist() == strings[start:stop]


@settings(steady, max_examples=200)
@given(st.lists(st.text(max_size=9), min_size=1, max_size=5))
def test_text_becomes_utf_8(texts: list[str]) -> None:
    array, weak = to_array(texts)
    assert not weak
    assert [element.decode() for element in array.tolist()] == texts
