"""Rows that the pool cuts from buffers are the rows that numpy cuts from the arrays."""

from dataclasses import replace
from typing import Any

import numpy as np
import zmq
from hypothesis import given
from hypothesis import strategies as st

from pool.serve.layouts import read
from pool.serve.rows import COPIED_BYTES, Halves, Inputs
from pool.wire.calls import ROWS, Table, TensorHeader
from pool.wire.codec import BadFrame, pack
from pool.wire.tensors import DTYPES, Array, decode_tensor
from support.encoded import encode_tensor
from workers.parts import joined_halves

axes = st.lists(st.integers(0, 3), max_size=3).map(tuple)


def octets_of(piece: Any) -> bytes:
    """Of a frame, or of what was cut from one."""
    if isinstance(piece, Halves):
        return piece.joined()
    return piece.bytes if isinstance(piece, zmq.Frame) else bytes(piece)


@st.composite
def arrays(draw: st.DrawFn, rows: int) -> Array:
    shape = (rows, *draw(axes))
    name = draw(st.sampled_from(sorted(DTYPES)))
    size = int(np.prod(shape))
    if name == "string":
        flat: Array = np.empty(size, object)
        flat[:] = draw(st.lists(st.binary(max_size=9), min_size=size, max_size=size))
        return flat.reshape(shape)
    octets = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), np.uint8)
    whole: Array = octets & 1 if name == "bool" else octets
    return whole.astype(DTYPES[name]).reshape(shape)


@st.composite
def jobs(draw: st.DrawFn) -> tuple[list[Array], int, int, int]:
    rows = draw(st.integers(1, 6))
    start = draw(st.integers(0, rows - 1))
    stop = draw(st.integers(start + 1, rows))
    return draw(st.lists(arrays(rows), min_size=1, max_size=3)), rows, start, stop


def inputs_of(given: list[Array], rows: int) -> Inputs:
    headers, buffers = [], []
    for array in given:
        header, buffer = encode_tensor("x", array)
        headers.append(TensorHeader("x", header.dtype, (ROWS, *array.shape[1:]), False))
        buffers.append(zmq.Frame(bytes(buffer)))
    table = pack(Table(tuple(headers)))
    layout = read(table)
    layout.check(rows, buffers)
    return Inputs(table, buffers, layout, rows)


def decoded(like: Array, rows: int, buffer: Any) -> Array:
    header, _ = encode_tensor("x", like)
    data = buffer.buffer if isinstance(buffer, zmq.Frame) else buffer
    return decode_tensor(TensorHeader("x", header.dtype, (rows, *like.shape[1:]), False), data)


def same(one: Array, other: Array) -> bool:
    if one.dtype == object:
        return one.shape == other.shape and one.tolist() == other.tolist()
    return one.shape == other.shape and one.tobytes() == other.tobytes()


@given(jobs())
def test_a_cut_is_numpys(job: tuple[list[Array], int, int, int]) -> None:
    given_arrays, rows, start, stop = job
    pieces = inputs_of(given_arrays, rows).cut(start, stop)
    assert len(pieces) == len(given_arrays)
    for array, piece in zip(given_arrays, pieces, strict=True):
        assert same(decoded(array, stop - start, piece), array[start:stop])


@given(jobs(), st.integers(1, 3))
def test_a_piece_can_be_cut_again(job: tuple[list[Array], int, int, int], most: int) -> None:
    """The ends of strings keep on counting from where the whole tensor began."""
    given_arrays, rows, start, stop = job
    whole = inputs_of(given_arrays, rows)
    buffers = [zmq.Frame(octets_of(piece)) for piece in whole.cut(start, stop)]
    assert whole.layout is not None
    whole.layout.check(stop - start, buffers)
    again = Inputs(whole.table, buffers, whole.layout, stop - start)
    for first in range(0, stop - start, most):
        last = min(first + most, stop - start)
        for array, piece in zip(given_arrays, again.cut(first, last), strict=True):
            assert same(decoded(array, last - first, piece), array[start + first : start + last])


def test_numbers_are_not_copied_and_outlive_their_frames() -> None:
    inputs = inputs_of([np.arange(1000, dtype=np.int64)], 1000)
    (piece,) = inputs.cut(10, 20)
    assert isinstance(piece, memoryview)
    (frame,) = inputs.buffers
    assert isinstance(frame, zmq.Frame)
    assert piece.obj is frame.buffer.obj
    del frame
    del inputs
    assert np.frombuffer(piece, np.int64).tolist() == list(range(10, 20))


@given(st.binary(max_size=80), st.integers(1, 4), st.integers(0, 2), st.data())
def test_strings_that_lie_are_refused_or_read_and_raise_nothing_here(
    buffer: bytes, rows: int, width: int, data: st.DataObject
) -> None:
    """What passes the pool's check is cut without an exception, and the worker can tell what is wrong with it."""
    table = pack(Table((TensorHeader("x", "string", (ROWS, width), False),)))
    layout, frames = read(table), [zmq.Frame(buffer)]
    try:
        layout.check(rows, frames)
    except BadFrame:
        return
    start = data.draw(st.integers(0, rows - 1))
    stop = data.draw(st.integers(start + 1, rows))
    (piece,) = Inputs(table, frames, layout, rows).cut(start, stop)
    try:
        strings = decode_tensor(TensorHeader("x", "string", (stop - start, width), False), octets_of(piece))
    except BadFrame:
        return
    assert b"".join(strings.reshape(-1).tolist()) in buffer


@given(st.lists(st.integers(0, 12), min_size=3, max_size=3), st.data())
def test_ends_in_disorder_are_never_read_as_another_piece(ends: list[int], data: st.DataObject) -> None:
    blob = b"abcdefghi"
    buffer = b"".join([end.to_bytes(8, "little") for end in ends]) + blob
    table = pack(Table((TensorHeader("x", "string", (ROWS,), False),)))
    layout, frames = read(table), [zmq.Frame(buffer)]
    try:
        layout.check(3, frames)
    except BadFrame:
        return
    row = data.draw(st.integers(0, 2))
    (piece,) = Inputs(table, frames, layout, 3).cut(row, row + 1)
    base = ends[-1] - len(blob)
    begin = ends[row - 1] if row else base
    try:
        strings = decode_tensor(TensorHeader("x", "string", (1,), False), piece)  # type: ignore[arg-type]
    except BadFrame:
        assert not base <= begin <= ends[row] <= ends[-1]
        return
    assert strings.tolist() == [blob[begin - base : ends[row] - base]]


def test_of_large_strings_nothing_is_copied_and_a_worker_makes_them_whole() -> None:
    """The pool's loop has no time to copy what may be a gigabyte."""
    rows = [bytes([65 + number]) * (COPIED_BYTES - 200 * number) for number in range(4)]
    strings = np.array(rows, object)
    header, buffer = encode_tensor("x", strings)
    table = pack(Table((replace(header, shape=(ROWS,)),)))
    frame = zmq.Frame(bytes(buffer))
    layout = read(table)
    layout.check(4, [frame])
    inputs = Inputs(table, [frame], layout, 4)
    (piece,) = inputs.cut(1, 3)
    assert isinstance(piece, Halves)
    whole = np.frombuffer(frame.buffer, np.uint8)
    assert np.may_share_memory(np.frombuffer(piece.ends, np.uint8), whole)
    assert np.may_share_memory(np.frombuffer(piece.blob, np.uint8), whole)
    (joined,) = joined_halves([piece.ends, piece.blob], (0,))
    assert decode_tensor(replace(header, shape=(2,)), joined).tolist() == rows[1:3]
    (small,) = inputs.cut(3, 4)
    assert decode_tensor(replace(header, shape=(1,)), small).tolist() == rows[3:], "one of that size is copied"  # type: ignore[arg-type]


def test_halves_among_other_buffers_are_found_by_their_numbers() -> None:
    frames = [b"a", b"b1", b"b2", b"c", b"d1", b"d2"]
    assert list(joined_halves(frames, (1, 3))) == [b"a", b"b1b2", b"c", b"d1d2"]
    assert list(joined_halves(frames[:5], (1, 3))) == [b"a", b"b1b2", b"c", b"d1"], "one is missing"
