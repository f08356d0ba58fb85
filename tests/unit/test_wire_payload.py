"""A call as payload frames: whatever a caller gives, it is sent or `InvalidInput` says why not."""

from typing import Any

import numpy as np
import pytest
import zmq

from pool.client.payload import decode_answer, encode_call
from pool.errors import InvalidInput
from pool.wire.calls import Call, Table, TensorHeader
from pool.wire.codec import BadFrame, pack, unpack
from pool.wire.tensors import encode_tensor


def test_a_call_and_a_buffer_a_tensor() -> None:
    call, *buffers = encode_call("m", {"a": np.array([1, 2], np.float32), "b": [b"x"], "c": 3}, "s", ["y", "z"])
    assert unpack(Call, call) == Call(
        "s",
        ("y", "z"),
        (
            TensorHeader("a", "float32", (2,), False),
            TensorHeader("b", "string", (1,), False),
            TensorHeader("c", "int64", (), True),
        ),
    )
    assert buffers == [b"\0\0\x80\x3f\0\0\0\x40", b"\x01" + bytes(7) + b"x", b"\x03" + bytes(7)]


def test_an_input_alone_has_no_name() -> None:
    call, buffer = encode_call("m", b"x", None, None)
    assert unpack(Call, call) == Call(None, None, (TensorHeader("", "string", (), False),))
    assert len(buffer) == 9


def test_no_inputs_and_no_outputs_are_a_call_too() -> None:
    (call,) = encode_call("m", {}, None, ())
    assert unpack(Call, call) == Call(None, (), ())


def test_the_caller_may_change_its_array_at_once() -> None:
    array = np.zeros(3)
    _, buffer = encode_call("m", array, None, None)
    array += 1
    assert buffer == bytes(24)


class Broken:
    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("the array is on another device")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("m", {"x": None}, None, None), "model m, input 'x': cannot be sent as a tensor: an element is neither"),
        (("m", [[1], [2, 3]], None, None), "model m, input '': cannot be sent as a tensor: .*inhomogeneous"),
        (
            ("m", {"x": "\ud800"}, None, None),
            "model m, input 'x': cannot be sent as a tensor: .*surrogates not allowed",
        ),
        (("m", Broken(), None, None), "model m, input '': cannot be sent as a tensor: the array is on another device"),
        (("m", {1: 2.0}, None, None), "model m: an input's name is a str, not int"),
        (("m", {b"x": 2.0}, None, None), "model m: an input's name is a str, not bytes"),
        (("m", {"\ud800": 2.0}, None, None), r"model m: an input's name is not valid unicode: '\\ud800'"),
        (("m", 1, "\ud800", None), "model m: a signature's name is not valid unicode"),
        (("m", 1, 7, None), "model m: a signature's name is a str, not int"),
        (("\ud800", 1, None, None), "a model's name is not valid unicode"),
        ((b"m", 1, None, None), "a model's name is a str, not bytes"),
        (("m", 1, None, "y"), "model m: outputs is a list of names, not the str 'y'"),
        (("m", 1, None, 5), "model m: outputs is a list of names, not the int 5"),
        (("m", 1, None, [b"y"]), "model m: an output's name is a str, not bytes"),
        (("m", 1, None, ["\udcff"]), "model m: an output's name is not valid unicode"),
    ],
)
def test_what_cannot_be_sent_is_the_callers_mistake(arguments: tuple[Any, ...], complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        encode_call(*arguments)


def frames(*arrays: np.ndarray[Any, Any]) -> list[zmq.Frame]:
    encoded = [encode_tensor(f"y{number}", array) for number, array in enumerate(arrays)]
    table = pack(Table(tuple(header for header, _ in encoded)))
    return [zmq.Frame(bytes(part)) for part in (table, *(buffer for _, buffer in encoded))]


def test_an_answer_is_arrays_by_name() -> None:
    answer = decode_answer(frames(np.arange(3), np.array(b"x\0", object)))
    assert list(answer) == ["y0", "y1"]
    assert answer["y0"].tolist() == [0, 1, 2]
    assert answer["y1"].item() == b"x\0"


def test_a_bad_answer_is_a_bad_frame() -> None:
    good = frames(np.arange(3))
    for bad, complaint in [
        ([], "without a table"),
        (good[:1], "0 buffers for 1 tensors"),
        ([*good, good[1]], "2 buffers for 1 tensors"),
        ([zmq.Frame(b"\xc1"), good[1]], "not msgpack"),
        ([good[0], zmq.Frame(b"1234567")], "7 bytes for int64"),
    ]:
        with pytest.raises(BadFrame, match=complaint):
            decode_answer(bad)


def test_names_and_inputs_beyond_what_a_job_can_have():
    with pytest.raises(InvalidInput, match="at most 1000"):
        encode_call("m" * 1001, 1.0, None, None)
    with pytest.raises(InvalidInput, match="more than one job can have"):
        encode_call("m", {f"{number:0500}": 1.0 for number in range(3000)}, None, None)
