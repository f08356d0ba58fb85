"""A call as payload frames: whatever a caller gives, it is sent or `InvalidInput` says why not."""

from typing import Any

import numpy as np
import pytest
import zmq

from pool.client.payload import concatenated, decode_answer, encode_call, to_inputs
from pool.errors import InvalidInput
from pool.wire.calls import ROWS, Table, TensorHeader
from pool.wire.codec import BadFrame, unpack
from pool.wire.packing import pack_answer
from pool.wire.tensors import DTYPES, Array


def read_table(frame: object) -> Table:
    assert isinstance(frame, bytes)
    return unpack(Table, frame)


def test_a_table_and_a_buffer_a_tensor() -> None:
    rows, (table, *buffers) = encode_call("m", {"a": np.array([1, 2], np.float32), "b": [b"x"], "c": 3})
    assert rows is None
    assert read_table(table) == Table(
        (
            TensorHeader("a", "float32", (2,), False),
            TensorHeader("b", "string", (1,), False),
            TensorHeader("c", "int64", (), True),
        ),
    )
    assert buffers == [b"\0\0\x80\x3f\0\0\0\x40", b"\x01" + bytes(7) + b"x", b"\x03" + bytes(7)]


def test_an_input_alone_has_no_name() -> None:
    rows, (table, buffer) = encode_call("m", b"x")
    assert rows is None
    assert read_table(table) == Table((TensorHeader("", "string", (), False),))
    assert len(buffer) == 9


def test_no_inputs_are_a_call_too() -> None:
    rows, (table,) = encode_call("m", {})
    assert rows is None
    assert read_table(table) == Table(())


def test_the_tables_of_jobs_that_differ_by_their_rows_are_the_same_bytes() -> None:
    tables = set()
    for count in (1, 2, 7):
        given = {"x": np.zeros((count, 3), np.float32), "s": [b"a" * count] * count}
        rows, (table, *_) = encode_call("m", given)
        assert rows == count
        tables.add(table)
    assert len(tables) == 1
    assert read_table(tables.pop()) == Table(
        (TensorHeader("x", "float32", (ROWS, 3), False), TensorHeader("s", "string", (ROWS,), False))
    )


@pytest.mark.parametrize(
    "inputs",
    [
        {"a": np.zeros((2, 3)), "b": np.zeros((3, 2))},
        {"a": np.zeros((2, 3)), "b": 1.0},
        np.zeros((0, 3)),
        {"a": np.zeros((0, 3)), "b": 1.0},
        5,
    ],
    ids=["unlike", "one without axes", "no rows", "neither", "no axes"],
)
def test_what_has_no_rows_in_common_keeps_its_shapes(inputs: Any) -> None:
    rows, (table, *_) = encode_call("m", inputs)
    assert rows is None
    assert all(ROWS not in header.shape for header in read_table(table).tensors)


@pytest.mark.parametrize("dtype", DTYPES)
def test_cut_rows_are_what_their_rows_would_be_alone(dtype: str) -> None:
    array = np.array([[b"a", b""], [b"bc", b"\0"], [b"", b"d"]], object)
    if dtype != "string":
        array = np.arange(6).reshape(3, 2).astype(DTYPES[dtype])
    whole = to_inputs("m", {"x": array, "weak": [[1, 2], [3, 4], [5, 6]]})
    assert whole.rows == 3
    rows, frames = encode_call("m", whole.cut(1, 3))
    assert rows == 2
    assert frames == encode_call("m", {"x": array[1:].copy(), "weak": [[3, 4], [5, 6]]})[1]


def test_the_caller_may_change_its_array_at_once() -> None:
    array = np.zeros(3)
    _, (_, buffer) = encode_call("m", array)
    array += 1
    assert buffer == bytes(24)


class Broken:
    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("the array is on another device")


@pytest.mark.parametrize(
    ("inputs", "complaint"),
    [
        ({"x": None}, "model m, input 'x': cannot be sent as a tensor: an element is neither"),
        ([[1], [2, 3]], "model m, input '': cannot be sent as a tensor: its rows differ in length; for a ragged"),
        ({"x": "\ud800"}, "model m, input 'x': cannot be sent as a tensor: .*surrogates not allowed"),
        (Broken(), "model m, input '': cannot be sent as a tensor: the array is on another device"),
        ({1: 2.0}, "model m: an input's name is a str, not int"),
        ({b"x": 2.0}, "model m: an input's name is a str, not bytes"),
        ({"\ud800": 2.0}, r"model m: an input's name is not valid unicode: '\\ud800'"),
        ({f"{number:0500}": 1.0 for number in range(3000)}, "model m: 3000 inputs are more than one job can have"),
    ],
)
def test_what_cannot_be_sent_is_the_callers_mistake(inputs: Any, complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        encode_call("m", inputs)


def frames(*arrays: Array) -> list[zmq.Frame]:
    return [zmq.Frame(bytes(part)) for part in pack_answer({f"y{number}": a for number, a in enumerate(arrays)})]


def test_an_answer_is_arrays_by_name() -> None:
    packed = frames(np.arange(3), np.array(b"x\0", object), np.zeros(10_000))
    answer = decode_answer((len(packed),), packed)
    assert list(answer) == ["y0", "y1", "y2"]
    assert answer["y0"].tolist() == [0, 1, 2]
    assert answer["y1"].item() == b"x\0"
    assert not answer["y2"].any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_pieces_are_joined_by_rows(dtype: str) -> None:
    whole = np.array([b"a", b"", b"bc", b"\0", b"d"], object)
    if dtype != "string":
        whole = np.arange(5).astype(DTYPES[dtype])
    pieces = [frames(whole[start:stop], whole[start:stop, None]) for start, stop in ((0, 2), (2, 3), (3, 5))]
    answer = decode_answer([len(piece) for piece in pieces], [frame for piece in pieces for frame in piece])
    assert answer["y0"].dtype == whole.dtype
    assert answer["y0"].tolist() == whole.tolist()
    assert answer["y1"].tolist() == whole[:, None].tolist()


def test_a_bad_answer_is_a_bad_frame() -> None:
    good = frames(np.arange(3))
    for pieces, bad, complaint in [
        ((), [], "0 buffers in pieces"),
        ((0,), [], "without a table"),
        ((2,), good, "1 buffers in pieces"),
        ((-1, 2), good, "1 buffers in pieces"),
        ((1,), [zmq.Frame(b"\1\0\0\0\xc1")], "not msgpack"),
        ((1, 1), [*good, *frames(np.arange(3.0))], "do not belong together: output 'y0' is int64 .* in one, float64"),
        ((1, 1), [*good, *frames(np.arange(3), np.arange(3))], "one has the outputs y0, another has y0, y1"),
        ((1, 1), [*frames(np.array(1)), *frames(np.array(1))], "output 'y0' has no axis 0"),
    ]:
        with pytest.raises(BadFrame, match=complaint):
            decode_answer(pieces, bad)


def test_arrays_with_and_without_axis_0_are_not_joined() -> None:
    for first, second in [((3,), ()), ((), (3,))]:
        with pytest.raises(ValueError, match="output 'y' has no axis 0"):
            concatenated([{"y": np.zeros(first)}, {"y": np.zeros(second)}])
