"""Fields of a wrong type, one at a time: each is refused, and the text says which and why."""

from typing import Any

import msgpack
import pytest

from pool.wire.calls import Call
from pool.wire.client_messages import Failure, Submit
from pool.wire.codec import BadFrame, pack, unpack
from pool.wire.faults import Fault
from pool.wire.worker_messages import Beat, Done, Hello, PartDone, PartFailed, Phase, Welcome

SESSION = [True, 0.5, True, False, 0, 0, {"GPU": 1}, False]


@pytest.mark.parametrize(
    ("kind", "fields", "complaint"),
    [
        (Submit, None, "Submit: expected an array, got NoneType"),
        (Submit, {}, "Submit: expected an array, got dict"),
        (Submit, [1, "m"], "Submit: expected 3 fields, got 2"),
        (Submit, [1, "m", None, None], "Submit: expected 3 fields, got 4"),
        (Submit, [True, "m", None], "Submit: job: expected int, got bool"),
        (Submit, [1.0, "m", None], "Submit: job: expected int, got float"),
        (Submit, ["1", "m", None], "Submit: job: expected int, got str"),
        (Submit, [None, "m", None], "Submit: job: expected int, got NoneType"),
        (Submit, [1, b"m", None], "Submit: model: expected str, got bytes"),
        (Submit, [1, "m", True], "Submit: timeout_s: expected float, got bool"),
        (Submit, [1, "m", "5"], "Submit: timeout_s: expected float, got str"),
        (Submit, [1, "m", msgpack.Timestamp(1)], "Submit: timeout_s: expected float, got Timestamp"),
        (Submit, [msgpack.ExtType(1, bytes(16)), "m", 1], "Submit: job: expected int, got ExtType"),
        (Hello, [0, 1, None, "secret"], "Hello: secret: expected bytes, got str"),
        (Hello, [0, 1, False, b"secret"], "Hello: lane: expected int, got bool"),
        (Call, [None, ["y", 1], []], "Call: outputs: expected str, got int"),
        (Call, [None, None, [["x", "int8", [1, True], False]]], "Call: tensors: shape: expected int, got bool"),
        (Call, [None, None, [["x", "int8", [1], 0]]], "Call: tensors: weak: expected bool, got int"),
        (Call, [None, None, {"x": 1}], "Call: tensors: expected an array, got dict"),
        (Failure, [1, "no-such-fault", ""], "Failure: fault: no Fault: 'no-such-fault'"),
        (Failure, [1, "x" * 9999, ""], "Failure: fault: no Fault: 'x"),
        (Failure, [1, [], ""], "Failure: fault: no Fault: ()"),
        (Beat, [1, "", []], "Beat: phase: no Phase: 1"),
        (Done, [1, [[2, [1]]]], "Done: outcomes: expected one of PartDone, PartFailed"),
        (Done, [1, [[-1, ["", ""]]]], "Done: outcomes: expected one of PartDone, PartFailed"),
        (Done, [1, [[2**64 - 1, [1]]]], "Done: outcomes: expected one of PartDone, PartFailed"),
        (Done, [1, [[False, [1]]]], "Done: outcomes: expected one of PartDone, PartFailed"),
        (Done, [1, [[0]]], "Done: outcomes: expected one of PartDone, PartFailed"),
        (Done, [1, [[0, [1], 2]]], "Done: outcomes: expected one of PartDone, PartFailed"),
        (Done, [1, [[0, ["one"]]]], "Done: outcomes: frames: expected int, got str"),
        (Done, [1, [[]]], "Done: outcomes: expected one of PartDone, PartFailed"),
        (
            Welcome,
            [1, 0, 1.0, [*SESSION[:6], {b"GPU": 1}, False], []],
            "Welcome: session: device_count: expected a map",
        ),
        (Welcome, [1, 0, 1.0, [*SESSION[:6], {"GPU": 1.0}, False], []], "device_count: expected int, got float"),
        (Welcome, [1, 0, 1.0, [*SESSION[:6], [["GPU", 1]], False], []], "device_count: expected a map, got tuple"),
        (Welcome, [1, 0, 1.0, [*SESSION[:6], {1: 1}, False], []], "not msgpack: ValueError"),
    ],
)
def test_a_field_of_another_type_is_named(kind: type, fields: Any, complaint: str) -> None:
    with pytest.raises(BadFrame) as caught:
        unpack(kind, msgpack.packb(fields))
    text = str(caught.value)
    assert complaint in text
    assert len(text) < 150


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([1, "m", None], Submit(1, "m", None)),
        ([2**64 - 1, "", 5], Submit(2**64 - 1, "", 5.0)),
        ([-(2**63), "\0", 2.5], Submit(-(2**63), "\0", 2.5)),
    ],
)
def test_what_fits_is_taken(fields: Any, message: Submit) -> None:
    got = unpack(Submit, msgpack.packb(fields))
    assert got == message
    assert type(got.timeout_s) is type(message.timeout_s)


def test_the_form_on_the_wire() -> None:
    """Fields in order, an enum as its text, a union as its member's index and that member."""
    done = Done(3, (PartDone(2), PartFailed(Fault.MODEL_FAILED, "why")))
    assert msgpack.unpackb(pack(done)) == [3, [[0, [2]], [1, ["model-failed", "why"]]]]
    assert msgpack.unpackb(pack(Beat(Phase.WARMING_UP, "m", ()))) == ["warming up", "m", []]


def test_what_the_wire_cannot_hold_is_not_sent() -> None:
    with pytest.raises(OverflowError):
        pack(Submit(2**64, "m", None))
    with pytest.raises(UnicodeEncodeError):
        pack(Submit(1, "\ud800", None))
